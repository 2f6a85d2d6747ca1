//! What the environment says about how long and with which seed to test.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// A number from the environment: decimal, or hexadecimal after `0x`.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let text = text.trim().replace('_', "");
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// `MANYCORE_SEED`, or one from the time of day.
pub fn seed() -> u64 {
    number("MANYCORE_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        now.as_nanos() as u64
    })
}

/// Ends after the seconds that the environment variable `name` gives, or after `default`.
pub fn deadline(name: &str, default: Duration) -> Instant {
    Instant::now() + number(name).map_or(default, Duration::from_secs)
}

/// So many rounds, or a tenth where `MANYCORE_TESTS` is `short`: under a sanitizer.
pub fn rounds(full: usize) -> usize {
    let short = std::env::var("MANYCORE_TESTS").is_ok_and(|form| form == "short");
    if short { full / 10 } else { full }
}

/// How long a test waits for what shows only when two threads really meet, such as a planted fault.
pub const UNSEEN: Duration = Duration::from_secs(20);

/// What shows only when two threads really meet did not show; `what` says so. Nothing guarantees
/// that it does: on a busy machine two threads hardly ever run at the same time. So only the long
/// form, `ci/stress.sh`, demands it.
pub fn was_not_seen(what: &str) {
    assert!(number("MANYCORE_ROUNDS").is_none(), "{what}");
    println!("{what} in {UNSEEN:?}");
}

/// Tests that time threads against each other take turns: together they would only wait for the
/// same cores.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether two threads can run at the same time here.
pub fn has_two_cores() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}
