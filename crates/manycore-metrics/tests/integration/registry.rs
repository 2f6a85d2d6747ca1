use crate::{THREADS, assert_scrapable, beside, sample};
use manycore_metrics::{
    Counter, Gauge, Histogram, HistogramOptions, MetricRegistry, RegisterError,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn totals_beside_scrapes_are_those_of_atomics_and_never_fall() {
    const ADDS: u64 = 40_000;
    let registry = MetricRegistry::new();
    let (adds, observed) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut last = (0.0, 0.0, 0.0);
    beside(
        |thread| {
            let all = registry.counter("adds_total", &[]);
            let own = registry.counter("own_total", &[("thread", &thread.to_string())]);
            let open = registry.gauge("open", &[]);
            let sizes = registry.histogram("sizes", &[]);
            for turn in 0..ADDS {
                all.add(turn % 3);
                adds.fetch_add(turn % 3, Ordering::Relaxed);
                own.inc();
                open.add(1.0);
                sizes.record(turn as f64);
                observed.fetch_add(1, Ordering::Relaxed);
                open.sub(1.0);
            }
        },
        || {
            let counted = (adds.load(Ordering::Relaxed), observed.load(Ordering::Relaxed));
            if registry.render().matches("# TYPE").count() < 4 {
                return;
            }
            let text = registry.render();
            let found = (sample(&text, "adds_total"), sample(&text, "sizes_count"));
            // An update is counted by us after it was made: a scrape has all that we had counted.
            assert!(
                found.0 >= counted.0 as f64 && found.1 >= counted.1 as f64,
                "{counted:?}\n{text}"
            );
            let now = (found.0, found.1, sample(&text, "sizes_sum"));
            assert!(now.0 >= last.0 && now.1 >= last.1 && now.2 >= last.2, "{last:?}, {now:?}");
            assert!(sample(&text, "sizes_bucket{le=\"+Inf\"}") == found.1, "one reading:\n{text}");
            last = now;
            let open = sample(&text, "open");
            assert!((0.0..=THREADS as f64).contains(&open), "{open}");
        },
    );
    let text = registry.render();
    assert_eq!(sample(&text, "adds_total"), adds.into_inner() as f64);
    assert_eq!(sample(&text, "sizes_count"), (ADDS * THREADS as u64) as f64);
    assert_eq!(sample(&text, "open"), 0.0);
    for thread in 0..THREADS {
        assert_eq!(sample(&text, &format!("own_total{{thread=\"{thread}\"}}")), ADDS as f64);
    }
    let sum = (ADDS * (ADDS - 1) / 2 * THREADS as u64) as f64;
    let error = (sample(&text, "sizes_sum") - sum).abs();
    assert!(error < 0.016 * sum, "{error} of {sum}");
}

#[test]
fn metrics_are_as_large_as_documented() {
    assert_eq!((size_of::<Counter>(), size_of::<Gauge>()), (24, 32));
    assert_eq!(size_of::<Histogram>(), 184);
}

#[test]
fn labels_and_help_are_escaped_and_names_made_valid() {
    let registry = MetricRegistry::new();
    registry.describe("http.requests", "Requests, \"all\" of them.\nBy path, with \\.");
    registry.counter("http.requests", &[("path", "C:\\a \"b\"\nc"), ("2nd-label", "ü{},")]).add(2);
    let expected = "\
# HELP http_requests Requests, \"all\" of them.\\nBy path, with \\\\.
# TYPE http_requests counter
http_requests{_2nd_label=\"ü{},\",path=\"C:\\\\a \\\"b\\\"\\nc\"} 2
";
    assert_eq!(registry.render(), expected);
}

#[test]
fn order_of_labels_is_of_no_account_and_one_series_is_one_metric() {
    let registry = MetricRegistry::new();
    let one = registry.counter("a.b", &[("x", "1"), ("y", "2")]);
    let other = registry.counter("a_b", &[("y", "2"), ("x", "1")]);
    assert!(Arc::ptr_eq(&one, &other));
    assert!(!Arc::ptr_eq(&one, &registry.counter("a_b", &[("x", "1")])));
}

#[test]
fn second_kind_of_a_name_is_reported_under_another() {
    let registry = MetricRegistry::new();
    registry.counter("depth", &[]).add(3);
    registry.gauge("depth", &[]).set(0.5);
    let again = registry.gauge("depth", &[]);
    again.add(1.0);
    let text = registry.render();
    assert_eq!((sample(&text, "depth"), sample(&text, "depth_gauge")), (3.0, 1.5));
    // Also if that name is another's.
    registry.counter("x_gauge", &[]).inc();
    registry.counter("x", &[]).inc();
    registry.gauge("x", &[]).set(7.0);
    assert_eq!(sample(&registry.render(), "x_gauge_gauge"), 7.0);
}

#[test]
fn samples_of_two_families_never_share_a_name() {
    // Each order, since the later one gives way.
    let others = ["lat_count", "lat_sum", "lat_bucket"];
    let histogram =
        |registry: &MetricRegistry| registry.histogram("lat", &[("a", "b")]).record(0.2);
    let rest = |registry: &MetricRegistry| {
        for name in others {
            registry.counter(name, &[("a", "b")]).inc();
            registry.gauge(name, &[("a", "b")]).set(2.0);
            registry.histogram(name, &[("a", "b")]).record(0.2);
        }
    };
    for is_first in [true, false] {
        let registry = MetricRegistry::new();
        if is_first {
            histogram(&registry);
        }
        for _ in 0..2 {
            rest(&registry); // the second time finds what the first one has made
        }
        histogram(&registry);
        let text = registry.render();
        assert_scrapable(&text);
        let renamed = if is_first { "lat_count_counter" } else { "lat_count" };
        assert_eq!(sample(&text, &format!("{renamed}{{a=\"b\"}}")), 2.0, "{text}");
    }
}

#[test]
fn reserved_labels_are_errors_or_panics_and_leave_nothing_behind() {
    let registry = MetricRegistry::builder()
        .histogram("summary", HistogramOptions::new().quantiles([0.5]))
        .build();
    let refused = |found: Option<RegisterError>, label: &str| {
        let error = found.unwrap_or_else(|| panic!("{label} is taken"));
        assert!(error.to_string().contains(&format!("{label:?}")), "{error}");
    };
    for label in ["__name__", "__x"] {
        refused(registry.try_counter("c", &[("a", "b"), (label, "1")]).err(), label);
        refused(registry.try_gauge("g", &[(label, "1")]).err(), label);
        refused(registry.try_histogram("h", &[(label, "1")]).err(), label);
    }
    for label in ["le", "quantile"] {
        refused(registry.try_histogram("h", &[("a", "b"), (label, "1")]).err(), label);
        refused(registry.try_histogram("summary", &[(label, "1")]).err(), label);
        let _ = registry.counter("c", &[(label, "1")]);
        let _ = registry.gauge("g", &[(label, "1")]);
    }
    let panics =
        catch_unwind(AssertUnwindSafe(|| registry.histogram("h", &[("l.e", ""), ("le", "")])));
    let message = *panics.expect_err("a panic").downcast::<String>().expect("a message");
    assert_eq!(message, "manycore-metrics: the label \"le\" of \"h\" has a reserved name");
    let text = registry.render();
    assert_scrapable(&text);
    assert_eq!(text.matches("# TYPE").count(), 2, "{text}");
}

#[test]
fn histograms_report_buckets_or_quantiles() {
    let options = HistogramOptions::new().resolution(1.0);
    let registry = MetricRegistry::builder()
        .histograms(options.clone().buckets([100.0, 10.0, f64::INFINITY, 10.0]))
        .histogram("summary", options.quantiles([0.0, 0.5, 1.0]))
        .build();
    for name in ["summary", "buckets"] {
        let histogram = registry.histogram(name, &[("of", "all")]);
        (1..=60).for_each(|value| histogram.record(f64::from(value)));
    }
    let expected = "\
# TYPE buckets histogram
buckets_bucket{of=\"all\",le=\"10\"} 10
buckets_bucket{of=\"all\",le=\"100\"} 60
buckets_bucket{of=\"all\",le=\"+Inf\"} 60
buckets_sum{of=\"all\"} 1830
buckets_count{of=\"all\"} 60
# TYPE summary summary
summary{of=\"all\",quantile=\"0\"} 1
summary{of=\"all\",quantile=\"0.5\"} 30
summary{of=\"all\",quantile=\"1\"} 60
summary_sum{of=\"all\"} 1830
summary_count{of=\"all\"} 60
";
    assert_eq!(registry.render(), expected);
}

#[test]
fn absolute_totals_of_several_threads_end_at_the_greatest_and_adds_are_kept() {
    let counter = Counter::new();
    beside(
        |thread| {
            (0..5_000).for_each(|turn| counter.absolute(turn * THREADS as u64 + thread as u64))
        },
        || assert!(counter.get() < 5_000 * THREADS as u64),
    );
    assert_eq!(counter.get(), 5_000 * THREADS as u64 - 1);
    counter.absolute(7);
    counter.add(1);
    assert_eq!(counter.get(), 5_000 * THREADS as u64);
}

#[test]
fn gauge_that_is_set_is_never_seen_between_two_values() {
    let gauge = Gauge::new();
    beside(
        |thread| {
            for turn in 0..5_000 {
                // Of the values that are set, no two parts make another one that is set.
                gauge.set(if (turn + thread).is_multiple_of(2) { 1.5 } else { 1000.25 });
            }
        },
        || {
            let seen = gauge.get();
            assert!([0.0, 1.5, 1000.25].contains(&seen), "{seen}");
        },
    );
    for (value, then) in [(f64::INFINITY, f64::INFINITY), (-0.5, 0.5), (1e300, 1e300)] {
        gauge.set(value);
        gauge.add(1.0);
        assert_eq!(gauge.get(), then);
    }
    gauge.set(f64::NAN);
    assert!(gauge.get().is_nan());
}

#[test]
fn fractions_added_by_threads_are_all_counted() {
    let gauge = Gauge::new();
    beside(
        |_| {
            for _ in 0..4_000 {
                gauge.add(0.25);
                gauge.add(2.0);
                gauge.sub(0.5);
            }
        },
        || (),
    );
    assert_eq!(gauge.get(), THREADS as f64 * 4_000.0 * 1.75);
}
