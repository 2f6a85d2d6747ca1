//! The metrics of a registry as observable instruments of OpenTelemetry.
//!
//! Needs only OpenTelemetry's API. The SDK, or whatever else the [`Meter`] belongs to, reads the
//! instruments at each collection. An update of a metric costs the same as without OpenTelemetry:
//! it hashes no attributes and calls no instrument.
//!
//! | Metric | Instruments |
//! |---|---|
//! | counter `name` | `name`, an observable counter |
//! | gauge `name` | `name`, an observable gauge |
//! | histogram `name` | observable counters: `name.count`, `name.sum`, and `name.bucket` with an attribute `le`, the bucket's bound; with [quantiles](crate::HistogramOptions::quantiles) instead of the last one a gauge `name.quantile` with an attribute `quantile` |
//!
//! OpenTelemetry has no observable histogram, so the data type of a histogram cannot be used.
//! Labels are attributes.
//!
//! ```
//! use manycore_metrics::{MetricRegistry, otel};
//! use opentelemetry::global;
//!
//! // A program sets its meter provider first: `global::set_meter_provider`.
//! let registry = MetricRegistry::new();
//! otel::observe(&registry, global::meter("shop"));
//!
//! let orders = registry.counter("orders", &[("country", "nl")]);
//! orders.inc(); // is reported at the next collection
//! ```

use crate::family::{Family, Members, Series};
use crate::names::Labels;
use crate::registry::Inner;
use crate::{Histogram, MetricRegistry};
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use std::sync::{Arc, Weak};

/// Creates an instrument for each present and future metric of the registry.
///
/// Call it once for a registry and a meter. The instruments live as long as the meter's provider
/// keeps them. They do not keep the registry alive, and report nothing once it is gone.
///
/// - Descriptions are those of the registry when the first metric of a name is created.
/// - Cost: an observation of each series at each collection, without a lock of the registry. A
///   histogram is read again for its count, its sum and its buckets.
/// - Consistency: like [`MetricRegistry`], so the count and the buckets of one collection may
///   differ.
/// - Locks: the thread that registers the first metric of a name calls the meter, without a lock of
///   the registry.
pub fn observe(registry: &MetricRegistry, meter: Meter) {
    let inner = Arc::downgrade(registry.inner());
    registry.observe(Arc::new(move |family| observe_family(&inner, &meter, family)));
}

fn observe_family(inner: &Weak<Inner>, meter: &Meter, family: &Family) {
    let Family { name, help, members } = family;
    let source = Source { inner: Weak::clone(inner), name: name.as_str().into() };
    let (name, help) = (name.clone(), help.clone());
    match members {
        Members::Counters(_) => {
            let instrument = meter.u64_observable_counter(name).with_description(help);
            let observe = move |to: &dyn AsyncInstrument<u64>| {
                source.counters(|counter, labels| to.observe(counter.get(), &attributes(labels)));
            };
            instrument.with_callback(observe).build();
        }
        Members::Gauges(_) => {
            let instrument = meter.f64_observable_gauge(name).with_description(help);
            let observe = move |to: &dyn AsyncInstrument<f64>| {
                source.gauges(|gauge, labels| to.observe(gauge.get(), &attributes(labels)));
            };
            instrument.with_callback(observe).build();
        }
        Members::Histograms(members) => observe_histograms(&source, meter, &help, members),
    }
}

fn observe_histograms(source: &Source, meter: &Meter, help: &str, members: &Series<Histogram>) {
    let named = |part: &str| format!("{}.{part}", source.name);
    let help = help.to_owned();

    let (of, instrument) = (source.clone(), meter.u64_observable_counter(named("count")));
    let observe = move |to: &dyn AsyncInstrument<u64>| {
        of.histograms(|seen, labels| to.observe(seen.read_counts().count(), &attributes(labels)));
    };
    instrument.with_description(help.clone()).with_callback(observe).build();

    let (of, instrument) = (source.clone(), meter.f64_observable_counter(named("sum")));
    let observe = move |to: &dyn AsyncInstrument<f64>| {
        of.histograms(|seen, labels| to.observe(seen.read_counts().sum(), &attributes(labels)));
    };
    instrument.with_description(help.clone()).with_callback(observe).build();

    let of = source.clone();
    if members.values().any(|histogram| histogram.options().has_quantiles()) {
        let observe = move |to: &dyn AsyncInstrument<f64>| {
            of.histograms(|histogram, labels| {
                for (q, value) in histogram.read().quantiles() {
                    to.observe(*value, &with(labels, "quantile", *q));
                }
            });
        };
        let instrument = meter.f64_observable_gauge(named("quantile")).with_description(help);
        instrument.with_callback(observe).build();
    } else {
        let observe = move |to: &dyn AsyncInstrument<u64>| {
            of.histograms(|histogram, labels| {
                let seen = histogram.read_counts();
                for (bound, count) in seen.buckets() {
                    to.observe(*count, &with(labels, "le", *bound));
                }
                to.observe(seen.count(), &with(labels, "le", f64::INFINITY));
            });
        };
        let instrument = meter.u64_observable_counter(named("bucket")).with_description(help);
        instrument.with_callback(observe).build();
    }
}

/// Finds the series of an instrument each time that it is read.
#[derive(Clone)]
struct Source {
    inner: Weak<Inner>,
    name: Arc<str>,
}

macro_rules! each {
    ($($call:ident, $Members:ident, $Type:ty;)*) => {$(
        fn $call(&self, mut observe: impl FnMut(&$Type, &Labels)) {
            let family = self.inner.upgrade().and_then(|inner| inner.family(&self.name));
            if let Some(Members::$Members(members)) = family.map(|family| family.members) {
                members.iter().for_each(|(labels, metric)| observe(metric, labels));
            }
        }
    )*};
}

impl Source {
    each! {
        counters, Counters, crate::Counter;
        gauges, Gauges, crate::Gauge;
        histograms, Histograms, Histogram;
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone())).collect()
}

fn with(labels: &Labels, name: &'static str, value: f64) -> Vec<KeyValue> {
    let mut attributes = attributes(labels);
    attributes.push(KeyValue::new(name, value));
    attributes
}
