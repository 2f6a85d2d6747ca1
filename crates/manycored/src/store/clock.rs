//! The store's clock: a cached time. All threads read it; a worker advances it when it wakes up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Times to live above this are absolute Unix times.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;
/// Nanoseconds of an eighth of a second, the unit of deadlines.
const EIGHTH: u64 = 125_000_000;
/// A deadline that has passed.
const PAST: u32 = 1;
/// The initial time of the clock: later than `PAST`.
const START: u64 = 1_000_000_000;
/// How far the cached time must lag before it is written.
const STEP: u64 = 1_000_000;

/// A clock. Reading it costs one load.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    /// The time that it showed at `start`.
    begin: u64,
    now: AtomicU64,
    /// For tests: the offset, and the time at which the clock is paused (0 if it is not).
    moved: AtomicU64,
    paused: AtomicU64,
}

/// Returns the stamp of a time and a worker (law store.D1).
pub(super) fn stamp(nanos: u64, worker: usize) -> u64 {
    (nanos / 16) << 8 | worker as u64
}

/// Returns a time with stamps that are all above this stamp.
pub(super) fn moment_above(stamp: u64) -> u64 {
    ((stamp >> 8) + 1).saturating_mul(16)
}

/// Returns the second of a stamp, on the same clock.
#[inline]
pub(super) fn second_of(stamp: u64) -> u32 {
    ((stamp >> 8) / (1_000_000_000 / 16)) as u32
}

impl Clock {
    /// Makes a clock that continues from the end of an earlier clock, if that is later than
    /// `START`.
    pub(super) fn new(from: u64) -> Self {
        let (zero, begin) = (|| AtomicU64::new(0), from.max(START));
        let (start, now) = (Instant::now(), AtomicU64::new(begin));
        Self { start, begin, now, moved: zero(), paused: zero() }
    }

    /// Returns the exact time.
    pub(super) fn exact(&self) -> u64 {
        let now = self.start.elapsed().as_nanos() as u64 + self.begin;
        if !cfg!(debug_assertions) {
            return now;
        }
        // ORDER: Relaxed; for tests, which wait for replies.
        match self.paused.load(Ordering::Relaxed) {
            0 => now + self.moved.load(Ordering::Relaxed),
            paused => paused + self.moved.load(Ordering::Relaxed),
        }
    }

    /// Advances the clock, in builds for tests. It adds the amount by which deadlines are rounded
    /// up.
    pub fn move_on(&self, seconds: u32) {
        let nanos = u64::from(seconds) * 1_000_000_000 + EIGHTH;
        // ORDER: Relaxed; as in `exact`.
        self.moved.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Pauses the clock, or resumes it as if it had not been paused, in builds for tests.
    pub fn set_paused(&self, yes: bool) {
        let now = self.start.elapsed().as_nanos() as u64 + self.begin;
        // ORDER: Relaxed; as in `exact`.
        self.paused.store(if yes { now } else { 0 }, Ordering::Relaxed);
    }

    /// Advances the cached time, if a millisecond has passed. Returns the exact time.
    pub(super) fn tick(&self) -> u64 {
        let now = self.exact();
        // ORDER: Relaxed; times order nothing.
        if now >= self.now() + STEP {
            self.now.fetch_max(now, Ordering::Relaxed);
        }
        now
    }

    /// Advances the cached time beyond the current time, so that later stamps are larger. Returns
    /// the current time.
    pub(super) fn force(&self) -> u64 {
        let now = self.exact();
        // ORDER: Relaxed; a client that acts on the caller's reply sees it.
        self.now.fetch_max(now + 16, Ordering::Relaxed);
        now
    }

    /// Returns a stamp that is above all stamps taken so far, and below all later stamps (law
    /// store.D1).
    pub(super) fn all_so_far(&self) -> u64 {
        stamp(self.force(), 0) | 0xff
    }

    /// Returns the nanoseconds since a second before the store was created, as of the last tick.
    #[inline]
    pub fn now(&self) -> u64 {
        // ORDER: Relaxed; times order nothing.
        self.now.load(Ordering::Relaxed)
    }

    /// Returns the cached time in seconds.
    #[inline]
    pub fn second(&self) -> u32 {
        (self.now() / 1_000_000_000) as u32
    }

    /// Returns the time since the store was created.
    pub fn uptime(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the deadline of a time to live, by memcached's rules: 0 is never, a negative time
    /// has passed, and a time of more than 30 days is an absolute Unix time.
    pub fn deadline(&self, exptime: i64) -> u32 {
        let seconds = match exptime {
            0 => return 0,
            exptime if exptime > RELATIVE_MAX => {
                let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                exptime - today.as_secs() as i64
            }
            exptime => exptime,
        };
        if seconds <= 0 {
            return PAST;
        }
        let end = self.now().div_ceil(EIGHTH) as i64 + seconds.saturating_mul(8).min(1 << 40);
        u32::try_from(end).unwrap_or(u32::MAX)
    }

    /// Returns the time of a deadline on this clock. `None` is never.
    #[inline]
    pub(super) fn moment(deadline: u32) -> Option<Duration> {
        (deadline != 0).then(|| Duration::from_nanos(u64::from(deadline) * EIGHTH))
    }

    /// Returns the time left until a deadline. `None` is for ever.
    pub(super) fn until(&self, deadline: u32) -> Option<Duration> {
        let end = u64::from(deadline) * EIGHTH;
        (deadline != 0).then(|| Duration::from_nanos(end.saturating_sub(self.now())))
    }

    /// Returns true if a deadline has passed.
    #[inline]
    pub(crate) fn is_over(&self, deadline: u32) -> bool {
        deadline != 0 && u64::from(deadline) * EIGHTH <= self.now()
    }

    /// Returns the whole seconds until a deadline. -1 is for ever.
    pub fn seconds_left(&self, deadline: u32) -> i64 {
        let half = Duration::from_millis(500);
        self.until(deadline).map_or(-1, |left| (left + half).as_secs() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_up_to_thirty_days_and_then_of_the_calendar() {
        let clock = Clock::new(0);
        assert_eq!((clock.deadline(0), clock.deadline(-1)), (0, PAST));
        assert!(clock.is_over(PAST) && !clock.is_over(0) && !clock.is_over(clock.deadline(1)));
        assert_eq!(clock.seconds_left(0), -1);
        assert_eq!(clock.seconds_left(clock.deadline(30)), 30);
        assert_eq!(clock.seconds_left(clock.deadline(RELATIVE_MAX)), RELATIVE_MAX);
        assert_eq!(clock.deadline(RELATIVE_MAX + 1), PAST);
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let left = clock.seconds_left(clock.deadline(today + 100));
        assert!((98..=100).contains(&left), "{left}");
        assert!(clock.seconds_left(clock.deadline(i64::MAX)) > RELATIVE_MAX);
    }

    #[test]
    fn stamps_keep_the_order_of_time_before_that_of_workers() {
        assert!(stamp(32, 0) > stamp(16, 255) && stamp(16, 1) > stamp(16, 0));
        assert_eq!(second_of(stamp(7_000_000_000, 255)), 7);
        assert_eq!(second_of(stamp(6_999_999_999, 255)), 6);
        for nanos in [0, 15, 16, 7_000_000_000] {
            let (last, next) = (stamp(nanos, 255), moment_above(stamp(nanos, 255)));
            assert!(stamp(next, 0) > last && stamp(next - 1, 0) <= last);
        }
    }

    #[test]
    fn a_clock_goes_on_from_another_one() {
        let clock = Clock::new(90 * START);
        assert!(clock.second() == 90 && clock.exact() >= 90 * START);
        assert_eq!(clock.seconds_left(clock.deadline(30)), 30);
        assert_eq!(Clock::new(0).second(), 1);
    }
}
