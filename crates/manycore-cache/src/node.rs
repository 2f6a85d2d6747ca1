//! Nodes: a key, its value, and the metadata that the cache keeps of them.
//!
//! ```text
//! memory --make--> Fresh --publish--> linked --unlink--> retired --grace period--> memory
//!    |               ^
//!    +--begin--> Seed                  (of a load: first the key, then the value)
//!
//! node:  | key | value |                                          Bare, Lent
//!        | key | value | version |                                Plain, Shared
//!        | key | value | version | expires, used, weight, idle |  Full, SharedFull
//! ```
//!
//! Laws:
//! - node.N1 A node is made unlinked ([`Fresh`]), linked once, unlinked once under its bucket's
//!   lock, and then retired once. Its key and value do not change until the grace period ends.
//! - node.N2 A node ends with nothing, with [`Plain`] or with [`Extra`], as the [`Kind`] of its
//!   [`Home`] says. The fields before stand in the same places in all three (`repr(C)`), and the
//!   version stands in the same place in the last two.
//! - node.N3 A node does not point to its home: its slab does, or the area that it lies in. So the
//!   user of a node must know its cache, or its kind. Nodes of small caches lie in memory that the
//!   process shares, and their home cannot be found from them. (A slab of their own would take 64
//!   KiB for each thread.)
//! - node.N4 A load's node ([`Seed`]) has its key before its value. Threads that want the same key
//!   may read that key, in sections, until the key leaves the list of loads. Then the node is
//!   linked or retired (law single_flight.F5).

use crate::node_memory::{NODE_AREA, NodeMemory};
use manycore::section::{Section, Weight};
use manycore::slab::{self, Slab};
use std::alloc::Layout;
use std::cell::Cell;
use std::hint::unreachable_unchecked;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The bits of a node's address. A link has other bits above them.
pub(crate) const ADDRESS: usize = (1 << 48) - 1;

/// The moment of expiry of an entry that never expires.
pub(crate) const NEVER: u64 = u64::MAX;

#[repr(C)]
pub(crate) struct Node<K, V, X = ()> {
    pub(crate) key: K,
    pub(crate) value: V,
    extra: X,
}

/// The address of a node that was found.
pub(crate) type Found<K, V> = NonNull<Node<K, V>>;

/// The metadata that a cache keeps of an entry, and where its nodes lie. The kinds without a
/// version come first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: the cache asks the key and the value for weight and times.
    Bare,
    /// As `Bare`, in memory of the cache's owner.
    Lent,
    /// The version.
    Plain,
    /// The version, the weight and times.
    Full,
    /// As `Plain`, in memory that the small caches of the process share.
    Shared,
    /// As `Full`, in that memory.
    SharedFull,
}

impl Kind {
    /// Returns true if nodes of the kind with this number (`kind as u8`) have a version.
    #[inline(always)]
    pub(crate) fn has_version(number: u8) -> bool {
        number >= Kind::Plain as u8
    }

    fn is_full(self) -> bool {
        matches!(self, Kind::Full | Kind::SharedFull)
    }

    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Kind::Plain | Kind::Shared)
    }

    /// Returns true if nodes of both kinds have the same metadata.
    fn is_like(self, other: Self) -> bool {
        self.is_plain() == other.is_plain() && self.is_full() == other.is_full()
    }

    /// Returns the size of a node of this kind.
    #[inline(always)]
    fn bytes<K, V>(self) -> usize {
        match self {
            Kind::Bare | Kind::Lent => size_of::<Node<K, V>>(),
            Kind::Plain | Kind::Shared => size_of::<Node<K, V, Plain>>(),
            Kind::Full | Kind::SharedFull => size_of::<Node<K, V, Extra>>(),
        }
    }
}

/// The metadata of a plain node.
#[repr(C)]
pub(crate) struct Plain {
    version: u64,
}

/// The metadata of a full node: caches with a weigher or with times need it.
#[repr(C)]
pub(crate) struct Extra {
    version: u64,
    /// The moment from which on the entry is expired.
    pub(crate) expires: AtomicU64,
    /// When the entry was last used, to a sixteenth of the time to idle.
    pub(crate) used: AtomicU64,
    pub(crate) weight: u32,
    /// The entry's own time to idle, in milliseconds; zero if it has none.
    idle_ms: u32,
}

/// Whether weights are the bytes that entries hold. If they are, garbage is counted by them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InBytes {
    /// The builder said so.
    Yes,
    /// There is a weigher, which may count bytes.
    Perhaps,
    /// The builder said no, or there is no weigher.
    No,
}

/// The memory of nodes of each kind.
enum Memory<K, V> {
    Bare(Slab<Node<K, V>>),
    Lent(Arc<dyn NodeMemory>),
    Plain(Slab<Node<K, V, Plain>>),
    Full(Slab<Node<K, V, Extra>>),
    Shared,
}

/// The memory of one cache's nodes.
pub(crate) struct Home<K, V> {
    /// The memory for nodes of `kind`.
    memory: Memory<K, V>,
    kind: Kind,
    in_bytes: InBytes,
    /// The function that frees a node. It is kept here so that it has one address: the compiler may
    /// make several copies of a function.
    free: unsafe fn(NonNull<()>),
}

impl<K, V> Home<K, V> {
    pub(crate) fn new(
        kind: Kind,
        in_bytes: InBytes,
        lent: Option<Arc<dyn NodeMemory>>,
    ) -> Arc<Self> {
        assert_eq!(
            kind == Kind::Lent,
            lent.is_some(),
            "node.N2: the kind of nodes and the owner of their memory disagree"
        );
        Arc::new_cyclic(|own: &Weak<Self>| {
            let note = own.as_ptr().cast(); // node.N3
            let memory = match (kind, lent) {
                (_, Some(lent)) => {
                    lent.begin(Layout::new::<Node<K, V>>(), note);
                    Memory::Lent(lent)
                }
                (Kind::Lent, None) => unreachable!("node.N2: it was asserted"),
                (Kind::Bare, None) => Memory::Bare(Slab::with_owner(note)),
                (Kind::Plain, None) => Memory::Plain(Slab::with_owner(note)),
                (Kind::Full, None) => Memory::Full(Slab::with_owner(note)),
                (Kind::Shared | Kind::SharedFull, None) => Memory::Shared,
            };
            Self { memory, kind, in_bytes, free: Node::<K, V>::freeing(kind) }
        })
    }

    /// Returns the weight as garbage of a node that holds a `T`. `weight` is the weight that the
    /// entry was counted with.
    #[inline(always)]
    fn garbage<T>(&self, kind: Kind, weight: i64) -> Weight {
        let bytes = kind.bytes::<K, V>();
        if !std::mem::needs_drop::<T>() {
            return Weight::exact(bytes); // it owns nothing
        }
        let owned = usize::try_from(weight).unwrap_or(0);
        match self.in_bytes {
            InBytes::Yes => Weight::exact(bytes.max(owned)).urgent(),
            InBytes::Perhaps => Weight::at_least(bytes.max(owned)),
            InBytes::No => Weight::at_least(bytes),
        }
    }

    /// Returns the bytes that an entry counts as when it becomes garbage, in a cache that does not
    /// weigh.
    pub(crate) fn garbage_bytes(&self) -> usize {
        self.garbage::<(K, V)>(self.kind, 0).bytes()
    }

    /// Returns the size of a node.
    pub(crate) fn bytes(&self) -> usize {
        self.kind.bytes::<K, V>()
    }

    /// Returns the bytes that were allocated for nodes, and the free bytes among them. Returns
    /// `None` if the memory is shared.
    pub(crate) fn memory(&self) -> Option<(usize, usize)> {
        let stats = match &self.memory {
            Memory::Bare(slab) => slab.stats(),
            Memory::Lent(lent) => return Some(lent.bytes()),
            Memory::Plain(slab) => slab.stats(),
            Memory::Full(slab) => slab.stats(),
            Memory::Shared => return None,
        };
        Some((stats.bytes, stats.cached * self.bytes()))
    }

    /// Takes back the memory of a node of this kind.
    ///
    /// # Safety
    /// The node is empty, no pointer to it is left, and its home is alive.
    #[inline(always)]
    unsafe fn take_back(node: NonNull<Node<K, V>>, kind: Kind) {
        // SAFETY: node.N2 - the caller promises a node of this kind, so it lies in the memory that
        // `Home::new` made for that kind. The caller also promises that the node is empty, that
        // nothing reaches it any more, and that its home is alive.
        unsafe {
            let memory = match kind {
                Kind::Shared => {
                    return slab::free(node.cast(), Layout::new::<Node<K, V, Plain>>());
                }
                Kind::SharedFull => {
                    return slab::free(node.cast(), Layout::new::<Node<K, V, Extra>>());
                }
                _ => &Node::home(node, kind).memory,
            };
            match (kind, memory) {
                (Kind::Bare, Memory::Bare(slab)) => slab.free_raw(node),
                (Kind::Lent, Memory::Lent(lent)) => lent.free(node.cast()),
                (Kind::Plain, Memory::Plain(slab)) => slab.free_raw(node.cast()),
                (Kind::Full, Memory::Full(slab)) => slab.free_raw(node.cast()),
                _ => unreachable_unchecked(),
            }
        }
    }

    /// Returns memory for a node. If nothing in a node has to be dropped, this is the memory of a
    /// node that this thread retired and would free next (law section.S13). Otherwise it is new
    /// memory.
    #[inline(always)]
    fn allocate(&self, kind: Kind, section: Option<&Section<'_>>) -> Found<K, V> {
        // Memory of the owner's is not reused: it is to become free where nodes are relocated from.
        if !std::mem::needs_drop::<(K, V)>() && kind != Kind::Lent {
            let reused = section.and_then(|own| own.reuse_raw(self.free));
            if let Some(node) = reused {
                return node.cast();
            }
        }
        self.allocate_new()
    }

    #[cold]
    #[inline(never)]
    fn allocate_new(&self) -> Found<K, V> {
        let node: Found<K, V> = match &self.memory {
            Memory::Bare(slab) => slab.alloc_raw(),
            Memory::Lent(lent) => lent.allocate().cast(),
            Memory::Plain(slab) => slab.alloc_raw().cast(),
            Memory::Full(slab) => slab.alloc_raw().cast(),
            Memory::Shared if self.kind == Kind::Shared => {
                slab::allocate(Layout::new::<Node<K, V, Plain>>()).cast()
            }
            Memory::Shared => slab::allocate(Layout::new::<Node<K, V, Extra>>()).cast(),
        };
        // Links have no room for more bits (cache_table.T1). Memory that is reused was checked when
        // it was new.
        assert!(node.addr().get() <= ADDRESS, "manycore: an address beyond 48 bits");
        node
    }

    /// Makes a node with a key alone.
    pub(crate) fn begin(&self, key: K) -> Seed<K, V> {
        let node = self.allocate_new();
        // SAFETY: node.N1 - fresh memory of this type, and the key comes first (node.N2). It is
        // written before the load is listed, so requests may read it (node.N4).
        unsafe { node.cast::<K>().write(key) };
        Seed { node, kind: self.kind }
    }

    /// Completes a seed. Leaves the seed in place if `extra` panics.
    pub(crate) fn complete(
        &self,
        seed: &mut Option<Seed<K, V>>,
        value: V,
        extra: impl FnOnce(&K, &V) -> Extra,
    ) -> Fresh<K, V> {
        let extra = self
            .kind
            .is_full()
            .then(|| extra(seed.as_ref().expect("a seed to complete").key(), &value));
        let seed = std::mem::ManuallyDrop::new(seed.take().expect("a seed to complete"));
        // SAFETY: node.N1 - the rest of the node is this thread's alone, and is not initialized.
        unsafe { Self::write_rest(seed.node, self.kind, value, extra) };
        Fresh { node: seed.node, kind: seed.kind }
    }

    /// Makes a node that no other thread sees. Its memory may be that of an old node that this
    /// thread would free. `kind` is the home's kind, or `Plain` for a kind like it.
    #[inline(always)]
    pub(crate) fn make(
        &self,
        kind: Kind,
        key: K,
        value: V,
        section: &Section<'_>,
        extra: impl FnOnce(&K, &V) -> Extra,
    ) -> Fresh<K, V> {
        debug_assert!(self.kind.is_like(kind), "node.N2: a node of another kind is made");
        // User code runs first: if it panics, there is no memory yet that would be lost.
        let extra = kind.is_full().then(|| extra(&key, &value));
        let node = self.allocate(kind, Some(section));
        // SAFETY: node.N1 - the memory is for a node of this kind, is this thread's alone, and is
        // empty.
        unsafe {
            (&raw mut (*node.as_ptr()).key).write(key);
            Self::write_rest(node, kind, value, extra);
        }
        Fresh { node, kind: self.kind }
    }

    /// Writes all but the key.
    ///
    /// # Safety
    /// The node is of this kind, or of a kind like it. It is the caller's alone, and has at most a
    /// key. There is an `extra` if the kind is full.
    #[inline(always)]
    unsafe fn write_rest(node: Found<K, V>, kind: Kind, value: V, extra: Option<Extra>) {
        // SAFETY: node.N2 - the caller promises memory of this kind, so the node has these fields.
        // They are written through raw pointers, because other threads may have references to the
        // key (node.N4).
        unsafe {
            (&raw mut (*node.as_ptr()).value).write(value);
            if let Some(extra) = extra {
                Node::extra(node).write(extra);
            } else if kind.is_plain() {
                let node = node.cast::<Node<K, V, Plain>>().as_ptr();
                (&raw mut (*node).extra).write(Plain { version: next_version() });
            }
        }
    }
}

impl Extra {
    /// Returns the metadata of an entry that is made now; `idle` is its own time to idle.
    pub(crate) fn new(expires: u64, used: u64, weight: u32, idle: Option<Duration>) -> Self {
        let (expires, used) = (AtomicU64::new(expires), AtomicU64::new(used));
        let whole = |idle: Duration| u32::try_from(idle.as_millis()).unwrap_or(u32::MAX).max(1);
        let idle_ms = idle.map_or(0, whole);
        Self { version: next_version(), expires, used, weight, idle_ms }
    }

    /// Returns the entry's own time to idle, in nanoseconds.
    pub(crate) fn idle(&self) -> Option<u64> {
        (self.idle_ms != 0).then(|| u64::from(self.idle_ms) * 1_000_000)
    }
}

impl<K, V> Node<K, V> {
    /// Returns the version, which is zero in a cache without metadata.
    ///
    /// # Safety
    /// The node is alive (node.N1), and has a version if the caller says so.
    #[inline]
    pub(crate) unsafe fn version(this: NonNull<Self>, has_version: bool) -> u64 {
        if !has_version {
            return 0;
        }
        // SAFETY: the caller promises that the node is alive and has a version. In plain and in
        // full nodes the version stands in the same place (node.N2).
        unsafe { (*this.cast::<Node<K, V, Plain>>().as_ptr()).extra.version }
    }

    /// Returns the home of a node that is not in shared memory.
    ///
    /// # Safety
    /// The node is alive and of this kind, and its home is alive (node.N1).
    #[inline]
    unsafe fn home<'h>(this: NonNull<Self>, kind: Kind) -> &'h Home<K, V> {
        // SAFETY: node.N3 - the home is noted with its slabs or areas, and the caller knows the
        // kind.
        let home = unsafe {
            match kind {
                Kind::Bare => Slab::owner_of(this),
                Kind::Lent => *this.as_ptr().map_addr(|node| node & !(NODE_AREA - 1)).cast(),
                Kind::Plain => Slab::owner_of(this.cast::<Node<K, V, Plain>>()),
                Kind::Full => Slab::owner_of(this.cast::<Node<K, V, Extra>>()),
                Kind::Shared | Kind::SharedFull => unreachable_unchecked(),
            }
        };
        // SAFETY: the caller promises that the home is alive. The address that is noted with a
        // home's slab or area is that of the home (node.N3).
        unsafe { &*home.cast::<Home<K, V>>() }
    }

    /// Returns the metadata that only full nodes have.
    ///
    /// # Safety
    /// The node is full (node.N2).
    #[inline]
    pub(crate) unsafe fn extra(this: NonNull<Self>) -> NonNull<Extra> {
        let node = this.cast::<Node<K, V, Extra>>();
        // SAFETY: node.N2 - the caller promises that the node was made with the field.
        unsafe { NonNull::new_unchecked(&raw mut (*node.as_ptr()).extra) }
    }

    /// Drops the contents of the node, and gives its memory back.
    ///
    /// # Safety
    /// No thread has the node any more, it is of this kind, and its home is alive (node.N1).
    #[inline(always)]
    unsafe fn free(this: NonNull<Self>, kind: Kind) {
        if !std::mem::needs_drop::<(K, V)>() {
            // SAFETY: the caller promises that nothing else reaches the node, that it is of this
            // kind, and that its home is alive. It was made there (node.N3), and no part of it has
            // a destructor.
            unsafe { Home::take_back(this, kind) };
            return;
        }
        /// Gives the memory back also if a destructor panics.
        struct Back<K, V>(NonNull<Node<K, V>>, Kind);
        impl<K, V> Drop for Back<K, V> {
            fn drop(&mut self) {
                // SAFETY: node.N1 - the cache drops its home after the domain, which runs this. The
                // node was made in that home, and no thread has it any more.
                unsafe { Home::take_back(self.0, self.1) };
            }
        }
        let _back = Back(this, kind);
        // SAFETY: node.N1 - the caller promises that nothing else reaches the node. Key and value
        // are in it and are dropped once, here. No other field has a destructor.
        unsafe { this.drop_in_place() };
    }

    /// Returns the function that frees a node of this kind, given its address alone.
    fn freeing(kind: Kind) -> unsafe fn(NonNull<()>) {
        match kind {
            // SAFETY: the caller of this function makes the promises of `free`, for a bare node.
            Kind::Bare => |node| unsafe { Self::free(node.cast(), Kind::Bare) },
            // SAFETY: the caller of this function makes the promises of `free`, for a lent node.
            Kind::Lent => |node| unsafe { Self::free(node.cast(), Kind::Lent) },
            // SAFETY: the caller of this function makes the promises of `free`, for a plain node.
            Kind::Plain => |node| unsafe { Self::free(node.cast(), Kind::Plain) },
            // SAFETY: the caller of this function makes the promises of `free`, for a full node.
            Kind::Full => |node| unsafe { Self::free(node.cast(), Kind::Full) },
            // SAFETY: the caller of this function makes the promises of `free`, for a shared node.
            Kind::Shared => |node| unsafe { Self::free(node.cast(), Kind::Shared) },
            // SAFETY: the caller of this function makes the promises of `free`, for a full shared
            // node.
            Kind::SharedFull => |node| unsafe { Self::free(node.cast(), Kind::SharedFull) },
        }
    }

    /// Drops the key, which is the only content of the node, and gives the memory back.
    ///
    /// # Safety
    /// As for `free`, for a node that is a [`Seed`].
    unsafe fn free_key(this: NonNull<Self>, kind: Kind) {
        /// Gives the memory back also if a destructor panics.
        struct Back<K, V>(NonNull<Node<K, V>>, Kind);
        impl<K, V> Drop for Back<K, V> {
            fn drop(&mut self) {
                // SAFETY: the caller of `free_key` promises that nothing else reaches the node,
                // that it is of this kind, and that its home is alive. The key was dropped, or its
                // `drop` panicked.
                unsafe { Home::take_back(self.0, self.1) };
            }
        }
        let _back = Back(this, kind);
        // SAFETY: node.N4 - the caller promises that the node is a `Seed` and that nothing else
        // reaches it. Its key is at its beginning (node.N2), and is dropped once, here.
        unsafe { this.cast::<K>().drop_in_place() };
    }

    /// As `freeing`, for a node that is a [`Seed`].
    fn freeing_key(kind: Kind) -> unsafe fn(NonNull<()>) {
        match kind {
            // SAFETY: the caller of this function makes the promises of `free_key`, for a bare
            // node.
            Kind::Bare => |node| unsafe { Self::free_key(node.cast(), Kind::Bare) },
            // SAFETY: the caller of this function makes the promises of `free_key`, for a lent
            // node.
            Kind::Lent => |node| unsafe { Self::free_key(node.cast(), Kind::Lent) },
            // SAFETY: the caller of this function makes the promises of `free_key`, for a plain
            // node.
            Kind::Plain => |node| unsafe { Self::free_key(node.cast(), Kind::Plain) },
            // SAFETY: the caller of this function makes the promises of `free_key`, for a full
            // node.
            Kind::Full => |node| unsafe { Self::free_key(node.cast(), Kind::Full) },
            // SAFETY: the caller of this function makes the promises of `free_key`, for a shared
            // node.
            Kind::Shared => |node| unsafe { Self::free_key(node.cast(), Kind::Shared) },
            // SAFETY: the caller of this function makes the promises of `free_key`, for a full
            // shared node.
            Kind::SharedFull => |node| unsafe { Self::free_key(node.cast(), Kind::SharedFull) },
        }
    }

    /// Frees the node once no reader can hold it. `weight` is the weight that it was counted with;
    /// `kind` is the home's kind, or a kind like it.
    ///
    /// # Safety
    /// The node is of this home. The caller has unlinked it under the lock of its bucket, or it was
    /// never linked; nobody else retires it (node.N1).
    #[inline]
    pub(crate) unsafe fn retire(
        this: NonNull<Self>,
        home: &Home<K, V>,
        kind: Kind,
        section: &Section<'_>,
        weight: i64,
    ) {
        debug_assert!(home.kind.is_like(kind), "node.N2: retired as of another kind");
        let garbage = home.garbage::<(K, V)>(kind, weight);
        // SAFETY: node.N1 - the node is not linked, is retired once, and is freed by the function
        // for its kind. It has no links to other nodes.
        unsafe { section.retire_raw(this.cast(), garbage, home.free) };
    }
}

/// A node that has a key and nothing else yet.
pub(crate) struct Seed<K, V> {
    node: NonNull<Node<K, V>>,
    kind: Kind,
}

// SAFETY: it is a key, and memory for a value, which belong to no thread.
unsafe impl<K: Send, V: Send> Send for Seed<K, V> {}

impl<K, V> Seed<K, V> {
    pub(crate) fn key(&self) -> &K {
        // SAFETY: node.N1 - the key is there, comes first (node.N2), and does not change.
        unsafe { self.node.cast::<K>().as_ref() }
    }

    pub(crate) fn address(&self) -> NonNull<Node<K, V>> {
        self.node
    }

    /// Drops the key once no other thread can be reading it.
    pub(crate) fn retire(self, home: &Home<K, V>, section: &Section<'_>) {
        let seed = std::mem::ManuallyDrop::new(self);
        let free = Node::<K, V>::freeing_key(seed.kind);
        // SAFETY: node.N1 - the node is not linked, is retired once, and is freed by the function
        // for its kind.
        unsafe { section.retire_raw(seed.node.cast(), home.garbage::<K>(home.kind, 0), free) };
    }
}

impl<K, V> Drop for Seed<K, V> {
    fn drop(&mut self) {
        // SAFETY: node.N1 - the seed was never shared, or it would have been retired.
        unsafe { Node::free_key(self.node, self.kind) };
    }
}

/// A node that is not linked.
pub(crate) struct Fresh<K, V> {
    node: NonNull<Node<K, V>>,
    kind: Kind,
}

// SAFETY: it is a key and a value, which belong to no thread.
unsafe impl<K: Send, V: Send> Send for Fresh<K, V> {}

impl<K, V> Fresh<K, V> {
    /// # Safety
    /// The node is of this kind. It was linked, nothing leads to it any more, and it was not
    /// retired.
    pub(crate) unsafe fn adopt(node: NonNull<Node<K, V>>, kind: Kind) -> Self {
        Self { node, kind }
    }

    #[inline]
    pub(crate) fn get(&self) -> &Node<K, V> {
        // SAFETY: node.N1 - the node is alive, and it does not change.
        unsafe { self.node.as_ref() }
    }

    pub(crate) fn version(&self) -> u64 {
        // SAFETY: node.N1 - the node is alive, and of this kind.
        unsafe { Node::version(self.node, Kind::has_version(self.kind as u8)) }
    }

    #[inline]
    pub(crate) fn address(&self) -> NonNull<Node<K, V>> {
        self.node
    }

    /// Leaves the node to the caller, which links or retires it.
    #[inline]
    pub(crate) fn publish(self) -> NonNull<Node<K, V>> {
        std::mem::ManuallyDrop::new(self).node
    }

    /// Drops the node once no other thread can be reading its key.
    pub(crate) fn retire(self, home: &Home<K, V>, section: &Section<'_>) {
        let kind = self.kind;
        let node = self.publish();
        // SAFETY: node.N2 - `extra` is there if the kind is full; node.N1 - the node is not linked,
        // and is retired once.
        unsafe {
            let weight = if kind.is_full() { Node::extra(node).as_ref().weight } else { 0 };
            Node::retire(node, home, kind, section, i64::from(weight));
        }
    }

    /// Takes the key and the value out of the node.
    pub(crate) fn into_parts(self) -> (K, V) {
        let kind = self.kind;
        let node = self.publish();
        // SAFETY: node.N1 - no other thread has the node. Key and value are moved out once, and
        // then only the memory is given back.
        unsafe {
            let read = node.as_ptr();
            let parts = ((&raw const (*read).key).read(), (&raw const (*read).value).read());
            Home::take_back(node, kind);
            parts
        }
    }
}

impl<K, V> Drop for Fresh<K, V> {
    fn drop(&mut self) {
        // SAFETY: node.N1 - the node was never linked, so it is this thread's alone.
        unsafe { Node::free(self.node, self.kind) };
    }
}

/// Returns a number that no other entry of this process ever has.
#[inline]
fn next_version() -> u64 {
    /// Numbers that a thread takes at a time.
    const BLOCK: u64 = 1 << 16;
    static NEXT: AtomicU64 = AtomicU64::new(BLOCK);
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    let own = |own: &Cell<u64>| {
        let mut version = own.get();
        if version % BLOCK == 0 {
            // ORDER: Relaxed; the blocks only have to differ.
            version = NEXT.fetch_add(BLOCK, Ordering::Relaxed);
        }
        own.set(version + 1);
        version
    };
    // ORDER: Relaxed; as above. A thread that is past its thread-locals' destructors takes a block
    // for each number.
    OWN.try_with(own).unwrap_or_else(|_| NEXT.fetch_add(BLOCK, Ordering::Relaxed))
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::*;
    use crate::{Builder, Cache};

    #[test]
    fn garbage_weighs_what_is_known_of_it() {
        type Set = fn(Builder<u64, String>) -> Builder<u64, String>;
        const HEAVY: usize = 1 << 20;
        let garbage = |set: Set| {
            let cache = set(Cache::builder(10)).build().unwrap();
            [0, HEAVY].map(|weight| cache.home.garbage::<String>(cache.kind, weight as i64))
        };
        let (plain, full) = (Kind::Plain.bytes::<u64, String>(), Kind::Full.bytes::<u64, String>());
        let exact = |bytes| Weight::exact(bytes).urgent();
        assert_eq!(garbage(|own| own), [Weight::at_least(plain); 2]);
        assert_eq!(garbage(|own| own.weight_in_bytes(true)), [Weight::at_least(plain); 2]);
        let weighed = garbage(|own| own.weigher(|_, _| 1));
        assert_eq!(weighed, [full, HEAVY].map(Weight::at_least));
        let in_bytes = garbage(|own| own.weigher(|_, _| 1).weight_in_bytes(true));
        assert_eq!(in_bytes, [full, HEAVY].map(exact));
        let not_in_bytes = garbage(|own| own.weigher(|_, _| 1).weight_in_bytes(false));
        assert_eq!(not_in_bytes, [Weight::at_least(full); 2]);
    }
}
