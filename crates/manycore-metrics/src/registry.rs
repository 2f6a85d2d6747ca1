//! Metrics by name and labels.
//!
//! Owns: the families. All of the adapters read metrics from here. What a reader needs is copied
//! out under the lock, and read without it, so that no code of a user runs under the lock.

use crate::family::{Family, Members};
use crate::names::{self, Labels};
use crate::{Counter, Gauge, Histogram, HistogramOptions, text};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Metrics by name and labels, which are created at the first use and reported by one call.
///
/// A clone is the same registry. The calls that find or create a metric take a lock and copy the
/// labels: keep what they return, where it is updated. What is registered stays; a label of many
/// values (users, paths with ids) is a leak.
///
/// - Names: characters that Prometheus does not take become underscores, so `http.requests` and
///   `http_requests` are one metric. A name has one kind: if a gauge has the name of a counter, it
///   is named and reported with `_gauge` behind it.
/// - Consistency: a report reads one metric after the other; it is no snapshot of all. For each
///   metric it has every update that happened before, and any subset of the concurrent ones.
/// - Memory: some 200 bytes, the name and the labels for each series, and the metric:
///   [`Counter`], [`Gauge`], [`Histogram`].
///
/// ```
/// use manycore_metrics::{HistogramOptions, Registry};
///
/// let registry = Registry::builder()
///     .histogram("size_bytes", HistogramOptions::new().resolution(1.0).quantiles([0.5, 0.99]))
///     .build();
/// let ok = registry.counter("requests_total", &[("status", "200")]);
/// let size = registry.histogram("size_bytes", &[]);
/// registry.describe("requests_total", "Requests answered.");
///
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..1000).for_each(|_| ok.inc()));
///     }
/// });
/// size.record(40.0);
///
/// assert_eq!(registry.render(), r#"# HELP requests_total Requests answered.
/// ## TYPE requests_total counter
/// requests_total{status="200"} 4000
/// ## TYPE size_bytes summary
/// size_bytes{quantile="0.5"} 40
/// size_bytes{quantile="0.99"} 40
/// size_bytes_sum 40
/// size_bytes_count 1
/// "#);
/// ```
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    metrics: Mutex<Metrics>,
    histograms: HistogramOptions,
    histograms_by_name: HashMap<String, HistogramOptions>,
}

#[derive(Default)]
struct Metrics {
    families: BTreeMap<String, Members>,
    help: HashMap<String, String>,
    observers: Vec<Arc<Observer>>,
}

/// Is told of each family once, without a lock held.
type Observer = dyn Fn(&Family) + Send + Sync;

/// A kind of metric: how a family of it is told from others.
pub(crate) trait Kind: Sized {
    const SUFFIX: &'static str;

    fn empty() -> Members;

    fn of(members: &mut Members) -> Option<&mut BTreeMap<Labels, Arc<Self>>>;

    fn create(registry: &Inner, name: &str) -> Self;
}

macro_rules! kind {
    ($Type:ty, $Members:ident, $suffix:expr, $create:expr) => {
        impl Kind for $Type {
            const SUFFIX: &'static str = $suffix;

            fn empty() -> Members {
                Members::$Members(BTreeMap::new())
            }

            fn of(members: &mut Members) -> Option<&mut BTreeMap<Labels, Arc<Self>>> {
                match members {
                    Members::$Members(members) => Some(members),
                    _ => None,
                }
            }

            fn create(registry: &Inner, name: &str) -> Self {
                $create(registry, name)
            }
        }
    };
}

kind!(Counter, Counters, "_counter", |_, _| Counter::new());
kind!(Gauge, Gauges, "_gauge", |_, _| Gauge::new());
kind!(Histogram, Histograms, "_histogram", |registry: &Inner, name| {
    let own = registry.histograms_by_name.get(name);
    Histogram::with_options(own.unwrap_or(&registry.histograms).clone())
});

impl Registry {
    /// An empty registry. Histograms have the buckets of Prometheus' clients.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// An empty registry, with options for histograms.
    #[must_use]
    pub fn builder() -> RegistryBuilder {
        RegistryBuilder { histograms: HistogramOptions::new(), by_name: HashMap::new() }
    }

    /// The counter with this name and these labels, created if there is none.
    #[must_use]
    pub fn counter(&self, name: &str, labels: &[(&str, &str)]) -> Arc<Counter> {
        self.find_or_create(name, labels.iter().copied())
    }

    /// The gauge with this name and these labels, created if there is none.
    #[must_use]
    pub fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Arc<Gauge> {
        self.find_or_create(name, labels.iter().copied())
    }

    /// The histogram with this name and these labels, created if there is none.
    #[must_use]
    pub fn histogram(&self, name: &str, labels: &[(&str, &str)]) -> Arc<Histogram> {
        self.find_or_create(name, labels.iter().copied())
    }

    /// A text on the metrics with this name, for those that read reports.
    pub fn describe(&self, name: &str, help: impl Into<String>) {
        self.metrics().help.insert(names::metric_name(name), help.into());
    }

    /// All metrics in Prometheus' text format, version 0.0.4; send it as
    /// [`CONTENT_TYPE`](Self::CONTENT_TYPE). Histograms with quantiles are summaries.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        text::write(&self.families(), &mut text).expect("a string takes all that is written to it");
        text
    }

    /// The media type of what [`render`](Self::render) returns.
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    pub(crate) fn find_or_create<'a, K: Kind>(
        &self,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Arc<K> {
        let (mut name, labels) = (names::metric_name(name), names::labels(labels));
        let mut metrics = self.metrics();
        loop {
            let members = metrics.families.entry(name.clone()).or_insert_with(K::empty);
            let Some(members) = K::of(members) else {
                name.push_str(K::SUFFIX);
                continue;
            };
            let is_new = members.is_empty();
            let create = || Arc::new(K::create(&self.inner, &name));
            let found = Arc::clone(members.entry(labels).or_insert_with(create));
            if is_new {
                let (family, observers) = (metrics.family(&name), metrics.observers.clone());
                drop(metrics);
                let family = family.expect("it was just found");
                observers.iter().for_each(|observer| observer(&family));
            }
            return found;
        }
    }

    /// All families, by name.
    pub(crate) fn families(&self) -> Vec<Family> {
        self.inner.families()
    }

    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.inner.metrics()
    }

    #[cfg(feature = "opentelemetry")]
    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Calls `observer` once for each family that there is or will be.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn observe(&self, observer: Arc<Observer>) {
        let mut metrics = self.metrics();
        let known = metrics.all();
        metrics.observers.push(Arc::clone(&observer));
        drop(metrics);
        known.iter().for_each(|family| observer(family));
    }
}

impl Inner {
    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn families(&self) -> Vec<Family> {
        self.metrics().all()
    }

    /// The family of that name.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn family(&self, name: &str) -> Option<Family> {
        self.metrics().family(name)
    }
}

impl Metrics {
    fn family(&self, name: &str) -> Option<Family> {
        let members = self.families.get(name)?.clone();
        let help = self.help.get(name).cloned().unwrap_or_default();
        Some(Family { name: name.to_owned(), help, members })
    }

    fn all(&self) -> Vec<Family> {
        self.families.keys().filter_map(|name| self.family(name)).collect()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.families().into_iter().map(|family| family.name);
        f.debug_tuple("Registry").field(&names.collect::<Vec<_>>()).finish()
    }
}

/// Builder for [`Registry`].
#[derive(Debug, Clone)]
pub struct RegistryBuilder {
    histograms: HistogramOptions,
    by_name: HashMap<String, HistogramOptions>,
}

impl RegistryBuilder {
    /// The options of all histograms without options of their own.
    #[must_use]
    pub fn histograms(mut self, options: HistogramOptions) -> Self {
        self.histograms = options;
        self
    }

    /// The options of the histograms with this name.
    #[must_use]
    pub fn histogram(mut self, name: &str, options: HistogramOptions) -> Self {
        self.by_name.insert(names::metric_name(name), options);
        self
    }

    /// The registry.
    #[must_use]
    pub fn build(self) -> Registry {
        let inner = Inner {
            metrics: Mutex::default(),
            histograms: self.histograms,
            histograms_by_name: self.by_name,
        };
        Registry { inner: Arc::new(inner) }
    }
}
