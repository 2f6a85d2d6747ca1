use crate::{THREADS, assert_scrapable, beside, sample};
use manycore_metrics::prometheus::Shared;
use manycore_metrics::{Counter, Gauge, Histogram, HistogramOptions, MetricRegistry};
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry as Rivals;

fn encoded(registry: &Rivals) -> String {
    let mut report = String::new();
    prometheus_text::encode(&mut report, registry).expect("a string takes everything");
    report
}

#[test]
fn collector_reports_what_the_registry_itself_reports() {
    let ours = MetricRegistry::builder()
        .histograms(HistogramOptions::new().resolution(1.0).buckets([10.0, 100.0]))
        .build();
    ours.describe("sizes", "Sizes.");
    ours.counter("requests_total", &[("path", "/ \"a\"\\\n")]).add(3);
    ours.gauge("level", &[]).set(-1.25);
    (0..500).for_each(|value| ours.histogram("sizes", &[("of", "all")]).record(f64::from(value)));
    let mut registry = Rivals::default();
    registry.register_collector(Box::new(ours.clone()));
    let (theirs, own) = (encoded(&registry), ours.render());
    for line in own.lines().filter(|line| !line.starts_with('#')) {
        // Prometheus' client writes bounds as "10.0", and "le" after the other labels, as we do.
        let (series, value) = line.rsplit_once(' ').expect("a sample");
        let value: f64 = value.parse().expect("a number");
        assert_eq!(sample(&theirs, series), value, "{series} of\n{theirs}");
    }
    let mut open_metrics = String::new();
    text::encode(&mut open_metrics, &registry).expect("a string takes everything");
    assert!(open_metrics.contains("# TYPE requests counter"), "{open_metrics}");
    assert!(open_metrics.contains("sizes_bucket{le=\"100.0\",of=\"all\"} 102"), "{open_metrics}");
}

#[test]
fn families_whose_names_meet_without_total_stay_apart() {
    let ours = MetricRegistry::new();
    ours.counter("open", &[]).add(1);
    ours.counter("open_total", &[]).add(2);
    ours.gauge("level", &[]).set(3.0);
    ours.counter("level_total", &[]).add(4);
    ours.gauge("heat_total", &[]).set(5.0);
    ours.counter("heat", &[]).add(6);
    ours.histogram("lat", &[]).record(0.2);
    ours.counter("lat_count", &[]).add(7);
    let mut registry = Rivals::default();
    registry.register_collector(Box::new(ours));
    let mut open_metrics = String::new();
    text::encode(&mut open_metrics, &registry).expect("a string takes everything");
    for report in [open_metrics.trim_end_matches("# EOF\n"), &encoded(&registry)] {
        assert_scrapable(report);
        assert_eq!(sample(report, "open_total"), 1.0);
        assert_eq!(sample(report, "open_counter_total"), 2.0);
        assert_eq!(sample(report, "level_counter_total"), 4.0);
        assert_eq!(sample(report, "heat_counter_total"), 6.0);
    }
}

#[test]
fn scrapes_beside_updates_of_a_family_lose_nothing() {
    const TURNS: u64 = 20_000;
    static LATENCY: Histogram = Histogram::new();
    static OPEN: Gauge = Gauge::new();
    let requests = Family::<[(&str, String); 1], Shared<Counter>>::default();
    let mut registry = Rivals::default();
    registry.register("requests", "All.", requests.clone());
    registry.register("latency", "All.", &LATENCY);
    registry.register("open", "All.", &OPEN);
    let mut last = 0.0;
    beside(
        |thread| {
            let own = requests.get_or_create(&[("thread", (thread % 2).to_string())]).clone();
            for _ in 0..TURNS {
                OPEN.add(1.0);
                own.inc();
                LATENCY.record(0.2);
                OPEN.sub(1.0);
            }
        },
        || {
            let count = sample(&encoded(&registry), "latency_count");
            assert!(count >= last, "{count} after {last}");
            last = count;
        },
    );
    let report = encoded(&registry);
    let all = (TURNS * THREADS as u64) as f64;
    assert_eq!(sample(&report, "latency_bucket{le=\"0.25\"}"), all);
    assert_eq!(sample(&report, "latency_bucket{le=\"0.1\"}"), 0.0);
    assert_eq!(sample(&report, "requests_total{thread=\"0\"}"), all / 2.0);
    assert_eq!(sample(&report, "requests_total{thread=\"1\"}"), all / 2.0);
    assert_eq!(sample(&report, "open"), 0.0);
}
