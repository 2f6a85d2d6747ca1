//! A bucket: a few entries of a directory, sorted, in two pieces of memory. A bucket is never
//! changed; a writer puts another bucket in its place. So branches share buckets as they are.
//!
//! ```text
//! items   cookie | ino, kind, end of name      sorted by cookie, 16 bytes each
//! names   all names, one after the other
//! ```
//!
//! - bucket.K1 A cookie is the hash of the name (54 bits) and a number (9 bits) that tells names of
//!   one hash apart. An entry keeps its cookie for life, so a reader of the directory can resume at
//!   a cookie.

use crate::memory::{AccountRef, Counted, Head, Object};
use crate::{Error, Ino, Kind, Result};
use std::ops::Range;

/// Bits that tell names of one hash apart.
const TWIN_BITS: u32 = 9;
/// Bits of a hash. With the other bits, a cookie is a positive number of 64 bits with a sign.
pub(crate) const HASH_BITS: u32 = 54;
const END_BITS: u32 = 21;
const KIND_BITS: u32 = 3;

/// A directory's entry without its name.
#[derive(Clone, Copy)]
struct Item {
    cookie: u64,
    /// Number (40 bits), kind (3) and end of the name (21).
    packed: u64,
}

impl Item {
    fn new(cookie: u64, ino: Ino, kind: Kind, end: usize) -> Self {
        let packed = (ino.0 << KIND_BITS | u64::from(kind.code())) << END_BITS | end as u64;
        Self { cookie, packed }
    }

    fn end(self) -> usize {
        (self.packed & ((1 << END_BITS) - 1)) as usize
    }

    /// The item, if its name begins so many bytes later.
    fn moved(self, bytes: isize) -> Self {
        Self { packed: self.packed.wrapping_add_signed(bytes as i64), ..self }
    }

    fn kind(self) -> Kind {
        Kind::from_code((self.packed >> END_BITS) as u8 & ((1 << KIND_BITS) - 1))
    }

    fn ino(self) -> Ino {
        Ino(self.packed >> (END_BITS + KIND_BITS))
    }
}

/// An entry, as a bucket lends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named<'b> {
    pub(crate) name: &'b [u8],
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    pub(crate) cookie: u64,
}

/// Some entries.
pub(crate) struct Bucket {
    head: Head,
    items: Box<[Item]>,
    names: Box<[u8]>,
}

impl Object for Bucket {
    fn head(&self) -> &Head {
        &self.head
    }

    fn weight(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.items) + self.names.len()
    }
}

/// The hash that a cookie begins with.
pub(crate) fn hash_of(cookie: u64) -> u64 {
    cookie >> TWIN_BITS
}

impl Bucket {
    /// Makes a bucket of entries that are sorted by cookie.
    pub(crate) fn of<'b>(
        account: AccountRef,
        entries: impl Iterator<Item = Named<'b>> + Clone,
    ) -> Counted<Self> {
        account.buckets.inc();
        let mut names = Vec::with_capacity(entries.clone().map(|e| e.name.len()).sum());
        let items = entries.map(|entry| {
            names.extend_from_slice(entry.name);
            Item::new(entry.cookie, entry.ino, entry.kind, names.len())
        });
        let items: Vec<Item> = items.collect();
        Counted::new(Self {
            head: Head::new(0, account),
            items: items.into_boxed_slice(),
            names: names.into_boxed_slice(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn get(&self, at: usize) -> Named<'_> {
        let item = self.items[at];
        let start = if at == 0 { 0 } else { self.items[at - 1].end() };
        let name = &self.names[start..item.end()];
        Named { name, ino: item.ino(), kind: item.kind(), cookie: item.cookie }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Named<'_>> + Clone {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Returns the place of the first entry whose cookie is at least this one.
    pub(crate) fn lower_bound(&self, cookie: u64) -> usize {
        self.items.partition_point(|item| item.cookie < cookie)
    }

    /// Returns the place of a name.
    pub(crate) fn find(&self, hash: u64, name: &[u8]) -> Option<usize> {
        let first = self.lower_bound(hash << TWIN_BITS);
        (first..self.len())
            .take_while(|at| hash_of(self.items[*at].cookie) == hash)
            .find(|at| self.get(*at).name == name)
    }

    /// Returns a cookie for a new name (bucket.K1).
    ///
    /// # Errors
    /// If all cookies of this hash are taken.
    pub(crate) fn free_cookie(&self, hash: u64) -> Result<u64> {
        let mut cookie = hash << TWIN_BITS;
        for item in &self.items[self.lower_bound(cookie)..] {
            if item.cookie != cookie {
                break;
            }
            cookie += 1;
        }
        if hash_of(cookie) == hash { Ok(cookie) } else { Err(Error::NoSpace) }
    }

    /// Returns a bucket with one entry more.
    pub(crate) fn with(&self, new: Named<'_>) -> Counted<Self> {
        let at = self.lower_bound(new.cookie);
        self.spliced(at..at, Some(new))
    }

    /// Returns a bucket with another file for a name.
    pub(crate) fn with_other(&self, at: usize, ino: Ino, kind: Kind) -> Counted<Self> {
        self.spliced(at..at + 1, Some(Named { ino, kind, ..self.get(at) }))
    }

    /// Returns a bucket without an entry, or `None` if nothing is left.
    pub(crate) fn without(&self, at: usize) -> Option<Counted<Self>> {
        (self.len() > 1).then(|| self.spliced(at..at + 1, None))
    }

    /// Returns a bucket in which `new` is in the place of some entries.
    fn spliced(&self, gone: Range<usize>, new: Option<Named<'_>>) -> Counted<Self> {
        self.head.account.buckets.inc();
        let names_before = |at: usize| if at == 0 { 0 } else { self.items[at - 1].end() };
        let (start, end) = (names_before(gone.start), names_before(gone.end));
        let name = new.map_or(&[][..], |new| new.name);
        let mut items = Vec::with_capacity(self.len() - gone.len() + usize::from(new.is_some()));
        items.extend_from_slice(&self.items[..gone.start]);
        let item = |new: Named<'_>| Item::new(new.cookie, new.ino, new.kind, start + name.len());
        items.extend(new.map(item));
        let moved = name.len() as isize - (end - start) as isize;
        items.extend(self.items[gone.end..].iter().map(|item| item.moved(moved)));
        Counted::new(Self {
            head: Head::new(0, self.head.account),
            items: items.into_boxed_slice(),
            names: [&self.names[..start], name, &self.names[end..]].concat().into_boxed_slice(),
        })
    }

    /// Returns the account that it is counted in.
    pub(crate) fn account(&self) -> AccountRef {
        self.head.account
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.head.account.buckets.dec();
    }
}
