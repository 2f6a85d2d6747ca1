//! A flight recorder: threads record all the time into rings in memory, and when something looks
//! wrong the last events are looked at.
//!
//!     cargo run --example flight_recorder

use manycore_trace::{Class, Recorder, Trace, convert, event, span};
use std::time::Duration;

const JOBS: Class = Class::new(1, "jobs");

fn work(worker: u32, job: u32) {
    let _span = span!(JOBS, Job { worker: u32, job: u32 });
    if job % 97 == 96 {
        event!(JOBS, Slow { job: u32, reason: &str = "a cache miss" });
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn main() -> std::io::Result<()> {
    let recording = match Recorder::from_env() {
        Some(recorder) => recorder.start()?, // `manycore trace record`
        None => Recorder::new().ring_bytes(1 << 16).block_bytes(1 << 12).start()?,
    };
    std::thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || (0..10_000).for_each(|job| work(worker, job)));
        }
    });
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let summary = convert::Summary::of(&mut trace, &convert::Filter::default());
    println!("{summary}");
    let mut merge = trace.merge();
    while let Some(record) = merge.next() {
        if record.info.name == "Slow" {
            println!("{:>12} ns, thread {}: {record}", record.nanos(), record.thread);
        }
    }
    assert!(summary.account.is_closed(), "nothing is lost silently");
    assert_eq!(summary.account.produced, 2 * (20_000 + 103));
    Ok(())
}
