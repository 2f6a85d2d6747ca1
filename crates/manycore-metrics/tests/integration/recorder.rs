use crate::{THREADS, assert_scrapable, beside, sample};
use manycore_metrics::{MetricRegistry, Recorder};
use metrics::{counter, describe_gauge, gauge, histogram, with_local_recorder};

#[test]
fn macros_on_many_threads_count_everything_once() {
    const TURNS: u32 = 3_000;
    let registry = MetricRegistry::new();
    let recorder = Recorder::new(&registry);
    beside(
        |thread| {
            with_local_recorder(&recorder, || {
                let kept = counter!("kept_total");
                for turn in 0..TURNS {
                    kept.increment(2);
                    counter!("found_total", "even" => (turn % 2 == 0).to_string()).increment(1);
                    gauge!("level", "thread" => thread.to_string()).increment(0.5);
                    histogram!("seconds").record(0.3);
                    histogram!("seconds").record_many(3.0, 2);
                }
            });
        },
        || registry.render(),
    );
    let text = registry.render();
    let all = f64::from(TURNS) * THREADS as f64;
    assert_eq!(sample(&text, "kept_total"), 2.0 * all);
    assert_eq!(sample(&text, "found_total{even=\"true\"}"), all / 2.0);
    assert_eq!(sample(&text, "found_total{even=\"false\"}"), all / 2.0);
    assert_eq!(sample(&text, "seconds_bucket{le=\"1\"}"), all);
    assert_eq!(sample(&text, "seconds_count"), 3.0 * all);
    for thread in 0..THREADS {
        let level = sample(&text, &format!("level{{thread=\"{thread}\"}}"));
        assert_eq!(level, f64::from(TURNS) / 2.0);
    }
}

#[test]
fn every_call_of_a_handle_does_what_its_name_says() {
    let registry = MetricRegistry::new();
    with_local_recorder(&Recorder::new(&registry), || {
        describe_gauge!("heat", metrics::Unit::Count, "How hot it is.");
        counter!("ticks").absolute(7);
        counter!("ticks").absolute(3);
        gauge!("heat").set(2.5);
        gauge!("heat").decrement(1.0);
    });
    let text = registry.render();
    assert_eq!((sample(&text, "ticks"), sample(&text, "heat")), (7.0, 1.5));
    assert!(text.starts_with("# HELP heat How hot it is.\n# TYPE heat gauge\n"), "{text}");
}

#[test]
fn reserved_labels_of_a_macro_are_exported_under_another_name() {
    let registry = MetricRegistry::new();
    with_local_recorder(&Recorder::new(&registry), || {
        histogram!("lat", "le" => "user", "quantile" => "q").record(0.2);
        counter!("all", "__name__" => "other", "le" => "5").increment(3);
    });
    let text = registry.render();
    assert_scrapable(&text);
    assert_eq!(sample(&text, "all{exported_name__=\"other\",le=\"5\"}"), 3.0);
    let labels = "exported_le=\"user\",exported_quantile=\"q\"";
    assert_eq!(sample(&text, &format!("lat_count{{{labels}}}")), 1.0);
}
