//! Other sources of memory for nodes.

use std::{
    alloc::{GlobalAlloc, Layout, System, handle_alloc_error},
    mem::MaybeUninit,
    ptr::NonNull,
};

use super::{Node, Source, SourceHandle};

const LAYOUT: Layout = Layout::new::<Node>();

fn some(memory: *mut u8) -> NonNull<Node> {
    NonNull::new(memory.cast()).unwrap_or_else(|| handle_alloc_error(LAYOUT))
}

/// A list of free boxes that one thread has for itself.
pub(super) struct Unshared;

/// Free nodes.
#[expect(clippy::vec_box, reason = "the boxes are what is handed out")]
pub(super) struct Boxes(Vec<Box<MaybeUninit<Node>>>);

impl Source for Unshared {
    type Handle<'a> = Boxes;

    fn new() -> Self {
        Self
    }

    fn handle(&self) -> Boxes {
        Boxes(Vec::new())
    }
}

impl SourceHandle for Boxes {
    #[inline]
    fn alloc(&mut self) -> NonNull<Node> {
        let node = self.0.pop().unwrap_or_else(Box::new_uninit);
        NonNull::from(Box::leak(node)).cast()
    }

    #[inline]
    unsafe fn free(&mut self, node: NonNull<Node>) {
        // SAFETY: the caller promises that `node` comes from `alloc` of these boxes or others,
        // which leaked a `Box<MaybeUninit<Node>>`, and that it is not used any more.
        self.0.push(unsafe { Box::from_raw(node.as_ptr().cast()) });
    }
}

/// Makes a source of an allocator that the whole process shares.
macro_rules! global {
    ($(#[$doc:meta])* $Name:ident, $alloc:expr, $free:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $Name;

        impl Source for $Name {
            type Handle<'a> = $Name;

            fn new() -> Self {
                Self
            }

            fn handle(&self) -> Self {
                *self
            }
        }

        impl SourceHandle for $Name {
            #[inline]
            fn alloc(&mut self) -> NonNull<Node> {
                // SAFETY: the size is not zero.
                some(unsafe { $alloc })
            }

            #[inline]
            unsafe fn free(&mut self, node: NonNull<Node>) {
                let free: unsafe fn(*mut u8) = $free;
                // SAFETY: the caller promises that `node` comes from `alloc` of the same allocator,
                // and that it is not used any more; it is freed with the layout that it was made
                // with.
                unsafe { free(node.as_ptr().cast()) };
            }
        }
    };
}

global!(
    /// `malloc` and `free`.
    SystemMalloc,
    System.alloc(LAYOUT),
    // SAFETY: the pointer comes from `alloc` with the same layout.
    |memory| unsafe { System.dealloc(memory, LAYOUT) }
);

#[cfg(feature = "allocators")]
global!(
    /// By its own names: the crate's `GlobalAlloc` asks for the alignment each time.
    MiMalloc,
    libmimalloc_sys::mi_malloc(LAYOUT.size()).cast(),
    // SAFETY: the pointer comes from `mi_malloc`.
    |memory| unsafe { libmimalloc_sys::mi_free(memory.cast()) }
);

#[cfg(feature = "allocators")]
global!(
    /// As its `GlobalAlloc` calls it.
    Jemalloc,
    tikv_jemallocator::Jemalloc.alloc(LAYOUT),
    // SAFETY: the pointer comes from `alloc` with the same layout.
    |memory| unsafe { tikv_jemallocator::Jemalloc.dealloc(memory, LAYOUT) }
);
