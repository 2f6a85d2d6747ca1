//! Values: in the slots of leaves, if they fit into a word, or else in blocks of their own.

use crate::slab;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// What a slot has beside its key: in a leaf a value or the address of one, in an inner node the
/// address of a node.
pub(super) type Word = MaybeUninit<*mut ()>;

/// Whether values lie in the slots of leaves. One that a word holds is cloned when its node is
/// replaced, and nothing has to be done when it is removed. (A model checker's cells are no words.)
pub(super) const fn is_inline<V>() -> bool {
    !cfg!(any(manycore_loom, manycore_shuttle))
        && size_of::<V>() <= size_of::<Word>()
        && align_of::<V>() <= align_of::<Word>()
        && !std::mem::needs_drop::<V>()
}

/// The value that a slot has.
///
/// # Safety
/// The word is that of a slot of a leaf, filled with a value of this type, which lives so long.
#[inline(always)]
pub(super) unsafe fn value_of<'s, V>(word: *const Word) -> &'s V {
    let value = if is_inline::<V>() {
        word.cast::<V>()
    } else {
        // SAFETY: the caller's promise (# Safety): an address is there.
        unsafe { (*word).assume_init().cast_const().cast() }
    };
    // SAFETY: the caller's promise (# Safety).
    unsafe { &*value }
}

/// What has the same value as this word in the slot of another node. Clones it if it is inline.
///
/// # Safety
/// As for [`value_of`].
#[inline]
pub(super) unsafe fn copy<V: Clone>(word: Word) -> Word {
    if is_inline::<V>() {
        // SAFETY: the caller's promise (# Safety).
        Fresh::new(unsafe { value_of::<V>(&raw const word) }.clone()).into_word()
    } else {
        word
    }
}

/// A value that is linked nowhere.
pub(super) struct Fresh<V> {
    word: Word,
    _owns: PhantomData<V>,
}

impl<V> Fresh<V> {
    #[inline]
    pub(super) fn new(value: V) -> Self {
        let mut word = Word::uninit();
        if is_inline::<V>() {
            // SAFETY: a word has room for it (`is_inline`).
            unsafe { word.as_mut_ptr().cast::<V>().write(value) };
        } else {
            let block = match size_of::<V>() {
                0 => NonNull::dangling(),
                _ => slab::allocate(const { Layout::new::<V>() }).cast::<V>(),
            };
            // SAFETY: memory of this layout, or a value without size at an aligned address.
            unsafe { block.write(value) };
            word.write(block.as_ptr().cast());
        }
        Self { word, _owns: PhantomData }
    }

    /// What goes into a slot, whose owner has the value from now on.
    #[inline]
    pub(super) fn into_word(self) -> Word {
        ManuallyDrop::new(self).word
    }

    /// # Safety
    /// The word is that of a slot of a leaf with values of this type, and no other thread looks at
    /// it.
    pub(super) unsafe fn from_word(word: Word) -> Self {
        Self { word, _owns: PhantomData }
    }

    pub(super) fn into_inner(self) -> V {
        let this = ManuallyDrop::new(self);
        if is_inline::<V>() {
            // SAFETY: `new` put a value there, which this owns.
            return unsafe { this.word.as_ptr().cast::<V>().read() };
        }
        // SAFETY: `new` put an address there.
        let block = Block(unsafe { this.block() });
        // SAFETY: `self` owned the value, and is not dropped.
        unsafe { block.0.read() }
    }

    /// # Safety
    /// Values are not inline.
    unsafe fn block(&self) -> NonNull<V> {
        // SAFETY: `new` put an address there (# Safety), which is not null.
        unsafe { NonNull::new_unchecked(self.word.assume_init().cast()) }
    }
}

impl<V> Drop for Fresh<V> {
    fn drop(&mut self) {
        if !is_inline::<V>() {
            // SAFETY: `new` put an address there.
            let block = Block(unsafe { self.block() });
            // SAFETY: this owns the value.
            unsafe { block.0.drop_in_place() };
        }
    }
}

/// The memory of a value that is gone, or about to go: freed also if the value's drop panics.
struct Block<V>(NonNull<V>);

impl<V> Drop for Block<V> {
    #[inline]
    fn drop(&mut self) {
        if size_of::<V>() != 0 {
            // SAFETY: `Fresh::new` took it for this layout, and the maker of this owned the value.
            unsafe { slab::free(self.0.cast(), const { Layout::new::<V>() }) };
        }
    }
}

/// Drops a value that was retired, and is not inline.
///
/// # Safety
/// The address is that of a value of this type with a block of its own, and no other thread looks
/// at it.
pub(super) unsafe fn free<V>(block: NonNull<()>) {
    // SAFETY: the caller's promise (# Safety).
    drop(unsafe { Fresh::<V>::from_word(Word::new(block.as_ptr())) });
}
