//! What a retired node weighs: law section.S10.

use crate::config::{ASSUMED_HEAP_BYTES, LARGE_NODE_BYTES};

/// How much memory is released when a retired node is freed: its own, and what it owns on the heap.
///
/// [`Section::retire`](super::Section::retire) takes [`Weight::of`] the node's type. A structure
/// that knows better passes the weight to
/// [`retire_weighed`](super::Section::retire_weighed): then the domain's budget counts true bytes,
/// and garbage of light nodes need not be looked at often.
///
/// A wrong weight breaks no memory safety. One that is too small lets garbage outgrow the domain's
/// budget; one that is too large makes batches small, and updates slow.
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
    /// The node and everything that it owns is `bytes`.
    #[must_use]
    pub const fn exact(bytes: usize) -> Self {
        Self { bytes, is_exact: true, is_urgent: false }
    }

    /// The node is `bytes`, and may own heap memory of unknown size.
    ///
    /// It is counted as `bytes` and [`ASSUMED_HEAP_BYTES`] more. Because that may be far too
    /// little, its batch is closed after
    /// [`URGENT_MICROS`](crate::config::URGENT_MICROS) too, at the end of the thread's next
    /// section, and freed at once when its grace period is over: so what waits is at most what the
    /// thread could produce in that time.
    #[must_use]
    pub const fn at_least(bytes: usize) -> Self {
        Self { bytes, is_exact: false, is_urgent: true }
    }

    /// What is known of a value of type `T` without looking at it: its size; exact if the type has
    /// no drop glue, and so owns nothing.
    #[must_use]
    pub const fn of<T>() -> Self {
        Self::holding::<T>(size_of::<T>())
    }

    /// What is known of `bytes` of memory in which there are values of type `T`: exact if the type
    /// has no drop glue.
    #[must_use]
    pub const fn holding<T>(bytes: usize) -> Self {
        let owns = std::mem::needs_drop::<T>();
        Self { bytes, is_exact: !owns, is_urgent: owns }
    }

    /// The same weight with `bytes` more, of a header for example.
    #[must_use]
    pub const fn plus(self, bytes: usize) -> Self {
        Self { bytes: self.bytes.saturating_add(bytes), ..self }
    }

    /// The same weight of a node that is freed as soon as its grace period is over, however light
    /// it is, because freeing it does something that others see: it closes a socket or a channel.
    ///
    /// A node of unknown weight is freed so anyway, and so is a value with drop glue. So this is
    /// for [`retire_raw`](super::Section::retire_raw), which does not know what its function does.
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

    /// Whether the node owns nothing else.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        self.is_exact
    }

    /// The bytes that the node counts as.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes.saturating_add(if self.is_exact { 0 } else { ASSUMED_HEAP_BYTES })
    }

    /// Whether the node should be freed as soon as its grace period is over, not in its turn.
    #[inline(always)]
    pub(super) const fn is_urgent(self) -> bool {
        self.is_urgent || self.grows()
    }

    /// Whether much more memory may wait with each such node.
    #[inline(always)]
    pub(super) const fn grows(self) -> bool {
        !self.is_exact || self.bytes >= LARGE_NODE_BYTES
    }
}

/// Exactly so many bytes.
impl From<usize> for Weight {
    fn from(bytes: usize) -> Self {
        Self::exact(bytes)
    }
}
