//! clock.C1 to clock.C4: what stamps say about what came before what.

use std::time::{Duration, Instant};

use super::Random;
use crate::clock::{Clock, FakeClock, Mode, Stamp};
use crate::sync::{AtomicU64, Ordering, hint, thread};

fn clocks() -> Vec<Clock> {
    let time = FakeClock::new();
    vec![Clock::detect(), Clock::counter(), Clock::bounded(1_000), Clock::fake(&time, 0)]
}

#[test]
fn stamps_and_cuts_of_a_thread_rise() {
    for clock in clocks() {
        let mut last = Stamp::ZERO;
        for round in 0..100_000 {
            let next = if round % 3 == 0 { clock.cut() } else { clock.stamp() };
            assert!(last < next, "{}: {last:?} then {next:?}", clock.mode());
            last = next;
        }
        assert!(last < Stamp::MAX);
    }
}

#[test]
fn next_is_the_least_greater_stamp() {
    assert_eq!(Stamp::ZERO.next(), Stamp::from_ticks(1));
    assert_eq!(Stamp::from_ticks(41).next().ticks(), 42);
    assert_eq!(Stamp::MAX.next(), Stamp::MAX);
    assert_eq!(Stamp::default(), Stamp::ZERO);
}

#[test]
fn counter_gives_every_stamp_once() {
    let clock = Clock::counter();
    let mut stamps: Vec<_> = thread::scope(|s| {
        let takers: Vec<_> = (0..4)
            .map(|_| s.spawn(|| (0..10_000).map(|_| clock.stamp()).collect::<Vec<_>>()))
            .collect();
        takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect()
    });
    stamps.sort_unstable();
    stamps.dedup();
    assert_eq!(stamps.len(), 40_000);
}

/// Two threads pass a word back and forth. Each stamps before it passes the word on, and must then
/// see the other's stamp in between. Returns how many passes were inverted, and how many passes
/// there were.
fn inversions(clock: &Clock, rounds: u64, settle: bool, enter: impl Fn(bool) + Sync) -> (u64, u64) {
    // A busy machine makes each pass a wait for the scheduler: stop in time, but not before the
    // first hundred.
    let deadline = Instant::now() + Duration::from_secs(5);
    // The number of passes, and the last one's stamp.
    let (passes, stamp) = (AtomicU64::new(0), AtomicU64::new(0));
    let run = |odd: u64| {
        enter(odd == 1);
        let mut inverted = 0;
        for pass in (odd..rounds).step_by(2) {
            if pass & 0xfff == odd && pass > 100 && Instant::now() > deadline {
                passes.store(u64::MAX, Ordering::Release);
            }
            let mut spins = 0_u32;
            // ORDER: Acquire; pairs with the Release below.
            while passes.load(Ordering::Acquire) < pass {
                spins += 1;
                if spins % 1024 == 0 { thread::yield_now() } else { hint::spin_loop() }
            }
            if passes.load(Ordering::Acquire) == u64::MAX {
                return (inverted, pass);
            }
            let own = clock.stamp();
            inverted += u64::from(own.ticks() <= stamp.load(Ordering::Relaxed));
            stamp.store(own.ticks(), Ordering::Relaxed);
            if settle {
                clock.commit_wait(own);
            }
            // ORDER: Release; pairs with the Acquire above: the stamp before the pass.
            let _ = passes.compare_exchange(pass, pass + 1, Ordering::Release, Ordering::Relaxed);
        }
        (inverted, rounds)
    };
    thread::scope(|s| {
        let (run, other) = (&run, s.spawn(|| run(1)));
        let (mine, passes) = run(0);
        (mine + other.join().unwrap().0, passes)
    })
}

#[test]
fn order_passes_between_threads() {
    for (clock, rounds) in [(Clock::detect(), 200_000), (Clock::counter(), 60_000)] {
        let (inverted, passes) = inversions(&clock, rounds, true, |_| ());
        assert!(passes > 100, "{passes} passes in 5 s");
        assert_eq!(inverted, 0, "{}: {inverted} of {passes} passes", clock.mode());
    }
}

#[test]
fn order_passes_between_threads_that_settle() {
    let clock = Clock::bounded(500);
    assert_eq!(inversions(&clock, 20_000, true, |_| ()).0, 0);
}

#[test]
fn skewed_threads_are_inverted_and_settling_repairs_it() {
    let run = |skew_ticks, settle| {
        let time = FakeClock::new();
        let clock = Clock::fake(&time, skew_ticks);
        let skew = |second: bool| {
            time.with_skew_on_this_thread(if second { -100 } else { 100 });
        };
        inversions(&clock, 2_000, settle, skew).0
    };
    assert!(run(200, false) > 500, "the test sees the skew when no thread waits");
    assert!(run(100, true) > 500, "a bound that is too small does not repair it");
    assert_eq!(run(200, true), 0);
}

#[test]
fn fake_time_moves_with_reads_and_by_hand() {
    let time = FakeClock::new();
    let clock = Clock::fake(&time, 0);
    let first = clock.stamp();
    assert_eq!(clock.cut(), first.next());
    time.advance(1_000);
    assert_eq!(clock.stamp().ticks(), first.ticks() + 1_002);
    let still = clock.ticks_now();
    assert_eq!(still, time.time());
    assert_eq!(clock.ticks_now(), still, "a coarse look does not move it");
    clock.commit_wait(clock.stamp());
    assert_eq!(time.time(), still + 1, "without a skew, settling reads nothing");
}

#[test]
fn fake_skew_is_of_one_thread_and_one_clock() {
    let (time, other) = (FakeClock::new(), FakeClock::new());
    let clock = Clock::fake(&time, 0);
    time.with_skew_on_this_thread(-7).with_skew_on_this_thread(-5);
    other.with_skew_on_this_thread(50);
    assert_eq!(clock.ticks_now(), time.time() - 5);
    thread::scope(|s| {
        s.spawn(|| assert_eq!(clock.ticks_now(), time.time()));
    });
    time.with_skew_on_this_thread(0);
    assert_eq!(clock.ticks_now(), time.time());
    time.with_skew_on_this_thread(i64::MIN);
    assert_eq!(clock.stamp(), Stamp::ZERO, "readings stop at 0");
    assert_eq!(Clock::fake(&other, 0).ticks_now(), other.time() + 50);
}

/// clock.C4 (b): the thread is preempted between stamp and publication, where waiting from the
/// stamp alone fails.
#[test]
fn settling_waits_from_the_publication_and_not_from_the_stamp() {
    const SKEW: u64 = 100;
    let time = FakeClock::new();
    let clock = Clock::fake(&time, SKEW);
    let stamp = clock.stamp();
    time.advance(10 * SKEW); // preempted: the stamp is long past on every core
    let cut = clock.cut(); // a reader starts, and scans the log before the publication
    clock.commit_wait(stamp); // published, and the update returns
    time.with_skew_on_this_thread(-(SKEW as i64)); // its successor, on the slowest core
    assert!(clock.stamp() > cut, "the reader would collect the successor without it");
}

#[test]
fn settling_ends_at_the_first_tick_beyond_the_skew() {
    let time = FakeClock::new();
    let clock = Clock::fake(&time, 10);
    let stamp = clock.stamp();
    clock.commit_wait(stamp);
    // One tick for the look at the entry; ten are waited out; two looks are past them.
    assert_eq!(time.time(), stamp.ticks() + 1 + 10 + 2);
    let ahead = Stamp::from_ticks(time.time() + 100);
    clock.commit_wait(ahead);
    assert_eq!(time.time(), ahead.ticks() + 10 + 2, "a stamp that is ahead is waited for");
}

/// clock.C4 for any offsets within the bound: one thread plays all cores, one after the other.
#[test]
fn after_settling_every_core_is_past_the_stamp_and_all_cuts() {
    const SKEW: u64 = 64;
    let mut random = Random(3);
    let time = FakeClock::new();
    let clock = Clock::fake(&time, SKEW);
    let on = |random: &mut Random| {
        time.with_skew_on_this_thread(random.below(SKEW + 1) as i64 - SKEW as i64 / 2);
    };
    for _ in 0..20_000 {
        on(&mut random);
        let offset_of_updater = clock.ticks_now().wrapping_sub(time.time()) as i64;
        let stamp = clock.stamp();
        time.advance(random.below(3 * SKEW));
        on(&mut random);
        let cut = clock.cut();
        time.with_skew_on_this_thread(offset_of_updater);
        clock.commit_wait(stamp);
        on(&mut random);
        let later = clock.stamp();
        assert!(stamp < later && cut < later, "{stamp:?} {cut:?} {later:?}");
    }
}

#[test]
fn bounded_settling_waits_the_skew_out_and_no_longer_than_needed() {
    let clock = Clock::bounded(50_000);
    if let Mode::Bounded { skew_ticks } = clock.mode() {
        let stamp = clock.stamp();
        let started = Instant::now();
        clock.commit_wait(stamp);
        assert!(clock.stamp().ticks() > stamp.ticks() + skew_ticks);
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
    // A bound of 0 still separates: the tick of the stamp is over.
    let clock = Clock::bounded(0);
    let stamp = clock.stamp();
    clock.commit_wait(stamp);
    assert!(clock.stamp() > stamp);
}

#[test]
fn system_clock_is_one() {
    let here: *const Clock = Clock::system();
    let there = thread::spawn(|| std::ptr::from_ref(Clock::system()) as usize).join().unwrap();
    assert_eq!(here as usize, there);
}

#[test]
fn ticks_measure_time() {
    for clock in clocks() {
        if let Mode::Fake { .. } = clock.mode() {
            continue;
        }
        let within = |low: Duration, ticks: u64, high: Duration| {
            let ticked = clock.ticks_to_duration(ticks);
            // A percent for the calibration on a busy machine.
            assert!(ticked >= low.mul_f64(0.99), "{}: {ticked:?} in {low:?}", clock.mode());
            assert!(ticked <= high.mul_f64(1.01), "{}: {ticked:?} in {high:?}", clock.mode());
        };
        let (outer, before) = (Instant::now(), clock.ticks_now());
        let inner = Instant::now();
        thread::sleep(Duration::from_millis(30));
        let inner = inner.elapsed();
        let ticks = clock.ticks_now() - before;
        within(inner, ticks, outer.elapsed());
    }
}

#[test]
fn durations_and_ticks_convert_both_ways() {
    let mut random = Random(5);
    for clock in clocks() {
        let hertz = clock.ticks_per_second();
        assert_eq!(clock.ticks_to_duration(hertz), Duration::from_secs(1));
        assert_eq!(clock.duration_to_ticks(Duration::from_secs(1)), hertz);
        assert_eq!(clock.duration_to_ticks(Duration::ZERO), 0);
        assert_eq!(clock.duration_to_ticks(Duration::MAX), u64::MAX);
        assert!(clock.duration_to_ticks(Duration::from_nanos(1)) > 0, "rounded up");
        let _ = clock.ticks_to_duration(u64::MAX);
        for _ in 0..1_000 {
            let duration = Duration::from_nanos(random.below(1 << 31) << random.below(20));
            let back = clock.ticks_to_duration(clock.duration_to_ticks(duration));
            assert!(back >= duration.saturating_sub(Duration::from_nanos(1)), "{duration:?}");
            assert!(back <= duration + Duration::from_nanos(100), "{duration:?} {back:?}");
        }
    }
}
