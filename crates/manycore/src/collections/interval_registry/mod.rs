//! The reverse map: intervals that are inserted and removed, and overlap queries.
//!
//! Owns: [`IntervalRegistry`] and its handles. It has two forms: on [`Deferred`] with cancelling
//! logs (`logged`), and on values with marks
//! ([`MemberPool`](crate::collections::member_pool::MemberPool)). Source: OpLog, section 1 and
//! figure 7; LDU, section 2.5.2.
//!
//! # The laws
//!
//! - **interval_registry.I1** An interval's item stays where it is, unchanged, from `add` until its
//!   handle is gone and the tree has removed it. Its address is its identity.
//! - **interval_registry.I2** `Ord`, `Clone` and `Drop` of the key run under the lock of the
//!   reading thread. Values are dropped outside of it. A panic of a walk's closure continues after
//!   the lock is released, and so does the first panic that merges have caught.
//! - **interval_registry.I5** A tree with marks owns the items that leaked handles have left in it.
//!   A change of the tree never panics (interval_registry_tree.T4), so the tree has exactly what it
//!   was told of.

mod logged;
mod tree;

use crate::collections::member_pool::{Member, MemberPool, MemberStore};
use crate::collections::owned::{Kept, Owner};
use crate::config;
use crate::ldu::Queue;
use crate::oplog::{BuildError, Logs};
use crate::sync::run_each;
use logged::Logged;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::Arc;
use tree::{Panics, Ranged, Tree};

/// A range and its value.
struct Item<K, V> {
    range: Range<K>,
    value: V,
}

/// Ranges that come and go all the time, with overlap queries now and then: the mappings of a file,
/// leases, bookings, watched spans.
///
/// [`add`](Self::add) returns an [`Interval`]; dropping it removes the range. A range that comes
/// and goes between two queries never reaches the tree. With logs (the default) this holds if one
/// thread did both, with [`marks`](IntervalRegistryBuilder::marks) for any threads.
///
/// Take marks, unless the lines of entries must not move between cores. Measured on two threads of
/// an EPYC (a virtual machine) that fork and exit processes of 8 mappings: 6.0 million a second
/// with marks and 2.6 with logs. If the other thread removes the mappings: 2.8 with marks and 0.6
/// with logs (`manycore-bench bench rmap-fork` and `rmap-hand`).
///
/// When not: if queries are about as frequent as changes, a `Mutex` around an interval tree is
/// better.
///
/// ```
/// use manycore::collections::IntervalRegistry;
///
/// let mappings = IntervalRegistry::new();
/// let text = mappings.add(0..16_u64, "text");
/// let data = mappings.add(16..48, "data");
/// std::thread::scope(|s| {
///     s.spawn(|| drop(mappings.add(8..24, "gone again")));
/// });
/// let mut cut_off = Vec::new();
/// mappings.for_overlapping(10..20, |pages, name| cut_off.push((pages.clone(), *name)));
/// assert_eq!(cut_off, [(0..16, "text"), (16..48, "data")]);
/// drop(text);
/// assert_eq!(mappings.overlapping(0..16), Vec::<&str>::new());
/// assert_eq!((data.range(), *data), (&(16..48), "data"));
/// ```
///
/// - Consistency: linearizable.
/// - Progress with logs: adding and dropping wait for a reader that collects the thread's log, or
///   for the lock while the registry is cold.
/// - Progress with marks: adding and dropping wait for a reader if four times
///   [`max_entries`](IntervalRegistryBuilder::max_entries) changes are queued, and otherwise not.
/// - Progress of queries: they wait for each other.
/// - Cost of adding and dropping: as [`Cancelling`](crate::oplog::Cancelling) or
///   [`DeferredSet`](crate::ldu::DeferredSet), and with logs an allocation.
/// - Cost of a query: gathering what changed, with a logarithmic insertion or removal for each
///   change that did not cancel itself. Then logarithmic time, and time for each range found.
/// - Memory: 410 bytes; for each interval the value, the range and 16 bytes (with marks 32). In the
///   tree, another range and 16 bytes for each interval, with as much again, at worst four times as
///   much, of empty places.
/// - Panics in keys: a panic in the key's `Ord`, `Clone` or `Drop` reaches a reader. These run
///   under the lock there, and must not use the registry. (A panic of a handle's own `Clone`
///   reaches the thread that drops the handle.) No interval is lost by a panic, nor by an `Ord`
///   that contradicts itself. With such an order, queries find what the order leads to, and
///   removals may take linear time.
/// - Panics in values: a panic in a value's `Drop` or in a query's closure reaches the caller; the
///   registry stays in order.
/// - A forgotten handle's range stays for as long as the registry lives.
#[doc(alias = "interval tree")]
pub struct IntervalRegistry<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> {
    form: Form<K, V>,
    panics: Panics,
}

#[allow(clippy::large_enum_variant, reason = "the form with logs is the usual one")]
enum Form<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> {
    Logged(Logged<K, V>),
    Marked(Box<MemberPool<Item<K, V>, Marks<K, V>>>),
}

/// An item that the tree knows.
struct Told<K, V>(NonNull<Member<Item<K, V>>>);

impl<K, V> Told<K, V> {
    fn item(&self) -> &Item<K, V> {
        // SAFETY: interval_registry.I5 - the tree has the nodes that it has been told of, and no
        // others.
        unsafe { Member::value(self.0) }
    }
}

impl<K, V> Ranged<K> for Told<K, V> {
    fn range(&self) -> &Range<K> {
        &self.item().range
    }
}

/// The tree of the form with marks.
struct Marks<K, V> {
    tree: Tree<K, Told<K, V>>,
}

// SAFETY: items are reached by shared reference from any thread (`Sync`), and freed on any
// (`Send`).
unsafe impl<K: Send + Sync, V: Send + Sync> Send for Marks<K, V> {}
// SAFETY: interval_registry.I1 - a shared tree gives out `&K` and `&Item` alone (`Sync`), and items
// do not change while the tree has them.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Marks<K, V> {}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> MemberStore<Item<K, V>>
    for Marks<K, V>
{
    unsafe fn insert(&mut self, node: NonNull<Member<Item<K, V>>>) {
        self.tree.insert(node.as_ptr() as usize, Told(node));
    }

    unsafe fn remove(&mut self, node: NonNull<Member<Item<K, V>>>) {
        // SAFETY: member_pool.N1 - the caller promises that the node has a value until this returns
        // (`MemberStore::remove`).
        let item = unsafe { Member::value(node) };
        let removed = self.tree.remove(Some(&item.range.start), node.as_ptr() as usize);
        debug_assert!(removed.is_some(), "interval_registry.I5: the tree has what it was told of");
    }
}

impl<K, V> Drop for Marks<K, V> {
    /// Drops the items that leaked handles have left.
    fn drop(&mut self) {
        // SAFETY: interval_registry.I5 - the tree has them, nothing else frees them, and it goes
        // with its set.
        run_each(self.tree.payloads(), |told| unsafe { Member::free_left(told.0) });
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> IntervalRegistry<K, V> {
    /// Makes an empty registry: a plain locked tree until threads contend for it, then with logs.
    ///
    /// # Panics
    /// Never: the defaults are valid.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build().expect("the defaults are valid")
    }

    /// Starts a builder for a registry with other bounds and policies.
    #[must_use]
    pub fn builder() -> IntervalRegistryBuilder<K, V> {
        IntervalRegistryBuilder {
            marks: None,
            logs: Logs::default(),
            max_entries: config::DEFAULT_MAX_ENTRIES,
            registry: PhantomData,
        }
    }

    /// Adds a range with a value, which stays until the handle is dropped. Ranges may overlap and
    /// be equal.
    ///
    /// The handle borrows the registry. If it must not, because a struct is to hold it, use
    /// [`add_owned`](Self::add_owned).
    ///
    /// # Panics
    /// If the range is empty: it overlaps nothing.
    #[inline]
    pub fn add(&self, range: Range<K>, value: V) -> Interval<'_, K, V> {
        assert!(range.start < range.end, "manycore: an empty range overlaps nothing");
        let item = Item { range, value };
        let item = match &self.form {
            Form::Logged(logged) => logged.enter(item),
            Form::Marked(marked) => marked.enter(item),
        };
        Interval { item, registry: self }
    }

    /// Same as [`add`](Self::add), with a handle that keeps the registry alive. [`Owner`] says what
    /// it costs.
    ///
    /// # Panics
    /// If the range is empty.
    #[inline]
    pub fn add_owned<R: Owner<Target = Self>>(
        registry: &R,
        range: Range<K>,
        value: V,
    ) -> OwnedInterval<K, V, R> {
        OwnedInterval { kept: Kept::new(registry, |registry| registry.add(range, value)) }
    }

    /// Calls `f` with every range that overlaps `range`, and its value, in the order of the ranges'
    /// starts. All of them are there at one moment.
    ///
    /// # Panics
    /// If `f` does, or if it queries the same registry.
    pub fn for_overlapping(&self, range: Range<K>, mut f: impl FnMut(&Range<K>, &V)) {
        match &self.form {
            Form::Logged(logged) => logged.read(|tree| {
                tree.for_overlapping(&range, &mut |range, item| f(range, &item.value));
            }),
            Form::Marked(marked) => marked.read(|marks| {
                let mut of = |range: &_, told: &Told<K, V>| f(range, &told.item().value);
                marks.tree.for_overlapping(&range, &mut of);
            }),
        }
        self.hand_on();
    }

    /// Returns clones of the values of all ranges that overlap `range`, in the order of the ranges'
    /// starts.
    ///
    /// # Panics
    /// If cloning does.
    #[must_use]
    pub fn overlapping(&self, range: Range<K>) -> Vec<V>
    where
        V: Clone,
    {
        let mut values = Vec::new();
        self.for_overlapping(range, |_, value| values.push(value.clone()));
        values
    }

    /// Returns the number of ranges. Gathers what changed, so not for hot paths.
    #[must_use]
    pub fn len(&self) -> usize {
        let len = match &self.form {
            Form::Logged(logged) => logged.read(Tree::len),
            Form::Marked(marked) => marked.read(|marks| marks.tree.len()),
        };
        self.hand_on();
        len
    }

    /// Resumes the panic of a merge in this reader (interval_registry.I2).
    fn hand_on(&self) {
        if let Some(panic) = self.panics.take() {
            resume_unwind(panic);
        }
    }

    /// Returns true if there is no range. Costs as much as [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> Default
    for IntervalRegistry<K, V>
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> fmt::Debug
    for IntervalRegistry<K, V>
{
    /// Prints the form, not the intervals: that would take a read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntervalRegistry")
            .field("marked", &matches!(self.form, Form::Marked(_)))
            .finish_non_exhaustive()
    }
}

/// A handle: its range is there for as long as this lives. Gives access to the value, and may be
/// dropped on any thread.
///
/// See [`IntervalRegistry`] for an example.
#[must_use = "dropping the handle takes the range out"]
pub struct Interval<'a, K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> {
    item: NonNull<Item<K, V>>,
    registry: &'a IntervalRegistry<K, V>,
}

// SAFETY: a handle gives shared access to the range and the value (`Sync`), and dropping it can
// drop them on that thread (`Send`). The registry may be used from any thread.
unsafe impl<K: Ord + Clone + Send + Sync, V: Send + Sync> Send for Interval<'_, K, V> {}
// SAFETY: a shared handle gives out `&Range<K>` and `&V` alone (`Sync`), which do not change
// (interval_registry.I1).
unsafe impl<K: Ord + Clone + Send + Sync, V: Send + Sync> Sync for Interval<'_, K, V> {}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> Interval<'_, K, V> {
    /// Returns the range.
    #[must_use]
    pub fn range(&self) -> &Range<K> {
        // SAFETY: interval_registry.I1.
        unsafe { &self.item.as_ref().range }
    }

    /// Removes the range, as dropping the handle does.
    #[inline]
    pub fn remove(self) {
        drop(self);
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> Deref
    for Interval<'_, K, V>
{
    type Target = V;

    #[inline]
    fn deref(&self) -> &V {
        // SAFETY: interval_registry.I1.
        unsafe { &self.item.as_ref().value }
    }
}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static> Drop for Interval<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the item came from `enter`, and its handle is dropped once.
        unsafe {
            match &self.registry.form {
                Form::Logged(logged) => logged.leave(self.item),
                Form::Marked(marked) => marked.leave(self.item),
            }
        }
    }
}

impl<K, V> fmt::Debug for Interval<'_, K, V>
where
    K: Ord + Clone + Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interval").field(self.range()).field(&**self).finish()
    }
}

/// Builder for an [`IntervalRegistry`].
///
/// ```
/// use manycore::collections::IntervalRegistry;
/// use manycore::ldu::Queue;
///
/// let leases = IntervalRegistry::builder().marks(Queue::PerThread).build().unwrap();
/// let lease = leases.add(10..20, "printer");
/// assert_eq!(leases.overlapping(19..30), ["printer"]);
/// drop(lease);
/// ```
pub struct IntervalRegistryBuilder<K, V> {
    marks: Option<Queue>,
    logs: Logs,
    max_entries: usize,
    registry: PhantomData<fn(K) -> V>,
}

impl<K: Ord + Clone + Send + Sync + 'static, V: Send + Sync + 'static>
    IntervalRegistryBuilder<K, V>
{
    /// Puts marks on the intervals instead of changes into logs: see
    /// [`RegistryBuilder::marks`](super::RegistryBuilder::marks).
    #[must_use]
    pub fn marks(mut self, queue: Queue) -> Self {
        self.marks = Some(queue);
        self
    }

    /// Sets when the registry has logs (default: when its lock is contended).
    #[must_use]
    pub fn logs(mut self, logs: Logs) -> Self {
        self.logs = logs;
        self
    }

    /// Sets the number of changes that one thread keeps before they are gathered (default 4,096). A
    /// range that came and went on one thread does not count.
    #[must_use]
    pub fn max_entries(mut self, entries: usize) -> Self {
        self.max_entries = entries;
        self
    }

    /// Builds the registry.
    ///
    /// # Errors
    /// If the bound is zero or absurdly large.
    pub fn build(&self) -> Result<IntervalRegistry<K, V>, BuildError> {
        let panics = Panics::default();
        let logged = Logged::new(self.logs, self.max_entries, Arc::clone(&panics))?;
        let form = match self.marks {
            None => Form::Logged(logged),
            Some(queue) => {
                let marks = Marks { tree: Tree::new(Arc::clone(&panics)) };
                Form::Marked(Box::new(MemberPool::new(queue, self.max_entries, marks)))
            }
        };
        Ok(IntervalRegistry { form, panics })
    }
}

impl<K, V> fmt::Debug for IntervalRegistryBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntervalRegistryBuilder").finish_non_exhaustive()
    }
}

/// Same as [`Interval`], without borrowing the registry; see [`IntervalRegistry::add_owned`].
///
/// ```
/// use manycore::collections::{IntervalRegistry, OwnedInterval};
/// use std::sync::Arc;
///
/// struct Mapping {
///     pages: OwnedInterval<u64, &'static str>,
/// }
///
/// let mappings = Arc::new(IntervalRegistry::new());
/// let mapping = Mapping { pages: IntervalRegistry::add_owned(&mappings, 10..20, "libc") };
/// assert_eq!((mapping.pages.range(), *mapping.pages), (&(10..20), "libc"));
/// drop(mapping);
/// assert!(mappings.is_empty());
/// ```
#[must_use = "dropping the handle takes the range out"]
pub struct OwnedInterval<
    K: Ord + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
    R: Owner<Target = IntervalRegistry<K, V>> = Arc<IntervalRegistry<K, V>>,
> {
    kept: Kept<Interval<'static, K, V>, R>,
}

impl<K, V, R: Owner<Target = IntervalRegistry<K, V>>> OwnedInterval<K, V, R>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Returns the range.
    #[must_use]
    pub fn range(&self) -> &Range<K> {
        self.kept.handle.range()
    }

    /// Returns the registry.
    #[must_use]
    pub fn registry(&self) -> &R {
        &self.kept.owner
    }

    /// Removes the range, as dropping the handle does.
    pub fn remove(self) {
        drop(self);
    }
}

impl<K, V, R: Owner<Target = IntervalRegistry<K, V>>> Deref for OwnedInterval<K, V, R>
where
    K: Ord + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    type Target = V;

    fn deref(&self) -> &V {
        &self.kept.handle
    }
}

impl<K, V, R: Owner<Target = IntervalRegistry<K, V>>> fmt::Debug for OwnedInterval<K, V, R>
where
    K: Ord + Clone + Send + Sync + fmt::Debug + 'static,
    V: Send + Sync + fmt::Debug + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedInterval").field(self.range()).field(&**self).finish()
    }
}
