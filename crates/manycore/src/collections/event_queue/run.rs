//! One slot's events, and the merge of all slots' events into one order.
//!
//! Owns: the kind of log behind the queue. The laws are in the parent module (Q numbers).

use super::signals::Signals;
use crate::clock::Stamp;
use crate::oplog::Log;
use crate::sync::prefetch_for_write;
use std::cell::Cell;
use std::ops::Range;
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

/// How many entries ahead of its writer a log's memory is asked for. The receiver has read those
/// lines since they were last written here, and getting one back takes as long as a few sends: a
/// sole sender gets 1.4 times as many events through with this (58 against 41 million a second).
const AHEAD: usize = 32;

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
        prefetch_for_write(self.entries.as_ptr().wrapping_add(self.entries.len() + AHEAD));
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
        _ => merge_halves(runs, scratch, out, Entry::into_event),
    }
}

/// Two halves, each merged with its keys: a tree of merges of two.
fn merge_halves<E, O>(
    runs: &mut [Run<E>],
    scratch: &mut Vec<Run<E>>,
    out: &mut Vec<O>,
    convert: impl Fn((u64, E)) -> O,
) {
    let (low, high) = runs.split_at_mut(runs.len() / 2);
    let mut low = Side::of(low, scratch);
    let mut high = Side::of(high, scratch);
    merge_two(low.entries(), high.entries(), out, convert);
    low.give_back(scratch);
    high.give_back(scratch);
}

/// One side of a merge of two. A log's buffer stays the log's: its lines are its sender's, and
/// others' lines would cost a cache miss each wherever they were written next.
enum Side<'a, E> {
    Log(&'a mut Run<E>),
    Merged(Run<E>),
}

impl<'a, E> Side<'a, E> {
    fn of(runs: &'a mut [Run<E>], scratch: &mut Vec<Run<E>>) -> Self {
        match runs {
            [only] => Self::Log(only),
            _ => {
                let mut merged = scratch.pop().unwrap_or_default();
                merge_halves(runs, scratch, &mut merged.entries, |entry| entry);
                Self::Merged(merged)
            }
        }
    }

    fn entries(&mut self) -> &mut Vec<(u64, E)> {
        match self {
            Self::Log(run) => &mut run.entries,
            Self::Merged(run) => &mut run.entries,
        }
    }

    fn give_back(self, scratch: &mut Vec<Run<E>>) {
        if let Self::Merged(run) = self {
            scratch.push(run);
        }
    }
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

/// Moves the entries of both to the end of `out`.
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
    let (lows, highs, before) = (low.len(), high.len(), out.len());
    out.reserve(lows + highs);
    // From here on the entries belong to the merge, which has no way out but the end.
    // SAFETY: zero is within capacity, and the entries stay initialised behind the length. There is
    // room for all of them at the end of `out`, and `merge_into` writes them there.
    unsafe {
        low.set_len(0);
        high.set_len(0);
        let (from_low, from_high) = (low.as_ptr(), high.as_ptr());
        merge_into(from_low..from_low.add(lows), from_high..from_high.add(highs), out, convert);
        out.set_len(before + lows + highs);
    }
}

/// Moves the entries of two ranges behind the length of `out`, equal keys of `low` first.
///
/// From both ends at a time: each step waits for the one before it, so two chains of steps take
/// little longer than one. The choice between two heads is arithmetic and not a branch, because
/// senders that run side by side make it unpredictable.
///
/// # Safety
/// The ranges are initialised and the caller's to give away, and `out` has room for all of it.
/// `convert` (a field access or nothing) does not panic.
unsafe fn merge_into<E, O>(
    low: Range<*const (u64, E)>,
    high: Range<*const (u64, E)>,
    out: &mut Vec<O>,
    convert: impl Fn((u64, E)) -> O,
) {
    // SAFETY: each iteration reads one head and one tail; two entries on each side are there even
    // if it takes both from the same. After the loops for the rest, each entry has been read once,
    // and `front` has met `back`: there is one place for each entry.
    unsafe {
        let (mut low, mut high) = (low, high);
        let mut front = out.as_mut_ptr().add(out.len());
        let mut back = front.add(left(&low) + left(&high));
        while left(&low) >= 2 && left(&high) >= 2 {
            step_front(&mut low, &mut high, &mut front, &convert);
            let takes_low = (*high.end.sub(1)).0 < (*low.end.sub(1)).0;
            low.end = low.end.sub(usize::from(takes_low));
            high.end = high.end.sub(usize::from(!takes_low));
            let from = if takes_low { low.end } else { high.end };
            back = back.sub(1);
            back.write(convert(from.read()));
        }
        while left(&low) > 0 && left(&high) > 0 {
            step_front(&mut low, &mut high, &mut front, &convert);
        }
        let rest = if left(&low) > 0 { low } else { high };
        for place in 0..left(&rest) {
            front.add(place).write(convert(rest.start.add(place).read()));
        }
    }
}

/// Entries in a range.
fn left<T>(range: &Range<*const T>) -> usize {
    // SAFETY: both ends are of one buffer, the start first.
    unsafe { range.end.offset_from(range.start) as usize }
}

/// Moves the lower of two heads to `to`.
///
/// # Safety
/// Neither range is empty, and there is room at `to`.
#[inline(always)]
unsafe fn step_front<E, O>(
    low: &mut Range<*const (u64, E)>,
    high: &mut Range<*const (u64, E)>,
    to: &mut *mut O,
    convert: &impl Fn((u64, E)) -> O,
) {
    // SAFETY: the caller's duty.
    unsafe {
        let takes_high = (*high.start).0 < (*low.start).0;
        let from = if takes_high { high.start } else { low.start };
        high.start = high.start.add(usize::from(takes_high));
        low.start = low.start.add(usize::from(!takes_high));
        to.write(convert(from.read()));
        *to = to.add(1);
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;

    fn run(keys: impl IntoIterator<Item = u64>, sender: usize) -> Run<(usize, usize)> {
        let entries = keys.into_iter().enumerate();
        Run { entries: entries.map(|(place, key)| (key, (sender, place))).collect() }
    }

    /// What `merge` must give: the order of keys, equal ones in the order of runs.
    fn sorted(runs: &[Run<(usize, usize)>]) -> Vec<(usize, usize)> {
        let mut all: Vec<_> = runs.iter().flat_map(|run| run.entries.iter().copied()).collect();
        all.sort_by_key(|(key, _)| *key);
        all.into_iter().map(|(_, event)| event).collect()
    }

    fn check(mut runs: Vec<Run<(usize, usize)>>) {
        let expected = sorted(&runs);
        let mut out = vec![(99, 99)]; // what was there stays in front
        merge(&mut runs, &mut Vec::new(), &mut out);
        assert_eq!(out[0], (99, 99));
        assert_eq!(out[1..], expected);
        assert!(runs.iter().all(|run| run.entries.is_empty()));
    }

    /// All lengths from 0 to 6 of two runs with keys 0 to 2: every way to begin, meet and end.
    #[test]
    fn merge_of_two_short_runs_is_a_stable_sort() {
        let ascending = |len: u32| {
            (0..3_u64.pow(len)).filter_map(move |mut code| {
                let keys: Vec<u64> = (0..len).map(|_| (code % 3, code /= 3).0).collect();
                keys.is_sorted().then_some(keys)
            })
        };
        let all: Vec<Vec<u64>> = (0..=6).flat_map(ascending).collect();
        for low in &all {
            for high in &all {
                check(vec![run(low.iter().copied(), 0), run(high.iter().copied(), 1)]);
            }
        }
    }

    #[test]
    fn merge_of_many_long_runs_is_a_stable_sort() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        for runs in 1..9 {
            for most in [1, 40, 1000] {
                let mut next = |below: u64| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random % below
                };
                let mut one = |sender| {
                    let (mut key, len) = (0, next(most));
                    let keys: Vec<u64> = (0..len).map(|_| (key += next(3), key).1).collect();
                    run(keys, sender)
                };
                check((0..runs).map(&mut one).collect());
            }
        }
    }

    /// Events own memory: none may be dropped twice or be forgotten.
    #[test]
    fn merge_moves_each_event_once() {
        let shared = Arc::new(());
        let entries = |keys: [u64; 5]| Run {
            entries: keys.iter().map(|key| (*key, Arc::clone(&shared))).collect(),
        };
        let mut runs = [entries([1, 3, 5, 7, 9]), entries([0, 2, 4, 6, 8]), entries([5; 5])];
        let mut out = Vec::new();
        merge(&mut runs, &mut Vec::new(), &mut out);
        assert_eq!((out.len(), Arc::strong_count(&shared)), (15, 16));
        drop((runs, out));
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
