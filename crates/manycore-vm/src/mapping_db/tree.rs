//! The tree of each frame: a mapping, and the mappings derived from it. Single nodes are locked.
//!
//! Laws:
//! - tree.M1 A node's lock protects its list of children, the children's links, and whether they
//!   are linked. Space, page, frame and parent never change.
//! - tree.M2 A node dies once: under its own lock, which is then released as freed. From then on
//!   nothing is inserted below it: insertion takes the parent's lock, which fails on a dead parent.
//! - tree.M3 A thread that holds a node's lock waits only for locks of nodes below it, so there is
//!   no deadlock. A thread that waits for a node's lock holds no other lock of the database. Under
//!   a node's lock a thread takes only the lock of its own pending list.
//! - tree.M4 A revoker holds the lock of the node where it begins, the *anchor*, until everything
//!   below is dead. It takes a child from the anchor's list, kills it, and moves the child's
//!   children to the anchor's list. So it needs no recursion, and no more memory for a deeper tree.
//! - tree.M5 The pages of killed nodes become pending from the bottom up: if a page is pending, so
//!   are all pages derived from it. A thread that finds a dead node waits until the node's page is
//!   pending.
//! - tree.M6 A dead node is queued once for its gate. The thread that takes it out of a list queues
//!   it; a root is queued by its killer. It is queued under the lock of the list's owner, and so
//!   before the root of its tree. It is queued after everything that the same anchor killed is
//!   dead. So a thread that found a live node below may look at it.
//!
//! Source: ParSec, section 4. The paper leaves two points open: the order in which a subtree is
//! locked, and what an alias does if its parent is being revoked.

use super::space::Window;
use crate::Rights;
use crate::sync::{AtomicU8, Ordering, UnsafeCell, seeded_bug};
use manycore::section::{NodeGuard, NodeLock, Section};
use std::ptr;

/// The pages of one address space.
pub(super) type Space = Window<Node>;

/// A pointer to a space. The database keeps the space alive.
#[derive(Clone, Copy)]
pub(super) struct SpaceRef(pub(super) *const Space);

// SAFETY: space.A4 - a `Space` is made for sharing, and outlives the sections that found it.
unsafe impl Send for SpaceRef {}
// SAFETY: space.A4 - the pointer leads to a `Space`, whose parts are atomics.
unsafe impl Sync for SpaceRef {}

/// One page's mapping.
#[repr(align(64))]
pub(super) struct Node {
    lock: NodeLock,
    /// Null for a root.
    parent: *mut Node,
    space: *const Space,
    /// The first child; the list is circular.
    first: UnsafeCell<*mut Node>,
    /// The next node in the list of the parent's children, later in a [`Chain`].
    next: UnsafeCell<*mut Node>,
    /// Null if the node is not in a list of children.
    prev: UnsafeCell<*mut Node>,
    page: u32,
    frame: u32,
    rights: AtomicU8,
}

/// Bytes of a mapping. The crate promises this size.
pub(super) const NODE_BYTES: usize = 64;
#[cfg(not(manycore_loom))]
const _: () = assert!(size_of::<Node>() == NODE_BYTES);

/// Dead nodes, the last killed node first.
pub(super) struct Chain {
    pub(super) head: *mut Node,
    pub(super) length: usize,
    tail: *mut Node,
}

impl Chain {
    pub(super) const fn new() -> Self {
        Self { head: ptr::null_mut(), length: 0, tail: ptr::null_mut() }
    }

    /// # Safety
    /// The node's memory is live, the node is dead, and the caller took it out of its list.
    pub(super) unsafe fn push(&mut self, node: *mut Node) {
        // SAFETY: tree.M6 - the thread that took a node out of its list owns the node's links.
        unsafe { (*node).next.with_mut(|next| *next = self.head) };
        if self.head.is_null() {
            self.tail = node;
        }
        self.head = node;
        self.length += 1;
    }

    /// Puts the non-empty chain `other` in front.
    ///
    /// # Safety
    /// The nodes of both chains belong to the caller.
    pub(super) unsafe fn prepend(&mut self, other: &Self) {
        // SAFETY: tree.M6 - the chain's owner owns the links of its nodes.
        unsafe { (*other.tail).next.with_mut(|next| *next = self.head) };
        if self.head.is_null() {
            self.tail = other.tail;
        }
        self.head = other.head;
        self.length += other.length;
    }

    /// Iterates over the nodes.
    ///
    /// # Safety
    /// The chain's nodes belong to the caller, and their memory is live until the iterator has
    /// passed them.
    pub(super) unsafe fn nodes(&self) -> impl Iterator<Item = *mut Node> + use<> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let node = at;
            if node.is_null() {
                return None;
            }
            // SAFETY: tree.M6 - the chain's owner owns the links of its nodes.
            at = unsafe { (*node).next.with(|next| *next) };
            Some(node)
        })
    }
}

impl Node {
    pub(super) fn new(
        (space, page): (*const Space, u32),
        frame: u32,
        rights: Rights,
        parent: *mut Node,
    ) -> Self {
        let null = || UnsafeCell::new(ptr::null_mut());
        Self {
            lock: NodeLock::new(),
            parent,
            space,
            first: null(),
            next: null(),
            prev: null(),
            page,
            frame,
            rights: AtomicU8::new(rights.bits()),
        }
    }

    /// Returns the space, which lives as long as the node (space.A4).
    pub(super) fn space(&self) -> &Space {
        // SAFETY: space.A4 - a space is not freed while one of its slots is in use, and a node's
        // slot becomes free only after the node's gate.
        unsafe { &*self.space }
    }

    pub(super) fn page(&self) -> u32 {
        self.page
    }

    pub(super) fn frame(&self) -> u32 {
        self.frame
    }

    pub(super) fn is_root(&self) -> bool {
        self.parent.is_null()
    }

    pub(super) fn rights(&self) -> Rights {
        // ORDER: Relaxed; rights change under the lock, and only shrink.
        Rights::from_bits(self.rights.load(Ordering::Relaxed))
    }

    /// Takes the lock, or returns `None` if the node is dead. Then everything that its killer did
    /// before is visible.
    #[inline]
    fn lock<'s>(&'s self, section: &'s Section<'_>) -> Option<NodeGuard<'s>> {
        let guard = self.lock.lock(section);
        // A refused locker has read the word but not acquired it (tree.M5 says what it may rely
        // on).
        if guard.is_none() && !self.lock.is_freed() {
            unreachable!("tree.M2: a node dies once");
        }
        guard
    }

    /// Waits until the thread that killed this node has made its page pending, and before that the
    /// pages of all nodes below (tree.M5).
    fn await_killer(&self, this: *mut Node) {
        // BUG: a thread that finds a dead node assumes that all nodes below it are dead (tree.M5).
        if !seeded_bug!("vm-killer-not-awaited") {
            self.space().await_clear(self.page, this);
        }
    }

    /// Inserts a child. Fails with the reason if this node is dead or its rights have shrunk
    /// (tree.M2).
    ///
    /// # Safety
    /// `child` was made with this node as its parent, and no other thread knows it.
    pub(super) unsafe fn insert(
        &self,
        child: *mut Node,
        section: &Section<'_>,
    ) -> Result<(), crate::ErrorKind> {
        // BUG: an alias checks only its parent's mark, and inserts without the parent's lock
        // (tree.M2).
        if seeded_bug!("vm-alias-without-lock") {
            if self.lock.is_freed() {
                return Err(crate::ErrorKind::NotMapped);
            }
            // SAFETY: none; the model shows that this is unsound.
            unsafe { self.link(child) };
            return Ok(());
        }
        let Some(_guard) = self.lock(section) else {
            return Err(crate::ErrorKind::NotMapped);
        };
        // SAFETY: the node is the caller's and unpublished (# Safety).
        if !self.rights().includes(unsafe { (*child).rights() }) {
            return Err(crate::ErrorKind::RightsGrow);
        }
        // SAFETY: tree.M1 - under the lock.
        unsafe { self.link(child) };
        Ok(())
    }

    /// # Safety
    /// tree.M1: this node's lock is held.
    unsafe fn link(&self, child: *mut Node) {
        // SAFETY: tree.M1 - the lock is held (# Safety), which protects the list and the links.
        unsafe {
            let first = self.first.with(|first| *first);
            if first.is_null() {
                join(child, child);
            } else {
                join((*first).prev.with(|prev| *prev), child);
                join(child, first);
            }
            self.first.with_mut(|at| *at = child);
        }
    }

    /// Takes a child out of the list.
    ///
    /// # Safety
    /// tree.M1: this node's lock is held, and the child is linked.
    unsafe fn unlink(&self, child: *mut Node) {
        // SAFETY: tree.M1 - the lock is held (# Safety), which protects the list and the links.
        unsafe {
            let next = (*child).next.with(|next| *next);
            join((*child).prev.with(|prev| *prev), next);
            (*child).prev.with_mut(|prev| *prev = ptr::null_mut());
            self.first.with_mut(|first| {
                if *first == child {
                    *first = if next == child { ptr::null_mut() } else { next };
                }
            });
        }
    }

    /// Moves the children of the dead node `child` to the front of this list (tree.M4).
    ///
    /// # Safety
    /// tree.M1: the locks of both are held.
    unsafe fn adopt(&self, child: &Node) {
        // SAFETY: tree.M1 - both locks are held (# Safety), which protect lists and links.
        unsafe {
            let theirs = child.first.with_mut(|first| ptr::replace(first, ptr::null_mut()));
            if theirs.is_null() {
                return;
            }
            let ours = self.first.with(|first| *first);
            if !ours.is_null() {
                let (our_last, last) =
                    ((*ours).prev.with(|prev| *prev), (*theirs).prev.with(|prev| *prev));
                join(last, ours);
                join(our_last, theirs);
            }
            self.first.with_mut(|first| *first = theirs);
        }
    }

    /// Kills everything below this node, and makes the pages pending (tree.M4, tree.M5).
    ///
    /// # Safety
    /// tree.M1: this node's lock is held.
    unsafe fn kill_below(&self, section: &Section<'_>) -> Chain {
        let mut dead = Chain::new();
        loop {
            // SAFETY: tree.M1 - the lock is held (# Safety).
            let child = unsafe { self.first.with(|first| *first) };
            if child.is_null() {
                break;
            }
            // SAFETY: tree.M1 - the child is linked here, so its memory is live (tree.M6); the lock
            // is held.
            let node = unsafe {
                self.unlink(child);
                &*child
            };
            // `None`: its own killer has killed it and all nodes below it.
            if let Some(guard) = node.lock(section) {
                // SAFETY: tree.M1 - both are locked.
                unsafe { self.adopt(node) };
                guard.release_freed();
            }
            // SAFETY: tree.M6 - dead, and taken out of the list just now.
            unsafe { dead.push(child) };
        }
        // SAFETY: tree.M6 - not queued yet, so they belong to this thread.
        for node in unsafe { dead.nodes() } {
            // SAFETY: tree.M6 - dead and not queued. A chain has children before their parents
            // (tree.M5).
            let node = unsafe { &*node };
            node.space().clear(node.page);
        }
        dead
    }

    /// Kills everything below this node and passes it to `queue`. Returns how many nodes that were.
    ///
    /// Returns `None` if this node is dead. Then all nodes below it are dead when this returns.
    pub(super) fn revoke(
        this: *mut Node,
        section: &Section<'_>,
        rights: Option<Rights>,
        queue: impl FnOnce(Chain),
    ) -> Option<usize> {
        // SAFETY: tree.M6 - the caller found it live in this section.
        let node = unsafe { &*this };
        let Some(guard) = node.lock(section) else {
            node.await_killer(this);
            return None;
        };
        // SAFETY: tree.M1 - the lock is held.
        let dead = unsafe { node.kill_below(section) };
        if let Some(rights) = rights {
            // ORDER: Relaxed; under the lock.
            node.rights.store(rights.bits(), Ordering::Relaxed);
        }
        let length = dead.length;
        if length != 0 {
            queue(dead);
        }
        drop(guard);
        Some(length)
    }

    /// Kills this node and everything below it. Otherwise like [`revoke`](Self::revoke).
    pub(super) fn unmap(
        this: *mut Node,
        section: &Section<'_>,
        mut queue: impl FnMut(Chain),
    ) -> Option<usize> {
        // SAFETY: tree.M6 - the caller found it live in this section.
        let node = unsafe { &*this };
        let Some(guard) = node.lock(section) else {
            node.await_killer(this);
            return None;
        };
        // BUG: a node is declared dead before the nodes below it are, so that a revoker above does
        // not wait (tree.M4).
        if seeded_bug!("vm-dead-before-its-children") {
            // SAFETY: none; the model shows that this is unsound.
            let dead = unsafe {
                guard.release_freed();
                crate::sync::yield_now();
                node.kill_below(section)
            };
            node.space().clear(node.page);
            return Some(dead.length + 1);
        }
        // SAFETY: tree.M1 - the lock is held.
        let mut dead = unsafe { node.kill_below(section) };
        node.space().clear(node.page); // tree.M5
        let length = dead.length + 1;
        if node.is_root() {
            // SAFETY: tree.M6 - a root is in no list.
            unsafe { dead.push(this) };
            queue(dead);
            guard.release_freed();
            return Some(length);
        }
        if dead.length != 0 {
            queue(dead);
        }
        guard.release_freed();
        // SAFETY: tree.M6 - the parent is not queued before this node is dead, in this section.
        let parent = unsafe { &*node.parent };
        // If the parent is dead, its killer has this node in its anchor's list and queues it.
        if let Some(_guard) = parent.lock(section) {
            // SAFETY: tree.M1 - under the parent's lock.
            let is_linked = unsafe { node.prev.with(|prev| !(*prev).is_null()) };
            if is_linked {
                // SAFETY: tree.M1 - linked, under the parent's lock.
                unsafe { parent.unlink(this) };
            }
            // BUG: a dead node is queued although a killer above has taken it out and queues it
            // (tree.M6).
            if is_linked || seeded_bug!("vm-queued-by-two") {
                let mut own = Chain::new();
                // SAFETY: tree.M6 - dead, and taken out of the list just now.
                unsafe { own.push(this) };
                queue(own);
            }
        }
        Some(length)
    }
}

/// Makes `next` follow `node`.
///
/// # Safety
/// tree.M1: the locks of the lists that both nodes are in are held.
unsafe fn join(node: *mut Node, next: *mut Node) {
    // SAFETY: tree.M1 - the caller holds the lists' locks (# Safety).
    unsafe {
        (*node).next.with_mut(|at| *at = next);
        (*next).prev.with_mut(|at| *at = node);
    }
}
