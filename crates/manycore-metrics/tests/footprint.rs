//! What a series takes of memory, counted at the allocator. One test, on one thread: what other
//! tests allocate would be counted too.

use manycore_metrics::{HistogramOptions, MetricRegistry};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller promises what the trait asks; the system's allocator asks the same.
        unsafe { System.dealloc(memory, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// Bytes of a series for each of 1,000 series, names and labels included.
fn of_a_series(registry: &MetricRegistry, name: &str, values: &[f64]) -> usize {
    const SERIES: usize = 1_000;
    let before = bytes();
    for path in 0..SERIES {
        let histogram = registry.histogram(name, &[("path", &format!("/{path}"))]);
        values.iter().for_each(|value| histogram.record(*value));
    }
    (bytes() - before) / SERIES
}

#[test]
fn histogram_series_are_as_small_as_documented() {
    let summary = HistogramOptions::new().quantiles([0.5, 0.99]);
    let registry = MetricRegistry::builder().histogram("summary", summary).build();
    // From 10 to 35 ms, and from 10 to 106 ms, in as many groups of buckets as there can be.
    let ten = |step: f64| -> Vec<f64> { (0..10).map(|n| 0.01 * step.powi(n)).collect() };
    let few = of_a_series(&registry, "few", &ten(1.15));
    assert!((800..1_200).contains(&few), "{few} bytes with ten values");
    let wide = of_a_series(&registry, "wide", &ten(1.3));
    assert!(wide < 1_330, "{wide} bytes with ten values in ten groups");
    let one = of_a_series(&registry, "one", &[0.2]);
    assert!(one < 600, "{one} bytes with one value");
    let none = of_a_series(&registry, "none", &[]);
    assert!(none < 400, "{none} bytes without a value");
    // All values of five doublings, as latencies have them.
    let many: Vec<f64> = (0..1_000).map(|n| 0.01 * 2_f64.powf(f64::from(n) / 200.0)).collect();
    let full = of_a_series(&registry, "many", &many);
    assert!(full < 2_200, "{full} bytes with a thousand values");
    println!("{none} {one} {few} {wide} {full}");

    let before = bytes();
    let report = registry.render();
    assert!(report.lines().count() > 50_000);
    drop(report);
    assert_eq!(bytes(), before, "a report keeps nothing");
    // A summary keeps snapshots; each holds what the histogram has counted, not every bucket.
    let summaries = of_a_series(&registry, "summary", &ten(1.15));
    let before = bytes();
    drop(registry.render());
    assert!((bytes() - before) / 1_000 < 1_024, "{summaries}, {}", bytes() - before);
}
