use crate::{THREADS, beside};
use manycore_metrics::{HistogramOptions, MetricRegistry, otel};
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, SdkMeterProvider};
use std::collections::BTreeMap;
use std::fmt::Display;

/// A meter provider that keeps what it collects.
struct Collected {
    exporter: InMemoryMetricExporter,
    provider: SdkMeterProvider,
}

impl Collected {
    fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        let provider = SdkMeterProvider::builder().with_periodic_exporter(exporter.clone()).build();
        Self { exporter, provider }
    }

    /// Collects now: each series as `name{attribute=value}`, and its value.
    fn now(&self) -> BTreeMap<String, f64> {
        self.exporter.reset();
        self.provider.force_flush().expect("the exporter takes it");
        let batches = self.exporter.get_finished_metrics().expect("the exporter has them");
        let mut found = BTreeMap::new();
        for scope in batches.iter().flat_map(|batch| batch.scope_metrics()) {
            for metric in scope.metrics() {
                match metric.data() {
                    AggregatedMetrics::U64(data) => points(metric.name(), data, &mut found),
                    AggregatedMetrics::F64(data) => points(metric.name(), data, &mut found),
                    other => panic!("{other:?}"),
                }
            }
        }
        found
    }
}

fn points<T: Copy + Display>(name: &str, data: &MetricData<T>, found: &mut BTreeMap<String, f64>) {
    let mut add = |attributes: Vec<String>, value: T| {
        let value = value.to_string().parse().expect("a number");
        let before = found.insert(format!("{name}{{{}}}", attributes.join(",")), value);
        assert_eq!(before, None, "{name} is reported twice");
    };
    let text = |each: &opentelemetry::KeyValue| format!("{}={}", each.key, each.value);
    match data {
        MetricData::Sum(sum) => {
            assert!(sum.is_monotonic(), "{name}");
            sum.data_points().for_each(|at| add(at.attributes().map(text).collect(), at.value()));
        }
        MetricData::Gauge(gauge) => {
            gauge.data_points().for_each(|at| add(at.attributes().map(text).collect(), at.value()));
        }
        _ => panic!("{name} is neither a sum nor a gauge"),
    }
}

#[test]
fn metrics_created_before_and_after_are_collected_with_their_labels() {
    let collected = Collected::new();
    let options = HistogramOptions::new().resolution(1.0).buckets([10.0]);
    let registry = MetricRegistry::builder()
        .histograms(options.clone())
        .histogram("times", options.quantiles([0.5]))
        .build();
    registry.counter("requests", &[("status", "200")]).add(2);
    otel::observe(&registry, collected.provider.meter("test"));
    registry.counter("requests", &[("status", "500")]).add(1);
    registry.gauge("level", &[]).set(-0.5);
    registry.histogram("sizes", &[]).record(7.0);
    registry.histogram("sizes", &[]).record(20.0);
    registry.histogram("times", &[]).record(3.0);
    let expected = [
        ("level{}", -0.5),
        ("requests{status=200}", 2.0),
        ("requests{status=500}", 1.0),
        ("sizes.bucket{le=10}", 1.0),
        ("sizes.bucket{le=inf}", 2.0),
        ("sizes.count{}", 2.0),
        ("sizes.sum{}", 27.0),
        ("times.count{}", 1.0),
        ("times.quantile{quantile=0.5}", 3.0),
        ("times.sum{}", 3.0),
    ];
    let expected: BTreeMap<_, _> = expected.map(|(name, value)| (name.to_owned(), value)).into();
    assert_eq!(collected.now(), expected);
    assert_eq!(collected.now(), expected, "nothing was taken");
    drop(registry);
    assert_eq!(collected.now(), BTreeMap::new(), "instruments do not keep the registry");
}

#[test]
fn collections_beside_updates_lose_nothing_and_never_fall() {
    const TURNS: u64 = 20_000;
    let collected = Collected::new();
    let registry = MetricRegistry::new();
    otel::observe(&registry, collected.provider.meter("test"));
    let mut last = 0.0;
    beside(
        |_| {
            let requests = registry.counter("requests", &[]);
            let latency = registry.histogram("latency", &[]);
            for _ in 0..TURNS {
                requests.inc();
                latency.record(0.2);
            }
        },
        || {
            let count = collected.now().get("requests{}").copied().unwrap_or(0.0);
            assert!(count >= last, "{count} after {last}");
            last = count;
        },
    );
    let (found, all) = (collected.now(), (TURNS * THREADS as u64) as f64);
    assert_eq!((found["requests{}"], found["latency.count{}"]), (all, all));
}
