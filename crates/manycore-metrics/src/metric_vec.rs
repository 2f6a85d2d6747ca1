//! Metrics of one name, found by the values of their labels.
//!
//! - metric_vec.V1 An entry of `known` stays until the vector is dropped, and so does the metric
//!   that it counts: nothing here removes one.

use crate::names::{self, Labels};
use crate::registry::Kind;
use crate::{MetricRegistry, RegisterError};
use manycore::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Bytes of a key that is made without an allocation.
const ROOM: usize = 256;

/// Metrics of one name, found by the values of their labels without a lock.
///
/// For labels whose values are known only when something happens, such as a status or a method:
/// [`get`](Self::get) in a handler is a look-up in a [`HashMap`]. Made by
/// [`MetricRegistry::counter_vec`], [`gauge_vec`](MetricRegistry::gauge_vec) and
/// [`histogram_vec`](MetricRegistry::histogram_vec). A metric is in the registry from its first
/// `get` on, as if it had been made there.
///
/// When not: if a program knows the values, it should keep the handle of
/// [`MetricRegistry::counter`]. For values without a bound (users, paths with ids): metrics stay,
/// so they are a leak.
///
/// - Cost: a look-up hashes the values, and writes no shared cache line. The first `get` of a
///   combination takes the registry's lock.
/// - Memory: for each combination the values and some 100 bytes, beside those of the registry.
///
/// ```
/// use manycore_metrics::MetricRegistry;
///
/// let registry = MetricRegistry::new();
/// let requests = registry.counter_vec("requests_total", ["method", "status"]);
///
/// requests.get(["GET", "200"]).inc();
/// requests.get(["GET", "404"]).inc();
/// requests.get(["GET", "200"]).inc();
///
/// let text = registry.render();
/// assert!(text.contains(r#"requests_total{method="GET",status="200"} 2"#));
/// ```
#[doc(alias = "Family")]
#[doc(alias = "CounterVec")]
pub struct MetricVec<M, const N: usize> {
    registry: MetricRegistry,
    name: String,
    labels: [String; N],
    find: Find<M>,
    /// Metrics by the values of their labels, in the form of [`with_key`].
    known: HashMap<Box<[u8]>, Arc<M>>,
}

type Find<M> = fn(&MetricRegistry, &str, &[(&str, &str)]) -> Result<Arc<M>, RegisterError>;

/// Calls `use_key` with bytes that tell these values from all others: each value's length, and the
/// values.
fn with_key<T, const N: usize>(values: [&str; N], use_key: impl FnOnce(&[u8]) -> T) -> T {
    let length = values.iter().map(|value| size_of::<usize>() + value.len()).sum();
    let (mut near, mut far) = ([0; ROOM], Vec::new());
    let key = match near.get_mut(..length) {
        Some(near) => near,
        None => {
            far.resize(length, 0);
            &mut far[..]
        }
    };
    let mut rest = &mut key[..];
    for part in values.iter().map(|value| value.len().to_ne_bytes()) {
        let (to, after) = rest.split_at_mut(part.len());
        to.copy_from_slice(&part);
        rest = after;
    }
    for value in values {
        let (to, after) = rest.split_at_mut(value.len());
        to.copy_from_slice(value.as_bytes());
        rest = after;
    }
    use_key(key)
}

impl<M: Send + Sync, const N: usize> MetricVec<M, N> {
    pub(crate) fn new(
        registry: &MetricRegistry,
        name: &str,
        labels: [&str; N],
        find: Find<M>,
    ) -> Self
    where
        M: Kind,
    {
        let valid: Labels = names::labels(labels.map(|label| (label, "")));
        assert!(valid.len() == N, "manycore-metrics: {name}: two labels have one name");
        if let Some(label) = names::reserved(&valid, M::LABELS) {
            let (metric, label) = (name.to_owned(), label.to_owned());
            panic!("manycore-metrics: {}", RegisterError::ReservedLabel { metric, label });
        }
        let (registry, name) = (registry.clone(), name.to_owned());
        Self { registry, name, labels: labels.map(str::to_owned), find, known: HashMap::new() }
    }

    /// Returns the metric with these values, in the order of the labels. Creates it if there is
    /// none.
    ///
    /// ```
    /// let registry = manycore_metrics::MetricRegistry::new();
    /// let open = registry.gauge_vec("open_connections", ["listener"]);
    /// open.get(["public"]).inc();
    /// assert_eq!(registry.gauge("open_connections", &[("listener", "public")]).get(), 1.0);
    /// ```
    #[doc(alias = "with_label_values")]
    #[doc(alias = "get_or_create")]
    pub fn get(&self, values: [&str; N]) -> &M {
        let found = with_key(values, |key| self.known.read(key, Arc::as_ptr));
        let metric = found.unwrap_or_else(|| self.make(values));
        // SAFETY: metric_vec.V1 - an entry of `known` counts the metric, and stays as long as the
        // vector, which the result borrows.
        unsafe { &*metric }
    }

    #[cold]
    fn make(&self, values: [&str; N]) -> *const M {
        let labels: [(&str, &str); N] = std::array::from_fn(|at| (&*self.labels[at], values[at]));
        let metric = (self.find)(&self.registry, &self.name, &labels)
            .unwrap_or_else(|error| panic!("manycore-metrics: {error}"));
        // Threads that come here at the same time find the same metric in the registry.
        let known = with_key(values, |key| self.known.get_or_insert_with(key.into(), || metric));
        Arc::as_ptr(&known)
    }
}

impl<M, const N: usize> fmt::Debug for MetricVec<M, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = self.known.len();
        let mut shown = f.debug_struct("MetricVec");
        shown.field("name", &self.name).field("labels", &self.labels).field("known", &known);
        shown.finish_non_exhaustive()
    }
}
