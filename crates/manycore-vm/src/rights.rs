//! The rights of a mapping.

use std::fmt;

/// The rights of a mapping: none, reading, or reading and writing.
///
/// Rights only shrink: a derived mapping has at most the rights of its parent.
///
/// ```
/// use manycore_vm::Rights;
///
/// assert!(Rights::WRITE.includes(Rights::READ));
/// assert!(!Rights::READ.includes(Rights::WRITE));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rights(u8);

impl Rights {
    /// No access: the mapping only names the frame.
    pub const NONE: Self = Self(0);
    /// Reading.
    pub const READ: Self = Self(1);
    /// Reading and writing.
    pub const WRITE: Self = Self(2);

    /// Returns true if a mapping with these rights may be the parent of a mapping with `other`.
    pub const fn includes(self, other: Self) -> bool {
        self.0 >= other.0
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::NONE => "no access",
            Self::READ => "read",
            _ => "read and write",
        })
    }
}
