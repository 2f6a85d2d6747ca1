//! The merge of several slots' events into one order.
//!
//! Owns: the merge of two logs at once, and the lazy merge of more. Keys give the order
//! (event_queue.Q2 of the parent module). Equal keys go in the order of the logs. Within a log the
//! order stays, whatever the keys.

use crate::sync::prefetch;
use std::fmt;
use std::ops::Range;

/// An event with its key.
pub(super) type KeyedEvent<E> = (u64, E);

/// How many entries ahead of the merge a log's memory is prefetched: another core wrote it last.
const AHEAD: usize = 16;

/// Events of many logs, merged one by one on demand.
///
/// It is a tournament: each event costs one match for each doubling of the number of logs, and is
/// moved once. Merging two by two would move an event in each match.
pub(super) struct Pending<E> {
    /// The rest of each log that is not used up, in the order of the logs.
    sources: Vec<Source<E>>,
    /// The overall winner at 0, and at each match its loser. The match above `n` is `n / 2`; the
    /// first match of source `s` is `(sources + s) / 2`.
    matches: Vec<Head>,
    left: usize,
    /// Memory of the logs. Each buffer goes back to the log of the same place in a later batch,
    /// which is mostly the same sender's. For other senders its lines would be a cache miss each.
    buffers: Vec<Vec<KeyedEvent<E>>>,
}

/// Key of a source's first entry. Equal keys are ordered by the place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    key: u64,
    source: usize,
}

/// Initialised entries in one of the buffers, which this source owns. The pointers may write: the
/// remaining entries are dropped through them.
struct Source<E>(Range<*mut KeyedEvent<E>>);

// SAFETY: it owns what it points to, as a vector does.
unsafe impl<E: Send> Send for Source<E> {}
// SAFETY: shared, it gives away lengths only.
unsafe impl<E: Send> Sync for Source<E> {}

impl<E> Source<E> {
    fn left(&self) -> usize {
        left(&(self.0.start.cast_const()..self.0.end.cast_const()))
    }

    fn head(&self, source: usize) -> Option<Head> {
        // SAFETY: the range is initialised, and not empty here.
        (self.left() > 0).then(|| Head { key: unsafe { (*self.0.start).0 }, source })
    }
}

impl<E> Drop for Source<E> {
    fn drop(&mut self) {
        let all = std::ptr::slice_from_raw_parts_mut(self.0.start, self.left());
        // SAFETY: these entries are initialised, and no other code reads or drops them.
        unsafe { std::ptr::drop_in_place(all) }
    }
}

impl<E> Default for Pending<E> {
    fn default() -> Self {
        Self { sources: Vec::new(), matches: Vec::new(), left: 0, buffers: Vec::new() }
    }
}

impl<E> fmt::Debug for Pending<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("left", &self.left).finish_non_exhaustive()
    }
}

impl<E> Pending<E> {
    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// Returns the bytes that the buffers have room for.
    pub(super) fn room(&self) -> usize {
        let entries: usize = self.buffers.iter().map(Vec::capacity).sum();
        entries.saturating_mul(size_of::<KeyedEvent<E>>())
    }

    /// Takes the entries of `logs`, and gives them buffers of earlier logs. Nothing must be left.
    pub(super) fn begin<'a>(
        &mut self,
        logs: impl ExactSizeIterator<Item = &'a mut Vec<KeyedEvent<E>>>,
    ) where
        E: 'a,
    {
        debug_assert!(
            self.left == 0 && self.sources.is_empty(),
            "event_queue.Q2: a merge begins before the pending one is over"
        );
        self.buffers.resize_with(self.buffers.len().max(logs.len()), Vec::new);
        self.sources.reserve(logs.len());
        for (log, buffer) in logs.zip(&mut self.buffers) {
            std::mem::swap(log, buffer);
            if buffer.is_empty() {
                continue;
            }
            self.left += buffer.len();
            let entries = buffer.as_mut_ptr_range();
            // SAFETY: zero is within capacity; the entries stay initialised behind the length, and
            // belong to the source from here on. The buffer is neither written nor freed before
            // `begin` is called again or `self` is dropped, and the sources are gone then.
            unsafe { buffer.set_len(0) };
            self.sources.push(Source(entries));
        }
        self.play();
    }

    /// Moves up to `most` events to the end of `out`.
    pub(super) fn move_to(&mut self, most: usize, out: &mut Vec<E>) {
        let count = most.min(self.left);
        out.reserve(count);
        out.extend((0..count).map_while(|_| self.pop()));
    }

    /// Takes the next event.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<E> {
        let first = *self.matches.first()?;
        let source = &mut self.sources[first.source];
        let from = source.0.start;
        prefetch(from.wrapping_add(AHEAD));
        // SAFETY: a source with a head has an entry; it is read once, because the range begins
        // after it from now on.
        let (_, event) = unsafe {
            source.0.start = from.add(1);
            from.read()
        };
        debug_assert!(self.left > 0, "event_queue.Q2: more events than were merged");
        self.left -= 1;
        match source.head(first.source) {
            Some(head) => self.replay(head),
            None => {
                drop(self.sources.remove(first.source));
                debug_assert!(
                    self.left == self.sources.iter().map(Source::left).sum::<usize>(),
                    "event_queue.Q2: the count of pending events is wrong"
                );
                self.play();
            }
        }
        Some(event)
    }

    /// Plays all matches again.
    fn play(&mut self) {
        let count = self.sources.len();
        self.matches.clear();
        let mut winners = vec![Head { key: 0, source: 0 }; count];
        winners.extend(self.sources.iter().enumerate().filter_map(|(i, source)| source.head(i)));
        if count < 2 {
            self.matches.extend_from_slice(&winners[count..]);
            return;
        }
        self.matches.resize(count, winners[count]);
        for place in (1..count).rev() {
            let (one, other) = (winners[2 * place], winners[2 * place + 1]);
            winners[place] = one.min(other);
            self.matches[place] = one.max(other);
        }
        self.matches[0] = winners[1];
    }

    /// Replays the matches of the source that was first, with its next head. No branch depends on
    /// the winner, because parallel senders make it unpredictable.
    #[inline]
    fn replay(&mut self, mut head: Head) {
        let mut place = (self.matches.len() + head.source) / 2;
        while place > 0 {
            let other = &mut self.matches[place];
            let (winner, loser) = if *other < head { (*other, head) } else { (head, *other) };
            *other = loser;
            head = winner;
            place /= 2;
        }
        self.matches[0] = head;
    }
}

/// Moves the events of both to the end of `out`, those of `low` first if keys are equal.
pub(super) fn merge_two<E>(
    low: &mut Vec<KeyedEvent<E>>,
    high: &mut Vec<KeyedEvent<E>>,
    out: &mut Vec<E>,
) {
    let apart = match (low.last(), high.first()) {
        (Some((last, _)), Some((first, _))) => last <= first,
        _ => true,
    };
    if apart {
        out.extend(low.drain(..).chain(high.drain(..)).map(|(_, event)| event));
        return;
    }
    let (lows, highs, before) = (low.len(), high.len(), out.len());
    out.reserve(lows + highs);
    // From here on the entries belong to the merge, which always runs to its end.
    // SAFETY: zero is within capacity, and the entries stay initialised behind the length. There is
    // room for all of them at the end of `out`, and `merge_into` writes them there.
    unsafe {
        low.set_len(0);
        high.set_len(0);
        let (from_low, from_high) = (low.as_ptr(), high.as_ptr());
        merge_into(from_low..from_low.add(lows), from_high..from_high.add(highs), out);
        out.set_len(before + lows + highs);
    }
}

/// Moves the events of two ranges behind the length of `out`, those of `low` first if keys are
/// equal.
///
/// It merges from both ends at a time: each step waits for the one before it, so two chains of
/// steps take little longer than one. The choice between two heads is arithmetic, not a branch,
/// because senders that run side by side make it unpredictable.
///
/// # Safety
/// The ranges are initialised and the caller gives them away. `out` has room for all of it.
unsafe fn merge_into<E>(
    low: Range<*const KeyedEvent<E>>,
    high: Range<*const KeyedEvent<E>>,
    out: &mut Vec<E>,
) {
    // SAFETY: each iteration reads one head and one tail; two entries on each side are there even
    // if it takes both from the same. After the loops for the rest, each entry has been read once,
    // and `front` has met `back`: there is one place for each entry.
    unsafe {
        let (mut low, mut high) = (low, high);
        let mut front = out.as_mut_ptr().add(out.len());
        let mut back = front.add(left(&low) + left(&high));
        while left(&low) >= 2 && left(&high) >= 2 {
            step_front(&mut low, &mut high, &mut front);
            let takes_low = (*high.end.sub(1)).0 < (*low.end.sub(1)).0;
            low.end = low.end.sub(usize::from(takes_low));
            high.end = high.end.sub(usize::from(!takes_low));
            let from = if takes_low { low.end } else { high.end };
            back = back.sub(1);
            back.write(from.read().1);
        }
        while left(&low) > 0 && left(&high) > 0 {
            step_front(&mut low, &mut high, &mut front);
        }
        let rest = if left(&low) > 0 { low } else { high };
        for place in 0..left(&rest) {
            front.add(place).write(rest.start.add(place).read().1);
        }
    }
}

/// Returns the number of entries in a range.
fn left<T>(range: &Range<*const T>) -> usize {
    // SAFETY: both ends are of one buffer, the start first.
    unsafe { range.end.offset_from(range.start) as usize }
}

/// Moves the lower of two heads to `to`.
///
/// # Safety
/// Neither range is empty, and there is room at `to`.
#[inline(always)]
unsafe fn step_front<E>(
    low: &mut Range<*const KeyedEvent<E>>,
    high: &mut Range<*const KeyedEvent<E>>,
    to: &mut *mut E,
) {
    // SAFETY: the caller promises that neither range is empty, so both heads can be read and
    // passed, and that `to` has room for one event.
    unsafe {
        let takes_high = (*high.start).0 < (*low.start).0;
        let from = if takes_high { high.start } else { low.start };
        high.start = high.start.add(usize::from(takes_high));
        low.start = low.start.add(usize::from(!takes_high));
        to.write(from.read().1);
        *to = to.add(1);
    }
}

#[cfg(all(test, not(manycore_loom), not(manycore_shuttle)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Log = Vec<KeyedEvent<(usize, usize)>>;

    fn log(keys: impl IntoIterator<Item = u64>, sender: usize) -> Log {
        keys.into_iter().enumerate().map(|(place, key)| (key, (sender, place))).collect()
    }

    /// The expected result of a merge: the order of keys, equal keys in the order of logs.
    fn sorted(logs: &[Log]) -> Vec<(usize, usize)> {
        let mut all: Vec<_> = logs.iter().flatten().copied().collect();
        all.sort_by_key(|(key, _)| *key);
        all.into_iter().map(|(_, event)| event).collect()
    }

    /// All lengths from 0 to 6 of two logs with keys 0 to 2: every way to begin, meet and end.
    #[test]
    fn merge_of_two_short_logs_is_a_stable_sort() {
        let ascending = |len: u32| {
            (0..3_u64.pow(len)).filter_map(move |mut code| {
                let keys: Vec<u64> = (0..len).map(|_| (code % 3, code /= 3).0).collect();
                keys.is_sorted().then_some(keys)
            })
        };
        let all: Vec<Vec<u64>> = (0..=6).flat_map(ascending).collect();
        for low in &all {
            for high in &all {
                let mut logs = [log(low.iter().copied(), 0), log(high.iter().copied(), 1)];
                let expected = sorted(&logs);
                let mut out = vec![(99, 99)]; // what was there stays in front
                let [low, high] = &mut logs;
                merge_two(low, high, &mut out);
                assert_eq!(out[0], (99, 99));
                assert_eq!(out[1..], expected);
                assert!(logs.iter().all(Vec::is_empty));
            }
        }
    }

    /// Merges one after the other, with the buffers of earlier merges, taken in portions.
    #[test]
    fn merge_of_any_logs_is_a_stable_sort() {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut pending = Pending::default();
        for (count, most) in (0..18).flat_map(|count| [1, 3, 40, 1000].map(|most| (count, most))) {
            let mut one = |sender| {
                let (mut key, len) = (0, next(most));
                let keys: Vec<u64> = (0..len).map(|_| (key += next(3), key).1).collect();
                log(keys, sender)
            };
            let mut logs: Vec<_> = (0..count).map(&mut one).collect();
            let expected = sorted(&logs);
            pending.begin(logs.iter_mut());
            assert!(logs.iter().all(Vec::is_empty));
            let mut out = Vec::new();
            while out.len() < expected.len() {
                assert_eq!(pending.len(), expected.len() - out.len());
                let portion = next(70) as usize;
                pending.move_to(portion, &mut out);
                out.extend(pending.pop());
            }
            assert_eq!(out, expected);
            assert_eq!((pending.len(), pending.pop()), (0, None));
        }
    }

    /// A log whose keys go down again keeps its order, and nothing is lost.
    #[test]
    fn order_within_a_log_stays_whatever_the_keys() {
        let mut logs = [log([5, 1, 9], 0), log([3, 3, 3], 1), log([0, u64::MAX, 2], 2)];
        let mut pending = Pending::default();
        pending.begin(logs.iter_mut());
        let mut out = Vec::new();
        pending.move_to(usize::MAX, &mut out);
        for sender in 0..3 {
            let mine: Vec<_> = out.iter().filter(|event| event.0 == sender).collect();
            assert_eq!(mine, [&(sender, 0), &(sender, 1), &(sender, 2)]);
        }
    }

    /// Events own memory: none may be dropped twice or forgotten.
    #[test]
    fn merge_moves_each_event_once() {
        let shared = Arc::new(());
        let entries = |keys: [u64; 5]| keys.map(|key| (key, Arc::clone(&shared))).to_vec();
        let logs = || [entries([1, 3, 5, 7, 9]), entries([0, 2, 4, 6, 8]), entries([5; 5])];
        let mut pending = Pending::default();
        for taken in 0..=15 {
            let mut out = Vec::new();
            pending.begin(logs().iter_mut());
            pending.move_to(taken, &mut out);
            assert_eq!((out.len(), Arc::strong_count(&shared)), (taken, 16));
            drop(out);
            pending = Pending::default(); // drops what is left
            assert_eq!(Arc::strong_count(&shared), 1);
        }
        let [mut low, mut high, _] = logs();
        let mut out = Vec::new();
        merge_two(&mut low, &mut high, &mut out);
        assert_eq!((out.len(), Arc::strong_count(&shared)), (10, 11));
        drop((low, high, out));
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
