//! A recorder for the crate `metrics`.

use crate::{Counter, Gauge, Histogram, MetricRegistry};
use manycore::collections::HashMap;
use metrics::{CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, SharedString, Unit};
use std::sync::Arc;

/// Records the updates of the macros of the crate `metrics` in a [`MetricRegistry`].
///
/// - Cost: an update through a kept handle (`let requests = counter!(...)`) costs as much as that
///   of [`Counter`], [`Gauge`] or [`Histogram`], plus an indirect call. A macro without a kept
///   handle looks the metric up each time. It takes no lock, but it counts a reference to the
///   metric, on a line that all threads write. Keep the handle in hot code.
/// - Labels that a [`MetricRegistry`] refuses get `exported_` before their name, because a macro
///   cannot fail.
/// - Descriptions become Prometheus' help texts. Units are not reported; they belong into the name.
///
/// ```
/// use manycore_metrics::{MetricRegistry, Recorder};
/// use metrics::{counter, describe_counter, gauge, histogram};
///
/// let registry = MetricRegistry::new();
/// Recorder::new(&registry).install().expect("no other recorder is installed");
///
/// describe_counter!("requests_total", "Requests answered.");
/// let requests = counter!("requests_total", "path" => "/"); // kept by the handler
/// requests.increment(1);
/// gauge!("open").increment(2.0);
/// histogram!("latency_seconds").record(0.02);
///
/// let text = registry.render();
/// assert!(text.contains("requests_total{path=\"/\"} 1"));
/// assert!(text.contains("open 2"));
/// assert!(text.contains("latency_seconds_bucket{le=\"0.025\"} 1"));
/// ```
#[derive(Clone)]
pub struct Recorder {
    registry: MetricRegistry,
    known: Arc<Known>,
}

/// Metrics by the key of their macro. A macro finds them here without the registry's lock.
#[derive(Default)]
struct Known {
    counters: HashMap<Key, Arc<Counter>>,
    gauges: HashMap<Key, Arc<Gauge>>,
    histograms: HashMap<Key, Arc<Histogram>>,
}

impl Recorder {
    /// Creates a recorder for this registry.
    #[must_use]
    pub fn new(registry: &MetricRegistry) -> Self {
        Self { registry: registry.clone(), known: Arc::default() }
    }

    /// Makes this the recorder of all threads.
    ///
    /// # Errors
    /// If a recorder is installed already.
    pub fn install(self) -> Result<(), metrics::SetRecorderError<Self>> {
        metrics::set_global_recorder(self)
    }
}

fn labels(key: &Key) -> impl Iterator<Item = (&str, &str)> {
    key.labels().map(|label| (label.key(), label.value()))
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.registry.describe(key.as_str(), &*description);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.registry.describe(key.as_str(), &*description);
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, description: SharedString) {
        self.registry.describe(key.as_str(), &*description);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        let found = self.known.counters.get_cloned(key).unwrap_or_else(|| {
            let counter = self.registry.find_or_create_exported(key.name(), labels(key));
            self.known.counters.insert(key.to_retained(), Arc::clone(&counter));
            counter
        });
        metrics::Counter::from_arc(found)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        let found = self.known.gauges.get_cloned(key).unwrap_or_else(|| {
            let gauge = self.registry.find_or_create_exported(key.name(), labels(key));
            self.known.gauges.insert(key.to_retained(), Arc::clone(&gauge));
            gauge
        });
        metrics::Gauge::from_arc(found)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        let found = self.known.histograms.get_cloned(key).unwrap_or_else(|| {
            let histogram = self.registry.find_or_create_exported(key.name(), labels(key));
            self.known.histograms.insert(key.to_retained(), Arc::clone(&histogram));
            histogram
        });
        metrics::Histogram::from_arc(found)
    }
}

impl CounterFn for Counter {
    #[inline]
    fn increment(&self, value: u64) {
        self.add(value);
    }

    fn absolute(&self, value: u64) {
        Counter::absolute(self, value);
    }
}

impl GaugeFn for Gauge {
    #[inline]
    fn increment(&self, value: f64) {
        self.add(value);
    }

    #[inline]
    fn decrement(&self, value: f64) {
        self.sub(value);
    }

    fn set(&self, value: f64) {
        Gauge::set(self, value);
    }
}

impl HistogramFn for Histogram {
    #[inline]
    fn record(&self, value: f64) {
        Histogram::record(self, value);
    }

    #[inline]
    fn record_many(&self, value: f64, count: usize) {
        self.record_n(value, count as u64);
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Recorder").field(&self.registry).finish()
    }
}
