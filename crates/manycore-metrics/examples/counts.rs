//! Threads that count and measure by the macros of the crate `metrics`, and a scrape beside them.
//!
//!     cargo run --release -p manycore-metrics --example counts

use manycore_metrics::{MetricRegistry, Recorder};
use metrics::{counter, histogram};
use std::time::Instant;

const THREADS: u64 = 4;
const REQUESTS: u64 = 100_000;

fn main() {
    let registry = MetricRegistry::new();
    Recorder::new(&registry).install().expect("no other recorder is installed");

    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // Looked up once; an update then writes no line that other threads write.
                let requests = counter!("requests_total", "path" => "/");
                let latency = histogram!("latency_seconds");
                for _ in 0..REQUESTS {
                    let start = Instant::now();
                    requests.increment(1);
                    latency.record(start.elapsed());
                }
            });
        }
        // A scraper reads while they count.
        println!("{}", registry.render());
    });

    let text = registry.render();
    println!("{text}");
    assert!(text.contains(&format!("requests_total{{path=\"/\"}} {}", THREADS * REQUESTS)));
    assert!(text.contains(&format!("latency_seconds_count {}", THREADS * REQUESTS)));
}
