//! A registry: metrics by name and labels.
//!
//! This module owns the families, and all adapters read metrics from here. A reader copies what it
//! needs under the lock and reads the metrics without it, so no code of a user runs under the lock.

use crate::family::{Family, Members, Series};
use crate::names::{self, Labels, SampleNames};
use crate::{Counter, Gauge, Histogram, HistogramOptions, MetricVec, RegisterError, text};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A registry of metrics by name and labels. It creates a metric at the first use, and one call
/// reports all of them.
///
/// A clone is the same registry. The calls that find or create a metric take a lock and copy the
/// labels. So code that updates a metric often should keep the returned handle, or find it in a
/// [`MetricVec`] if the labels' values vary. Registered metrics
/// stay: a label with many values (users, paths with ids) is a leak.
///
/// - Names: characters that Prometheus does not accept become underscores, so `http.requests` and
///   `http_requests` are one metric. No two metrics have a sample of the same name, because a
///   scraper would reject the whole report. If two kinds have one name, or a counter is named
///   `x_count` beside a histogram `x`, the later metric gets its kind as a suffix
///   (`x_count_counter`).
/// - Labels: names that begin with two underscores are reserved for Prometheus, and `le` and
///   `quantile` for histograms. They cause an error ([`try_counter`](Self::try_counter) and the
///   like) or a panic.
/// - Consistency: a report reads one metric after the other, so it is no snapshot of all. For each
///   metric it has every update that happened before, and any subset of the concurrent ones.
/// - Memory: some 200 bytes, the name and the labels for each series, and the metric: [`Counter`],
///   [`Gauge`], [`Histogram`].
///
/// ```
/// use manycore_metrics::{HistogramOptions, MetricRegistry};
///
/// let registry = MetricRegistry::builder()
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
#[doc(alias = "Registry")]
#[derive(Clone)]
pub struct MetricRegistry {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    metrics: Mutex<Metrics>,
    histograms: Arc<HistogramOptions>,
    histograms_by_name: HashMap<String, Arc<HistogramOptions>>,
}

#[derive(Default)]
struct Metrics {
    families: BTreeMap<String, Members>,
    samples: SampleNames,
    help: HashMap<String, String>,
    observers: Vec<Arc<Observer>>,
}

/// Called once for each family, without a lock held.
type Observer = dyn Fn(&Family) + Send + Sync;

/// A kind of metric, and what distinguishes its families.
pub(crate) trait Kind: Sized {
    /// Appended to the name of a family if that name is taken.
    const SUFFIX: &'static str;
    /// Appended to the family's name in the names of its samples.
    const SAMPLES: &'static [&'static str];
    /// The labels that reports add to its samples.
    const LABELS: &'static [&'static str];

    fn empty() -> Members;

    fn of(members: &mut Members) -> Option<&mut Series<Self>>;

    fn create(registry: &Inner, name: &str) -> Self;
}

macro_rules! kind {
    ($Type:ty, $Members:ident, $suffix:expr, $samples:expr, $labels:expr, $create:expr) => {
        impl Kind for $Type {
            const SUFFIX: &'static str = $suffix;
            const SAMPLES: &'static [&'static str] = $samples;
            const LABELS: &'static [&'static str] = $labels;

            fn empty() -> Members {
                Members::$Members(BTreeMap::new())
            }

            fn of(members: &mut Members) -> Option<&mut Series<Self>> {
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

/// The samples and labels of a histogram, reported in buckets or as a summary. prometheus-client
/// has no summaries, so both are buckets there.
const HISTOGRAM: (&[&str], &[&str]) = (&["", "_bucket", "_sum", "_count"], &["le", "quantile"]);

kind!(Counter, Counters, "_counter", &[""], &[], |_, _| Counter::new());
kind!(Gauge, Gauges, "_gauge", &[""], &[], |_, _| Gauge::new());
kind!(Histogram, Histograms, "_histogram", HISTOGRAM.0, HISTOGRAM.1, |registry: &Inner, name| {
    let own = registry.histograms_by_name.get(name);
    Histogram::sharing_options(Arc::clone(own.unwrap_or(&registry.histograms)))
});

impl MetricRegistry {
    /// Creates an empty registry. Its histograms have the buckets of Prometheus' clients.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Creates a builder of an empty registry, with options for histograms.
    #[must_use]
    pub fn builder() -> MetricRegistryBuilder {
        MetricRegistryBuilder { histograms: HistogramOptions::new(), by_name: HashMap::new() }
    }

    /// Returns the counter with this name and these labels. Creates it if there is none.
    ///
    /// # Panics
    /// If [`try_counter`](Self::try_counter) would return an error.
    #[must_use]
    pub fn counter(&self, name: &str, labels: &[(&str, &str)]) -> Arc<Counter> {
        or_panic(self.try_counter(name, labels))
    }

    /// Returns the gauge with this name and these labels. Creates it if there is none.
    ///
    /// # Panics
    /// If [`try_gauge`](Self::try_gauge) would return an error.
    #[must_use]
    pub fn gauge(&self, name: &str, labels: &[(&str, &str)]) -> Arc<Gauge> {
        or_panic(self.try_gauge(name, labels))
    }

    /// Returns the histogram with this name and these labels. Creates it if there is none.
    ///
    /// # Panics
    /// If [`try_histogram`](Self::try_histogram) would return an error.
    #[must_use]
    pub fn histogram(&self, name: &str, labels: &[(&str, &str)]) -> Arc<Histogram> {
        or_panic(self.try_histogram(name, labels))
    }

    /// Like [`counter`](Self::counter), for label names that the program does not choose.
    ///
    /// ```
    /// use manycore_metrics::{MetricRegistry, RegisterError};
    ///
    /// let registry = MetricRegistry::new();
    /// assert!(registry.try_counter("requests_total", &[("path", "/")]).is_ok());
    /// let error = registry.try_counter("requests_total", &[("__name__", "other")]).unwrap_err();
    /// let RegisterError::ReservedLabel { label, .. } = error else { panic!("{error}") };
    /// assert_eq!(label, "__name__");
    /// ```
    ///
    /// # Errors
    /// [`RegisterError::ReservedLabel`] if the name of a label begins with two underscores.
    pub fn try_counter(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<Arc<Counter>, RegisterError> {
        self.try_find_or_create(name, labels)
    }

    /// Like [`gauge`](Self::gauge), for label names that the program does not choose.
    ///
    /// # Errors
    /// Those of [`try_counter`](Self::try_counter).
    pub fn try_gauge(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<Arc<Gauge>, RegisterError> {
        self.try_find_or_create(name, labels)
    }

    /// Like [`histogram`](Self::histogram), for label names that the program does not choose.
    ///
    /// # Errors
    /// Those of [`try_counter`](Self::try_counter); also if a label is named `le` or `quantile`.
    pub fn try_histogram(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<Arc<Histogram>, RegisterError> {
        self.try_find_or_create(name, labels)
    }

    /// Returns the counters with this name and these labels, found by the labels' values without a
    /// lock.
    ///
    /// # Panics
    /// If the name of a label begins with two underscores or comes twice.
    #[must_use]
    pub fn counter_vec<const N: usize>(
        &self,
        name: &str,
        labels: [&str; N],
    ) -> MetricVec<Counter, N> {
        MetricVec::new(self, name, labels, Self::try_counter)
    }

    /// As [`counter_vec`](Self::counter_vec), of gauges.
    ///
    /// # Panics
    /// If [`counter_vec`](Self::counter_vec) would.
    #[must_use]
    pub fn gauge_vec<const N: usize>(&self, name: &str, labels: [&str; N]) -> MetricVec<Gauge, N> {
        MetricVec::new(self, name, labels, Self::try_gauge)
    }

    /// As [`counter_vec`](Self::counter_vec), of histograms.
    ///
    /// # Panics
    /// If [`counter_vec`](Self::counter_vec) would, or if a label is named `le` or `quantile`.
    #[must_use]
    pub fn histogram_vec<const N: usize>(
        &self,
        name: &str,
        labels: [&str; N],
    ) -> MetricVec<Histogram, N> {
        MetricVec::new(self, name, labels, Self::try_histogram)
    }

    /// Sets the help text of the metrics with this name, for readers of reports.
    pub fn describe(&self, name: &str, help: impl Into<String>) {
        self.metrics().help.insert(names::metric_name(name), help.into());
    }

    /// Returns all metrics in Prometheus' text format, version 0.0.4.
    ///
    /// Send it as [`CONTENT_TYPE`](Self::CONTENT_TYPE). Histograms with quantiles become summaries.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        text::write(&self.families(), &mut text).expect("a string takes all that is written to it");
        text
    }

    /// The media type of the result of [`render`](Self::render).
    pub const CONTENT_TYPE: &'static str = "text/plain; version=0.0.4; charset=utf-8";

    fn try_find_or_create<K: Kind>(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<Arc<K>, RegisterError> {
        let labels = names::labels(labels.iter().copied());
        if let Some(label) = names::reserved(&labels, K::LABELS) {
            let (metric, label) = (name.to_owned(), label.to_owned());
            return Err(RegisterError::ReservedLabel { metric, label });
        }
        Ok(self.find_or_create(names::metric_name(name), labels))
    }

    /// Like [`try_find_or_create`](Self::try_find_or_create), for callers that can't fail: renames
    /// reserved labels.
    #[cfg(feature = "metrics")]
    pub(crate) fn find_or_create_exported<'a, K: Kind>(
        &self,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Arc<K> {
        let labels = names::exported(names::labels(labels), K::LABELS);
        self.find_or_create(names::metric_name(name), labels)
    }

    fn find_or_create<K: Kind>(&self, mut name: String, mut labels: Labels) -> Arc<K> {
        let mut metrics = self.metrics();
        loop {
            if metrics.add_family::<K>(&name) {
                break;
            }
            name.push_str(K::SUFFIX);
        }
        let members = metrics.families.get_mut(&name).and_then(K::of).expect("it was just found");
        let is_new = members.is_empty();
        let found = match members.get(&labels) {
            Some(found) => Arc::clone(found),
            None => {
                let created = Arc::new(K::create(&self.inner, &name));
                labels.shrink_to_fit();
                members.insert(Arc::new(labels), Arc::clone(&created));
                created
            }
        };
        if is_new {
            let (family, observers) = (metrics.family(&name), metrics.observers.clone());
            drop(metrics);
            let family = family.expect("it was just found");
            observers.iter().for_each(|observer| observer(&family));
        }
        found
    }

    /// Returns all families, sorted by name.
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

    /// Calls `observer` once for each present and future family.
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

    /// Returns the family with that name.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn family(&self, name: &str) -> Option<Family> {
        self.metrics().family(name)
    }
}

/// Returns the metric, or panics.
fn or_panic<M>(found: Result<Arc<M>, RegisterError>) -> Arc<M> {
    found.unwrap_or_else(|error| panic!("manycore-metrics: {error}"))
}

impl Metrics {
    /// Adds a family unless it exists. Returns false if a family of another kind has the name of
    /// one of its samples.
    fn add_family<K: Kind>(&mut self, name: &str) -> bool {
        if let Some(members) = self.families.get_mut(name) {
            return K::of(members).is_some();
        }
        let is_added = self.samples.take(name, K::SAMPLES);
        if is_added {
            self.families.insert(name.to_owned(), K::empty());
        }
        is_added
    }

    fn family(&self, name: &str) -> Option<Family> {
        let members = self.families.get(name)?.clone();
        let help = self.help.get(name).cloned().unwrap_or_default();
        Some(Family { name: name.to_owned(), help, members })
    }

    fn all(&self) -> Vec<Family> {
        self.families.keys().filter_map(|name| self.family(name)).collect()
    }
}

impl Default for MetricRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MetricRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.families().into_iter().map(|family| family.name);
        f.debug_tuple("MetricRegistry").field(&names.collect::<Vec<_>>()).finish()
    }
}

/// Builder for [`MetricRegistry`].
#[derive(Debug, Clone)]
pub struct MetricRegistryBuilder {
    histograms: HistogramOptions,
    by_name: HashMap<String, Arc<HistogramOptions>>,
}

impl MetricRegistryBuilder {
    /// Sets the options of all histograms that have none of their own.
    #[must_use]
    pub fn histograms(mut self, options: HistogramOptions) -> Self {
        self.histograms = options;
        self
    }

    /// Sets the options of the histograms with this name.
    #[must_use]
    pub fn histogram(mut self, name: &str, options: HistogramOptions) -> Self {
        self.by_name.insert(names::metric_name(name), Arc::new(options));
        self
    }

    /// Builds the registry.
    #[must_use]
    pub fn build(self) -> MetricRegistry {
        let inner = Inner {
            metrics: Mutex::default(),
            histograms: Arc::new(self.histograms),
            histograms_by_name: self.by_name,
        };
        MetricRegistry { inner: Arc::new(inner) }
    }
}
