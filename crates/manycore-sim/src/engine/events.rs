//! The event queue: events in order of time. Events of the same time keep the order of posting.
//!
//! Nearly all events are a transfer or a hit away. So the near future is a ring: a list for each
//! cycle, and a bit that says whether the list is in use. Posting and taking an event cost a few
//! instructions, however many threads there are. Later events wait in a heap.

use std::{cmp::Reverse, collections::BinaryHeap};

/// The action of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A thread that holds its core goes on.
    Go(u32),
    /// The line with this index serves its next waiter.
    Serve(u32),
    /// A thread that was blocked looks for a core.
    Wake(u32),
    /// The timer of a thread expires. It counts only if the thread is still in the wait of this
    /// number.
    Timer(u32, u32),
}

impl Event {
    #[inline]
    fn is_timer(self) -> bool {
        matches!(self, Event::Timer(..))
    }
}

/// Cycles of the ring. A power of two with at most 64 words of bits.
const RING: u64 = 2048;
const WORDS: usize = RING as usize / 64;
const NONE: u32 = u32::MAX;

/// An event in the list of its cycle.
struct Node {
    event: Event,
    next: u32,
}

/// First and last node of a cycle's list. Meaningless while the cycle's bit is clear.
#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

/// The events to come.
pub(super) struct Events {
    /// Time of the last event taken. No event is posted before it.
    now: u64,
    /// Time of the next event; `u64::MAX` if there is none.
    next_at: u64,
    /// One list for each cycle from `now` on.
    ring: Box<[List]>,
    bits: [u64; WORDS],
    /// One bit for each word of `bits` that is not zero.
    words: u64,
    nodes: Vec<Node>,
    free: u32,
    /// Events beyond the ring, each with a number that orders equal times.
    later: BinaryHeap<Reverse<(u64, u64, Event)>>,
    posted: u64,
    /// Number of events that are not timers.
    urgent: u32,
}

impl Events {
    pub(super) fn new() -> Events {
        Events {
            now: 0,
            next_at: u64::MAX,
            ring: vec![List { first: NONE, last: NONE }; RING as usize].into_boxed_slice(),
            bits: [0; WORDS],
            words: 0,
            nodes: Vec::new(),
            free: NONE,
            later: BinaryHeap::new(),
            posted: 0,
            urgent: 0,
        }
    }

    /// Adds an event, which must not be in the past.
    pub(super) fn post(&mut self, at: u64, event: Event) {
        debug_assert!(at >= self.now, "an event of the past");
        self.next_at = self.next_at.min(at);
        self.urgent += u32::from(!event.is_timer());
        if at - self.now < RING {
            self.post_near(at, event);
        } else {
            self.posted += 1;
            self.later.push(Reverse((at, self.posted, event)));
        }
    }

    /// Returns the time of the next event, or `u64::MAX` if there is none.
    #[inline]
    pub(super) fn next_at(&self) -> u64 {
        self.next_at
    }

    /// Returns the time of the last event taken.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Returns true if only timers are left, or nothing.
    #[inline]
    pub(super) fn only_timers(&self) -> bool {
        self.urgent == 0
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        if self.next_at == u64::MAX {
            return None;
        }
        let at = self.next_at;
        debug_assert!(at >= self.now, "virtual time went back");
        self.now = at;
        self.come_nearer();
        let slot = (at % RING) as usize;
        let node = self.ring[slot].first;
        let Node { event, next } = self.nodes[node as usize];
        self.nodes[node as usize].next = self.free;
        self.free = node;
        self.ring[slot].first = next;
        if next == NONE {
            self.bits[slot / 64] &= !(1 << (slot % 64));
            if self.bits[slot / 64] == 0 {
                self.words &= !(1 << (slot / 64));
            }
            self.next_at = self.find_next();
        }
        self.urgent -= u32::from(!event.is_timer());
        Some((at, event))
    }

    fn post_near(&mut self, at: u64, event: Event) {
        let node = if self.free == NONE {
            self.nodes.push(Node { event, next: NONE });
            (self.nodes.len() - 1) as u32
        } else {
            let node = self.free;
            self.free = self.nodes[node as usize].next;
            self.nodes[node as usize] = Node { event, next: NONE };
            node
        };
        let slot = (at % RING) as usize;
        let bit = 1 << (slot % 64);
        if self.bits[slot / 64] & bit == 0 {
            self.bits[slot / 64] |= bit;
            self.words |= 1 << (slot / 64);
            self.ring[slot] = List { first: node, last: node };
        } else {
            let last = self.ring[slot].last;
            self.nodes[last as usize].next = node;
            self.ring[slot].last = node;
        }
    }

    /// Moves events that the ring now reaches from the heap to the ring. Runs before anything can
    /// be posted to these cycles, so that equal times keep their order.
    fn come_nearer(&mut self) {
        while let Some(Reverse((at, _, event))) = self.later.peek() {
            if at - self.now >= RING {
                return;
            }
            let (at, event) = (*at, *event);
            self.later.pop();
            self.post_near(at, event);
        }
    }

    fn find_next(&self) -> u64 {
        if self.words == 0 {
            return self.later.peek().map_or(u64::MAX, |Reverse((at, _, _))| *at);
        }
        let start = (self.now % RING) as usize;
        let here = self.bits[start / 64] >> (start % 64);
        if here != 0 {
            return self.now + u64::from(here.trailing_zeros());
        }
        // Search the later words, then wrap around to the low bits of this word.
        let after = self.words.checked_shr(start as u32 / 64 + 1).unwrap_or(0);
        let word = if after != 0 {
            start / 64 + 1 + after.trailing_zeros() as usize
        } else {
            self.words.trailing_zeros() as usize
        };
        let slot = word as u64 * 64 + u64::from(self.bits[word].trailing_zeros());
        self.now + (slot + RING - start as u64) % RING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::hash::Random;

    /// The obvious queue: a plain list.
    #[derive(Default)]
    struct Plain(Vec<(u64, Event)>);

    impl Plain {
        fn pop(&mut self) -> Option<(u64, Event)> {
            let first = (0..self.0.len()).min_by_key(|i| self.0[*i].0)?;
            Some(self.0.remove(first))
        }
    }

    #[test]
    fn random_events_come_in_the_order_of_the_obvious_queue() {
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let reach = [3, 70, 2047, 2048, 2049, 9000][seed as usize % 6];
            let (mut events, mut plain) = (Events::new(), Plain::default());
            let mut now = 0;
            for number in 0..4000 {
                if random.below(5) < 3 {
                    let at = now + random.below(reach) as u64;
                    events.post(at, Event::Go(number));
                    plain.0.push((at, Event::Go(number)));
                } else {
                    let next = plain.0.iter().map(|(at, _)| *at).min();
                    assert_eq!(events.next_at(), next.unwrap_or(u64::MAX), "seed {seed}");
                    let event = events.pop();
                    assert_eq!(event, plain.pop(), "seed {seed}");
                    now = event.map_or(now, |(at, _)| at);
                }
            }
            while let Some(event) = plain.pop() {
                assert_eq!(events.pop(), Some(event), "seed {seed}");
            }
            assert_eq!(events.pop(), None);
        }
    }
}
