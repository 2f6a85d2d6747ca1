//! A reader of Berkeley DB's hash files, as far as Cyrus SASL's `sasldb` needs it. It yields each
//! pair of a file that is in memory.
//!
//! A file consists of pages of one size. The first page names the first page of each bucket; a
//! bucket is a chain of pages. A page has a header of 26 bytes, then the offsets of its items. The
//! items, keys and values in turn, fill the page from its end on. An item begins with its type. If
//! an item is too long for its page, it names a chain of pages of its own.
//!
//! Laws:
//! - hash_file.F1 The reader reads no byte outside of the file, and no page twice. So it ends after
//!   as many steps as the file has bytes, even if the file is damaged.
//! - hash_file.F2 If the reader does not understand any part that it reads, it returns an error.
//!   The caller then drops the earlier pairs.
//!
//! Why not the library itself: only the pairs are needed, without writes and locks, and a file of a
//! few pages is not worth a C library. Source: the on-disk format of Berkeley DB 4.2 to 6 (Debian
//! has 5.3).

const MAGIC: u32 = 0x0006_1561;
/// Versions with this layout.
const VERSIONS: std::ops::RangeInclusive<u32> = 8..=10;
/// Bytes before the offsets of a page's items.
const HEADER: usize = 26;
/// The offset of the groups of buckets in the first page, and their greatest number.
const SPARES: usize = 96;
const SPARES_MAX: usize = 32;

/// Types of pages.
const UNUSED: u8 = 0;
const UNSORTED: u8 = 2;
const OVERFLOW: u8 = 7;
const FIRST: u8 = 8;
const SORTED: u8 = 13;

/// Types of items.
const DATA: u8 = 1;
const OFF_PAGE: u8 = 3;

const DAMAGED: &str = "it is damaged";

/// Calls `each` with the keys and values of a file with these bytes. One pair is in memory at a
/// time, because the shortest pairs have only six bytes.
pub(super) fn pairs(
    bytes: &[u8],
    mut each: impl FnMut(Vec<u8>, Vec<u8>),
) -> Result<(), &'static str> {
    // hash_file.F2: the first page with an error ends the loop.
    let mut file = File::new(bytes)?;
    let first = &bytes[..file.page_size];
    let buckets = file.number(first, 72)?;
    for bucket in 0..=buckets {
        // The group of buckets that was added when their number last doubled.
        let group = (u32::BITS - bucket.leading_zeros()) as usize;
        if group >= SPARES_MAX {
            return Err(DAMAGED);
        }
        let before = file.number(first, SPARES + 4 * group)?;
        let mut next = bucket.checked_add(before).ok_or(DAMAGED)?;
        while next != 0 {
            next = file.bucket_page(next, &mut each)?;
        }
    }
    Ok(())
}

struct File<'a> {
    bytes: &'a [u8],
    page_size: usize,
    /// The byte order is that of the machine that wrote the file.
    is_big_endian: bool,
    /// Pages that were read (hash_file.F1).
    seen: Vec<bool>,
}

impl<'a> File<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, &'static str> {
        let magic = bytes.get(12..16).ok_or("it is too short for a file of Berkeley DB")?;
        let is_big_endian = magic == MAGIC.to_be_bytes();
        if !is_big_endian && magic != MAGIC.to_le_bytes() {
            return Err("it is not a Berkeley DB hash file");
        }
        let mut file = File { bytes, page_size: 0, is_big_endian, seen: Vec::new() };
        if !VERSIONS.contains(&file.number(bytes, 16)?) {
            return Err("it is of an unknown version of Berkeley DB");
        }
        file.page_size = file.number(bytes, 20)? as usize;
        let is_size = file.page_size.is_power_of_two() && (512..=1 << 16).contains(&file.page_size);
        if !is_size || bytes.len() < file.page_size || bytes[25] != FIRST {
            return Err(DAMAGED);
        }
        if bytes[24] != 0 || bytes[26] & 1 != 0 {
            return Err("it is encrypted, or has checksums");
        }
        if file.number(bytes, 48)? & 3 != 0 {
            return Err("it has several values for a key, or several databases");
        }
        file.seen = vec![false; bytes.len() / file.page_size];
        file.seen[0] = true;
        Ok(file)
    }

    fn number(&self, bytes: &[u8], at: usize) -> Result<u32, &'static str> {
        let four = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(DAMAGED)?;
        let read = if self.is_big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
        Ok(read(*four))
    }

    fn short(&self, bytes: &[u8], at: usize) -> Result<usize, &'static str> {
        let two = bytes.get(at..).and_then(<[u8]>::first_chunk).ok_or(DAMAGED)?;
        let read = if self.is_big_endian { u16::from_be_bytes } else { u16::from_le_bytes };
        Ok(read(*two).into())
    }

    /// Returns a page that was not read before, and its type.
    fn page(&mut self, number: u32) -> Result<(&'a [u8], u8), &'static str> {
        let index = number as usize;
        match self.seen.get_mut(index) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(DAMAGED),
        }
        let page = &self.bytes[index * self.page_size..][..self.page_size];
        let kind = page[25];
        if kind != UNUSED && self.number(page, 8)? != number {
            return Err(DAMAGED);
        }
        Ok((page, kind))
    }

    /// Reads the pairs of a bucket's page. Returns the next page of the bucket, or 0.
    fn bucket_page(
        &mut self,
        number: u32,
        each: &mut impl FnMut(Vec<u8>, Vec<u8>),
    ) -> Result<u32, &'static str> {
        let (page, kind) = self.page(number)?;
        match kind {
            // A bucket that never had a pair.
            UNUSED => return Ok(0),
            SORTED | UNSORTED => {}
            _ => return Err(DAMAGED),
        }
        let count = self.short(page, 20)?;
        let (least, mut end) = (HEADER + 2 * count, self.page_size);
        let mut key = None;
        for at in 0..count {
            let start = self.short(page, HEADER + 2 * at)?;
            if start < least || start >= end {
                return Err(DAMAGED);
            }
            let item = self.item(&page[start..end])?;
            end = start;
            match key.take() {
                None => key = Some(item),
                Some(key) => each(key, item),
            }
        }
        if key.is_some() {
            return Err(DAMAGED); // without a value
        }
        self.number(page, 16)
    }

    /// Returns the bytes of a key or a value.
    fn item(&mut self, item: &[u8]) -> Result<Vec<u8>, &'static str> {
        match item {
            [DATA, data @ ..] => Ok(data.to_vec()),
            [OFF_PAGE, ..] if item.len() == 12 => {
                self.chain(self.number(item, 4)?, self.number(item, 8)? as usize)
            }
            _ => Err(DAMAGED),
        }
    }

    /// Returns an item of this length that has pages of its own.
    fn chain(&mut self, mut next: u32, length: usize) -> Result<Vec<u8>, &'static str> {
        let mut data = Vec::new();
        while next != 0 {
            let (page, kind) = self.page(next)?;
            let part = page[HEADER..].get(..self.short(page, 22)?);
            let part = part.filter(|_| kind == OVERFLOW).ok_or(DAMAGED)?;
            data.extend_from_slice(part);
            next = self.number(page, 16)?;
        }
        if data.len() == length { Ok(data) } else { Err(DAMAGED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pair = (Vec<u8>, Vec<u8>);

    /// Returns all pairs.
    fn all_pairs(bytes: &[u8]) -> Result<Vec<Pair>, &'static str> {
        let mut all = Vec::new();
        super::pairs(bytes, |key, value| all.push((key, value))).map(|()| all)
    }

    /// Written by `saslpasswd2` of Debian: thirty users, one of them deleted, one with a password
    /// of 1500 bytes, and one of another realm.
    const SASLDB: &[u8] = include_bytes!("data/saslpasswd2.db");
    /// Written by `db5.3_load` with pages of 512 bytes, and so with chains of them.
    const SMALL: &[u8] = include_bytes!("data/small_pages.db");

    fn value(pairs: &[Pair], user: &str) -> Option<Vec<u8>> {
        let key = format!("{user}\0example.org\0userPassword").into_bytes();
        pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1.clone())
    }

    #[test]
    fn every_pair_of_real_files_is_read() {
        let pairs = all_pairs(SASLDB).unwrap();
        assert_eq!(pairs.len(), 31);
        assert_eq!(value(&pairs, "user30").unwrap(), b"pass30");
        assert_eq!(value(&pairs, "long").unwrap(), [b'p'; 1500]);
        assert_eq!(value(&pairs, "user7"), None);
        let pairs = all_pairs(SMALL).unwrap();
        assert_eq!(pairs.len(), 22);
        assert_eq!(value(&pairs, "long").unwrap(), [b'p'; 1500]);
        assert!((0..20).all(|at| value(&pairs, &format!("user{at}")).is_some()));
    }

    #[test]
    fn a_file_of_the_other_byte_order_is_read() {
        let mut bytes = SMALL.to_vec();
        let turn = |bytes: &mut Vec<u8>, at: usize, length: usize| {
            bytes[at..at + length].reverse();
        };
        // The numbers of the first page, then those of the others.
        [12, 16, 20, 48, 72].into_iter().for_each(|at| turn(&mut bytes, at, 4));
        (0..SPARES_MAX).for_each(|at| turn(&mut bytes, SPARES + 4 * at, 4));
        for page in (512..bytes.len()).step_by(512) {
            let count = usize::from(u16::from_le_bytes([SMALL[page + 20], SMALL[page + 21]]));
            let is_bucket = SMALL[page + 25] == SORTED;
            for at in [8, 12, 16] {
                turn(&mut bytes, page + at, 4);
            }
            turn(&mut bytes, page + 20, 2);
            turn(&mut bytes, page + 22, 2);
            for at in (0..count).filter(|_| is_bucket) {
                let at = page + HEADER + 2 * at;
                let start = page + usize::from(u16::from_le_bytes([SMALL[at], SMALL[at + 1]]));
                turn(&mut bytes, at, 2);
                if SMALL[start] == OFF_PAGE {
                    turn(&mut bytes, start + 4, 4);
                    turn(&mut bytes, start + 8, 4);
                }
            }
        }
        assert_eq!(all_pairs(&bytes).unwrap(), all_pairs(SMALL).unwrap());
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let refused = |bytes: &[u8]| all_pairs(bytes).unwrap_err();
        assert_eq!(refused(b""), "it is too short for a file of Berkeley DB");
        assert_eq!(refused(&[b'x'; 4096]), "it is not a Berkeley DB hash file");
        for (at, byte) in [(24, 1), (26, 1), (48, 1), (48, 2), (16, 99), (25, 9), (21, 0x11)] {
            let mut bytes = SASLDB.to_vec();
            bytes[at] = byte;
            refused(&bytes);
        }
        // A page that is its own successor, or that of another bucket.
        for next in [1, 2] {
            let mut bytes = SMALL.to_vec();
            bytes[512 + 16] = next;
            assert_eq!(refused(&bytes), DAMAGED);
        }
        assert!((0..SMALL.len()).all(|length| !refused(&SMALL[..length]).is_empty()));
    }

    /// Returns true if the file has these bytes, at least in parts of a page.
    fn has(file: &[u8], bytes: &[u8]) -> bool {
        bytes.len() > 400 || bytes.is_empty() || memchr::memmem::find(file, bytes).is_some()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

        #[test]
        fn damaged_files_give_errors_or_what_is_in_them(
            is_small in any::<bool>(),
            damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
            headers in prop::collection::vec((0_usize..32, 0_usize..600, any::<u8>()), 0..4),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = if is_small { SMALL.to_vec() } else { SASLDB.to_vec() };
            let page = if is_small { 512 } else { 4096 };
            for (at, byte) in damages {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            // Where it hurts: the pages' headers and offsets.
            for (number, at, byte) in headers {
                let at = number % (bytes.len() / page) * page + at % page;
                bytes[at] = byte % 16;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            for (key, value) in all_pairs(&bytes).unwrap_or_default() {
                prop_assert!(has(&bytes, &key) && has(&bytes, &value));
            }
        }
    }
}
