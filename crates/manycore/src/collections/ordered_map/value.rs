//! Values. They lie in the slots of leaves if they fit into a word, and otherwise in blocks of
//! their own.

use crate::slab;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// The part of a slot beside its key. In a leaf it is a value or a value's address, and in an inner
/// node a node's address.
pub(super) type Word = MaybeUninit<*mut ()>;

/// Returns true if values lie in the slots of leaves. Such a value is cloned when its node is
/// replaced, and its removal needs no further work. (A model checker's cells are no words.)
pub(super) const fn is_inline<V>() -> bool {
    !cfg!(any(manycore_loom, manycore_shuttle))
        && size_of::<V>() <= size_of::<Word>()
        && align_of::<V>() <= align_of::<Word>()
        && !std::mem::needs_drop::<V>()
}

/// Returns the value of a slot.
///
/// # Safety
/// The word is that of a leaf's slot, filled with a value of this type, which lives for `'s`.
#[inline(always)]
pub(super) unsafe fn value_of<'s, V>(word: *const Word) -> &'s V {
    let value = if is_inline::<V>() {
        word.cast::<V>()
    } else {
        // SAFETY: the caller promises a filled slot (# Safety), which has an address.
        unsafe { (*word).assume_init().cast_const().cast() }
    };
    // SAFETY: the caller promises a value that lives for `'s` (# Safety).
    unsafe { &*value }
}

/// Returns a word with the same value for the slot of another node. Clones the value if it is
/// inline.
///
/// # Safety
/// As for [`value_of`].
#[inline]
pub(super) unsafe fn copy<V: Clone>(word: Word) -> Word {
    if is_inline::<V>() {
        // SAFETY: the caller promises a filled slot (# Safety).
        Fresh::new(unsafe { value_of::<V>(&raw const word) }.clone()).into_word()
    } else {
        word
    }
}

/// A value that is not linked.
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
            // SAFETY: memory of this layout, or for a value without size, an aligned address.
            unsafe { block.write(value) };
            word.write(block.as_ptr().cast());
        }
        Self { word, _owns: PhantomData }
    }

    /// Returns the word for a slot. From now on, the slot's owner has the value.
    #[inline]
    pub(super) fn into_word(self) -> Word {
        ManuallyDrop::new(self).word
    }

    /// Takes the value of a slot.
    ///
    /// # Safety
    /// The word is that of a leaf's slot with values of this type, and no other thread uses it.
    pub(super) unsafe fn from_word(word: Word) -> Self {
        Self { word, _owns: PhantomData }
    }

    pub(super) fn into_inner(self) -> V {
        let this = ManuallyDrop::new(self);
        if is_inline::<V>() {
            // SAFETY: `new` wrote a value there, which this owns.
            return unsafe { this.word.as_ptr().cast::<V>().read() };
        }
        // SAFETY: `new` wrote an address there.
        let block = Block(unsafe { this.block() });
        // SAFETY: `self` owned the value, and is not dropped.
        unsafe { block.0.read() }
    }

    /// Returns the address of the value's block.
    ///
    /// # Safety
    /// Values are not inline.
    unsafe fn block(&self) -> NonNull<V> {
        // SAFETY: `new` wrote an address there (# Safety), which is not null.
        unsafe { NonNull::new_unchecked(self.word.assume_init().cast()) }
    }
}

impl<V> Drop for Fresh<V> {
    fn drop(&mut self) {
        if !is_inline::<V>() {
            // SAFETY: `new` wrote an address there.
            let block = Block(unsafe { self.block() });
            // SAFETY: this owns the value.
            unsafe { block.0.drop_in_place() };
        }
    }
}

/// The memory of a value that was moved out or is about to be dropped. Dropping this frees it, even
/// if the value's destructor panics.
struct Block<V>(NonNull<V>);

impl<V> Drop for Block<V> {
    #[inline]
    fn drop(&mut self) {
        if size_of::<V>() != 0 {
            // SAFETY: `Fresh::new` allocated it with this layout, and the maker of this owned the
            // value.
            unsafe { slab::free(self.0.cast(), const { Layout::new::<V>() }) };
        }
    }
}

/// Drops a retired value that is not inline.
///
/// # Safety
/// The address is that of a value of this type in a block of its own, and no other thread uses it.
pub(super) unsafe fn free<V>(block: NonNull<()>) {
    // SAFETY: the caller promises such an address (# Safety).
    drop(unsafe { Fresh::<V>::from_word(Word::new(block.as_ptr())) });
}
