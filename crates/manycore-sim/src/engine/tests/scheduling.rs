//! Waiting and sharing cores, one situation at a time.

use crate::{
    Access, Engine, Machine, Outcome, ThreadId, WaitFor, Wakened,
    engine::Outcome::{Continue, Deadlock, Finished, Switch},
};

const MAIN: ThreadId = ThreadId::MAIN;

fn engine(cores: u32) -> Engine {
    Engine::new(Machine::named("opteron-8x6").unwrap(), cores, 1).unwrap()
}

#[test]
fn a_woken_futex_waiter_runs_after_the_wake_and_says_so() {
    let mut engine = engine(2);
    let other = engine.spawn(Some(1), 0);
    assert_eq!(engine.futex_wait(0x40, u32::MAX, None, 7), Switch(other));
    assert_eq!(engine.work(1000), Continue);
    assert_eq!(engine.futex_wake(0x40, 1, u32::MAX), 1);
    assert_eq!(engine.exit(), Switch(MAIN));
    assert_eq!(engine.wakened(), Wakened::ByThread);
    assert_eq!(engine.now(), 1000 + 3000);
}

#[test]
fn an_idle_machine_asks_before_time_passes() {
    let mut engine = engine(2);
    let other = engine.spawn(Some(1), 0);
    assert_eq!(engine.sleep_until(90_000, 7), Switch(other));
    engine.stop_when_idle(true);
    assert_eq!(engine.work(1000), Continue);
    assert_eq!(engine.futex_wait(0x40, u32::MAX, None, 7), Outcome::Idle);
    assert_eq!(engine.idle_until(), Some(90_000));
    assert_eq!(engine.futex_wake(0x40, 1, u32::MAX), 1);
    assert_eq!(engine.go_on(), Continue);
    assert_eq!((engine.running(), engine.now()), (other, 1000 + 3000), "time stood still");
    assert_eq!(engine.futex_wait(0x40, u32::MAX, None, 7), Outcome::Idle);
    assert_eq!(engine.go_on(), Switch(MAIN), "the time of the sleep has come");
    assert_eq!(engine.now(), 90_000 + 3000);
    assert_eq!(engine.futex_wait(0x80, u32::MAX, None, 7), Outcome::Idle);
    assert_eq!(engine.idle_until(), None, "all wait for each other");
}

#[test]
fn a_core_is_idle_while_it_has_no_thread() {
    let mut engine = engine(3);
    let other = engine.spawn(Some(1), 0);
    assert_eq!(engine.work(1000), Continue);
    assert_eq!(engine.futex_wait(0x40, u32::MAX, None, 7), Switch(other));
    assert_eq!(engine.work(5000), Continue);
    assert_eq!(engine.totals().idle, 4000 + 5000, "core 0 for a while, core 2 all the time");
    assert_eq!(engine.futex_wake(0x40, 1, u32::MAX), 1);
    assert_eq!(engine.exit(), Switch(MAIN));
    assert_eq!(engine.now(), 5000 + 3000);
    assert_eq!(engine.idle(), [7000, 3000, 8000]);
    assert_eq!(engine.totals().idle, 7000 + 3000 + 8000, "cores 0, 1 and 2");
}

#[test]
fn waits_for_threads_are_kept_with_their_times_up_to_the_limit() {
    let mut engine = engine(2);
    engine.keep_waits(1);
    let other = engine.spawn(Some(1), 0);
    assert_eq!(engine.futex_wait(0x40, u32::MAX, None, 7), Switch(other));
    assert_eq!(engine.work(1000), Continue);
    assert_eq!(engine.futex_wake(0x40, 1, u32::MAX), 1);
    assert_eq!(engine.sleep_until(20_000, 8), Switch(MAIN));
    assert_eq!(engine.exit(), Switch(other));
    let (waits, left_out) = engine.take_waits();
    let found =
        waits.iter().map(|wait| (wait.thread, wait.waits_for, wait.begin, wait.end, wait.pc));
    let futex = WaitFor::Futex { address: 0x40 };
    assert_eq!(found.collect::<Vec<_>>(), [(MAIN, futex, 0, 1000 + 3000, 7)]);
    assert_eq!(left_out, 1, "the sleep");
    assert_eq!(engine.take_waits(), (Vec::new(), 0));
}

#[test]
fn waits_for_a_line_that_another_core_wants_are_kept() {
    let mut engine = engine(2);
    engine.keep_waits(1000);
    let actor = || -> crate::drive::Actor<'static> {
        let mut left = 100;
        Box::new(move |engine| {
            left -= 1;
            if left == 0 { engine.exit() } else { engine.access(0x1040, 8, Access::Rmw, 9) }
        })
    };
    crate::drive::run(&mut engine, vec![actor(), actor()], 0).unwrap();
    let waits = engine.take_waits().0;
    let line = WaitFor::Line { address: 0x1040 };
    let lines: Vec<_> = waits.iter().filter(|wait| wait.waits_for == line).collect();
    assert!(lines.len() > 50, "{} waits", lines.len());
    assert!(lines.iter().all(|wait| wait.begin < wait.end && wait.pc == 9));
    let cores: std::collections::BTreeSet<u32> = lines.iter().map(|wait| wait.core).collect();
    assert_eq!(cores.len(), 2);
}

#[test]
fn a_futex_waiter_that_is_not_woken_runs_at_its_deadline() {
    let mut engine = engine(1);
    assert_eq!(engine.futex_wait(0x40, u32::MAX, Some(50_000), 7), Continue);
    assert_eq!(engine.wakened(), Wakened::ByTime);
    assert_eq!(engine.now(), 50_000 + 3000);
    // The thread has left the queue of the word.
    assert_eq!(engine.futex_wake(0x40, 1, u32::MAX), 0);
}

#[test]
fn a_waiter_woken_before_its_deadline_does_not_time_out_later() {
    let mut engine = engine(2);
    let other = engine.spawn(Some(1), 0);
    assert_eq!(engine.futex_wait(0x40, u32::MAX, Some(90_000), 7), Switch(other));
    assert_eq!(engine.futex_wake(0x40, 1, u32::MAX), 1);
    assert_eq!(engine.exit(), Switch(MAIN));
    assert_eq!(engine.futex_wait(0x40, u32::MAX, Some(200_000), 7), Continue);
    assert_eq!((engine.wakened(), engine.now()), (Wakened::ByTime, 203_000));
}

#[test]
fn wakes_take_the_oldest_whose_mask_fits() {
    let mut engine = engine(4);
    let waiters = [1, 2, 3].map(|core| engine.spawn(Some(core), 0));
    let mut outcome = engine.sleep_until(100_000, 0);
    for (waiter, mask) in waiters.into_iter().zip([0b01, 0b10, 0b10]) {
        assert_eq!(outcome, Switch(waiter));
        outcome = engine.futex_wait(0x40, mask, None, 0);
    }
    assert_eq!(outcome, Switch(MAIN));
    assert_eq!(engine.futex_wake(0x40, 1, 0b10), 1);
    assert_eq!(engine.sleep_until(engine.now() + 10_000, 0), Switch(waiters[1]));
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    let mut engine = engine(2);
    let other = engine.spawn(Some(1), 0);
    assert_eq!(engine.join(other, 0x11), Switch(other));
    assert_eq!(engine.work(500), Continue);
    assert_eq!(engine.futex_wait(0xBEEF, u32::MAX, None, 0x22), Deadlock);
    let deadlock = engine.deadlock();
    let waits: Vec<_> = deadlock.threads.iter().map(|b| (b.waits_for, b.since, b.pc)).collect();
    assert_eq!(
        waits,
        [
            (WaitFor::Join { thread: other }, 0, 0x11),
            (WaitFor::Futex { address: 0xBEEF }, 500, 0x22)
        ]
    );
    let text = deadlock.to_string();
    assert!(text.contains("thread 1 on core 1 waits for the futex at 0xbeef"), "{text}");
}

#[test]
fn two_threads_of_one_core_take_turns_by_slices() {
    let mut machine = Machine::named("opteron-8x6").unwrap();
    machine.slice = 10_000;
    let mut engine = Engine::new(machine, 1, 1).unwrap();
    let other = engine.spawn(Some(0), 0);
    let mut switches = Vec::new();
    for _ in 0..600 {
        let outcome = engine.work(100);
        if let Switch(to) = outcome {
            switches.push((to, engine.now()));
        }
    }
    // A slice, the switch of 3000 cycles, the other thread's slice, and so on.
    assert_eq!(switches[0].0, other);
    assert_eq!(switches[1].0, MAIN);
    let apart: Vec<_> = switches.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    assert!(apart.iter().all(|cycles| (13_000..13_200).contains(cycles)), "{apart:?}");
}

#[test]
fn a_yield_gives_the_core_to_who_waits_for_it() {
    let mut engine = engine(1);
    let other = engine.spawn(Some(0), 0);
    assert_eq!(engine.yield_now(), Switch(other));
    assert_eq!(engine.exit(), Switch(MAIN));
    assert_eq!(engine.yield_now(), Continue);
    assert_eq!(engine.exit(), Finished);
}

#[test]
fn a_woken_thread_that_may_move_takes_the_nearest_idle_core() {
    let mut engine = engine(12);
    // The sleeper's home is core 0, but main has core 0 when the sleeper wakes.
    let sleeper = engine.spawn(Some(0), 0);
    assert_eq!(engine.yield_now(), Switch(sleeper));
    assert_eq!(engine.set_affinity(None), Continue);
    assert_eq!(engine.sleep_until(engine.now() + 50_000, 0), Switch(MAIN));
    assert_eq!(engine.work(100_000), Switch(sleeper));
    assert_eq!(engine.core_of(sleeper), 1);
}

#[test]
fn an_idle_core_takes_a_queued_thread_that_may_move() {
    let mut engine = engine(2);
    let busy = engine.spawn(Some(1), 0);
    let third = engine.spawn(None, 0);
    assert_eq!(engine.core_of(third), 0);
    assert_eq!(engine.turn(), Continue);
    assert_eq!(engine.work(5000), Switch(busy));
    assert_eq!(engine.exit(), Switch(third));
    assert_eq!(engine.core_of(third), 1);
}

#[test]
fn moving_to_another_core_leaves_the_lines_behind() {
    let mut engine = engine(7);
    assert_eq!(engine.access(0x40, 8, Access::Write, 1), Continue);
    let there = engine.now();
    assert_eq!(engine.set_affinity(Some(6)), Continue);
    assert_eq!(engine.access(0x40, 8, Access::Write, 1), Continue);
    assert_eq!((engine.core_of(MAIN), engine.now() - there), (6, 266 + 2));
}

#[test]
fn a_recording_tells_who_touched_which_bytes() {
    let mut engine = engine(2);
    let touch = |engine: &mut Engine, from: usize| {
        engine.record(true);
        assert_eq!(engine.access(0x1000 + from, 8, Access::Write, 10 + from), Continue);
        assert_eq!(engine.access(0x2000, 8, Access::Rmw, 20 + from), Continue);
        assert_eq!(engine.access(0x3000, 8, Access::Read, 30), Continue);
        assert_eq!(engine.access(0x4000 + 64 * from, 8, Access::Write, 40), Continue);
        engine.record(false);
    };
    touch(&mut engine, 0);
    assert_eq!(engine.set_affinity(Some(1)), Continue);
    touch(&mut engine, 8);
    let touches = engine.take_recording();
    let of = |line: usize| -> Vec<_> {
        let touches = touches.iter().filter(|touch| touch.line == line);
        touches.map(|t| (t.core, t.wrote, t.pc, t.bytes)).collect()
    };
    assert_eq!(of(0x1000), [(0, true, 10, 0xff), (1, true, 18, 0xff00)]);
    assert_eq!(of(0x2000), [(0, true, 20, 0xff), (1, true, 28, 0xff)]);
    assert_eq!(of(0x3000), [(0, false, 30, 0xff), (1, false, 30, 0xff)]);
    assert_eq!((of(0x4000).len(), of(0x4200).len()), (1, 1));
    assert!(engine.take_recording().is_empty());
}

#[test]
fn the_dearest_line_names_its_places() {
    let mut engine = engine(2);
    let other = engine.spawn(Some(1), 100_000);
    for _ in 0..3 {
        assert_eq!(engine.access(0x40, 8, Access::Write, 0xA), Continue);
    }
    assert_eq!(engine.join(other, 0), Switch(other));
    assert_eq!(engine.access(0x40, 8, Access::Read, 0xB), Continue);
    let lines = engine.dearest_lines(3);
    assert_eq!((lines.len(), lines[0].address, lines[0].misses), (1, 0x40, 2));
    let sites: Vec<_> = lines[0].sites.iter().map(|cost| (cost.site.pc, cost.cycles)).collect();
    assert_eq!(sites, [(0xA, 250), (0xB, 124)]);
    assert_eq!(engine.totals().remote_reads, 1);
    assert!(matches!(engine.exit(), Outcome::Switch(MAIN)));
}

#[test]
fn stores_in_the_buffer_cost_nothing_until_a_fence() {
    let mut machine = Machine::named("opteron-8x6").unwrap();
    machine.store_buffer = 4;
    let mut engine = Engine::new(machine, 1, 1).unwrap();
    for line in 1..=4 {
        assert_eq!(engine.access(line * 64, 8, Access::Write, 1), Continue);
    }
    assert_eq!(engine.now(), 4 * 2);
    assert_eq!(engine.fence(), Continue);
    // The last store began at cycle 6 and took a fetch from memory; the fence costs 20.
    assert_eq!(engine.now(), 6 + 250 + 20);
}

#[test]
fn own_bytes_come_out_of_the_store_buffer_and_others_wait_for_the_line() {
    let mut machine = Machine::named("opteron-8x6").unwrap();
    machine.store_buffer = 4;
    let mut engine = Engine::new(machine, 2, 1).unwrap();
    assert_eq!(engine.access(64, 8, Access::Write, 1), Continue);
    assert_eq!(engine.fence(), Continue);
    assert_eq!(engine.set_affinity(Some(1)), Continue);
    let begin = engine.now();
    assert_eq!(engine.access(64, 8, Access::Write, 1), Continue);
    assert_eq!(engine.access(64, 4, Access::Read, 1), Continue);
    assert_eq!(engine.now() - begin, 2 + 2, "its own bytes");
    assert_eq!(engine.access(72, 8, Access::Read, 1), Continue);
    assert_eq!(engine.now() - begin, 124 + 2, "other bytes of the line");
}

#[test]
fn a_store_that_finds_no_place_free_waits_for_the_oldest() {
    let mut machine = Machine::named("opteron-8x6").unwrap();
    machine.store_buffer = 4;
    let mut engine = Engine::new(machine, 1, 1).unwrap();
    for _ in 0..4 {
        assert_eq!(engine.access(64, 8, Access::Write, 1), Continue);
    }
    assert_eq!(engine.now(), 4 * 2);
    assert_eq!(engine.access(64, 8, Access::Write, 1), Continue);
    assert_eq!(engine.now(), 250, "the line has come");
}
