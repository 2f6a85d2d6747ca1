//! Extended attributes of a file: a list that is replaced as a whole, so that readers take no lock.
//!
//! - xattrs.X1 A list is charged before it is made, and released when it is freed.

use crate::memory::{AccountRef, Counted, Head, Object};
use crate::{Error, Result};

/// Longest name of an attribute, in bytes.
pub(crate) const LONGEST_NAME: usize = 255;
/// Longest value, in bytes.
pub(crate) const LONGEST_VALUE: usize = 64 << 10;

/// An attribute's name and value.
pub(crate) type Pair = (Box<[u8]>, Box<[u8]>);

/// The list, sorted by name.
pub(crate) struct Xattrs {
    head: Head,
    pub(crate) list: Box<[Pair]>,
    bytes: u64,
}

impl Object for Xattrs {
    fn head(&self) -> &Head {
        &self.head
    }

    fn weight(&self) -> usize {
        size_of::<Self>() + self.bytes as usize
    }
}

impl Xattrs {
    /// Makes a list.
    ///
    /// # Errors
    /// `NoSpace` at the limit of memory.
    pub(crate) fn new(account: AccountRef, list: Vec<Pair>) -> Result<Counted<Self>> {
        let bytes = list.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>();
        let bytes = bytes as u64;
        account.budget.try_charge(bytes).map_err(|_| Error::NoSpace)?;
        Ok(Counted::new(Self { head: Head::new(0, account), list: list.into(), bytes }))
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.list.binary_search_by(|(key, _)| (**key).cmp(name)).ok()?;
        Some(&self.list[at].1)
    }
}

impl Drop for Xattrs {
    fn drop(&mut self) {
        self.head.account.budget.release(self.bytes);
    }
}
