//! The queue of Michael and Scott on sections, as a port from `crossbeam-epoch`: the textbook's
//! code, line by line.
//!
//! ```text
//! head --> [ dummy ] --> [ oldest ] --> ... --> [ newest ] --> null
//!                                                   ^
//! tail ---------------------------------------------+   or the node before it
//! ```
//!
//! The first node is a dummy: its value has been taken. A push links its node behind the newest,
//! then moves the tail. Between the two steps, the tail is one node behind, and any thread that
//! meets it there moves it. A pop makes the oldest node the dummy, and takes that node's value.
//!
//! The tail never leads to a retired node: before a pop moves the head away from a node, it moves
//! the tail away from that node.
//!
//! The queue needs a domain in `Mode::Epoch`, like the global one. It leaves links untagged, which
//! a bounded domain does not allow (`docs/guide/reclamation.md`, rule 3).
//!
//! Source: M. Michael and M. Scott, "Simple, fast, and practical non-blocking and blocking
//! concurrent queue algorithms" (PODC 1996).

use manycore::section::{self, Atomic, Owned, Shared};
use std::mem::MaybeUninit;
use std::thread;

struct Node<T> {
    /// Initialized while the node is behind the dummy. The dummy's value has been moved out, so
    /// freeing a node must not drop it.
    value: MaybeUninit<T>,
    next: Atomic<Node<T>>,
}

impl<T> Node<T> {
    fn new(value: MaybeUninit<T>) -> Owned<Self> {
        Owned::new(Self { value, next: Atomic::null() })
    }
}

/// A queue that any number of threads push to and pop from; first in, first out.
pub struct Queue<T> {
    head: Line<Atomic<Node<T>>>,
    tail: Line<Atomic<Node<T>>>,
}

/// Alone on its cache lines, because threads that pop and threads that push write different ones.
#[repr(align(128))]
struct Line<A>(A);

// SAFETY: a queue owns its values, like a `Vec`; the links are atomic.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: through a shared queue, values go from the threads that push them to those that pop them
// (`T: Send`). No two threads have a reference to the same value.
unsafe impl<T: Send> Sync for Queue<T> {}

impl<T> Queue<T> {
    /// Makes an empty queue: a dummy, to which both ends lead.
    pub fn new() -> Self {
        let section = section::enter();
        let dummy = Node::new(MaybeUninit::uninit()).into_shared(&section);
        Self { head: Line(Atomic::from(dummy)), tail: Line(Atomic::from(dummy)) }
    }

    /// Puts a value at the end.
    pub fn push(&self, value: T) {
        let section = section::enter();
        let node = Node::new(MaybeUninit::new(value)).into_shared(&section);
        loop {
            let tail = self.tail.0.load(&section);
            let last = tail.as_ref().expect("there is always a dummy");
            let next = last.next.load(&section);
            if !next.is_null() {
                self.move_tail(tail, next, &section); // for the thread that linked `next`
            } else if last.next.compare_exchange(next, node, &section).is_ok() {
                return self.move_tail(tail, node, &section);
            }
        }
    }

    /// Takes the oldest value, if there is one.
    pub fn pop(&self) -> Option<T> {
        let section = section::enter();
        loop {
            let head = self.head.0.load(&section);
            let dummy = head.as_ref().expect("there is always a dummy");
            let next = dummy.next.load(&section);
            let oldest = next.as_ref()?;
            if self.tail.0.load(&section) == head {
                self.move_tail(head, next, &section);
            }
            if self.head.0.compare_exchange(head, next, &section).is_ok() {
                // SAFETY: `oldest` was behind the dummy, so its value is there. The exchange
                // succeeds once for each node, so one thread takes the value.
                let value = unsafe { oldest.value.assume_init_read() };
                // SAFETY: the head was moved away by this thread alone, and the tail before that;
                // links that lead here are in nodes that were unlinked before. All sections are of
                // the global domain. Any thread may free the node, which drops no `T`: so `T` need
                // not be `Send` here.
                unsafe { section.retire(head) };
                return Some(value);
            }
        }
    }

    /// Moves the tail on by one node, if no other thread has done so.
    fn move_tail<'s>(
        &'s self,
        from: Shared<'s, Node<T>>,
        to: Shared<'s, Node<T>>,
        section: &'s section::Section<'_>,
    ) {
        let _ = self.tail.0.compare_exchange(from, to, section);
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Queue<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
        // SAFETY: `&mut self`: no other thread has the dummy, and it has not been retired.
        drop(unsafe { std::mem::take(&mut self.head.0).into_owned() });
    }
}

/// Some threads push numbers, others pop them: each number comes out once, and those of one thread
/// in the order in which it pushed them.
fn main() {
    const PUSHERS: usize = 2;
    const EACH: usize = if cfg!(miri) { 30 } else { 20_000 };
    let queue = Queue::new();
    // (Boxes, so that a number that comes out twice would be freed twice.)
    let mut popped: Vec<Box<usize>> = thread::scope(|scope| {
        let queue = &queue;
        for pusher in 0..PUSHERS {
            let numbers = pusher * EACH..(pusher + 1) * EACH;
            scope.spawn(move || numbers.for_each(|number| queue.push(Box::new(number))));
        }
        let pop_half = || {
            let mut own: Vec<Box<usize>> = Vec::new();
            let mut latest = [None; PUSHERS];
            while own.len() < PUSHERS * EACH / 2 {
                let Some(number) = queue.pop() else {
                    thread::yield_now();
                    continue;
                };
                let latest = &mut latest[*number / EACH];
                assert!(*latest < Some(*number), "{number} came out after {latest:?}");
                *latest = Some(*number);
                own.push(number);
            }
            own
        };
        let poppers = [scope.spawn(pop_half), scope.spawn(pop_half)];
        poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect()
    });
    assert!(queue.pop().is_none());
    popped.sort_unstable();
    assert!(popped.iter().map(|number| **number).eq(0..PUSHERS * EACH));
    println!("{} numbers came out, each once and in order", popped.len());

    // What is left is dropped with the queue.
    (0..10).for_each(|number| queue.push(Box::new(number)));
}
