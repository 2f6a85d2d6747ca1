//! What a retired node weighs: law section.S10.

use crate::config::{ASSUMED_HEAP_BYTES, LARGE_NODE_BYTES};

/// How much memory is released when a retired node is freed: the node, and what it owns on the
/// heap.
///
/// [`Section::retire`](super::Section::retire) takes [`Weight::of`] the node's type. A structure
/// that knows better passes the weight to [`retire_weighed`](super::Section::retire_weighed). Then
/// the domain's budget counts true bytes, and garbage of light nodes is looked at less often.
///
/// A wrong weight breaks no memory safety. A weight that is too small lets garbage outgrow the
/// domain's budget. A weight that is too large makes batches small and updates slow.
///
/// ```
/// use manycore::section::Weight;
///
/// assert_eq!(Weight::of::<[u64; 4]>(), Weight::exact(32)); // no drop glue, so no heap
/// assert_eq!(Weight::of::<String>(), Weight::at_least(size_of::<String>()));
/// let text = String::from("some text");
/// let known = Weight::exact(size_of::<String>() + text.capacity());
/// assert!(known.is_exact());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    bytes: usize,
    is_exact: bool,
    is_urgent: bool,
}

impl Weight {
    /// The node and everything that it owns weigh `bytes`.
    #[must_use]
    pub const fn exact(bytes: usize) -> Self {
        Self { bytes, is_exact: true, is_urgent: false }
    }

    /// The node weighs `bytes`, and may own heap memory of unknown size.
    ///
    /// It is counted as `bytes` plus 256. That may be far too little. So its
    /// batch is also closed after 100 us, at the end of the thread's next section, and is freed at
    /// once when its grace period is over. So at most what the thread could produce in that time
    /// waits.
    #[must_use]
    pub const fn at_least(bytes: usize) -> Self {
        Self { bytes, is_exact: false, is_urgent: true }
    }

    /// Returns what the type `T` tells about a value: its size. The weight is exact if the type has
    /// no drop glue, and so owns nothing.
    #[must_use]
    pub const fn of<T>() -> Self {
        Self::holding::<T>(size_of::<T>())
    }

    /// Returns what is known of `bytes` of memory that hold values of type `T`. The weight is exact
    /// if the type has no drop glue.
    #[must_use]
    pub const fn holding<T>(bytes: usize) -> Self {
        let owns = std::mem::needs_drop::<T>();
        Self { bytes, is_exact: !owns, is_urgent: owns }
    }

    /// Returns the weight with `bytes` more, of a header for example.
    #[must_use]
    pub const fn plus(self, bytes: usize) -> Self {
        Self { bytes: self.bytes.saturating_add(bytes), ..self }
    }

    /// Returns the weight for a node that is freed as soon as its grace period is over, however
    /// light it is. For nodes with an end that others notice: freeing them closes a socket or a
    /// channel.
    ///
    /// A node of unknown weight is freed like that anyway, and so is a value with drop glue. So
    /// this is for [`retire_raw`](super::Section::retire_raw), which does not know what its
    /// function does.
    ///
    /// ```
    /// use manycore::section::Weight;
    ///
    /// let socket = Weight::exact(64).urgent();
    /// assert!(socket.is_exact() && socket != Weight::exact(64));
    /// ```
    #[must_use]
    pub const fn urgent(self) -> Self {
        Self { is_urgent: true, ..self }
    }

    /// Returns true if the node owns nothing else.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        self.is_exact
    }

    /// Returns the bytes that the node counts as.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes.saturating_add(if self.is_exact { 0 } else { ASSUMED_HEAP_BYTES })
    }

    /// Returns true if the node should be freed as soon as its grace period is over, not in its
    /// turn.
    #[inline(always)]
    pub(super) const fn is_urgent(self) -> bool {
        self.is_urgent || self.grows()
    }

    /// Returns true if much more memory may wait with each such node.
    #[inline(always)]
    pub(super) const fn grows(self) -> bool {
        !self.is_exact || self.bytes >= LARGE_NODE_BYTES
    }
}

/// Makes an exact weight of this many bytes.
impl From<usize> for Weight {
    fn from(bytes: usize) -> Self {
        Self::exact(bytes)
    }
}
