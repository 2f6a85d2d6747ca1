//! A registry of what is open now: entries come and go all the time, and are walked now and then.
//!
//! Owns: [`Registry`] and its entries. Built on [`Deferred`] with its own kind of log (`churn`).
//! Source: OpLog, section 1 and 7.4 (the list of open files).
//!
//! ```text
//! register --Enter--> log of the slot --merge--> list  <-- walks
//! drop     --Leave--> same log:  both cancel, the entry drops its value
//!                     other log: the merge removes the node from the list
//! ```
//!
//! # The laws
//!
//! - **registry.R1** A node is made by `Enter` and belongs to the registry from then on: it is in
//!   one log, or in the list. Its entry only uses it. Dropping the entry appends `Leave`. After
//!   that the entry does not touch the node, unless `Leave` gave it back. So a node's address is
//!   not reused while any log holds it, and can serve as its identity (O-09): no numbers are given
//!   out. While the registry has no logs, both changes are made in place if that runs no user code,
//!   and allocates and frees nothing (`Deferred::change_in_place`).
//! - **registry.R2** `push` and `apply` run on the appending thread before `append` returns, so
//!   `Enter` and `Leave` can point into its frame. If `Leave` finds the `Enter` in the same log, or
//!   the node in a cold list, no other reference to the node is left. Then the entry drops its
//!   value, outside of every lock.
//! - **registry.R3** A node knows its place in the log or list that has it. A user compares the
//!   pointer found there, so a stale place is harmless. Cancelling takes no search and no hash,
//!   however long the log is.
//! - **registry.R4** `Leave` happens after `Enter`. A merge takes all logs at one moment, so for
//!   each `Leave` it has the `Enter`, unless that was merged before.
//! - **registry.R5** No user code runs under the registry's locks. What merges take out goes to the
//!   deferred drops, and the next walk or end of an entry on any thread drops it. A walk holds the
//!   object; it catches a panic of the caller's closure until it has released the object.
//! - **registry.R6** A node that is free at once gives up its value, if that is small. Its memory
//!   stays in the log or list that had it, for the next `Enter` there. Its address becomes another
//!   node's then: after `Leave`, and while no log holds it (registry.R1).

mod bag;
mod churn;
mod list;

use crate::collections::{Line, deferred_drops::DeferredDrops, guarded, member_pool::MemberPool};
use crate::config;
use crate::ldu::Queue;
use crate::oplog::{BuildError, Deferred, Logs, Publish, ReadGuard, Stats};
use crate::percpu;
use crate::sync::Raced;
use bag::{Arrival, Departure, Node};
use churn::{Change, Churn, Members};
use list::List;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, needs_drop, offset_of};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A list of what is alive: connections, sessions, tasks, transactions, open files.
///
/// [`register`](Self::register) returns an [`Entry`]; dropping it ends the registration. If the
/// registering thread drops the entry before the next walk, the entry never reaches the list.
///
/// When not: for lookup by a key (that is a map), and for lists that are walked about as often as
/// they change (a `Mutex<Slab>` is better there).
///
/// ```
/// use manycore::collections::Registry;
///
/// struct Connection {
///     peer: String,
/// }
///
/// let open: Registry<Connection> = Registry::new();
/// std::thread::scope(|s| {
///     let open = &open;
///     s.spawn(move || {
///         let connection = open.register(Connection { peer: "10.0.0.7".into() });
///         println!("talking to {}", connection.peer);
///     }); // the thread ends and its entry with it
/// });
/// let local = open.register(Connection { peer: "localhost".into() });
/// let mut peers = Vec::new();
/// open.for_each(|connection| peers.push(connection.peer.clone()));
/// assert_eq!(peers, ["localhost"]);
/// drop(local);
/// assert!(open.is_empty());
/// ```
///
/// - Consistency: linearizable. A walk sees every entry that was registered before it and not
///   dropped, in no particular order, at one moment.
/// - Progress: registering and dropping wait only for a merge that takes the thread's log, or for
///   the lock while the registry is cold. Walks wait for each other.
/// - Cost of a registration and its end: two appends to the thread's own log without a stamp. No
///   shared line is written. No allocation in a steady state if values have at most 256 bytes.
/// - Cost of a walk: it merges first, a cache miss or three for each thread that registered or
///   dropped since. Then it follows a pointer for each entry.
/// - Memory: 240 bytes; the value and 8 bytes per entry, 8 bytes in the list, up to 64 free entries
///   in each log, and what [`Deferred`] needs.
/// - When values are dropped: by the thread that drops the entry, if the entry was not merged yet
///   or the registry is cold. Else after the next merge, by whichever thread drops an entry or
///   walks next. No lock is held then, so a value's `Drop` may use the registry.
/// - Panics: a panic in a value's `Drop` reaches the entry's owner or the walk that drops it. The
///   end of another entry that drops it contains the panic. A panic in a walk's closure reaches the
///   walker. The registry stays in order.
/// - Source: [OpLog](crate#sources), sections 1 and 7.4.
#[doc(alias = "connection list")]
#[doc(alias = "slab")]
pub struct Registry<T: Send + Sync + 'static> {
    shared: Arc<Shared<T>>,
    /// Made when the first owned entry is registered.
    anchors: Raced<Anchors<T>, ()>,
}

/// The part of a registry that entries need.
enum Shared<T: Send + Sync + 'static> {
    Logged(Logged<T>),
    Marked(Box<MemberPool<T, List<T>>>),
}

/// The form with logs.
struct Logged<T: Send + Sync + 'static> {
    members: Deferred<Members<T>, Churn<T>>,
    deferred_drops: Arc<DeferredDrops<Box<Node<T>>>>,
}

// Said here so that `T` may refer to its own registry: in a cycle, the compiler can't derive it
// through the bounds of `Deferred`. `_SHARED` makes it check the fields.
// SAFETY: every field is `Send` and `Sync` if `T` is both.
unsafe impl<T: Send + Sync + 'static> Send for Shared<T> {}
// SAFETY: every field is `Sync` if `T` is `Send` and `Sync`; `_SHARED` has the compiler look.
unsafe impl<T: Send + Sync + 'static> Sync for Shared<T> {}

const _SHARED: () = {
    const fn is_shareable<T: Send + Sync>() {}
    is_shareable::<(Deferred<Members<u8>, Churn<u8>>, Arc<DeferredDrops<Box<Node<u8>>>>)>();
    is_shareable::<MemberPool<u8, List<u8>>>();
};

/// A reference to the shared part, on behalf of the owned entries of some slots.
struct Anchor<T: Send + Sync + 'static>(Arc<Shared<T>>);

/// Anchors, so that owned entries of different threads count their references on different lines.
type Anchors<T> = [Line<Raced<Arc<Anchor<T>>, ()>>; ANCHORS];

/// Threads share an anchor if their slots differ by this number.
const ANCHORS: usize = 64;

impl<T: Send + Sync + 'static> Logged<T> {
    #[inline(always)]
    fn enter(&self, value: T) -> NonNull<T> {
        let value = ManuallyDrop::new(value);
        // SAFETY: registry.R2 - this runs now or not at all; the value is not used again if there
        // is a node.
        let node =
            self.members.change_in_place(|members| unsafe { members.nodes().enter_free(&value) });
        match node {
            Some(node) => Self::value_of(node),
            None => self.append_enter(ManuallyDrop::into_inner(value)),
        }
    }

    #[inline(never)]
    fn append_enter(&self, value: T) -> NonNull<T> {
        let mut arrival = Arrival::new(value);
        self.members.append(Change::enter(NonNull::from(&mut arrival)));
        Self::value_of(arrival.node().expect("the change was pushed or applied: registry.R2"))
    }

    #[inline(always)]
    fn value_of(node: NonNull<Node<T>>) -> NonNull<T> {
        // SAFETY: registry.R1 - the node is alive. The pointer leads to the value and back to the
        // node.
        unsafe { NonNull::new_unchecked(&raw mut (*node.as_ptr()).value) }
    }

    /// # Safety
    /// As [`Shared::leave`].
    #[inline(always)]
    unsafe fn leave(&self, value: NonNull<T>) {
        // SAFETY: the caller promises that `value` came from `enter`, which made the pointer from
        // one to the whole node; registry.R1 - the node is alive until this entry's `Leave` below.
        let node: NonNull<Node<T>> = unsafe { value.byte_sub(offset_of!(Node<T>, value)).cast() };
        // SAFETY: registry.R1 - the node is this entry's, which is over if the list has let it go.
        let left =
            self.members.change_in_place(|members| unsafe { members.nodes().leave_free(node) });
        let Some(mut value) = left else {
            // SAFETY: registry.R1 - the node is this entry's, and was not given up.
            return unsafe { self.append_leave(node) };
        };
        if needs_drop::<T>() {
            // SAFETY: registry.R6 - the node's value was moved here, if it needs to be dropped.
            unsafe { value.assume_init_drop() };
        }
        self.deferred_drops.sweep();
    }

    /// # Safety
    /// The node is an entry's that ends.
    #[inline(never)]
    unsafe fn append_leave(&self, node: NonNull<Node<T>>) {
        let mut departure = Departure::new();
        self.members.append(Change::leave(node, NonNull::from(&mut departure)));
        // SAFETY: registry.R2 - if the departure has something of the node, no other thread does.
        unsafe { departure.finish(node) };
        self.deferred_drops.sweep();
    }

    fn with_members<R>(&self, f: impl FnOnce(&ReadGuard<'_, Members<T>, Churn<T>>) -> R) -> R {
        // registry.R5
        guarded(
            || self.members.read(),
            |members| f(members),
            || self.deferred_drops.sweep_for_reader(),
        )
    }
}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Begins a registration. The caller makes an entry for it before anything can panic.
    #[inline(always)]
    fn enter(&self, value: T) -> NonNull<T> {
        match self {
            Self::Logged(logged) => logged.enter(value),
            Self::Marked(marked) => marked.enter(value),
        }
    }

    /// Ends a registration.
    ///
    /// # Safety
    /// `value` came from `enter`, this is called once for it, and it is not used afterwards.
    #[inline(always)]
    unsafe fn leave(&self, value: NonNull<T>) {
        // SAFETY: the caller promises that `value` came from `enter`, so from this same form, that
        // this is the only call for it, and that it is not used afterwards.
        unsafe {
            match self {
                Self::Logged(logged) => logged.leave(value),
                Self::Marked(marked) => marked.leave(value),
            }
        }
    }

    fn for_each(&self, f: impl FnMut(&T)) {
        match self {
            Self::Logged(logged) => logged.with_members(|members| members.values().for_each(f)),
            Self::Marked(marked) => marked.read(|list| list.values().for_each(f)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Logged(logged) => logged.with_members(|members| members.len()),
            Self::Marked(marked) => marked.read(List::len),
        }
    }
}

impl<T: Send + Sync + 'static> Registry<T> {
    /// Makes an empty registry.
    ///
    /// # Panics
    /// Never: the defaults are valid.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build().expect("the defaults are valid")
    }

    /// Starts a builder for a registry with other bounds and policies.
    #[must_use]
    pub fn builder() -> RegistryBuilder<T> {
        let members = Deferred::<Members<T>, Churn<T>>::builder();
        let max_entries = config::DEFAULT_MAX_ENTRIES;
        RegistryBuilder { members, marks: None, max_entries, registry: PhantomData }
    }

    /// Registers a value until the entry is dropped. (A leaked entry stays registered for as long
    /// as the registry lives.)
    ///
    /// The entry borrows the registry. If it must not, put the registry into a `static` `LazyLock`
    /// (it can't be made at compile time, because its entries lead to its heap), or use
    /// [`register_owned`](Self::register_owned).
    #[inline]
    pub fn register(&self, value: T) -> Entry<'_, T> {
        Entry { value: self.shared.enter(value), shared: &self.shared }
    }

    /// Same as [`register`](Self::register), with an entry that keeps what it needs of the registry
    /// alive, and may outlive this handle. The registry cannot be walked then, but values are kept
    /// and dropped properly.
    ///
    /// Costs two more read-modify-writes for each entry, on a line that is shared by threads with
    /// slots 64 apart.
    #[inline]
    pub fn register_owned(&self, value: T) -> OwnedEntry<T> {
        // After its destructors, a thread has no slot.
        let at = percpu::own_slot().map_or(0, |slot| slot.index()) % ANCHORS;
        let made = self.anchors.get().and_then(|anchors| anchors[at].0.get());
        let anchor = Arc::clone(made.unwrap_or_else(|| self.make_anchor(at)));
        OwnedEntry { value: anchor.0.enter(value), anchor }
    }

    #[cold]
    #[inline(never)]
    fn make_anchor(&self, at: usize) -> &Arc<Anchor<T>> {
        let anchors = self.anchors.get_or_make(|| std::array::from_fn(|_| Line(Raced::unmade())));
        anchors[at].0.get_or_make(|| Arc::new(Anchor(Arc::clone(&self.shared))))
    }

    /// Calls `f` with every value that is registered, in no particular order.
    ///
    /// Other walks block until it ends; registering and dropping entries does not.
    /// `f` may register and drop entries (this walk does not see them).
    ///
    /// # Panics
    /// If `f` does, or if it walks the same registry.
    pub fn for_each(&self, f: impl FnMut(&T)) {
        self.shared.for_each(f);
    }

    /// Returns clones of all values, at one moment. Register an `Arc` if cloning is expensive.
    ///
    /// # Panics
    /// If cloning does.
    #[must_use]
    pub fn snapshot(&self) -> Vec<T>
    where
        T: Clone,
    {
        let mut values = Vec::new();
        self.for_each(|value| values.push(value.clone()));
        values
    }

    /// Returns the number of entries. Gathers the logs, so not for hot paths.
    ///
    /// # Panics
    /// If this thread is in a walk of the same registry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns true if there is no entry. Costs as much as [`len`](Self::len).
    ///
    /// # Panics
    /// If this thread is in a walk of the same registry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns counts of what happened to registrations while the registry had logs. With
    /// [`marks`](RegistryBuilder::marks), only `applied` and `merges`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        match &*self.shared {
            Shared::Logged(logged) => logged.members.stats(),
            Shared::Marked(marked) => {
                let stats = marked.stats();
                Stats { applied: stats.applied, merges: stats.drains, ..Stats::default() }
            }
        }
    }
}

impl<T: Send + Sync + 'static> Default for Registry<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Registry<T> {
    /// Prints the state, not the entries: that would take a merge.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hot, marked) = match &*self.shared {
            Shared::Logged(logged) => (logged.members.is_hot(), false),
            Shared::Marked(_) => (false, true),
        };
        f.debug_struct("Registry")
            .field("hot", &hot)
            .field("marked", &marked)
            .finish_non_exhaustive()
    }
}

/// A handle: its value is registered for as long as this lives. Gives access to the value, and may
/// be dropped on any thread.
///
/// See [`Registry`] for an example.
#[must_use = "dropping the entry ends the registration"]
pub struct Entry<'a, T: Send + Sync + 'static> {
    value: NonNull<T>,
    shared: &'a Shared<T>,
}

/// Same as [`Entry`], without borrowing the registry; see [`Registry::register_owned`].
///
/// ```
/// use manycore::collections::{OwnedEntry, Registry};
///
/// /// Owns its registration, so it borrows nothing.
/// struct Session {
///     entry: OwnedEntry<String>,
/// }
///
/// let registry = Registry::new();
/// let session = Session { entry: registry.register_owned("ann".into()) };
/// assert_eq!((registry.len(), &**session.entry), (1, "ann"));
/// std::thread::spawn(move || drop(session)).join().unwrap();
/// assert!(registry.is_empty());
/// ```
#[must_use = "dropping the entry ends the registration"]
pub struct OwnedEntry<T: Send + Sync + 'static> {
    value: NonNull<T>,
    anchor: Arc<Anchor<T>>,
}

// SAFETY: (all four) an entry gives shared access to the value (`T: Sync`), and dropping it can
// drop the value on that thread (`T: Send`). The registry itself may be used from any thread.
unsafe impl<T: Send + Sync + 'static> Send for Entry<'_, T> {}
// SAFETY: a shared entry gives out `&T` alone (`T: Sync`).
unsafe impl<T: Send + Sync + 'static> Sync for Entry<'_, T> {}
// SAFETY: an owned entry gives the value as a borrowed one does, and keeps the registry by an
// `Arc`, whose count any thread may change.
unsafe impl<T: Send + Sync + 'static> Send for OwnedEntry<T> {}
// SAFETY: a shared owned entry gives out `&T` alone (`T: Sync`).
unsafe impl<T: Send + Sync + 'static> Sync for OwnedEntry<T> {}

impl<T: Send + Sync + 'static> Deref for Entry<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: registry.R1 - the node lives until after this entry's `Leave`.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Send + Sync + 'static> Deref for OwnedEntry<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: registry.R1 - the node lives until after this entry's `Leave`.
        unsafe { self.value.as_ref() }
    }
}

impl<T: Send + Sync + 'static> Drop for Entry<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: registry.R1 - an entry is dropped once, and its value came from `enter`.
        unsafe { self.shared.leave(self.value) };
    }
}

impl<T: Send + Sync + 'static> Drop for OwnedEntry<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: registry.R1 - an entry is dropped once, and its value came from `enter`.
        unsafe { self.anchor.0.leave(self.value) };
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for Entry<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&**self).finish()
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for OwnedEntry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedEntry").field(&**self).finish()
    }
}

/// Builder for a [`Registry`].
///
/// ```
/// use manycore::collections::Registry;
/// use manycore::oplog::Logs;
///
/// let sessions = Registry::builder().logs(Logs::Always).build().unwrap();
/// let entry = sessions.register("ada");
/// assert_eq!(sessions.snapshot(), ["ada"]);
/// drop(entry);
///
/// let error = Registry::<u8>::builder().max_entries(0).build().unwrap_err();
/// assert_eq!(error.to_string(), "max_entries must not be zero: no update would fit");
/// ```
pub struct RegistryBuilder<T: Send + Sync + 'static> {
    members: crate::oplog::Builder<Members<T>, Churn<T>>,
    marks: Option<Queue>,
    max_entries: usize,
    registry: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> RegistryBuilder<T> {
    /// Sets the number of changes that one thread's log keeps before it is merged (default 4,096).
    /// Entries that came and went on one thread do not count.
    #[must_use]
    pub fn max_entries(mut self, entries: usize) -> Self {
        self.members = self.members.max_entries(entries);
        self.max_entries = entries;
        self
    }

    /// Puts marks on the entries instead of changes into logs (default: logs).
    ///
    /// Take marks for entries that one thread registers and another drops. With logs such a pair
    /// waits for the next merge. With marks it cancels at once, at the price of one atomic
    /// instruction for each of the two, and of a cache line that moves between the threads. See
    /// [`ldu`](crate::ldu).
    ///
    /// Take marks too if walks are not rare. Two threads of an EPYC (a virtual machine) that
    /// register and drop their own entries make 102 million pairs a second with marks and 90
    /// million with logs. With a walk after every 100 pairs it is 75 and 39 (`manycore-bench bench
    /// registry`).
    ///
    /// [`logs`](Self::logs) and [`publish`](Self::publish) are ignored with marks. The next drain
    /// drops a value that was given up during a walk.
    ///
    /// ```
    /// use manycore::collections::Registry;
    /// use manycore::ldu::Queue;
    ///
    /// let jobs = Registry::builder().marks(Queue::PerThread).build().unwrap();
    /// let job = jobs.register("index the mail");
    /// assert_eq!(jobs.snapshot(), ["index the mail"]);
    /// std::thread::scope(|s| {
    ///     s.spawn(move || drop(job)); // done by a worker
    /// });
    /// assert!(jobs.is_empty());
    /// ```
    #[must_use]
    pub fn marks(mut self, queue: Queue) -> Self {
        self.marks = Some(queue);
        self
    }

    /// Sets when the registry has logs (default: when its lock is contended).
    #[must_use]
    pub fn logs(mut self, logs: Logs) -> Self {
        self.members = self.members.logs(logs);
        self
    }

    /// Sets how changes are published (default: depends on the ratio of changes to walks).
    #[must_use]
    pub fn publish(mut self, publish: Publish) -> Self {
        self.members = self.members.publish(publish);
        self
    }

    /// Makes the registry.
    ///
    /// # Errors
    /// If the bound is zero or absurdly large.
    pub fn build(&self) -> Result<Registry<T>, BuildError> {
        let deferred_drops = Arc::new(DeferredDrops::new());
        let members = self.members.build(Members::new(Arc::clone(&deferred_drops)))?;
        let shared = match self.marks {
            Some(queue) => {
                Shared::Marked(Box::new(MemberPool::new(queue, self.max_entries, List::new())))
            }
            None => Shared::Logged(Logged { members, deferred_drops }),
        };
        Ok(Registry { shared: Arc::new(shared), anchors: Raced::unmade() })
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for RegistryBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryBuilder").finish_non_exhaustive()
    }
}
