//! Events in a handler, which interrupts events.

use crate::{TEST, alone};
use manycore_trace::{Recorder, Trace, Value, event};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static HANDLED: AtomicU64 = AtomicU64::new(0);

fn record_handled(n: u64) {
    event!(TEST, Handled { n: u64, twice: u64 = 2 * n });
}

extern "C" fn handler(_: libc::c_int) {
    record_handled(HANDLED.fetch_add(1, Ordering::Relaxed) + 1);
}

#[test]
fn events_of_handlers_are_recorded_or_counted() -> io::Result<()> {
    let _alone = alone();
    // SAFETY: the handler does what the crate allows in one: the thread and the site have recorded.
    unsafe {
        let handler = handler as extern "C" fn(libc::c_int);
        assert_ne!(libc::signal(libc::SIGUSR1, handler as libc::sighandler_t), libc::SIG_ERR);
    }
    let recording = Recorder::new().ring_bytes(1 << 16).block_bytes(1 << 12).start()?;
    record_handled(0);
    // SAFETY: takes nothing.
    let target = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    let mut steps = 0_u64;
    std::thread::scope(|scope| {
        let is_over = &is_over;
        scope.spawn(move || {
            for _ in 0..20_000 {
                // SAFETY: the scope keeps that thread.
                unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            event!(TEST, Step { n: u64 = steps, twice: u64 = 2 * steps });
            steps += 1;
        }
    });
    let handled = HANDLED.load(Ordering::Relaxed);
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let mut merge = trace.merge();
    while let Some(record) = merge.next() {
        let values: Vec<Value> = record.fields().map(|(_, value)| value).collect();
        let [Value::Unsigned(n), Value::Unsigned(twice)] = values[..] else { panic!("{record}") };
        assert_eq!(twice, 2 * n, "{record} is wrong");
    }
    let account = merge.into_account();
    assert!(account.is_closed(), "{account}");
    assert_eq!(account.produced, 1 + steps + handled, "{account}");
    println!("{steps} events, {handled} of handlers");
    Ok(())
}
