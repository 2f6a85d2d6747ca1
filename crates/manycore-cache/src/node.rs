//! Nodes: a key, its value, and what the cache knows about them.
//!
//! Laws:
//! - N1 A node is made unlinked ([`Fresh`]), linked once, unlinked once under its bucket's lock,
//!   and then retired once. Between the first and the grace period's end its key and value do not
//!   change.
//! - N2 A node ends with [`Extra`] exactly if its [`Home`] says so; the fields before it
//!   stand in the same places with and without it (`repr(C)`).

use manycore::section::Section;
use manycore::slab::Slab;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Never: as a moment of expiry.
pub(crate) const NEVER: u64 = u64::MAX;

#[repr(C)]
pub(crate) struct Node<K, V, X = ()> {
    /// Where the memory goes when the grace period is over.
    home: NonNull<Home<K, V>>,
    pub(crate) version: u64,
    pub(crate) key: K,
    pub(crate) value: V,
    extra: X,
}

/// What only caches with a weigher or with times need to know of an entry.
pub(crate) struct Extra {
    /// The moment from which on the entry is expired.
    pub(crate) expires: AtomicU64,
    /// When it was last used, to a sixteenth of the time to idle.
    pub(crate) used: AtomicU64,
    pub(crate) weight: u32,
}

/// The memory of one cache's nodes.
pub(crate) struct Home<K, V> {
    plain: Slab<Node<K, V>>,
    full: Slab<Node<K, V, Extra>>,
    has_extra: bool,
    /// Whether weights are bytes that entries hold besides their nodes.
    in_bytes: bool,
}

impl<K, V> Home<K, V> {
    pub(crate) fn new(has_extra: bool, in_bytes: bool) -> Self {
        Self { plain: Slab::new(), full: Slab::new(), has_extra, in_bytes }
    }

    /// Bytes that a node takes.
    fn bytes(&self) -> usize {
        if self.has_extra { size_of::<Node<K, V, Extra>>() } else { size_of::<Node<K, V>>() }
    }

    /// A node that nobody else sees.
    #[inline]
    pub(crate) fn make(
        &self,
        key: K,
        value: V,
        extra: impl FnOnce(&K, &V) -> Extra,
    ) -> Fresh<K, V> {
        let (home, version) = (NonNull::from(self), next_version());
        let node = if self.has_extra {
            let extra = extra(&key, &value);
            let node = self.full.alloc_raw();
            // SAFETY: N1 - fresh memory of this type from the slab.
            unsafe { node.write(Node { home, version, key, value, extra }) };
            node.cast()
        } else {
            let node = self.plain.alloc_raw();
            // SAFETY: N1 - as above.
            unsafe { node.write(Node { home, version, key, value, extra: () }) };
            node
        };
        Fresh { node }
    }
}

impl<K, V> Node<K, V> {
    /// The part that only some caches have.
    ///
    /// # Safety
    /// The node's home has extras (N2).
    #[inline]
    pub(crate) unsafe fn extra(this: NonNull<Self>) -> NonNull<Extra> {
        let node = this.cast::<Node<K, V, Extra>>();
        // SAFETY: N2 - the caller knows that the node was made with the field.
        unsafe { NonNull::new_unchecked(&raw mut (*node.as_ptr()).extra) }
    }

    /// Drops what is in the node, and gives its memory back.
    ///
    /// # Safety
    /// Nobody has the node any more, and its home is alive (N1).
    unsafe fn free(address: NonNull<()>) {
        /// Gives the memory back also if a destructor panics.
        struct Back<K, V>(NonNull<Home<K, V>>, NonNull<Node<K, V>>);
        impl<K, V> Drop for Back<K, V> {
            fn drop(&mut self) {
                // SAFETY: N1 - the cache drops its home after the domain, which runs this.
                let home = unsafe { self.0.as_ref() };
                if home.has_extra {
                    // SAFETY: N1, N2 - made by this slab, and nobody has it any more.
                    unsafe { home.full.free_raw(self.1.cast()) };
                } else {
                    // SAFETY: as above.
                    unsafe { home.plain.free_raw(self.1) };
                }
            }
        }
        let node = address.cast::<Self>();
        // SAFETY: the caller's duty.
        let home = unsafe { (*node.as_ptr()).home };
        let _back = Back(home, node);
        // SAFETY: the caller's duty; `Extra` has no destructor.
        unsafe { node.drop_in_place() };
    }

    /// Frees the node once nobody can be reading it. Does not look at it, unless weights are bytes:
    /// who evicts would wait for its line.
    ///
    /// # Safety
    /// It is of this home, and was unlinked by the caller, under the lock of its bucket (N1).
    #[inline]
    pub(crate) unsafe fn retire(this: NonNull<Self>, home: &Home<K, V>, section: &Section<'_>)
    where
        K: Send,
        V: Send,
    {
        let mut bytes = home.bytes();
        if home.in_bytes {
            // SAFETY: N2 - a cache with a weigher has extras; the section keeps the node.
            bytes = bytes.max(unsafe { Node::extra(this).as_ref() }.weight as usize);
        }
        // SAFETY: N1 - unlinked, retired once, and freed by what knows how; it has no links.
        unsafe { section.retire_raw(this.cast(), bytes, Self::free) };
    }
}

/// A node that is not linked.
pub(crate) struct Fresh<K, V> {
    node: NonNull<Node<K, V>>,
}

impl<K, V> Fresh<K, V> {
    /// # Safety
    /// The node was linked, nothing leads to it any more, and it was not retired.
    pub(crate) unsafe fn adopt(node: NonNull<Node<K, V>>) -> Self {
        Self { node }
    }

    #[inline]
    pub(crate) fn get(&self) -> &Node<K, V> {
        // SAFETY: N1 - alive, and nobody changes it.
        unsafe { self.node.as_ref() }
    }

    #[inline]
    pub(crate) fn address(&self) -> NonNull<Node<K, V>> {
        self.node
    }

    /// Leaves the node to who links or retires it.
    #[inline]
    pub(crate) fn publish(self) -> NonNull<Node<K, V>> {
        std::mem::ManuallyDrop::new(self).node
    }

    /// Key and value, out of the node.
    pub(crate) fn into_parts(self) -> (K, V) {
        let node = self.publish();
        // SAFETY: N1 - nobody else has the node; key and value are moved out once, and then only
        // the memory is given back.
        unsafe {
            let read = node.as_ptr();
            let parts = ((&raw const (*read).key).read(), (&raw const (*read).value).read());
            let home = (*read).home.as_ref();
            if home.has_extra {
                home.full.free_raw(node.cast());
            } else {
                home.plain.free_raw(node);
            }
            parts
        }
    }
}

impl<K, V> Drop for Fresh<K, V> {
    fn drop(&mut self) {
        // SAFETY: N1 - never linked, so it is ours alone.
        unsafe { Node::<K, V>::free(self.node.cast()) };
    }
}

/// A number that no other entry of this process ever has.
#[inline]
fn next_version() -> u64 {
    /// Numbers that a thread takes at once.
    const BLOCK: u64 = 1 << 16;
    static NEXT: AtomicU64 = AtomicU64::new(BLOCK);
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    let own = |own: &Cell<u64>| {
        let mut version = own.get();
        if version % BLOCK == 0 {
            // ORDER: Relaxed; only that no two threads get the same block matters.
            version = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
        }
        own.set(version + 1);
        version
    };
    // ORDER: Relaxed; as above. A thread whose locals are gone takes a block for each.
    OWN.try_with(own).unwrap_or_else(|_| NEXT.fetch_add(BLOCK, Ordering::Relaxed))
}
