//! [`IdSpace`]: single ids.

use super::id::{Id, generation_in, held, index_in, tag_of};
use super::local::Local;
use super::state::{Block, Leaf, State, Trie};
use super::trie::NodeSlot;
use crate::section::{self, Domain, DomainMark, Section, Weight};
use crate::sync::{self, AtomicU64, Ordering};
use std::fmt;
use std::mem;
use std::num::NonZeroU64;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// A table of nodes with an [`Id`] for each: what a slab or a file-descriptor table is, for many
/// threads.
///
/// What for: objects that come and go, are named by a number outside of the program or in other
/// structures, and are looked up often by many threads. Examples are connections, files, entities,
/// sessions. When not: for keys of your own choice (a map), for one thread (a `Vec`), or for few
/// small nodes in a process short of memory.
///
/// A connection table:
/// ```
/// use manycore::{namespace::{Id, IdSpace}, section};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// struct Connection { peer: String, bytes: AtomicU64 }
///
/// let table = IdSpace::new();
/// let accept = |peer: &str| {
///     let connection = Connection { peer: peer.into(), bytes: AtomicU64::new(0) };
///     table.insert(connection, &section::enter())
/// };
/// let receive = |id: Id, bytes| match table.get(id, &section::enter()) {
///     Some(connection) => { connection.bytes.fetch_add(bytes, Ordering::Relaxed); true }
///     None => false, // closed in between
/// };
///
/// let (first, second) = (accept("10.0.0.1"), accept("10.0.0.2"));
/// assert!(receive(first, 100) && receive(second, 10));
/// let section = section::enter();
/// let closed = table.remove(first, &section).expect("closed once");
/// assert_eq!(closed.peer, "10.0.0.1"); // still there: the section is from before
/// assert!(!receive(first, 1));
/// assert_eq!(table.len(), 1);
/// ```
///
/// A file-descriptor table, where the node knows its number:
/// ```
/// use manycore::{namespace::{Id, IdSpace}, section};
///
/// struct File { descriptor: u64, path: &'static str }
///
/// let files = IdSpace::new();
/// let open = |path| files.insert_with(
///     |id| File { descriptor: id.to_bits(), path },
///     &section::enter(),
/// );
/// let passwd = open("/etc/passwd").to_bits();
/// // Numbers from outside are checked first.
/// let section = section::enter();
/// let read = |descriptor| files.get(files.check(descriptor)?, &section).map(|file| file.path);
/// assert_eq!(read(passwd), Some("/etc/passwd"));
/// assert_eq!(read(7), None);
/// assert_eq!(files.iter(&section).next().unwrap().1.descriptor, passwd);
/// ```
///
/// Ids may be kept outside of sections. References to nodes are borrowed from a section and from
/// the space. An id whose node has been removed leads nowhere, forever. Nodes do not move. They
/// are dropped once no section can be looking at them. To change a node, give it atomics or locks,
/// or put an [`Atomic`](crate::section::Atomic) into it:
///
/// ```
/// use manycore::{namespace::IdSpace, section::{self, Atomic, Owned}};
///
/// let section = section::enter();
/// let configs = IdSpace::new();
/// let id = configs.insert(Atomic::new("old"), &section);
/// let link = configs.get(id, &section).unwrap();
/// let old = link.swap(Owned::new("new"), &section);
/// // SAFETY: the swap unlinked it.
/// unsafe { section.retire(old) };
/// assert_eq!(link.load(&section).as_ref(), Some(&"new"));
/// # let last = link.swap(section::Shared::null(), &section);
/// # // SAFETY: the swap unlinked it.
/// # unsafe { section.retire(last) };
/// ```
///
/// A space with a domain of its own, in a struct: [`with_domain`](Self::with_domain). A section for
/// many calls in a row: [`enter`](Self::enter).
///
/// - Consistency: every operation on an id is linearizable.
/// - Progress: lookups are wait-free, and bounded by the height of the trie; inserts and removals
///   lock-free.
/// - Cost: a lookup is three to five loads and no store, so it scales with the cores. An insert or
///   a removal works on lines of the thread's own and on the node's, and touches what threads share
///   once in some dozens of operations.
/// - Memory of a place: the node and eight bytes. Places are made in blocks of as many as 64 KiB
///   hold, at most 1,024 and at least one.
/// - Memory of a space: 20 kB for every 32 threads of the process, 16 kB from the second block on,
///   blocks, and places that threads keep. It has as many blocks as its largest number of nodes at
///   one time needed, and one more for each thread that inserts. That number counts live nodes and
///   nodes that waited for sections to be over (see [`Domain`]). Each thread keeps up to 4,096 free
///   places of no more than half a megabyte in all, for its next inserts. So two live ids of a new
///   space cost 80 kB at most, or 30 kB and two places if these are larger.
/// - Memory of removed nodes: what a node owns is freed with it. Its place is reused for other
///   nodes of the space, and given back when the space is dropped, because a lookup by an id that
///   was removed long ago reads it. While a section stalls, no id is reused, in a bounded domain as
///   in any other, and each insert takes a new one.
///
/// Source: [ParSec](crate#sources), section 3.6; the laws are in [`crate::namespace`].
#[doc(alias = "generational arena")]
#[doc(alias = "slot map")]
pub struct IdSpace<'d, T> {
    pub(super) trie: Trie<T>,
    state: NonNull<State<T>>,
    /// Of `domain`.
    mark: DomainMark<'d>,
    pub(super) tag: NonZeroU64,
    /// Last field: dropping it may free removed nodes.
    domain: SpaceDomain<'d>,
}

/// The domain of the sections in which nodes are looked up.
enum SpaceDomain<'d> {
    Borrowed(&'d Domain),
    Shared(Arc<Domain>),
}

impl Deref for SpaceDomain<'_> {
    type Target = Domain;

    #[inline(always)]
    fn deref(&self) -> &Domain {
        match self {
            Self::Borrowed(domain) => domain,
            Self::Shared(domain) => domain,
        }
    }
}

// SAFETY: threads share `&T`, and values are dropped by other threads than their makers; the rest
// is made for being shared (namespace.N2 to namespace.N7).
unsafe impl<T: Send + Sync> Send for IdSpace<'_, T> {}
// SAFETY: a shared space gives `&T` to every thread (`T: Sync`) and lets any of them remove a node,
// which another may drop (`T: Send`); trie, state and pool are made for being shared (namespace.N2
// to namespace.N7).
unsafe impl<T: Send + Sync> Sync for IdSpace<'_, T> {}

sync::global! {
    /// Number of spaces that the process has made.
    static SPACES: AtomicU64 = AtomicU64::new(0);
}

/// Error: all places of an [`IdSpace`] are taken, by nodes or by ids that wait for sections to be
/// over.
///
/// See [`IdSpace::try_insert_with`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the namespace has no ids left")
    }
}

impl std::error::Error for Full {}

impl<T> IdSpace<'static, T> {
    /// Makes an empty space with nodes that are read in sections of the [`global`](section::global)
    /// domain.
    pub fn new() -> Self {
        Self::new_in(section::global())
    }

    /// Makes an empty space with nodes that are read in sections of `domain`, and keeps the domain.
    ///
    /// What for: a space in a struct, with a domain of its own or of some structures together. The
    /// global domain ([`new`](Self::new)) suffices unless sections or nodes are large or many.
    ///
    /// ```
    /// use manycore::{namespace::{Id, IdSpace}, section::{Domain, Mode}};
    /// use std::sync::Arc;
    ///
    /// struct Server { domain: Arc<Domain>, sessions: IdSpace<'static, String> }
    ///
    /// impl Server {
    ///     fn new() -> Self {
    ///         let domain = Arc::new(Domain::bounded());
    ///         Self { sessions: IdSpace::with_domain(Arc::clone(&domain)), domain }
    ///     }
    ///
    ///     fn greeting(&self, id: Id) -> Option<String> {
    ///         let section = self.domain.enter(); // or `self.sessions.enter()`
    ///         self.sessions.get(id, &section).map(|name| format!("hello {name}"))
    ///     }
    /// }
    ///
    /// let server = Server::new();
    /// let id = server.sessions.enter().insert("ann".into());
    /// assert_eq!(server.greeting(id).as_deref(), Some("hello ann"));
    /// ```
    pub fn with_domain(domain: Arc<Domain>) -> Self {
        // SAFETY: a domain in an `Arc` stays where it is as long as the space, which keeps it; the
        // space gives this borrow to nobody.
        let mark = unsafe { &*Arc::as_ptr(&domain) }.mark();
        Self::of(mark, SpaceDomain::Shared(domain))
    }
}

impl<T> Default for IdSpace<'static, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'d, T> IdSpace<'d, T> {
    /// Makes an empty space with nodes that are read in sections of `domain`.
    pub fn new_in(domain: &'d Domain) -> Self {
        Self::of(domain.mark(), SpaceDomain::Borrowed(domain))
    }

    /// Makes an empty space. The mark is that of the domain.
    fn of(mark: DomainMark<'d>, domain: SpaceDomain<'d>) -> Self {
        // ORDER: Relaxed; only the number counts.
        let number = SPACES.fetch_add(1, Ordering::Relaxed);
        let state = State::leak();
        Self { trie: Trie::new(), state, mark, tag: tag_of(number), domain }
    }

    /// Returns the domain of the space's sections: how much garbage waits there, and for which
    /// readers.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    #[inline(always)]
    pub(super) fn state(&self) -> &State<T> {
        // SAFETY: namespace.N7 - the state outlives the space.
        unsafe { self.state.as_ref() }
    }

    #[inline(always)]
    pub(super) fn local(&self, section: &Section<'_>) -> &Local {
        self.state().local(section.slot())
    }

    /// Checks the section in every operation: a section of another domain holds nothing back here.
    #[inline(always)]
    pub(super) fn expect_section(&self, section: &Section<'_>) {
        if !section.is_marked(self.mark) {
            wrong_domain();
        }
    }

    /// Returns the slot with a word that may be `id`, if there is one.
    #[inline(always)]
    pub(super) fn slot(&self, id: Id) -> Option<NonNull<NodeSlot<T>>> {
        let leaf = self.trie.find(id.index());
        if leaf.is_null() {
            return None;
        }
        // SAFETY: namespace.N2 - a leaf; the offset is a remainder.
        NonNull::new(unsafe { Leaf::slot(leaf, id.index() as usize % Leaf::<T>::LEN) })
    }

    /// Returns the node of `id`, or `None` if it has been removed.
    ///
    /// Cost: see law namespace.N1 of [`crate::namespace`]: no store, some 2 ns if the lines are in
    /// the cache.
    ///
    /// # Panics
    /// If the section is of another domain. In a debug build, if the id is of another namespace:
    /// ids carry a tag of their namespace. (There are 63 tags. In a release build such an id leads
    /// nowhere, unless 63 or a multiple of 63 other spaces were made between the two.)
    #[inline(always)]
    pub fn get<'s>(&'s self, id: Id, section: &'s Section<'_>) -> Option<&'s T> {
        self.expect_section(section);
        let Some(slot) = self.slot(id) else {
            return self.miss(id);
        };
        // Not the whole slot: its value may still be in the making.
        // SAFETY: namespace.N2 - a slot of this space.
        let word = unsafe { &(*slot.as_ptr()).word };
        // ORDER: Acquire; pairs with Release in `publish` (namespace.N3).
        if word.load(Ordering::Acquire) != id.to_bits() {
            return self.miss(id);
        }
        // SAFETY: namespace.N3 and namespace.N4 - the word is the id, so the value is there, and
        // this section keeps it.
        Some(unsafe { (*slot.as_ptr()).value.assume_init_ref() })
    }

    /// Returns true if `id` leads to a node.
    #[inline]
    pub fn contains(&self, id: Id, section: &Section<'_>) -> bool {
        self.get(id, section).is_some()
    }

    /// Returns the id that has `bits`, if it is of this space: for numbers from outside the
    /// program.
    pub fn check(&self, bits: u64) -> Option<Id> {
        Id::from_bits(bits).filter(|id| id.tag() == self.tag.get())
    }

    /// Returns `None` for an id that leads nowhere.
    #[inline(always)]
    pub(super) fn miss<R>(&self, id: Id) -> Option<R> {
        debug_assert!(
            id.tag() == self.tag.get(),
            "manycore: {id:?} is of another namespace than it is used in; ids from outside the \
             program go through `IdSpace::check`"
        );
        None
    }

    /// Returns the number of nodes: inserted minus removed, each counted at some time during the
    /// call. Cost: a look at every thread's part.
    pub fn len(&self) -> usize {
        usize::try_from(self.state().live() as i64).unwrap_or(0)
    }

    /// Returns true if there are no nodes, in the sense of [`len`](Self::len).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over every node, ordered by place.
    ///
    /// Consistency: weak. It yields each node that is present throughout, none twice, and some of
    /// those that are concurrently inserted or removed. Cost: a load of every slot that was ever
    /// used.
    ///
    /// # Panics
    /// If the section is of another domain.
    pub fn iter<'s>(
        &'s self,
        section: &'s Section<'_>,
    ) -> impl Iterator<Item = (Id, &'s T)> + use<'s, T> {
        self.expect_section(section);
        self.trie.leaves(self.state().end()).flat_map(|leaf| {
            (0..Leaf::<T>::LEN).filter_map(move |offset| {
                // SAFETY: namespace.N2 - a leaf of this space, and the offset is below LEN.
                let slot = unsafe { Leaf::slot(leaf, offset) };
                // SAFETY: namespace.N2 - the slot stays as long as the space; the reference is to
                // its word alone, because its value may be in the making.
                let word = unsafe { &(*slot).word };
                // ORDER: Acquire; as in `get`.
                let id = Id::in_word(word.load(Ordering::Acquire))?;
                // SAFETY: namespace.N3 and namespace.N4 - the word is an id, so the value is there,
                // and this section keeps it (`expect_section`).
                let value: &'s T = unsafe { (*slot).value.assume_init_ref() };
                Some((id, value))
            })
        })
    }
}

impl<T: Send + Sync + 'static> IdSpace<'_, T> {
    /// Adds a node.
    ///
    /// # Panics
    /// If the section is of another domain, or if there are no ids left; see
    /// [`try_insert_with`](Self::try_insert_with).
    #[inline(always)]
    pub fn insert(&self, value: T, section: &Section<'_>) -> Id {
        match self.take(section) {
            // No user code runs in between, so the value is made in its final place.
            Ok((local, slot, id)) => self.put(local, slot, id, value),
            Err(Full) => out_of_ids(),
        }
    }

    /// Adds a node that is made with its id. If `f` panics, the id is free again.
    ///
    /// # Panics
    /// Same as [`insert`](Self::insert).
    #[inline]
    pub fn insert_with(&self, f: impl FnOnce(Id) -> T, section: &Section<'_>) -> Id {
        match self.try_insert_with(f, section) {
            Ok(id) => id,
            Err(Full) => out_of_ids(),
        }
    }

    /// Adds a node that is made with its id. The id leads nowhere before this returns.
    ///
    /// # Errors
    /// If there are no ids left: some 2^32 are in use, or wait for sections to be over. `f` has not
    /// been called then.
    ///
    /// # Panics
    /// If the section is of another domain.
    ///
    /// ```
    /// use manycore::{namespace::{Full, IdSpace}, section};
    ///
    /// let sessions = IdSpace::new();
    /// let section = section::enter();
    /// match sessions.try_insert_with(|id| format!("session {id:?}"), &section) {
    ///     Ok(id) => assert!(sessions.contains(id, &section)),
    ///     Err(Full) => println!("too many sessions"), // refuse the client, and go on
    /// }
    /// assert_eq!(sessions.len(), 1);
    /// ```
    #[inline]
    pub fn try_insert_with(
        &self,
        f: impl FnOnce(Id) -> T,
        section: &Section<'_>,
    ) -> Result<Id, Full> {
        let (local, slot, id) = self.take(section)?;
        let taken = Taken { space: self, local, slot, id };
        let value = f(id);
        mem::forget(taken);
        Ok(self.put(local, slot, id, value))
    }

    /// Takes a free slot, and returns it with its next id.
    #[inline(always)]
    fn take(&self, section: &Section<'_>) -> Result<(&Local, *mut NodeSlot<T>, Id), Full> {
        self.expect_section(section);
        let local = self.local(section);
        if let Some((slot, id)) = self.reuse(local, section) {
            return Ok((local, slot, id));
        }
        let block = self.state().take(local, 0, &self.trie).ok_or(Full)?;
        Ok((local, block.slot, Id::new(self.tag, 0, block.index, block.next_generation())))
    }

    /// Takes the place of a removed node whose grace period is over straight out of the thread's
    /// limbo (namespace.N6). Returns it with its next id.
    #[inline(always)]
    fn reuse(&self, local: &Local, section: &Section<'_>) -> Option<(*mut NodeSlot<T>, Id)> {
        // (Destructors run at removals.)
        if mem::needs_drop::<T>() || sync::seeded_bug!("same-generation") {
            return None;
        }
        let address = section.reuse_raw(come_back::<T>)?;
        let slot = address.cast::<NodeSlot<T>>().as_ptr();
        // SAFETY: namespace.N7 - the slot and its leaf stay until the block has come back.
        // ORDER: Relaxed; the word is ours, since the grace period is over.
        let (word, state) = unsafe {
            let word = (*slot).word.load(Ordering::Relaxed);
            (word, (*Leaf::of(slot, index_in(word))).state)
        };
        if ptr::eq(state, self.state.as_ptr()) {
            if let Some(id) = Id::after(word, self.tag) {
                local.credit_borrowed();
                return Some((slot, id));
            }
        }
        // SAFETY: this is what it was retired with, and it has not been called.
        unsafe { come_back_unused::<T>(address) }
    }

    /// Puts a node into the slot that [`take`](Self::take) gave.
    #[inline(always)]
    fn put(&self, local: &Local, slot: *mut NodeSlot<T>, id: Id, value: T) -> Id {
        // SAFETY: namespace.N3 - the slot is ours alone until the store below.
        unsafe { (&raw mut (*slot).value).cast::<T>().write(value) };
        // SAFETY: namespace.N2 - a slot of this space.
        publish(unsafe { &(*slot).word }, id);
        local.count(1);
        id
    }

    /// Removes the node of `id` and returns it, as long as this section lasts; `None` if it has
    /// been removed already. If several calls remove it, exactly one gets it.
    ///
    /// The node is dropped, and its place reused, after every section that is open now has been
    /// closed: in some later removal or retirement, by any thread. Cost: one compare-and-exchange
    /// on the node, the rest as for [`Section::retire`](crate::section::Section::retire); no
    /// allocation.
    ///
    /// # Panics
    /// If the section is of another domain, or if the id is part of an extent, which is removed as
    /// a whole. In a debug build, if the id is of another namespace. Also if the destructor of a
    /// node that was removed earlier panics here.
    #[inline]
    pub fn remove<'s>(&'s self, id: Id, section: &'s Section<'_>) -> Option<&'s T> {
        self.expect_section(section);
        assert!(
            !id.is_in_extent(),
            "manycore: {id:?} is part of an extent, which is removed as a whole; see \
             `IdSpace::remove_extent`"
        );
        let Some(slot) = self.slot(id) else {
            return self.miss(id);
        };
        // SAFETY: namespace.N2 - a slot of this space.
        let word = unsafe { &(*slot.as_ptr()).word };
        if !retract(word, id) {
            return self.miss(id);
        }
        let local = self.local(section);
        local.count(1_u64.wrapping_neg());
        local.debit();
        let eager = sync::seeded_bug!("eager-reuse");
        // SAFETY: namespace.N4 - unlinked just now by us alone; looked up only in sections of
        // this domain (`expect_section`); `T` may be dropped by any thread at any time.
        let retire_for = |slot: NonNull<()>| unsafe {
            section.retire_for_reused(slot, Self::WEIGHT, come_back::<T>)
        };
        if eager || mem::needs_drop::<T>() || !retire_for(slot.cast()) {
            // SAFETY: namespace.N4, namespace.N7 - this call has made the id dead and debited the
            // block, and the block was not retired.
            unsafe { self.retire(local, section, slot) };
        }
        // SAFETY: namespace.N3 and namespace.N4 - the word was the id, and this section keeps the
        // value.
        Some(unsafe { (*slot.as_ptr()).value.assume_init_ref() })
    }

    /// Removes each node for which `keep` returns false. Asks about each node that [`iter`] yields,
    /// except those of extents, which are removed as a whole
    /// ([`remove_extent`](Self::remove_extent)).
    ///
    /// Consistency: that of [`iter`], and each removal is that of [`remove`](Self::remove). A node
    /// that another thread removes meanwhile is removed once. `keep` may use the space in every
    /// way. If it panics, the nodes that were removed until then stay removed, and all others stay.
    /// Cost: a load of every slot that was ever used, and the removals. All removed nodes wait for
    /// this section.
    ///
    /// # Panics
    /// If the section is of another domain. Also if the destructor of a node that was removed
    /// earlier panics here: the rest of the nodes is not asked about then.
    ///
    /// ```
    /// use manycore::{namespace::IdSpace, section};
    ///
    /// let sessions = IdSpace::new();
    /// let section = section::enter();
    /// let ids = [10, 20, 30].map(|idle_s| sessions.insert(idle_s, &section));
    /// sessions.retain(|_id, idle_s| *idle_s < 15, &section);
    /// assert_eq!(ids.map(|id| sessions.contains(id, &section)), [true, false, false]);
    /// ```
    ///
    /// [`iter`]: Self::iter
    pub fn retain(&self, mut keep: impl FnMut(Id, &T) -> bool, section: &Section<'_>) {
        for (id, value) in self.iter(section) {
            if !id.is_in_extent() && !keep(id, value) {
                self.remove(id, section);
            }
        }
    }
}

impl<T: Send + Sync + 'static> IdSpace<'_, T> {
    const WEIGHT: Weight = Weight::holding::<T>(size_of::<NodeSlot<T>>());

    /// Puts the slot of a removed id into the limbo.
    ///
    /// # Safety
    /// namespace.N4, namespace.N7: the caller has made the id dead and debited the block, in a
    /// section of this domain; called once for that.
    #[inline(never)]
    unsafe fn retire(&self, local: &Local, section: &Section<'_>, slot: NonNull<NodeSlot<T>>) {
        local.in_removal(|| {
            // BUG: a removed id's slot is free at once, while sections may still look at the node
            // (namespace.N4).
            if sync::seeded_bug!("eager-reuse") {
                // SAFETY: there is no reason, and a model shows it.
                return unsafe { come_back::<T>(slot.cast()) };
            }
            // SAFETY: namespace.N4 - the caller has unlinked it, alone; it was looked up in
            // sections of this domain only; `T` may be dropped by any thread at any time.
            unsafe { section.retire_raw(slot.cast(), Self::WEIGHT, come_back::<T>) };
        });
    }
}

/// Makes a slot's value visible under `id` (namespace.N3).
#[inline(always)]
pub(super) fn publish(word: &AtomicU64, id: Id) {
    debug_assert!(
        cfg!(manycore_loom) || Id::in_word(word.load(Ordering::Relaxed)).is_none(),
        "namespace.N3: a live node is overwritten"
    );
    // ORDER: Release; pairs with Acquire in `get` and `retract`: the value before its id.
    word.store(id.to_bits(), Ordering::Release);
}

/// Makes the id dead. Returns true if this call did (namespace.N4).
#[inline(always)]
pub(super) fn retract(word: &AtomicU64, id: Id) -> bool {
    // ORDER: AcqRel; Acquire as in `get`. Release, so that what this thread did before comes before
    // the id's being dead for a thread that sees that.
    word.compare_exchange(id.to_bits(), held(id), Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cold]
#[inline(never)]
fn out_of_ids() -> ! {
    panic!("manycore: {Full}")
}

#[cold]
#[inline(never)]
fn wrong_domain() -> ! {
    panic!(
        "manycore: the section is of another domain than the namespace, and holds nothing back \
         there; see `IdSpace::new_in`"
    )
}

/// A block that was taken. Dropping this gives it back if user code panics.
struct Taken<'a, 'd, T> {
    space: &'a IdSpace<'d, T>,
    local: &'a Local,
    slot: *mut NodeSlot<T>,
    id: Id,
}

impl<T> Drop for Taken<'_, '_, T> {
    fn drop(&mut self) {
        let (index, generation) = (self.id.index(), generation_in(self.id.to_bits()));
        let block = Block { slot: self.slot, index, generation: generation - 1 };
        self.space.state().untake(self.local, 0, &block);
    }
}

/// A block on its way back from the section. Dropping this brings it back, also if a destructor
/// panics.
pub(super) struct Back<T> {
    pub(super) state: *const State<T>,
    pub(super) slot: *mut NodeSlot<T>,
    pub(super) class: usize,
}

impl<T> Drop for Back<T> {
    fn drop(&mut self) {
        // SAFETY: namespace.N7 - made once for each retired block, with its state.
        unsafe { State::come_back(self.state, self.slot, self.class) }
    }
}

/// Called when a removed node's grace period is over.
///
/// # Safety
/// namespace.N4: `address` is a slot that `remove` retired, and this is the only call for it.
unsafe fn come_back<T>(address: NonNull<()>) {
    let slot = address.cast::<NodeSlot<T>>().as_ptr();
    // SAFETY: namespace.N7 - the slot and its leaf stay until the block has come back. The slot's
    // pointer was derived from the leaf's.
    // ORDER: Relaxed; the word is ours, since the grace period is over.
    let state = unsafe {
        let index = index_in((*slot).word.load(Ordering::Relaxed));
        (*Leaf::of(slot, index)).state
    };
    let _back = Back { state, slot, class: 0 };
    // SAFETY: namespace.N4 - no reader can hold it any more, and it was there (namespace.N3).
    unsafe { (&raw mut (*slot).value).cast::<T>().drop_in_place() };
}

/// Same as [`come_back`], for a slot that an insertion has no use for.
///
/// # Safety
/// That of `come_back`.
#[cold]
#[inline(never)]
unsafe fn come_back_unused<T>(address: NonNull<()>) -> Option<(*mut NodeSlot<T>, Id)> {
    // SAFETY: what the caller promises.
    unsafe { come_back::<T>(address) };
    None
}

impl<T> Drop for IdSpace<'_, T> {
    /// Drops every node that is there. Nodes that were removed before are dropped when their time
    /// comes.
    fn drop(&mut self) {
        if sync::model_failed() {
            return;
        }
        /// Lets the state go, also if a destructor panics.
        struct Closing<'a, 'd, T>(&'a mut IdSpace<'d, T>);
        impl<T> Drop for Closing<'_, '_, T> {
            fn drop(&mut self) {
                let trie = self.0.trie.take();
                // SAFETY: namespace.N7 - the space is being dropped; the state came from
                // `Box::leak`.
                unsafe { State::close(self.0.state, trie) }
            }
        }
        let closing = Closing(self);
        if mem::needs_drop::<T>() {
            closing.0.drop_nodes();
        }
    }
}

impl<T> IdSpace<'_, T> {
    fn drop_nodes(&mut self) {
        for leaf in self.trie.leaves(self.state().end()) {
            for offset in 0..Leaf::<T>::LEN {
                // SAFETY: namespace.N2 - a slot of this space.
                let slot = unsafe { Leaf::slot(leaf, offset) };
                // SAFETY: namespace.N2 - a slot of this space; the reference is to its word alone.
                let word = unsafe { &(*slot).word };
                // ORDER: Relaxed; the space is ours alone, and it was handed over after all
                // inserts.
                if Id::in_word(word.load(Ordering::Relaxed)).is_some() {
                    word.store(0, Ordering::Relaxed);
                    // SAFETY: namespace.N3 - it is there; no references are left, since those
                    // borrow the space.
                    unsafe { (&raw mut (*slot).value).cast::<T>().drop_in_place() };
                }
            }
        }
    }
}

impl<T> fmt::Debug for IdSpace<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdSpace").field("len", &self.len()).finish_non_exhaustive()
    }
}
