//! Nodes in memory: a header, and a value of a type that may be unsized.

use super::super::stray;
use super::super::weight::Weight;
use crate::slab::classes;
use crate::sync::{AtomicU64, Ordering};
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

/// Set in `birth`, in debug builds, once the node has been retired.
pub(super) const RETIRED: u64 = 1 << 63;

/// The beginning of every node. Private: `Owned`, `Shared` and `Atomic` lead to the value.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// The era in which the node was linked, or earlier; zero if unknown.
    pub(super) birth: AtomicU64,
}

impl Header {
    fn new() -> Self {
        Self { birth: AtomicU64::new(0) }
    }

    /// Returns true if the node was retired, as far as debug builds know. The calling thread has
    /// the node alone.
    pub(super) fn is_retired(&self) -> bool {
        // ORDER: Relaxed; see above.
        cfg!(not(manycore_loom)) && self.birth.load(Ordering::Relaxed) & RETIRED != 0
    }
}

/// A type that can be in a node: every sized type, slices, and `str`.
///
/// A link is one word, so that it can be exchanged at once; the length of a slice is in its node.
/// There are no nodes of trait objects: stable Rust has no type for the second word of their
/// pointers. Use `Owned<Box<dyn Trait>>`, a node with the fat pointer in it.
///
/// Only this library can implement it.
///
/// ```
/// use manycore::section::{self, Atomic, Owned};
///
/// let primes: Atomic<[i32]> = Owned::<[_]>::from(vec![2, 3, 5]).into(); // one allocation
/// assert_eq!(primes.load(&section::enter()).as_ref().unwrap().len(), 3);
///
/// type Greeter = dyn Fn(&str) -> String + Send + Sync;
/// let hello = Atomic::new(Box::new(|name: &str| format!("hello {name}")) as Box<Greeter>);
/// assert_eq!(hello.load(&section::enter()).as_ref().unwrap()("ann"), "hello ann");
/// # // SAFETY: no other thread has them.
/// # unsafe { drop((primes.into_owned(), hello.into_owned())) };
/// ```
#[diagnostic::on_unimplemented(
    message = "there are no nodes of `{Self}`",
    note = "a link is one word; box a trait object: `Owned<Box<dyn Trait>>`"
)]
pub trait Pointable: Layouted {}
impl<T> Pointable for T {}
impl<T> Pointable for [T] {}
impl Pointable for str {}

/// The layout of a node and its value.
///
/// # Safety
/// The functions agree with one another on the layout.
#[doc(hidden)]
pub unsafe trait Layouted {
    /// The alignment of a node: as many low bits of its address are zero as this number has
    /// trailing zeros.
    const ALIGN: usize;
    /// Bytes that a node takes beside its value.
    const HEADER: usize;

    /// Returns the value of a node.
    ///
    /// # Safety
    /// `node` is a node of this type that is not freed.
    unsafe fn value(node: *mut Header) -> *mut Self;

    /// Returns the size of a node in bytes.
    ///
    /// # Safety
    /// As for `value`.
    unsafe fn bytes(node: *mut Header) -> usize;

    /// Returns what a node weighs, as far as its type tells.
    ///
    /// # Safety
    /// As for `value`.
    unsafe fn weight(node: *mut Header) -> Weight;

    /// Drops the value, and frees the node.
    ///
    /// # Safety
    /// As for `value`, and no other thread has the node any more.
    unsafe fn free(node: NonNull<()>);
}

/// A node of a sized type.
#[repr(C)]
struct Node<T> {
    header: Header,
    value: T,
}

/// Returns the address of the node that contains a value.
#[inline(always)]
pub(super) fn address_of<T>(value: &T) -> usize {
    ptr::from_ref(value).addr() - std::mem::offset_of!(Node<T>, value)
}

/// Makes a node in the memory of an old node that `T::free` would have freed. The type has no drop
/// glue.
///
/// # Safety
/// `memory` is what `T::free` frees, and only the caller has it (section.S13).
#[inline(always)]
pub(super) unsafe fn alloc_in<T>(memory: NonNull<()>, value: T) -> NonNull<Header> {
    stray::remove(memory.addr().get(), size_of::<Node<T>>());
    let node = memory.cast::<Node<T>>();
    // SAFETY: memory of a node's layout, on which `free` relies, and only the caller has it (#
    // Safety).
    unsafe {
        (&raw mut (*node.as_ptr()).header).write(Header::new());
        (&raw mut (*node.as_ptr()).value).write(value);
    }
    node.cast()
}

/// Makes a node. (Always inlined: passed to a function, the value would be stored in pieces and
/// loaded again in larger ones, which the store buffer cannot forward.)
#[inline(always)]
pub(super) fn alloc<T>(value: T) -> NonNull<Header> {
    // Not dropped if the allocation unwinds, which it does not do. Otherwise the value would need
    // an address before it is in its place.
    let value = ManuallyDrop::new(value);
    let node = classes::allocate(Layout::new::<Node<T>>()).cast::<Node<T>>();
    // SAFETY: fresh memory of a node's layout; a `ManuallyDrop` has the layout of its value.
    unsafe {
        (&raw mut (*node.as_ptr()).header).write(Header::new());
        (&raw mut (*node.as_ptr()).value).cast::<ManuallyDrop<T>>().write(value);
    }
    node.cast()
}

/// The memory of a sized type's node. Dropping this frees the memory, also if the destructor of the
/// value panics.
struct Memory<T>(NonNull<Node<T>>);

impl<T> Drop for Memory<T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: only `alloc` makes nodes of sized types, with this layout. A `Memory` is made
        // only when no other thread has the node, and its value is dropped or moved by now.
        unsafe { classes::free(self.0.cast(), Layout::new::<Node<T>>()) };
    }
}

/// Returns the value of a node, and frees the node.
///
/// # Safety
/// `node` is a node of this type that no other thread has.
pub(super) unsafe fn into_value<T>(node: NonNull<Header>) -> T {
    let memory = Memory(node.cast::<Node<T>>());
    // SAFETY: the caller has the node alone (# Safety), and its value is moved out once, before the
    // memory is freed.
    unsafe { (&raw const (*memory.0.as_ptr()).value).read() }
}

// SAFETY: all functions go by the layout of `Node`.
unsafe impl<T> Layouted for T {
    const ALIGN: usize = align_of::<Node<T>>();
    const HEADER: usize = size_of::<Node<T>>() - size_of::<T>();

    #[inline(always)]
    unsafe fn value(node: *mut Header) -> *mut T {
        // SAFETY: the caller's node is live, hence so is the place of its value (# Safety).
        unsafe { &raw mut (*node.cast::<Node<T>>()).value }
    }

    #[inline(always)]
    unsafe fn bytes(_: *mut Header) -> usize {
        size_of::<Node<T>>()
    }

    #[inline(always)]
    unsafe fn weight(_: *mut Header) -> Weight {
        const { Weight::of::<T>().plus(Self::HEADER) }
    }

    unsafe fn free(node: NonNull<()>) {
        stray::remove(node.addr().get(), size_of::<Node<T>>());
        let memory = Memory(node.cast::<Node<T>>());
        // SAFETY: the caller has the node alone (# Safety), and its value is dropped once, before
        // the memory is freed.
        unsafe { (&raw mut (*memory.0.as_ptr()).value).drop_in_place() };
    }
}

/// The beginning of a slice's node. The items follow, at the first address that their alignment
/// allows.
#[repr(C)]
struct SliceHeader {
    header: Header,
    length: usize,
}

/// Returns the layout of a node of `length` items, or `None` if there can be no such node.
fn slice_layout<T>(length: usize) -> Option<Layout> {
    let items = Layout::array::<T>(length).ok()?;
    Some(Layout::new::<SliceHeader>().extend(items).ok()?.0.pad_to_align())
}

/// Returns the offset of the items.
const fn items_at<T>() -> usize {
    size_of::<SliceHeader>().next_multiple_of(align_of::<T>())
}

/// Makes a node of these items, which are moved.
pub(super) fn alloc_slice<T>(mut items: Vec<T>) -> NonNull<Header> {
    let length = items.len();
    let layout = slice_layout::<T>(length).expect("manycore: a slice too long for any memory");
    let memory = classes::allocate(layout);
    let node = memory.cast::<SliceHeader>();
    // SAFETY: just allocated, for the header and `length` items behind it, which do not overlap
    // those of the vector. They are moved: the vector forgets them.
    unsafe {
        node.write(SliceHeader { header: Header::new(), length });
        let to = memory.add(items_at::<T>()).cast::<T>();
        ptr::copy_nonoverlapping(items.as_ptr(), to.as_ptr(), length);
        items.set_len(0);
    }
    node.cast()
}

/// Returns the items of a node, and frees the node.
///
/// # Safety
/// `node` is a node of this type that no other thread has.
pub(super) unsafe fn into_items<T>(node: NonNull<Header>) -> Vec<T> {
    // SAFETY: the caller's node is live (# Safety).
    let items: *mut [T] = unsafe { <[T]>::value(node.as_ptr()) };
    let mut moved = Vec::with_capacity(items.len());
    // SAFETY: the items are moved to separate memory with room for them, and the node is freed
    // without dropping them. Only the caller has it (# Safety).
    unsafe {
        ptr::copy_nonoverlapping(items.cast::<T>(), moved.as_mut_ptr(), items.len());
        moved.set_len(items.len());
        drop(SliceMemory::<T>::of(node));
    }
    moved
}

/// The memory of a slice's node. Dropping this frees the memory, also if the destructor of an item
/// panics.
struct SliceMemory<T>(NonNull<SliceHeader>, std::marker::PhantomData<T>);

impl<T> SliceMemory<T> {
    /// # Safety
    /// `node` is a node of this type that no other thread has. Its items are dropped or moved
    /// before this is dropped.
    unsafe fn of(node: NonNull<Header>) -> Self {
        Self(node.cast(), std::marker::PhantomData)
    }
}

impl<T> Drop for SliceMemory<T> {
    fn drop(&mut self) {
        // SAFETY: `of`'s caller has the node alone; it was made by `alloc_slice` with this layout.
        unsafe {
            let layout = slice_layout::<T>(self.0.as_ref().length).expect("it was allocated");
            stray::remove(self.0.addr().get(), layout.size());
            classes::free(self.0.cast(), layout);
        }
    }
}

// SAFETY: all functions go by `slice_layout` and `items_at`.
unsafe impl<T> Layouted for [T] {
    const ALIGN: usize = {
        let (header, items) = (align_of::<SliceHeader>(), align_of::<T>());
        if header > items { header } else { items }
    };
    const HEADER: usize = items_at::<T>();

    #[inline(always)]
    unsafe fn value(node: *mut Header) -> *mut [T] {
        // SAFETY: the caller's node is live (# Safety): its header is written, and its items begin
        // there.
        unsafe {
            let length = (*node.cast::<SliceHeader>()).length;
            let items = node.cast::<u8>().add(items_at::<T>()).cast::<T>();
            ptr::slice_from_raw_parts_mut(items, length)
        }
    }

    unsafe fn bytes(node: *mut Header) -> usize {
        // SAFETY: the caller's node is live (# Safety).
        let length = unsafe { Self::value(node) }.len();
        slice_layout::<T>(length).map_or(0, |layout| layout.size())
    }

    unsafe fn weight(node: *mut Header) -> Weight {
        // SAFETY: the caller's node is live (# Safety).
        Weight::holding::<T>(unsafe { Self::bytes(node) })
    }

    unsafe fn free(node: NonNull<()>) {
        // SAFETY: only the caller has the node (# Safety), and its items are dropped here, before
        // the memory is freed.
        unsafe {
            let items = Self::value(node.as_ptr().cast());
            let _memory = SliceMemory::<T>::of(node.cast());
            items.drop_in_place();
        }
    }
}

// SAFETY: as of a slice of bytes, whose functions are called.
unsafe impl Layouted for str {
    const ALIGN: usize = <[u8]>::ALIGN;
    const HEADER: usize = <[u8]>::HEADER;

    #[inline(always)]
    unsafe fn value(node: *mut Header) -> *mut str {
        // SAFETY: a node of a `str` is one of bytes (made from a `String` alone), and the caller's
        // is live (# Safety).
        unsafe { <[u8]>::value(node) as *mut str }
    }

    unsafe fn bytes(node: *mut Header) -> usize {
        // SAFETY: a node of a `str` is one of bytes, and the caller's is live (# Safety).
        unsafe { <[u8]>::bytes(node) }
    }

    unsafe fn weight(node: *mut Header) -> Weight {
        // SAFETY: a node of a `str` is one of bytes, and the caller's is live (# Safety).
        unsafe { <[u8]>::weight(node) }
    }

    unsafe fn free(node: NonNull<()>) {
        // SAFETY: a node of a `str` is one of bytes, and the caller has it alone (# Safety).
        unsafe { <[u8]>::free(node) }
    }
}
