//! User-space RCU as in ParSec's figures: the general flavour with full fences, whose updates wait
//! for a grace period.
//!
//! This is a port of the algorithm (Desnoyers, McKenney and others, IEEE TPDS 2012; liburcu calls
//! it `urcu-mb`). liburcu itself is behind the feature `c-rivals`. Its grace periods are in a
//! shared library, which virtual cores run without charging for it. The port differs in two points:
//! a reader wakes no updater, because updaters spin and then yield, and sections do not nest.
//!
//! Laws:
//!
//! 1. A reader's word is 0 outside sections. Inside, it is the value of `phase` at the time when
//!    the reader entered.
//! 2. A grace period looks at each reader twice, once on each side of a change of the phase. After
//!    that, every reader that entered before it has left.
//! 3. An update waits for a grace period that began after its swap. One grace period serves all
//!    that wait.

use std::{
    hint::{self, black_box},
    sync::atomic::{
        AtomicBool, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
    thread,
};

use crossbeam_utils::CachePadded;

use super::{Payload, Scheme, SchemeHandle, Setup, slots::Slots};

/// In a reader's word: it is in a section.
const ACTIVE: usize = 1;

/// The bit that changes from phase to phase.
const PHASE: usize = 2;

/// Probes before a waiting thread yields, as in liburcu.
const PROBES: u32 = 1000;

/// A table, and the readers' words.
pub(super) struct Urcu {
    table: Slots,
    readers: Box<[CachePadded<AtomicUsize>]>,
    /// What a reader copies.
    phase: CachePadded<AtomicUsize>,
    /// Whether a grace period is under way.
    leading: CachePadded<AtomicBool>,
    begun: CachePadded<AtomicUsize>,
    ended: CachePadded<AtomicUsize>,
}

/// A thread's word in it.
pub(super) struct UrcuHandle<'a> {
    scheme: &'a Urcu,
    own: &'a AtomicUsize,
}

/// Waits until `done`.
fn wait_until(done: impl Fn() -> bool) {
    for probe in 1_u32.. {
        if done() {
            return;
        }
        if probe < PROBES { hint::spin_loop() } else { thread::yield_now() }
    }
}

impl Urcu {
    /// Waits for a grace period that begins now or later.
    fn synchronize(&self) {
        // ORDER: pairs with the fences of `enter` and `lead`: a reader that still saw the old node
        // came before this, and a leader that this thread did not see begin sees that reader.
        fence(SeqCst);
        let before = self.begun.load(Relaxed);
        loop {
            // ORDER: pairs with the store in `lead`: what readers did is over.
            wait_until(|| self.ended.load(Acquire) > before || !self.leading.load(Relaxed));
            if self.ended.load(Acquire) > before {
                return;
            }
            // ORDER: Acquire pairs with the Release at the end: one leader after another.
            if !self.leading.swap(true, Acquire) {
                self.lead();
                self.leading.store(false, Release);
            }
        }
    }

    /// One grace period.
    fn lead(&self) {
        let number = self.begun.load(Relaxed) + 1;
        self.begun.store(number, Relaxed);
        // ORDER: pairs with the fence of `synchronize`, and with the readers'.
        fence(SeqCst);
        let first = self.phase.load(Relaxed);
        self.wait_for_readers(first);
        self.phase.store(first ^ PHASE, Relaxed);
        fence(SeqCst);
        self.wait_for_readers(first ^ PHASE);
        fence(SeqCst);
        // ORDER: Release pairs with the loads of `synchronize`.
        self.ended.store(number, Release);
    }

    /// Waits until each reader is outside, or came in this phase.
    fn wait_for_readers(&self, phase: usize) {
        for reader in &self.readers {
            // ORDER: Acquire pairs with the store of `exit`: the section's reads are done.
            wait_until(|| matches!(reader.load(Acquire), word if word == 0 || word == phase));
        }
    }
}

impl Scheme for Urcu {
    type Handle<'a> = UrcuHandle<'a>;

    fn new(setup: Setup) -> Self {
        Self {
            table: Slots::new(setup),
            readers: (0..setup.threads).map(|_| CachePadded::default()).collect(),
            phase: CachePadded::new(AtomicUsize::new(ACTIVE)),
            leading: CachePadded::default(),
            begun: CachePadded::default(),
            ended: CachePadded::default(),
        }
    }

    fn handle(&self, thread: usize) -> UrcuHandle<'_> {
        UrcuHandle { scheme: self, own: &self.readers[thread] }
    }
}

impl UrcuHandle<'_> {
    #[inline]
    fn enter(&self) {
        self.own.store(self.scheme.phase.load(Relaxed), Relaxed);
        // ORDER: pairs with the fences of `synchronize` and `lead`.
        fence(SeqCst);
    }

    #[inline]
    fn exit(&self) {
        // ORDER: as liburcu has it; Release pairs with the loads of `wait_for_readers`.
        fence(SeqCst);
        self.own.store(0, Release);
    }
}

impl SchemeHandle for UrcuHandle<'_> {
    #[inline]
    fn empty(&mut self, _: usize) {
        self.enter();
        // Both fences stay, as in liburcu: the compiler would make one of them.
        black_box(());
        self.exit();
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        self.enter();
        // SAFETY: a node is dropped a grace period after it was replaced, which by law 2 is not
        // over while this section is open.
        let value = unsafe { self.scheme.table.get(slot) }.value();
        self.exit();
        value
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        let old = self.scheme.table.replace(slot, value);
        self.scheme.synchronize();
        // By law 3 no section that was open then still is.
        drop(old);
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        self.enter();
        // SAFETY: the section is open until `inside` has returned, and by law 2 no node that it
        // could have found is dropped before.
        inside(unsafe { self.scheme.table.get(slot) });
        self.exit();
    }
}
