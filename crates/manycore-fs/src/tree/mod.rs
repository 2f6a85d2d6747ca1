//! The persistent tree with 64 ways that holds everything: inodes by number, pages by index, and
//! the entries of a directory by the hash of their names. This file owns its nodes and links.
//!
//! ```text
//! root of branch A --> node (token 7) --> node (token 7)    written in place by A
//! root of branch B --> node (token 8) -+-> node (token 3)   shared, never written again
//!                      snapshot -------+
//! ```
//!
//! - tree.T1 A node is written in place only by a branch that has the node's token, while the
//!   writer holds the branch's gate. Tokens are not used again, and a fork gives both sides new
//!   ones. So a node of another token is frozen: a writer copies it, and the nodes above it, before
//!   it changes anything.
//! - tree.T2 A link is empty, dead, a node or a value. A reader follows it inside a section of the
//!   file system's domain. What was taken out of a link is released after a grace period
//!   (memory.M2).
//! - tree.T3 A dead link marks an inode that was removed from a table. It hides the base's inode of
//!   this number. A removed inode does not come back, so a node with nothing but dead links is
//!   replaced by one dead link.

pub(crate) mod compare;
pub(crate) mod radix;

use crate::memory::{self, AccountRef, Counted, Head, Object};
use manycore::section::Section;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Links of a node.
pub(crate) const WAYS: usize = 64;
/// Bits of a key that choose a link.
pub(crate) const BITS: u32 = 6;

/// Bit of a link that leads to a value.
const VALUE: usize = 1;
/// The word of a dead link.
const DEAD: *mut () = std::ptr::without_provenance_mut(2);

/// A node of the tree.
pub(crate) struct Node<V: Object> {
    head: Head,
    /// Of a tree by numbers: how many levels of nodes are below it.
    pub(crate) level: u8,
    /// Links that are dead.
    pub(crate) dead: AtomicU8,
    pub(crate) links: [Link<V>; WAYS],
}

impl<V: Object> Object for Node<V> {
    fn head(&self) -> &Head {
        &self.head
    }
}

impl<V: Object> Node<V> {
    pub(crate) fn new(token: u64, account: AccountRef, level: u8) -> Counted<Self> {
        account.nodes.inc();
        Counted::new(Self {
            head: Head::new(token, account),
            level,
            dead: AtomicU8::new(0),
            links: [const { Link::empty() }; WAYS],
        })
    }

    /// Copies a frozen node (tree.T1), with a reference for each link.
    fn copy(&self, token: u64, section: &Section<'_>) -> Counted<Self> {
        let account = self.head.account;
        account.nodes.inc();
        let mut dead = 0;
        let links = std::array::from_fn(|at| {
            let word = self.links[at].load(section);
            dead += u8::from(word.is_dead());
            Link::new(word.hold())
        });
        let dead = AtomicU8::new(dead);
        let head = Head::new(token, account);
        Counted::new(Self { head, level: self.level, dead, links })
    }

    pub(crate) fn token(&self) -> u64 {
        self.head.token
    }
}

impl<V: Object> Drop for Node<V> {
    fn drop(&mut self) {
        self.head.account.nodes.dec();
    }
}

/// What a link leads to.
pub(crate) enum View<'s, V: Object> {
    Empty,
    Dead,
    Node(&'s Node<V>),
    Value(&'s V),
}

/// What a link had when it was loaded; good as long as the section.
pub(crate) struct Word<'s, V: Object>(*mut (), PhantomData<&'s V>);

impl<V: Object> Clone for Word<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Object> Copy for Word<'_, V> {}

impl<V: Object> PartialEq for Word<'_, V> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<'s, V: Object> Word<'s, V> {
    pub(crate) const EMPTY: Self = Self(std::ptr::null_mut(), PhantomData);

    pub(crate) fn view(self) -> View<'s, V> {
        if self.0.is_null() {
            View::Empty
        } else if self.0 == DEAD {
            View::Dead
        } else if self.0.addr() & VALUE != 0 {
            // SAFETY: tree.T2 - a link of this tag leads to a value, which the section keeps.
            View::Value(unsafe { &*self.0.map_addr(|a| a & !VALUE).cast::<V>() })
        } else {
            // SAFETY: tree.T2 - an untagged link leads to a node, which the section keeps.
            View::Node(unsafe { &*self.0.cast::<Node<V>>() })
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn is_dead(self) -> bool {
        self.0 == DEAD
    }

    /// Adds a reference to what is there.
    pub(crate) fn hold(self) -> Held<V> {
        match self.view() {
            View::Node(node) => memory::retain(node),
            View::Value(value) => memory::retain(value),
            View::Empty | View::Dead => {}
        }
        Held(self.0, PhantomData)
    }
}

/// A reference to a node or a value, or neither, that no reader follows.
pub(crate) struct Held<V: Object>(*mut (), PhantomData<V>);

// SAFETY: memory.M1 - holds a reference to an object, which is `Send` and `Sync`.
unsafe impl<V: Object> Send for Held<V> {}
// SAFETY: memory.M1 - holds a reference to an object, which is `Send` and `Sync`.
unsafe impl<V: Object> Sync for Held<V> {}

impl<V: Object> Held<V> {
    pub(crate) const fn empty() -> Self {
        Self(std::ptr::null_mut(), PhantomData)
    }

    pub(crate) const fn dead() -> Self {
        Self(DEAD, PhantomData)
    }

    pub(crate) fn node(node: Counted<Node<V>>) -> Self {
        Self(node.into_raw().cast(), PhantomData)
    }

    pub(crate) fn value(value: Counted<V>) -> Self {
        Self(value.into_raw().cast::<()>().map_addr(|a| a | VALUE), PhantomData)
    }

    /// The word, as long as this reference lives.
    pub(crate) fn word(&self) -> Word<'_, V> {
        Word(self.0, PhantomData)
    }
}

impl<V: Object> Drop for Held<V> {
    fn drop(&mut self) {
        if self.0.is_null() || self.0 == DEAD {
            return;
        }
        let raw = self.0.map_addr(|a| a & !VALUE);
        // SAFETY: memory.M1 - not null, and the tag says of which type the object is.
        unsafe {
            if self.0.addr() & VALUE != 0 {
                memory::release(NonNull::new_unchecked(raw.cast::<V>()));
            } else {
                memory::release(NonNull::new_unchecked(raw.cast::<Node<V>>()));
            }
        }
    }
}

/// A place in a node, or a root.
pub(crate) struct Link<V: Object>(AtomicPtr<()>, PhantomData<V>);

impl<V: Object> Link<V> {
    pub(crate) const fn empty() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()), PhantomData)
    }

    pub(crate) fn new(held: Held<V>) -> Self {
        let raw = held.0;
        std::mem::forget(held);
        Self(AtomicPtr::new(raw), PhantomData)
    }

    pub(crate) fn load<'s>(&self, _section: &'s Section<'_>) -> Word<'s, V> {
        // ORDER: Acquire; pairs with the Release of `replace` and `set`: what it leads to.
        Word(self.0.load(Ordering::Acquire), PhantomData)
    }

    /// Replaces `old` by `new`, unless another thread has replaced it.
    pub(crate) fn replace(
        &self,
        old: Word<'_, V>,
        new: Held<V>,
        section: &Section<'_>,
    ) -> Result<(), Held<V>> {
        // ORDER: Release; pairs with Acquire in `load`: the new object is complete.
        match self.0.compare_exchange(old.0, new.0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => {
                std::mem::forget(new);
                give_up::<V>(old.0, section);
                Ok(())
            }
            Err(_) => Err(new),
        }
    }

    /// Replaces whatever is there. Only one thread at a time writes this link.
    pub(crate) fn set(&self, new: Held<V>, section: &Section<'_>) {
        // ORDER: Release; pairs with Acquire in `load`: the new object is complete.
        let old = self.0.swap(new.0, Ordering::Release);
        std::mem::forget(new);
        give_up::<V>(old, section);
    }

    /// Empties the link. What is below weighs so many bytes.
    pub(crate) fn clear(&self, bytes: usize, section: &Section<'_>) {
        // ORDER: AcqRel; nothing is published, and the weight of what is taken is read.
        let old = self.0.swap(std::ptr::null_mut(), Ordering::AcqRel);
        give_up_weighed::<V>(old, bytes, section);
    }

    /// Takes what is there, without a grace period. No reader follows it.
    pub(crate) fn take_quietly(&self) -> Held<V> {
        // ORDER: Acquire; pairs with Release in `set`: the object that is freed next is complete.
        Held(self.0.swap(std::ptr::null_mut(), Ordering::Acquire), PhantomData)
    }

    /// Returns the node that this link leads to, or a copy of it in its place, so that a writer of
    /// this token may write it. The caller has seen that the link led to a node of another token.
    pub(crate) fn thaw(&self, old: Word<'_, V>, node: &Node<V>, token: u64, section: &Section<'_>) {
        debug_assert_ne!(node.token(), token, "tree.T1: a node that may be written is copied");
        // If another writer was faster, its copy is in place, and this one is dropped.
        drop(self.replace(old, Held::node(node.copy(token, section)), section));
    }
}

impl<V: Object> Drop for Link<V> {
    fn drop(&mut self) {
        drop(self.take_quietly()); // memory.M2: the link itself is being freed
    }
}

/// Gives up the reference of a link after a grace period.
fn give_up<V: Object>(raw: *mut (), section: &Section<'_>) {
    let weight = match Word::<V>(raw, PhantomData).view() {
        View::Node(node) => node.weight(),
        View::Value(value) => value.weight(),
        View::Empty | View::Dead => return,
    };
    give_up_weighed::<V>(raw, weight, section);
}

fn give_up_weighed<V: Object>(raw: *mut (), weight: usize, section: &Section<'_>) {
    // SAFETY: memory.M2 - the caller has a reference of this type, and no reader follows it.
    unsafe fn free<V: Object>(address: NonNull<()>) {
        drop(Held::<V>(address.as_ptr(), PhantomData));
    }
    if raw.is_null() || raw == DEAD {
        return;
    }
    // SAFETY: memory.M2 - the link has lost it, so the reference is this function's. Not null.
    unsafe { memory::after_grace(section, NonNull::new_unchecked(raw), weight, free::<V>) }
}
