//! Reading the file.

use super::ages::Youngest;
use super::record::{self, Next, Record};
use super::refusal::Refusal;
use super::{BLOCK, FRAME, HEADER, Header, block_checksum};
use crate::store::{Handle, Store, used_at};
use std::io::Read;

/// The numbers of a file's items, by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Items that are in the store.
    pub restored: u64,
    /// Items that had expired.
    pub expired: u64,
    /// Items that are larger than items may be now.
    pub too_large: u64,
    /// Items that did not fit: the least recently used items.
    pub no_room: u64,
}

/// The blocks of a file, one after the other.
struct Blocks<'f, R> {
    file: &'f mut R,
    header: &'f Header,
    place: u64,
    /// Bytes of content that are not read yet.
    left: u64,
}

impl<R: Read> Blocks<'_, R> {
    /// Appends the next block's content, if it is right. Returns false after the last block.
    fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Refusal> {
        if self.place == self.header.blocks {
            let is_all = self.left == 0;
            let wrong = || Refusal::Damaged("its blocks are shorter than its header says".into());
            return if is_all { Ok(false) } else { Err(wrong()) };
        }
        let wrong = || Refusal::Damaged(format!("block {} is not what was written", self.place));
        let mut frame = [0; FRAME];
        self.file.read_exact(&mut frame).map_err(Refusal::Unreadable)?;
        let [l0, l1, l2, l3, sum @ ..] = frame;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        if !(1..=BLOCK).contains(&length) || length as u64 > self.left {
            return Err(wrong());
        }
        let from = out.len();
        out.resize(from + length, 0);
        self.file.read_exact(&mut out[from..]).map_err(Refusal::Unreadable)?;
        if block_checksum(self.header.id, self.place, &out[from..]) != u32::from_le_bytes(sum) {
            return Err(wrong());
        }
        debug_assert!(
            self.place < self.header.blocks && length as u64 <= self.left,
            "restart.W1: block {} is behind the end of the file",
            self.place
        );
        (self.place, self.left) = (self.place + 1, self.left - length as u64);
        Ok(true)
    }
}

/// Puts items into a store.
struct Loader<'s> {
    handle: Handle<'s>,
    youngest: Youngest,
    /// The second of the old store's end. Ages are counted up to that second.
    second: u32,
    last_stamp: u64,
    /// Items that were read.
    items: u64,
    loaded: Loaded,
}

impl Loader<'_> {
    /// Takes all whole records. Returns their bytes, and how many further bytes are to be skipped.
    fn take(&mut self, bytes: &[u8]) -> Result<(usize, u64), Refusal> {
        let (mut used, limit) = (0, self.handle.store().limits().item as u64);
        loop {
            match record::next(&bytes[used..])? {
                Next::Long { record, item } if item > limit => {
                    (self.items, self.loaded.too_large) =
                        (self.items + 1, self.loaded.too_large + 1);
                    return Ok((bytes.len(), record - (bytes.len() - used) as u64));
                }
                Next::Part | Next::Long { .. } => return Ok((used, 0)),
                Next::Whole(record, length) => {
                    if record.stamp > self.last_stamp {
                        return Err(Refusal::Damaged("an item is newer than all items".into()));
                    }
                    self.items += 1;
                    *self.place(&record) += 1;
                    used += length;
                }
            }
        }
    }

    /// Puts an item into the store, if it may be there. Returns the count of its outcome.
    fn place(&mut self, Record { new_item, stamp, age_at_use }: &Record<'_>) -> &mut u64 {
        let store = self.handle.store();
        if new_item.item_len() > store.limits().item {
            return &mut self.loaded.too_large;
        }
        if store.clock().is_over(new_item.deadline) {
            return &mut self.loaded.expired;
        }
        let unused = self.second.saturating_sub(used_at(*stamp, *age_at_use));
        let is_wanted = self.youngest.takes(unused, new_item.weight());
        if is_wanted && self.handle.restore(new_item, *stamp, *age_at_use) {
            &mut self.loaded.restored
        } else {
            &mut self.loaded.no_room
        }
    }
}

/// Reads the items of a file into a store. The header was read before. The store begins with
/// [`Header::beginning`] and serves no client yet. After each block, calls `read` with the bytes of
/// the file that were read.
///
/// # Errors
/// The reason why the file is refused. Then the store must not be used (restart.W2).
pub fn load(
    header: &Header,
    file: &mut impl Read,
    store: &Store,
    mut read: impl FnMut(u64),
) -> Result<Loaded, Refusal> {
    let mut blocks = Blocks { file, header, place: 0, left: header.bytes };
    let mut loader = Loader {
        handle: store.handle(0),
        youngest: header.ages.youngest(store.memory()),
        second: header.second(),
        last_stamp: header.last_stamp,
        items: 0,
        loaded: Loaded::default(),
    };
    let (mut bytes, mut skipped) = (Vec::with_capacity(2 * BLOCK), 0_u64);
    while blocks.next(&mut bytes)? {
        let passed = usize::try_from(skipped).unwrap_or(usize::MAX).min(bytes.len());
        skipped -= passed as u64;
        let (used, more) = loader.take(&bytes[passed..])?;
        skipped += more;
        debug_assert!(
            passed + used <= bytes.len(),
            "restart.W3: {used} bytes are used behind {passed} of {}",
            bytes.len()
        );
        bytes.drain(..passed + used);
        let at = (HEADER as u64 + header.bytes + blocks.place * FRAME as u64) - blocks.left;
        debug_assert!(
            header.file_len().is_some_and(|length| at <= length),
            "restart.W3: offset {at} is behind the end of the file"
        );
        read(at);
    }
    if !bytes.is_empty() || skipped > 0 || loader.items != header.items {
        return Err(Refusal::Damaged("its items are not as many as its header says".into()));
    }
    Ok(loader.loaded)
}
