//! Settings from the environment: how long to test, and with which seed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Returns a number from the environment: decimal, or hexadecimal after `0x`.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let text = text.trim().replace('_', "");
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Returns `MANYCORE_SEED`, or a seed from the time of day.
pub fn seed() -> u64 {
    number("MANYCORE_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        now.as_nanos() as u64
    })
}

/// Returns the time after the seconds in the environment variable `name`, or after `default`.
pub fn deadline(name: &str, default: Duration) -> Instant {
    Instant::now() + number(name).map_or(default, Duration::from_secs)
}

/// Returns when a test ends that goes on for a while: after the seconds in `MANYCORE_SOAK`, or else
/// after `share`, or a quarter of it if `MANYCORE_TESTS` is `short`.
pub fn soak(share: Duration) -> Instant {
    deadline("MANYCORE_SOAK", if is_short() { share / 4 } else { share })
}

/// Returns `full`, or a tenth of it if `MANYCORE_TESTS` is `short`, as it is under a sanitizer.
pub fn rounds(full: usize) -> usize {
    if is_short() { full / 10 } else { full }
}

fn is_short() -> bool {
    std::env::var("MANYCORE_TESTS").is_ok_and(|form| form == "short")
}

/// How long a test waits for an effect that needs two threads to really meet, such as a planted
/// fault.
pub const UNSEEN: Duration = Duration::from_secs(20);

/// Reports that an effect which needs two threads to really meet was not seen; `what` describes it.
///
/// Nothing guarantees the effect: on a busy machine two threads hardly ever run at the same time.
/// So only the long form, `ci/stress.sh`, fails here.
pub fn was_not_seen(what: &str) {
    assert!(number("MANYCORE_ROUNDS").is_none(), "{what}");
    println!("{what} in {UNSEEN:?}");
}

/// Takes the turn of tests that time threads against each other. Together they would only wait for
/// the same cores.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns whether two threads can run at the same time here.
pub fn has_two_cores() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}
