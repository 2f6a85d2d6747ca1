//! The announcement: a thread says on a line of its own which object it is inside of, and the
//! thread that closes the object looks at all lines.
//!
//! Owns: both halves of that protocol, from the store to the wait: what gate.E1 to gate.E4 of
//! [`super::gate`] say of readers and closers. Does not own: the lines (the slots' records in
//! `slots`, the stacks of calls in `call_stack`, the lanes of a gate), nor the word that says
//! whether an object is open.

use super::barrier;
use crate::sync::{AtomicUsize, Backoff, Ordering, seeded_bug};
use std::convert::Infallible;

/// The reader's half of gate.E1: stores `word` to the reader's own line, ordered before every later
/// load of this thread, against a closer that calls [`pass_barrier`] with the same bias.
#[inline(always)]
pub(crate) fn announce(line: &AtomicUsize, word: usize, biased: bool) {
    // BUG: announcements are plain stores whose closer pays no barrier for them (gate.E1, oplog.D1,
    // section.S6).
    if seeded_bug!("plain-publish") {
        line.store(word, Ordering::Release);
    } else if biased {
        // ORDER: the store before later loads, by law barrier.B1; pairs with `heavy` in
        // `pass_barrier`. Release; pairs with Acquire in `announced`: a closer that sees this word
        // sees all that was done under the one before, and which thread owns the lane
        // (`Gate::inside`).
        line.store(word, Ordering::Release);
        barrier::light();
    } else {
        // ORDER: Release, as above, and a full fence; pairs with the one in `pass_barrier`.
        barrier::swap_full(line, word);
    }
}

/// Withdraws an announcement.
#[inline(always)]
pub(crate) fn withdraw(line: &AtomicUsize) {
    // ORDER: Release; pairs with Acquire in `announced` (gate.E3): what was done inside.
    line.store(0, Ordering::Release);
}

/// Returns the word announced on a line; zero if its owner is outside.
#[inline(always)]
pub(crate) fn announced(line: &AtomicUsize) -> usize {
    // ORDER: Acquire; pairs with the Release stores of `announce` and `withdraw` (gate.E3).
    line.load(Ordering::Acquire)
}

/// Runs the closer's half of gate.E2, between the change of the word and the look at the lines.
pub(crate) fn pass_barrier(biased: bool) {
    // BUG: the closer of a biased gate passes a fence, which pairs with no light barrier (gate.E4).
    if biased && !seeded_bug!("fenced-closing") {
        barrier::heavy();
    } else {
        barrier::fence_full();
    }
}

/// Waits for a reader as long as `is_inside` returns true (gate.E3). Calls `go_on` before each
/// pause; its error ends the wait.
#[inline]
pub(crate) fn wait_while<E>(
    is_inside: impl Fn() -> bool,
    mut go_on: impl FnMut(&Backoff) -> Result<(), E>,
) -> Result<(), E> {
    let mut backoff = Backoff::new();
    // BUG: a gate is closed, and its closer does not wait for the readers inside (gate.E3).
    while is_inside() && !seeded_bug!("unawaited-reader") {
        go_on(&backoff)?;
        backoff.pause();
    }
    Ok(())
}

/// Same as [`wait_while`], however long it takes.
#[inline]
pub(crate) fn wait_forever_while(is_inside: impl Fn() -> bool) {
    let Ok(()) = wait_while(is_inside, |_| Ok::<(), Infallible>(()));
}
