//! A hash set with look-ups that take no lock and write nothing.
//!
//! Owns: [`HashSet`] and its view: a [`HashMap`] with empty values. Every law is the map's.

use super::hash_map::{HashMap, HashMapIntoIter, HashMapKeys, HashMapView};
use crate::section::Domain;
use crate::sync::const_fn;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

/// A concurrent hash set, for many look-ups and some updates: look-ups take no lock and write
/// nothing.
///
/// Use this for names in use, seen messages, blocked addresses. When not: for a set that is built
/// once and then only read, put a `std::collections::HashSet` behind an `Arc`. For members that
/// come and go without look-ups, use a [`Registry`](super::Registry).
///
/// Each method of the set does one thing. A view ([`enter`](Self::enter)) opens a section for many
/// calls, and its methods return references to members.
///
/// ```
/// use manycore::collections::HashSet;
///
/// let seen = HashSet::new();
/// let first = std::thread::scope(|s| {
///     let threads = [(); 2].map(|()| s.spawn(|| seen.insert("message 7")));
///     threads.map(|thread| thread.join().unwrap())
/// });
/// assert!(first[0] != first[1]); // one of them inserted it
/// assert!(seen.contains("message 7"));
/// assert!(seen.remove("message 7") && seen.is_empty());
/// ```
///
/// - Consistency: linearizable for each member. `len` and `iter` are not snapshots.
/// - Progress, cost, memory, growth and panics: as for [`HashMap`]. The empty values take no room.
/// - For other settings (a shared domain, a weigher), use [`HashMap::builder`], and then
///   `HashSet::from`.
#[doc(alias = "concurrent set")]
pub struct HashSet<T, S = RandomState> {
    map: HashMap<T, (), S>,
}

impl<T> HashSet<T> {
    /// Makes an empty set with a domain of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::from(HashMap::new())
    }

    /// Makes an empty set with room for `capacity` members.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::from(HashMap::with_capacity(capacity))
    }
}

impl<T, S> HashSet<T, S> {
    const_fn! {
        /// Makes an empty set that hashes with `hasher`. Allocates nothing until the first
        /// insertion. Use it for a `static` set, like [`HashMap::with_hasher`].
        #[must_use]
        pub const fn with_hasher(hasher: S) -> Self {
            Self { map: HashMap::with_hasher(hasher) }
        }
    }

    /// Makes an empty set that hashes with `hasher` and has room for `capacity` members.
    #[must_use]
    pub fn with_capacity_and_hasher(capacity: usize, hasher: S) -> Self {
        Self::from(HashMap::with_capacity_and_hasher(capacity, hasher))
    }

    /// Opens a section and returns a view of the set in it.
    #[inline]
    pub fn enter(&self) -> HashSetView<'_, T, S> {
        HashSetView { map: self.map.enter() }
    }
}

impl<T, S> HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher,
{
    /// Returns true if the set has this member.
    #[inline]
    #[must_use]
    pub fn contains<Q>(&self, member: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.contains_key(member)
    }

    /// Returns a clone of the member that equals `member`.
    #[must_use]
    pub fn get_cloned<Q>(&self, member: &Q) -> Option<T>
    where
        T: Borrow<Q> + Clone,
        Q: Hash + Eq + ?Sized,
    {
        self.map.in_view(|map| map.get_key_value(member).map(|(own, _)| own.clone()))
    }

    /// Adds the member, unless the set has it. Returns true if it was added.
    ///
    /// A member that the set has stays as it is, as in `std`. In that case, `member` is dropped and
    /// no memory stays allocated.
    pub fn insert(&self, member: T) -> bool {
        self.enter().insert(member)
    }

    /// Removes the member. Returns true if it was there.
    pub fn remove<Q>(&self, member: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.remove(member)
    }

    /// Calls `f` with every member, in no order. Not a snapshot: see [`HashMapView::iter`].
    pub fn for_each(&self, f: impl FnMut(&T)) {
        self.enter().iter().for_each(f);
    }

    /// Removes every member for which `keep` returns false. May miss concurrent insertions.
    pub fn retain(&self, keep: impl FnMut(&T) -> bool) {
        self.enter().retain(keep);
    }

    /// Removes every member that is present when its bucket is visited. Keeps the table.
    pub fn clear(&self) {
        self.map.clear();
    }

    /// Same as [`HashMap::reserve`].
    ///
    /// # Panics
    /// As [`HashMap::reserve`].
    pub fn reserve(&self, additional: usize) {
        self.map.reserve(additional);
    }

    /// Same as [`HashMap::shrink_to_fit`].
    ///
    /// # Panics
    /// As [`HashMap::shrink_to_fit`].
    pub fn shrink_to_fit(&self) {
        self.map.shrink_to_fit();
    }

    /// Returns true if `other` has every member of this set. Not a snapshot of either.
    ///
    /// ```
    /// use manycore::collections::HashSet;
    /// let (small, large) = (HashSet::from([1, 2]), HashSet::from([1, 2, 3]));
    /// assert!(small.is_subset(&large) && large.is_superset(&small));
    /// assert!(!small.is_disjoint(&large));
    /// ```
    #[must_use]
    pub fn is_subset<R: BuildHasher>(&self, other: &HashSet<T, R>) -> bool {
        let other = other.enter();
        self.enter().iter().all(|member| other.contains(member))
    }

    /// Returns true if this set has every member of `other`. Not a snapshot of either.
    #[must_use]
    pub fn is_superset<R: BuildHasher>(&self, other: &HashSet<T, R>) -> bool {
        other.is_subset(self)
    }

    /// Returns true if no member of this set is in `other`. Not a snapshot of either.
    #[must_use]
    pub fn is_disjoint<R: BuildHasher>(&self, other: &HashSet<T, R>) -> bool {
        let other = other.enter();
        !self.enter().iter().any(|member| other.contains(member))
    }
}

impl<T, S> HashSet<T, S> {
    /// Returns the number of members. It includes every update that happened before the call, and
    /// perhaps some that are happening.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Returns true if [`len`](Self::len) is zero.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Same as [`HashMap::capacity`].
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// Returns the hasher.
    pub fn hasher(&self) -> &S {
        self.map.hasher()
    }

    /// Same as [`HashMap::domain`].
    pub fn domain(&self) -> &Domain {
        self.map.domain()
    }
}

/// A [`HashSet`] and an open section. References to members borrow from the view.
///
/// Keep a view for as long as references are needed, or for many calls in a row, but not while
/// waiting for anything: see [`Section`](crate::section::Section). A view stays on its thread.
/// Views nest.
///
/// ```
/// let names = manycore::collections::HashSet::from([String::from("ann"), String::from("bob")]);
/// let view = names.enter();
/// let ann = view.get("ann").unwrap();
/// names.remove("ann");
/// assert_eq!(ann, "ann"); // valid as long as the view
/// assert_eq!(view.iter().collect::<Vec<_>>(), ["bob"]);
/// ```
pub struct HashSetView<'m, T, S = RandomState> {
    map: HashMapView<'m, T, (), S>,
}

impl<T, S> HashSetView<'_, T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher,
{
    /// Returns true if the set has this member.
    #[inline]
    #[must_use]
    pub fn contains<Q>(&self, member: &Q) -> bool
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.contains_key(member)
    }

    /// Returns the member that equals `member`.
    #[inline]
    #[must_use]
    pub fn get<Q>(&self, member: &Q) -> Option<&T>
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.get_key_value(member).map(|(member, ())| member)
    }

    /// Same as [`HashSet::insert`].
    pub fn insert(&self, member: T) -> bool {
        self.map.try_insert(member, ()).is_ok()
    }

    /// Removes the member and returns it, as the set had it.
    #[doc(alias = "take")]
    pub fn remove<Q>(&self, member: &Q) -> Option<&T>
    where
        T: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.map.remove_entry(member).map(|(member, ())| member)
    }

    /// Same as [`HashSet::retain`].
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        self.map.retain(|member, ()| keep(member));
    }

    /// Same as [`HashSet::clear`].
    pub fn clear(&self) {
        self.map.clear();
    }
}

impl<T, S> HashSetView<'_, T, S> {
    /// Same as [`HashSet::len`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Same as [`HashSet::is_empty`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Same as [`HashMapView::refresh`].
    pub fn refresh(&mut self) {
        self.map.refresh();
    }

    /// Iterates over every member, in no order. Not a snapshot: see [`HashMapView::iter`].
    pub fn iter(&self) -> HashSetIter<'_, T> {
        HashSetIter { keys: self.map.keys() }
    }
}

impl<'v, T, S> IntoIterator for &'v HashSetView<'_, T, S> {
    type Item = &'v T;
    type IntoIter = HashSetIter<'v, T>;

    fn into_iter(self) -> HashSetIter<'v, T> {
        self.iter()
    }
}

impl<T: fmt::Debug, S> fmt::Debug for HashSetView<'_, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Iterator over the members of a set: see [`HashSetView::iter`].
///
/// ```
/// let names = manycore::collections::HashSet::from(["ann", "bob"]);
/// let view = names.enter();
/// assert_eq!(view.iter().max(), Some(&"bob"));
/// ```
#[derive(Debug)]
pub struct HashSetIter<'v, T> {
    keys: HashMapKeys<'v, T, ()>,
}

impl<'v, T> Iterator for HashSetIter<'v, T> {
    type Item = &'v T;

    fn next(&mut self) -> Option<&'v T> {
        self.keys.next()
    }
}

impl<T> std::iter::FusedIterator for HashSetIter<'_, T> {}

/// Iterator over the members of a set, by value: see
/// [`HashSet::into_iter`](IntoIterator::into_iter).
///
/// ```
/// let names = manycore::collections::HashSet::from(["bob", "ann"]);
/// let mut sorted: Vec<&str> = names.into_iter().collect();
/// sorted.sort();
/// assert_eq!(sorted, ["ann", "bob"]);
/// ```
#[derive(Debug)]
pub struct HashSetIntoIter<T, S = RandomState> {
    entries: HashMapIntoIter<T, (), S>,
}

impl<T, S> Iterator for HashSetIntoIter<T, S> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.entries.next().map(|(member, ())| member)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<T, S> ExactSizeIterator for HashSetIntoIter<T, S> {}
impl<T, S> std::iter::FusedIterator for HashSetIntoIter<T, S> {}

impl<T, S> IntoIterator for HashSet<T, S> {
    type Item = T;
    type IntoIter = HashSetIntoIter<T, S>;

    fn into_iter(self) -> HashSetIntoIter<T, S> {
        HashSetIntoIter { entries: self.map.into_iter() }
    }
}

/// Makes a set of a map's keys, with the map's settings.
impl<T, S> From<HashMap<T, (), S>> for HashSet<T, S> {
    fn from(map: HashMap<T, (), S>) -> Self {
        Self { map }
    }
}

impl<T, const N: usize> From<[T; N]> for HashSet<T>
where
    T: Hash + Eq + Send + Sync,
{
    fn from(members: [T; N]) -> Self {
        Self::from_iter(members)
    }
}

impl<T, S> FromIterator<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher + Default,
{
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let members = members.into_iter();
        let set = Self::with_capacity_and_hasher(members.size_hint().0, S::default());
        (&set).extend(members);
        set
    }
}

impl<T, S> Extend<T> for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        (&*self).extend(members);
    }
}

impl<T, S> Extend<T> for &HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher,
{
    fn extend<I: IntoIterator<Item = T>>(&mut self, members: I) {
        for member in members {
            self.insert(member);
        }
    }
}

impl<T, S: Default> Default for HashSet<T, S> {
    fn default() -> Self {
        Self::with_hasher(S::default())
    }
}

/// Clones the members; not a snapshot. The clone has a domain of its own.
impl<T, S> Clone for HashSet<T, S>
where
    T: Hash + Eq + Clone + Send + Sync,
    S: BuildHasher + Clone,
{
    fn clone(&self) -> Self {
        Self { map: self.map.clone() }
    }
}

/// Returns true if both have the same members. Not a snapshot of either.
impl<T, S, R> PartialEq<HashSet<T, R>> for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher,
    R: BuildHasher,
{
    fn eq(&self, other: &HashSet<T, R>) -> bool {
        self.map == other.map
    }
}

impl<T, S> Eq for HashSet<T, S>
where
    T: Hash + Eq + Send + Sync,
    S: BuildHasher,
{
}

impl<T, S> fmt::Debug for HashSet<T, S>
where
    T: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.enter(), f)
    }
}
