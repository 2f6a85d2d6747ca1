//! Metrics that are found by the values of their labels.

use manycore_metrics::MetricRegistry;
use std::sync::Barrier;
use std::thread;

#[test]
fn metric_is_that_of_the_registry() {
    let registry = MetricRegistry::new();
    let sizes = registry.histogram_vec("size_bytes", ["kind"]);
    sizes.get(["page"]).record(7.0);
    assert_eq!(registry.histogram("size_bytes", &[("kind", "page")]).read().count(), 1);
    let requests = registry.counter_vec("requests_total", ["b", "a"]);
    let made_before = registry.counter("requests_total", &[("a", "1"), ("b", "2")]);
    made_before.inc();
    assert_eq!(requests.get(["2", "1"]).get(), 1);
    assert!(std::ptr::eq(requests.get(["2", "1"]), &*made_before));
    let all = registry.counter_vec("all_total", []);
    all.get([]).inc();
    assert!(registry.render().contains("\nall_total 1\n"), "{}", registry.render());
}

#[test]
fn each_combination_of_values_is_a_metric_of_its_own() {
    let registry = MetricRegistry::new();
    let vector = registry.counter_vec("x", ["a", "b"]);
    let long = "l".repeat(300);
    let values = ["", "a", "b", "ab", "\0", "\u{1}", "\u{0}a", "é", &long];
    for (at, first) in values.iter().enumerate() {
        for (then, second) in values.iter().enumerate() {
            vector.get([first, second]).add((100 * at + then) as u64);
        }
    }
    for (at, first) in values.iter().enumerate() {
        for (then, second) in values.iter().enumerate() {
            assert_eq!(vector.get([first, second]).get(), (100 * at + then) as u64);
        }
    }
}

#[test]
fn threads_that_come_first_at_the_same_time_count_in_one_metric() {
    for _ in 0..50 {
        let registry = MetricRegistry::new();
        let (vector, begin) = (registry.counter_vec("x", ["who"]), Barrier::new(4));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    begin.wait();
                    for who in 0..20_u32 {
                        vector.get([&*who.to_string()]).inc();
                    }
                });
            }
        });
        for who in 0..20_u32 {
            assert_eq!(registry.counter("x", &[("who", &*who.to_string())]).get(), 4);
        }
    }
}

#[test]
#[should_panic(expected = "the label \"le\"")]
fn histograms_have_no_label_le() {
    let _ = MetricRegistry::new().histogram_vec("x", ["le"]);
}

#[test]
#[should_panic(expected = "two labels have one name")]
fn label_is_named_once() {
    let _ = MetricRegistry::new().counter_vec("x", ["a.b", "a_b"]);
}
