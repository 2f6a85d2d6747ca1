//! Metrics: those of other crates.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    Handle, Pairs,
    metrics::{KEY, LATENCY, PLACE, REQUESTS, find, seconds},
};
use metrics::{Key, Recorder as _};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use opentelemetry::{KeyValue, metrics::MeterProvider};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    metrics::{
        InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Temporality,
        data::{AggregatedMetrics, MetricData, ResourceMetrics},
        reader::MetricReader,
    },
};
use prometheus_client::{
    encoding::text,
    metrics::{counter, histogram},
    registry::Registry,
};

/// The bounds of the buckets, which are those of Prometheus' clients.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The recorder of metrics-exporter-prometheus, which a program installs, and its report.
pub(super) struct Recording {
    recorder: PrometheusRecorder,
    report: PrometheusHandle,
}

impl Recording {
    fn new() -> Self {
        let builder = PrometheusBuilder::new().set_buckets(&BOUNDS).expect("there are bounds");
        let recorder = builder.build_recorder();
        let report = recorder.handle();
        Self { recorder, report }
    }
}

/// Counted by a kept handle.
pub(super) struct Exporter(Recording);

impl Pairs for Exporter {
    type Handle<'a> = (metrics::Counter, &'a PrometheusHandle);

    fn new() -> Self {
        Self(Recording::new())
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        (self.0.recorder.register_counter(&KEY, &PLACE), &self.0.report)
    }
}

impl Handle for (metrics::Counter, &PrometheusHandle) {
    #[inline]
    fn pair(&mut self, _random: u64) {
        self.0.increment(1);
    }

    fn read(&mut self) -> u64 {
        find(&self.1.render(), REQUESTS)
    }
}

/// Counted by a handle that is looked up each time.
pub(super) struct ExporterLookedUp(Recording);

impl Pairs for ExporterLookedUp {
    type Handle<'a> = &'a Recording;

    fn new() -> Self {
        Self(Recording::new())
    }

    fn handle(&self, _index: usize) -> &Recording {
        &self.0
    }
}

impl Handle for &Recording {
    #[inline]
    fn pair(&mut self, _random: u64) {
        self.recorder.register_counter(&KEY, &PLACE).increment(1);
    }

    fn read(&mut self) -> u64 {
        find(&self.report.render(), REQUESTS)
    }
}

/// Recorded by a kept handle.
pub(super) struct ExporterTimes(Recording);

impl Pairs for ExporterTimes {
    type Handle<'a> = (metrics::Histogram, &'a PrometheusHandle);

    fn new() -> Self {
        Self(Recording::new())
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        let key = Key::from_static_name(LATENCY);
        (self.0.recorder.register_histogram(&key, &PLACE), &self.0.report)
    }
}

impl Handle for (metrics::Histogram, &PrometheusHandle) {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.0.record(seconds(random));
    }

    fn read(&mut self) -> u64 {
        find(&self.1.render(), "latency_count")
    }
}

/// A metric of prometheus-client, and the registry that it is in.
pub(super) struct Registered<M> {
    metric: M,
    registry: Registry,
}

/// prometheus-client's counter.
pub(super) struct Prometheus(Registered<counter::Counter>);

impl Pairs for Prometheus {
    type Handle<'a> = (counter::Counter, &'a Registry);

    fn new() -> Self {
        let (metric, mut registry) = (counter::Counter::default(), Registry::default());
        registry.register(REQUESTS, "", metric.clone());
        Self(Registered { metric, registry })
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        (self.0.metric.clone(), &self.0.registry)
    }
}

fn report(registry: &Registry) -> String {
    let mut report = String::new();
    text::encode(&mut report, registry).expect("a string takes everything");
    report
}

impl Handle for (counter::Counter, &Registry) {
    #[inline]
    fn pair(&mut self, _random: u64) {
        self.0.inc();
    }

    fn read(&mut self) -> u64 {
        find(&report(self.1), "requests_total")
    }
}

/// prometheus-client's histogram.
pub(super) struct PrometheusTimes(Registered<histogram::Histogram>);

impl Pairs for PrometheusTimes {
    type Handle<'a> = (histogram::Histogram, &'a Registry);

    fn new() -> Self {
        let (metric, mut registry) = (histogram::Histogram::new(BOUNDS), Registry::default());
        registry.register(LATENCY, "", metric.clone());
        Self(Registered { metric, registry })
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        (self.0.metric.clone(), &self.0.registry)
    }
}

impl Handle for (histogram::Histogram, &Registry) {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.0.observe(seconds(random));
    }

    fn read(&mut self) -> u64 {
        find(&report(self.1), "latency_count")
    }
}

/// A reader that collects when it is told to, without a thread.
#[derive(Clone, Debug)]
struct Reader(Arc<ManualReader>);

impl MetricReader for Reader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, found: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(found)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

/// OpenTelemetry's provider, and what reads it.
pub(super) struct Sdk {
    provider: SdkMeterProvider,
    reader: Reader,
}

impl Sdk {
    fn new() -> Self {
        let reader = Reader(Arc::new(ManualReader::builder().build()));
        let provider = SdkMeterProvider::builder().with_reader(reader.clone()).build();
        Self { provider, reader }
    }

    /// The sum of the counters, or the count of the histograms, as they are collected.
    fn total(&self) -> u64 {
        let mut found = ResourceMetrics::default();
        self.reader.collect(&mut found).expect("the provider is there");
        let metrics = found.scope_metrics().flat_map(|scope| scope.metrics());
        let total = metrics.map(|metric| match metric.data() {
            AggregatedMetrics::U64(MetricData::Sum(sum)) => {
                sum.data_points().map(|point| point.value()).sum()
            }
            AggregatedMetrics::F64(MetricData::Histogram(histogram)) => {
                histogram.data_points().map(|point| point.count()).sum()
            }
            _ => 0,
        });
        total.sum()
    }
}

/// OpenTelemetry's counter, with an attribute or without.
pub(super) struct Otel<const ATTRIBUTE: bool> {
    sdk: Sdk,
    counter: opentelemetry::metrics::Counter<u64>,
}

/// A thread's instrument, what it is given at each call, and the provider.
pub(super) struct Instrument<'a, I> {
    instrument: I,
    attributes: Vec<KeyValue>,
    sdk: &'a Sdk,
}

impl<const ATTRIBUTE: bool> Pairs for Otel<ATTRIBUTE> {
    type Handle<'a> = Instrument<'a, opentelemetry::metrics::Counter<u64>>;

    fn new() -> Self {
        let sdk = Sdk::new();
        let counter = sdk.provider.meter("bench").u64_counter(REQUESTS).build();
        Self { sdk, counter }
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        let attributes = if ATTRIBUTE { vec![KeyValue::new("path", "/")] } else { Vec::new() };
        Instrument { instrument: self.counter.clone(), attributes, sdk: &self.sdk }
    }
}

impl Handle for Instrument<'_, opentelemetry::metrics::Counter<u64>> {
    #[inline]
    fn pair(&mut self, _random: u64) {
        self.instrument.add(1, &self.attributes);
    }

    fn read(&mut self) -> u64 {
        self.sdk.total()
    }
}

/// OpenTelemetry's histogram.
pub(super) struct OtelTimes {
    sdk: Sdk,
    histogram: opentelemetry::metrics::Histogram<f64>,
}

impl Pairs for OtelTimes {
    type Handle<'a> = Instrument<'a, opentelemetry::metrics::Histogram<f64>>;

    fn new() -> Self {
        let sdk = Sdk::new();
        let meter = sdk.provider.meter("bench");
        let histogram = meter.f64_histogram(LATENCY).with_boundaries(BOUNDS.to_vec()).build();
        Self { sdk, histogram }
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        Instrument { instrument: self.histogram.clone(), attributes: Vec::new(), sdk: &self.sdk }
    }
}

impl Handle for Instrument<'_, opentelemetry::metrics::Histogram<f64>> {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.instrument.record(seconds(random), &self.attributes);
    }

    fn read(&mut self) -> u64 {
        self.sdk.total()
    }
}
