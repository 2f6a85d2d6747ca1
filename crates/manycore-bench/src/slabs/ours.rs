//! The library's slab.

use std::ptr::NonNull;

use manycore::slab::{Slab, SlabBox};

use super::{Node, Source, SourceHandle};

/// By the raw interface, which is what the others offer.
pub(super) struct Raw(Slab<Node>);

impl Source for Raw {
    type Handle<'a> = &'a Slab<Node>;

    fn new() -> Self {
        Self(Slab::new())
    }

    fn handle(&self) -> &Slab<Node> {
        &self.0
    }
}

impl SourceHandle for &Slab<Node> {
    #[inline]
    fn alloc(&mut self) -> NonNull<Node> {
        self.alloc_raw()
    }

    #[inline]
    unsafe fn free(&mut self, node: NonNull<Node>) {
        // SAFETY: the caller promises that `node` comes from `alloc` of a handle of the same
        // source, so of this slab, and that it is not used any more.
        unsafe { self.free_raw(node) };
    }
}

/// By boxes, as safe code has them.
pub(super) struct Boxed(Slab<Node>);

impl Source for Boxed {
    type Handle<'a> = Boxes<'a>;

    fn new() -> Self {
        Self(Slab::new())
    }

    fn handle(&self) -> Boxes<'_> {
        Boxes(&self.0)
    }
}

/// A thread's way to the boxes.
pub(super) struct Boxes<'a>(&'a Slab<Node>);

impl SourceHandle for Boxes<'_> {
    #[inline]
    fn alloc(&mut self) -> NonNull<Node> {
        SlabBox::into_raw(self.0.alloc(Node([0; 8])))
    }

    #[inline]
    unsafe fn free(&mut self, node: NonNull<Node>) {
        // SAFETY: the caller promises that `node` comes from `alloc` of a handle of the same
        // source, so it was a box of this slab, and that it is not used any more.
        drop(unsafe { SlabBox::from_raw(self.0, node) });
    }
}
