//! One slot's events, and the merge of all slots' events into one order.
//!
//! Owns: the kind of log behind the queue. The laws are in the parent module (Q numbers).

use super::signals::Signals;
use crate::clock::Stamp;
use crate::oplog::Log;
use std::cell::Cell;
use std::sync::Arc;

/// An event on its way from its sender's frame to a log or to the inbox.
pub(super) struct Outgoing<'a, E> {
    /// Taken out by whoever keeps it; still here afterwards if the queue is closed.
    event: Cell<Option<E>>,
    signals: &'a Signals,
}

impl<'a, E> Outgoing<'a, E> {
    pub(super) fn new(event: E, signals: &'a Signals) -> Self {
        Self { event: Cell::new(Some(event)), signals }
    }

    /// The update to append. The event does not travel with it, and can come back.
    ///
    /// # Safety
    /// The call is used up (pushed or applied) before `self` moves or is dropped.
    pub(super) unsafe fn call(&self) -> Call<E> {
        Call(std::ptr::from_ref(self).cast())
    }

    /// The event, if the queue did not take it.
    pub(super) fn refused(self) -> Option<E> {
        self.event.into_inner()
    }
}

/// Points to the [`Outgoing`] of the `append` that carries it (Q1).
pub(super) struct Call<E>(*const Outgoing<'static, E>);

// SAFETY: Q1 - used on the thread that made it alone, and an event may go to another thread.
unsafe impl<E: Send> Send for Call<E> {}

impl<E> Call<E> {
    /// Takes the event unless the queue is closed (Q3).
    #[inline(always)]
    fn accept<K>(self, key: impl FnOnce(&Signals) -> K) -> Option<(K, E)> {
        // SAFETY: Q1 - the sender's frame waits for the end of `append`.
        let outgoing = unsafe { &*self.0 };
        if outgoing.signals.is_closed() {
            return None;
        }
        let event = outgoing.event.take()?;
        Some((key(outgoing.signals), event))
    }
}

/// One slot's events since the last merge, in the order sent, each with its key (Q2).
#[derive(Debug)]
pub(super) struct Run<E> {
    entries: Vec<(u64, E)>,
}

impl<E> Default for Run<E> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

/// The underlying queue: events in order, for the receivers to take all at once.
#[derive(Debug)]
pub(super) struct Inbox<E> {
    ready: Vec<E>,
    /// For merges of more than two runs.
    scratch: Vec<Run<E>>,
    /// Merges in a row that found events of one sender only.
    single_merges: u32,
    signals: Arc<Signals>,
}

impl<E> Inbox<E> {
    pub(super) fn new(signals: Arc<Signals>) -> Self {
        Self { ready: Vec::new(), scratch: Vec::new(), single_merges: 0, signals }
    }

    pub(super) fn single_merges(&self) -> u32 {
        self.single_merges
    }

    /// Moves everything to `into`, which is empty: an exchange of buffers.
    pub(super) fn hand_over(&mut self, into: &mut Vec<E>) {
        std::mem::swap(&mut self.ready, into);
        self.signals.note_merged(0);
    }

    pub(super) fn len(&self) -> usize {
        self.ready.len()
    }
}

impl<E: Send + 'static> Log<Inbox<E>> for Run<E> {
    type Op = Call<E>;
    /// Logs are collected all at one moment, and keys, not the object's stamps, give the order.
    const ORDERED: bool = false;

    fn apply(call: Call<E>, inbox: &mut Inbox<E>) {
        if let Some((_, event)) = call.accept(Signals::is_sole_sender) {
            inbox.ready.push(event);
            inbox.signals.note_merged(inbox.ready.len());
        }
    }

    #[inline(always)]
    fn push(&mut self, call: Call<E>, _: Stamp) {
        if let Some(entry) = call.accept(Signals::key) {
            self.entries.push(entry);
        }
    }

    #[inline(always)]
    fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        self.entries.len() * size_of::<(u64, E)>()
    }

    fn merge(runs: &mut [Self], inbox: &mut Inbox<E>) -> usize {
        let before = inbox.ready.len();
        let single = runs.len() == 1;
        inbox.single_merges = if single { inbox.single_merges.saturating_add(1) } else { 0 };
        merge(runs, &mut inbox.scratch, &mut inbox.ready);
        inbox.signals.note_merged(inbox.ready.len());
        inbox.ready.len() - before
    }
}

/// Moves all entries to `out`, in the order of keys, ties in the order of runs. Within a run the
/// order stays, whatever the keys.
fn merge<E>(runs: &mut [Run<E>], scratch: &mut Vec<Run<E>>, out: &mut Vec<E>) {
    match runs {
        [] => {}
        [only] => out.extend(only.entries.drain(..).map(|(_, event)| event)),
        [one, other] => merge_two(&mut one.entries, &mut other.entries, out, Entry::into_event),
        _ => {
            // Two halves, each merged with its keys: a tree of merges of two.
            let (low, high) = runs.split_at_mut(runs.len() / 2);
            let mut low = merge_keyed(low, scratch);
            let mut high = merge_keyed(high, scratch);
            merge_two(&mut low.entries, &mut high.entries, out, Entry::into_event);
            scratch.extend([low, high]);
        }
    }
}

/// As [`merge`], into a run.
fn merge_keyed<E>(runs: &mut [Run<E>], scratch: &mut Vec<Run<E>>) -> Run<E> {
    let mut merged = scratch.pop().unwrap_or_default();
    if let [only] = runs {
        std::mem::swap(&mut merged, only);
        return merged;
    }
    let (low, high) = runs.split_at_mut(runs.len() / 2);
    let mut low = merge_keyed(low, scratch);
    let mut high = merge_keyed(high, scratch);
    merge_two(&mut low.entries, &mut high.entries, &mut merged.entries, |entry| entry);
    scratch.extend([low, high]);
    merged
}

trait Entry<E> {
    fn into_event(self) -> E;
}

impl<E> Entry<E> for (u64, E) {
    #[inline(always)]
    fn into_event(self) -> E {
        self.1
    }
}

/// Moves the entries of both to the end of `out`. The choice between two heads is arithmetic and
/// not a branch, because senders that run side by side make it unpredictable.
fn merge_two<E, O>(
    low: &mut Vec<(u64, E)>,
    high: &mut Vec<(u64, E)>,
    out: &mut Vec<O>,
    convert: impl Fn((u64, E)) -> O,
) {
    let apart = match (low.last(), high.first()) {
        (Some((last, _)), Some((first, _))) => last <= first,
        _ => true,
    };
    if apart {
        out.extend(low.drain(..).chain(high.drain(..)).map(convert));
        return;
    }
    let (lows, highs) = (low.len(), high.len());
    out.reserve(lows + highs);
    // From here on the entries belong to this function, which has no way out but the end.
    // SAFETY: zero is within capacity; the entries stay initialised behind the length.
    unsafe {
        low.set_len(0);
        high.set_len(0);
    }
    let (from_low, from_high) = (low.as_ptr(), high.as_ptr());
    let (mut l, mut h, mut o) = (0, 0, out.len());
    let to = out.as_mut_ptr();
    // SAFETY: l < lows and h < highs where they are read, each place is read once, and o counts
    // both, so it stays within what was reserved. `convert` (a field access or nothing) can't
    // panic.
    unsafe {
        while l < lows && h < highs {
            let takes_high = (*from_high.add(h)).0 < (*from_low.add(l)).0;
            let from = if takes_high { from_high.add(h) } else { from_low.add(l) };
            to.add(o).write(convert(from.read()));
            h += usize::from(takes_high);
            l += usize::from(!takes_high);
            o += 1;
        }
        while l < lows {
            to.add(o).write(convert(from_low.add(l).read()));
            (l, o) = (l + 1, o + 1);
        }
        while h < highs {
            to.add(o).write(convert(from_high.add(h).read()));
            (h, o) = (h + 1, o + 1);
        }
        out.set_len(o);
    }
}
