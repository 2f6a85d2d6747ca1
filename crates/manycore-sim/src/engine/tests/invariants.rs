//! Invariants that must hold between any two calls.

use crate::engine::{Engine, cores::NO_CORE, thread::State};

pub(super) fn verify(engine: &Engine) {
    verify_lines(engine);
    verify_cores(engine);
}

/// One writer or many readers; no thread is lost; the fast path allows nothing that the line
/// forbids.
fn verify_lines(engine: &Engine) {
    for at in engine.lines.indices() {
        let (line, number) = (&engine.lines[at], engine.lines.number(at));
        let held = line.owner != NO_CORE;
        let by_a_core = held || !line.copies().is_empty();
        assert!(line.shared_in == NO_CORE || !by_a_core, "a core has what the shared cache has");
        assert!(!held || line.copies().is_empty(), "a writer beside readers: {:#x}", number);
        for core in 0..engine.complex_of.len() as u16 {
            for write in [false, true] {
                if engine.filter.allows(core, number, write) {
                    assert!(line.holds(core, write), "core {core} may use what it has not");
                    assert_eq!(line.stores, 0, "core {core} would read a store on its way");
                    assert!(engine.caches.is_first(core, number, at), "a hit of the second level");
                }
            }
        }
        for request in line.all_waiting() {
            let thread = &engine.threads[request.thread as usize];
            let stalled = matches!(thread.state, State::Stalled(_));
            assert!(stalled || request.buffered, "a request of a thread that does not wait");
            assert!(request.write || !request.buffered, "a load in a store buffer");
        }
        let buffered: usize =
            engine.threads.iter().map(|thread| usize::from(thread.is_asking_to_store(at))).sum();
        assert_eq!(buffered, usize::from(line.stores), "a store is lost: {:#x}", number);
    }
}

/// Every live thread is in exactly one place, and a core has at most one.
fn verify_cores(engine: &Engine) {
    let mut queued = 0;
    for (number, core) in engine.cores.iter().enumerate() {
        for id in core.thread.iter().chain(&core.queue) {
            let thread = &engine.threads[*id as usize];
            assert_eq!(usize::from(thread.core), number, "thread {id} is on two cores");
        }
        queued += core.queue.len();
        let homes = engine.threads.iter();
        let homes = homes.filter(|t| t.state != State::Done && usize::from(t.core) == number);
        assert_eq!(homes.count(), core.assigned as usize, "threads of core {number}");
    }
    assert_eq!(queued, engine.queued as usize);
    for (id, thread) in engine.threads.iter().enumerate() {
        let core = &engine.cores[usize::from(thread.core)];
        let has = core.thread == Some(id as u32);
        let wants = core.queue.iter().filter(|other| **other == id as u32).count();
        let (should_have, should_want) = match thread.state {
            State::Running | State::Ready | State::Stalled(_) => (true, 0),
            State::Queued => (false, 1),
            State::Waking | State::Blocked(_) | State::Done => (false, 0),
        };
        assert_eq!((has, wants), (should_have, should_want), "thread {id}: {:?}", thread.state);
    }
    let live = engine.threads.iter().filter(|thread| thread.state != State::Done).count();
    assert_eq!(live, engine.live as usize);
}
