//! Memory for entries that the cache's owner provides.
//!
//! Owns: the promises of that memory. Does not own: how nodes lie in it (`node`).

use std::alloc::Layout;
use std::ptr::NonNull;

/// Size and alignment, in bytes, of an area of a [`NodeMemory`].
pub const NODE_AREA: usize = 256 << 10;

/// Memory for the entries of one cache without metadata, set by
/// [`Builder::memory`](crate::Builder::memory). It is for an owner that wants all its memory in one
/// place, or has to know where an entry lies.
///
/// An entry is a key and a value, in this order, laid out as `repr(C)` does it.
///
/// # Safety
/// A block that was allocated is not handed out again before it is freed. It lies in an area that
/// is aligned to [`NODE_AREA`] bytes and begins with the note of [`begin`](Self::begin). Areas live
/// until this is dropped.
///
/// ```
/// use manycore_cache::{Cache, NODE_AREA, NodeMemory};
/// use std::alloc::{self, Layout};
/// use std::ptr::NonNull;
/// use std::sync::{Arc, Mutex};
///
/// /// One area, with room for some entries of up to 64 bytes.
/// struct Area {
///     begin: NonNull<u8>,
///     free: Mutex<Vec<usize>>, // where free blocks are, in bytes from the beginning
/// }
/// # // SAFETY: the area is used through its blocks, each by one owner.
/// # unsafe impl Send for Area {}
/// # // SAFETY: as for `Send`; the list is behind a lock.
/// # unsafe impl Sync for Area {}
///
/// fn layout() -> Layout {
///     Layout::from_size_align(NODE_AREA, NODE_AREA).expect("a power of two")
/// }
///
/// // SAFETY: a block is in the list or with an owner; all lie in the area, which begins with the
/// // note and is given back when this is dropped.
/// unsafe impl NodeMemory for Area {
///     fn begin(&self, node: Layout, note: *const ()) {
///         assert!(node.size() <= 64);
///         // SAFETY: the area has room for it, and no block begins there.
///         unsafe { self.begin.cast().write(note) };
///     }
///     fn allocate(&self) -> NonNull<u8> {
///         let at = self.free.lock().unwrap().pop().expect("the area has room for the capacity");
///         // SAFETY: within the area.
///         unsafe { self.begin.add(at) }
///     }
///     unsafe fn free(&self, node: NonNull<u8>) {
///         self.free.lock().unwrap().push(node.addr().get() - self.begin.addr().get());
///     }
///     fn bytes(&self) -> (usize, usize) {
///         (NODE_AREA, 64 * self.free.lock().unwrap().len())
///     }
/// }
/// impl Drop for Area {
///     fn drop(&mut self) {
///         // SAFETY: allocated with this layout, and the cache is gone.
///         unsafe { alloc::dealloc(self.begin.as_ptr(), layout()) };
///     }
/// }
///
/// // SAFETY: the layout has a size.
/// let begin = NonNull::new(unsafe { alloc::alloc(layout()) }).expect("out of memory");
/// let free = Mutex::new((1..NODE_AREA / 64).map(|block| 64 * block).collect());
/// let area = Arc::new(Area { begin, free });
/// let cache = Cache::builder(100).without_metadata(|_, _| None).memory(area.clone()).build()?;
/// let empty = area.bytes().1;
/// cache.insert(1, 'a');
/// assert_eq!((cache.get(&1).map(|entry| *entry), empty - area.bytes().1), (Some('a'), 64));
/// # Ok::<(), manycore_cache::BuildError>(())
/// ```
pub unsafe trait NodeMemory: Send + Sync {
    /// Called once by the cache, before everything else, with the layout of the blocks and the
    /// note.
    fn begin(&self, node: Layout, note: *const ());

    /// Allocates a block. Must not use the cache, and must not panic.
    fn allocate(&self) -> NonNull<u8>;

    /// Takes a block back. Must not use the cache, and must not panic.
    ///
    /// # Safety
    /// The block was allocated here, and is not used any more.
    unsafe fn free(&self, node: NonNull<u8>);

    /// Returns the bytes that this has from the system, and the free bytes among them.
    fn bytes(&self) -> (usize, usize);
}
