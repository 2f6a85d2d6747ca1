//! The metrics in a registry of the crate `prometheus-client`.
//!
//! There are two ways. A [`MetricRegistry`] is a [`Collector`]: register it once, and everything in
//! it is encoded. Or register single metrics, and put them into families with typed labels:
//! `&'static` metrics or [`Shared`] ones.
//!
//! Histograms are always encoded in buckets, because `prometheus-client` has no summaries. Its
//! encoders add `_total` to the name of a counter, so register a counter without it. The collector
//! removes it, so that a registry's names are the same in each report. If another family has the
//! remaining name, the collector adds `_counter` (a counter `open_total` beside a gauge `open` is
//! reported as `open_counter_total`).
//!
//! ```
//! use manycore_metrics::prometheus::Shared;
//! use manycore_metrics::{Counter, Histogram};
//! use prometheus_client::{encoding::text, metrics::family::Family, registry::Registry};
//!
//! static LATENCY: Histogram = Histogram::new();
//!
//! let requests = Family::<[(&str, &str); 1], Shared<Counter>>::default();
//! let mut registry = Registry::default();
//! registry.register("requests", "Requests answered", requests.clone());
//! registry.register("latency_seconds", "Time to answer", &LATENCY);
//!
//! let ok = requests.get_or_create(&[("status", "200")]).clone(); // kept by the handler
//! ok.inc();
//! LATENCY.record(0.3);
//!
//! let mut report = String::new();
//! text::encode(&mut report, &registry).unwrap();
//! assert!(report.contains("requests_total{status=\"200\"} 1"));
//! assert!(report.contains("latency_seconds_bucket{le=\"0.5\"} 1"));
//! ```
//!
//! And with the collector:
//!
//! ```
//! let ours = manycore_metrics::MetricRegistry::new();
//! let requests = ours.counter("requests_total", &[("status", "200")]);
//! let mut registry = prometheus_client::registry::Registry::default();
//! registry.register_collector(Box::new(ours.clone()));
//!
//! requests.inc();
//! let mut report = String::new();
//! prometheus_client::encoding::text::encode(&mut report, &registry).unwrap();
//! assert!(report.contains("requests_total{status=\"200\"} 1"));
//! ```

use crate::family::{Family, Members, Series};
use crate::names::SampleNames;
use crate::registry::Kind;
use crate::{Counter, Gauge, Histogram, MetricRegistry};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

impl TypedMetric for Counter {
    const TYPE: MetricType = MetricType::Counter;
}

impl EncodeMetric for Counter {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        encoder.encode_counter::<NoLabelSet, _, u64>(&self.get(), None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Gauge {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for Gauge {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        encoder.encode_gauge(&self.get())
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Histogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder) -> fmt::Result {
        let seen = self.read();
        // The encoder needs the count of each bucket alone, not up to it.
        let mut below = 0;
        let own = |(bound, up_to): (f64, u64)| {
            let own = up_to - below;
            below = up_to;
            (bound, own)
        };
        let buckets = seen.buckets().iter().copied().chain([(f64::INFINITY, seen.count())]);
        let buckets: Vec<_> = buckets.map(own).collect();
        encoder.encode_histogram::<NoLabelSet>(seen.sum(), seen.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

macro_rules! encode_static {
    ($($Type:ty),*) => {$(
        impl TypedMetric for &'static $Type {
            const TYPE: MetricType = <$Type as TypedMetric>::TYPE;
        }

        impl EncodeMetric for &'static $Type {
            fn encode(&self, encoder: MetricEncoder) -> fmt::Result {
                EncodeMetric::encode(*self, encoder)
            }

            fn metric_type(&self) -> MetricType {
                Self::TYPE
            }
        }
    )*};
}

encode_static!(Counter, Gauge, Histogram);

/// A counted reference to a metric: one clone is registered, and the others are updated.
#[derive(Debug, Default)]
pub struct Shared<M>(Arc<M>);

impl<M> Shared<M> {
    /// Shares this metric.
    #[must_use]
    pub fn new(metric: M) -> Self {
        Self(Arc::new(metric))
    }
}

impl<M> Clone for Shared<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> From<Arc<M>> for Shared<M> {
    fn from(metric: Arc<M>) -> Self {
        Self(metric)
    }
}

impl<M> Deref for Shared<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

impl<M: TypedMetric> TypedMetric for Shared<M> {
    const TYPE: MetricType = M::TYPE;
}

impl<M: EncodeMetric> EncodeMetric for Shared<M> {
    fn encode(&self, encoder: MetricEncoder) -> fmt::Result {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}

impl Collector for MetricRegistry {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let families = self.families();
        let mut samples = SampleNames::default();
        for Family { name, members, .. } in &families {
            match members {
                Members::Counters(_) => (),
                Members::Gauges(_) => _ = samples.take(name, Gauge::SAMPLES),
                Members::Histograms(_) => _ = samples.take(name, Histogram::SAMPLES),
            }
        }
        families.iter().try_for_each(|Family { name, help, members }| match members {
            Members::Counters(members) => {
                let mut name = name.strip_suffix("_total").unwrap_or(name).to_owned();
                while !samples.take(&name, &["", "_total"]) {
                    name.push_str(Counter::SUFFIX);
                }
                encode_family(&mut encoder, &name, help, members)
            }
            Members::Gauges(members) => encode_family(&mut encoder, name, help, members),
            Members::Histograms(members) => encode_family(&mut encoder, name, help, members),
        })
    }
}

fn encode_family<M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    members: &Series<M>,
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    members.iter().try_for_each(|(labels, metric)| metric.encode(encoder.encode_family(&**labels)?))
}
