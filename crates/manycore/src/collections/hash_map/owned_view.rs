//! [`HashMapOwnedView`]: a view that is not bound to a thread.

use super::{HashMap, HashMapView, RandomState};
use std::fmt;
use std::ops::Deref;

/// A [`HashMapView`] that may move to another thread, to keep references to values across an
/// `.await`.
///
/// It derefs to a [`HashMapView`]. It is `Send`, but not `Sync`.
///
/// When not: for one look-up, where [`HashMap::get_cloned`], or a [`HashMapView`] that is dropped
/// before the `.await`, costs a hundredth. And not around an `.await` of unknown length, because
/// everything that is removed from the map waits for open views.
///
/// Cost: that of a [`section::OwnedSection`](crate::section::OwnedSection), some 100 ns to open and
/// close. Everything else costs as much as in a [`HashMapView`].
///
/// ```
/// use manycore::collections::HashMap;
///
/// async fn send(text: &str) {
///     // ...
/// #   let _ = text;
/// }
///
/// async fn greet(names: &HashMap<u32, String>) {
///     let view = names.enter_owned();
///     if let Some(name) = view.get(&7) {
///         send(name).await; // not cloned
///     }
/// }
///
/// fn spawn<'a>(_: impl Future<Output = ()> + Send + 'a) {}
/// spawn(greet(&HashMap::new()));
/// ```
pub struct HashMapOwnedView<'m, K, V, S = RandomState> {
    /// Its section has a slot of its own. This is never given out by `&mut`: the caller could swap
    /// in a view that is bound to a thread.
    view: HashMapView<'m, K, V, S>,
}

// SAFETY: the view is a reference to the map, which may be shared (the bound), and a section that
// is bound to no thread. The argument for `OwnedSection` being `Send` holds here, too, because
// `enter_movable` took the slot for this section alone, and the view is not `Sync`.
unsafe impl<'m, K, V, S> Send for HashMapOwnedView<'m, K, V, S> where HashMap<K, V, S>: Sync {}

impl<K, V, S> HashMap<K, V, S> {
    /// Returns a view that may move to another thread and be kept across an `.await`; see
    /// [`HashMapOwnedView`].
    ///
    /// ```
    /// let map = manycore::collections::HashMap::from([(1, "one")]);
    /// let view = map.enter_owned();
    /// let there = std::thread::scope(|s| s.spawn(move || view.get(&1).copied()).join());
    /// assert_eq!(there.unwrap(), Some("one"));
    /// ```
    #[doc(alias = "pin_owned")]
    pub fn enter_owned(&self) -> HashMapOwnedView<'_, K, V, S> {
        HashMapOwnedView { view: HashMapView::new(self, self.domain.enter_movable()) }
    }
}

impl<K, V, S> HashMapOwnedView<'_, K, V, S> {
    /// As [`HashMapView::refresh`].
    pub fn refresh(&mut self) {
        self.view.refresh();
    }
}

impl<'m, K, V, S> Deref for HashMapOwnedView<'m, K, V, S> {
    type Target = HashMapView<'m, K, V, S>;

    fn deref(&self) -> &HashMapView<'m, K, V, S> {
        &self.view
    }
}

impl<'m, K, V, S> fmt::Debug for HashMapOwnedView<'m, K, V, S>
where
    HashMapView<'m, K, V, S>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}
