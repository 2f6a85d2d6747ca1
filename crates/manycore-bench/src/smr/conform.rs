//! The conformance test of every scheme, whatever its kind.
//!
//! Threads read and replace the nodes of a few slots at random. A value that is read must belong to
//! its slot. It must be no older than one that the same reader saw there before from the same
//! writer. A node that is held stays alive while other threads replace it. When table, handles and
//! threads are gone, every node that was made has been dropped exactly once.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Counts, NUMBER_BITS, Op, Payload, Read, SLOTS, Scheme, SchemeHandle, Setup, value_of};

const STEPS: u64 = 3_000;

/// Few slots, so that the threads meet.
const USED: usize = 3;

/// Bits of a number that count; the thread is above them.
const THREAD_SHIFT: u32 = 32;

/// The longest wait for the last nodes to be dropped.
const PATIENCE: Duration = Duration::from_secs(20);

/// Tries a scheme with so many threads.
pub(super) fn run<S: Scheme>(threads: usize) -> Result<(), String> {
    run_within::<S>(threads, PATIENCE)
}

fn run_within<S: Scheme>(threads: usize, patience: Duration) -> Result<(), String> {
    let counts = Counts::leak(threads);
    let updates = churn_all(&S::new(Setup { threads, counts }), threads, counts)?;
    let expected = SLOTS as u64 + updates;
    if counts.made() != expected {
        return Err(format!("{} nodes were made instead of {expected}", counts.made()));
    }
    let start = Instant::now();
    while counts.living() > 0 && start.elapsed() < patience {
        S::settle();
        thread::sleep(Duration::from_millis(1));
    }
    match counts.living() {
        0 if counts.dropped() == expected => Ok(()),
        0 => Err(format!("{} nodes were dropped of {expected}", counts.dropped())),
        left => Err(format!("{left} nodes of {expected} were never dropped")),
    }
}

/// Lets all threads work; returns how many updates they made.
fn churn_all<S: Scheme>(
    scheme: &S,
    threads: usize,
    counts: &'static Counts,
) -> Result<u64, String> {
    thread::scope(|scope| {
        let start = |index| {
            scope.spawn(move || {
                let _lane = counts.enlist(index);
                let mut churn = Churn::new(index, threads);
                churn.all(&mut scheme.handle(index)).map(|()| churn.updates())
            })
        };
        let started: Vec<_> = (0..threads).map(start).collect();
        let mut updates = 0;
        for thread in started {
            updates += thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(updates)
    })
}

/// One thread of the test.
struct Churn {
    first: u64,
    number: u64,
    random: u32,
    /// For each slot and writer, the newest number seen; writer 0 is the table's maker.
    seen: Vec<[u64; USED]>,
}

impl Churn {
    fn new(thread: usize, threads: usize) -> Self {
        let first = (thread as u64 + 1) << THREAD_SHIFT;
        let random = 0x9E37_79B9_u32.wrapping_mul(thread as u32 + 1);
        Self { first, number: first, random, seen: vec![[0; USED]; threads + 1] }
    }

    fn updates(&self) -> u64 {
        self.number - self.first
    }

    fn random(&mut self, below: u32) -> u32 {
        // A linear congruence: its high bits are random enough, and every run is the same.
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.random >> 16) % below
    }

    fn all(&mut self, handle: &mut impl SchemeHandle) -> Result<(), String> {
        for _ in 0..STEPS {
            let slot = self.random(USED as u32) as usize;
            match self.random(16) {
                0..=5 => {
                    self.number += 1;
                    handle.update(slot, value_of(slot, self.number));
                }
                6..=10 => self.check(slot, handle.read(slot))?,
                11 => handle.empty(slot),
                12 => self.trace(handle, slot)?,
                13 => self.hold(handle, slot)?,
                14 => handle.sections(slot, 10),
                _ => handle.flush(),
            }
            handle.rest();
        }
        Ok(())
    }

    /// A piece of a trace, as the passes do it.
    fn trace(&mut self, handle: &mut impl SchemeHandle, slot: usize) -> Result<(), String> {
        let other = (slot + 1) % USED;
        let ops = [Op::read(slot), Op::update(other), Op::read(other), Op::update(other)];
        let before = self.number;
        handle.run(&ops, Read::Empty, &mut self.number);
        handle.run(&ops, Read::Node, &mut self.number);
        let alone = self.seen.len() == 2;
        let digest = handle.run(&ops[..1], Read::Node, &mut self.number);
        if self.number != before + 4 {
            return Err(format!("{} updates were made of 4", self.number - before));
        }
        // What was read is only known without other writers, or if there is nothing to add up.
        let read = handle.read(slot);
        if alone && digest != read {
            return Err(format!("a trace read {digest:#x} instead of {read:#x}"));
        }
        self.check(slot, digest)
    }

    fn hold(&mut self, handle: &mut impl SchemeHandle, slot: usize) -> Result<(), String> {
        let mut outcome = Ok(0);
        handle.hold(slot, &mut |node| outcome = watch(node));
        self.check(slot, outcome?)
    }

    fn check(&mut self, slot: usize, value: u64) -> Result<(), String> {
        let (of_slot, number) = (value >> NUMBER_BITS, value & ((1 << NUMBER_BITS) - 1));
        let writer = (number >> THREAD_SHIFT) as usize;
        if of_slot != slot as u64 || writer >= self.seen.len() {
            return Err(format!("slot {slot} held {value:#x}, which was not put there"));
        }
        let newest = &mut self.seen[writer][slot];
        if number < *newest {
            return Err(format!("slot {slot} went back from {newest:#x} to {number:#x}"));
        }
        *newest = number;
        Ok(())
    }
}

/// Looks at a held node for a while.
fn watch(node: &Payload) -> Result<u64, String> {
    let value = node.value();
    for _ in 0..20 {
        if !node.is_alive() {
            return Err(format!("the node {value:#x} was dropped while it was held"));
        }
        thread::yield_now();
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::{
        mem::{ManuallyDrop, forget, replace},
        time::Duration,
    };

    use super::{Counts, Payload, SLOTS, Scheme, SchemeHandle, Setup, run, run_within, value_of};
    use crate::smr::Node;

    const LEAKS: u8 = 0;
    const MIXES_UP: u8 = 1;
    const FREES_EARLY: u8 = 2;

    /// A table of one thread's own, with the fault `F`.
    struct Broken<const F: u8>(Setup);

    struct Own<const F: u8> {
        table: Box<[Box<Node>]>,
        counts: &'static Counts,
    }

    impl<const F: u8> Scheme for Broken<F> {
        type Handle<'a> = Own<F>;

        fn new(setup: Setup) -> Self {
            Self(setup)
        }

        fn handle(&self, _: usize) -> Own<F> {
            let table = self.0.table(|value, counts| Box::new(Node::new(value, counts)));
            Own { table, counts: self.0.counts }
        }
    }

    impl<const F: u8> SchemeHandle for Own<F> {
        fn empty(&mut self, _: usize) {}

        fn read(&mut self, slot: usize) -> u64 {
            let slot = if F == MIXES_UP { (slot + 1) % SLOTS } else { slot };
            self.table[slot].payload().value()
        }

        fn update(&mut self, slot: usize, value: u64) {
            let old = replace(&mut self.table[slot], Box::new(Node::new(value, self.counts)));
            if F == LEAKS {
                forget(old);
            }
        }

        fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
            if F != FREES_EARLY {
                return inside(self.table[slot].payload());
            }
            let mut node = ManuallyDrop::new(<Node>::new(value_of(slot, 0), self.counts));
            // SAFETY: never dropped again; its words stay where they are.
            unsafe { ManuallyDrop::drop(&mut node) };
            inside(node.payload());
        }
    }

    #[test]
    fn faults_are_found() {
        let error = |outcome: Result<(), String>| outcome.unwrap_err();
        assert!(error(run::<Broken<MIXES_UP>>(1)).contains("not put there"));
        assert!(error(run::<Broken<FREES_EARLY>>(1)).contains("while it was held"));
        assert!(
            error(run_within::<Broken<LEAKS>>(1, Duration::from_millis(10)))
                .contains("never dropped")
        );
    }
}
