//! Lock-free structures as in textbooks, with no tags in their links. They are correct in a domain
//! as `Domain::new` makes it. In a bounded domain a debug build notices the missing tags.
//!
//! The queue: M. Michael, M. Scott, "Simple, fast, and practical non-blocking and blocking
//! concurrent queue algorithms" (PODC 1996), figure 1. The stack: R. K. Treiber, "Systems
//! programming: coping with parallelism" (IBM, 1986).

use crate::common::canary::{Aviary, Canary};
use crate::common::env;
use manycore::section::{Atomic, Domain, Owned, Section, Shared};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

struct Node {
    value: u64,
    /// Notices that it is used after the node was freed.
    life: Canary,
    next: Atomic<Node>,
}

impl Node {
    /// The value of a node that lives.
    fn value(&self) -> u64 {
        self.life.sing();
        self.value
    }
}

/// Sometimes lets other threads run, between the load of a link and the use of the node it led to.
fn pause(turn: u64) {
    if turn % 64 == 0 {
        thread::yield_now();
    }
}

trait Pile: Sync {
    fn new(domain: Domain, aviary: Arc<Aviary>) -> Self;
    fn put(&self, value: u64);
    fn take(&self) -> Option<u64>;
    fn domain(&self) -> &Domain;
}

struct Stack {
    head: Atomic<Node>,
    domain: Domain,
    aviary: Arc<Aviary>,
}

impl Pile for Stack {
    fn new(domain: Domain, aviary: Arc<Aviary>) -> Self {
        Self { head: Atomic::null(), domain, aviary }
    }

    fn put(&self, value: u64) {
        let section = self.domain.enter();
        let mut node = Owned::new(Node { value, life: self.aviary.hatch(0), next: Atomic::null() });
        loop {
            let head = self.head.load(&section);
            node.next.store(head, &section);
            match self.head.compare_exchange(head, node, &section) {
                Ok(_) => return,
                Err(lost) => node = lost.new,
            }
        }
    }

    fn take(&self) -> Option<u64> {
        let section = self.domain.enter();
        loop {
            let head = self.head.load(&section);
            let node = head.as_ref()?;
            pause(node.value());
            let next = node.next.load(&section);
            if self.head.compare_exchange(head, next, &section).is_ok() {
                // SAFETY: unlinked by the exchange, hence by this thread alone.
                unsafe { section.retire(head) };
                return Some(node.value());
            }
        }
    }

    fn domain(&self) -> &Domain {
        &self.domain
    }
}

struct Queue {
    head: Atomic<Node>,
    tail: Atomic<Node>,
    domain: Domain,
    aviary: Arc<Aviary>,
}

impl Pile for Queue {
    fn new(domain: Domain, aviary: Arc<Aviary>) -> Self {
        let queue = Self { head: Atomic::null(), tail: Atomic::null(), domain, aviary };
        let section = queue.domain.enter();
        let dummy = Node { value: 0, life: queue.aviary.hatch(0), next: Atomic::null() };
        let dummy = Owned::new(dummy).into_shared(&section);
        queue.head.store(dummy, &section);
        queue.tail.store(dummy, &section);
        drop(section);
        queue
    }

    fn put(&self, value: u64) {
        let section = self.domain.enter();
        let mut node = Owned::new(Node { value, life: self.aviary.hatch(0), next: Atomic::null() });
        loop {
            let tail = self.tail.load(&section);
            let last = tail.as_ref().expect("there is a dummy");
            pause(last.value());
            let next = last.next.load(&section);
            if !next.is_null() {
                let _ = self.tail.compare_exchange(tail, next, &section);
                continue;
            }
            match last.next.compare_exchange(Shared::null(), node, &section) {
                Ok(linked) => {
                    let _ = self.tail.compare_exchange(tail, linked, &section);
                    return;
                }
                Err(lost) => node = lost.new,
            }
        }
    }

    fn take(&self) -> Option<u64> {
        let section = self.domain.enter();
        loop {
            let head = self.head.load(&section);
            let dummy = head.as_ref().expect("there is a dummy");
            pause(dummy.value());
            let next = dummy.next.load(&section);
            let first = next.as_ref()?;
            let value = first.value(); // of a node that is perhaps unlinked by now
            let tail = self.tail.load(&section);
            if tail == head {
                let _ = self.tail.compare_exchange(tail, next, &section);
            }
            if self.head.compare_exchange(head, next, &section).is_ok() {
                // SAFETY: unlinked by the exchange, hence by this thread alone; the tail was moved
                // on before, and does not come back.
                unsafe { section.retire(head) };
                return Some(value);
            }
        }
    }

    fn domain(&self) -> &Domain {
        &self.domain
    }
}

/// Drops the remaining nodes.
fn clear(head: &mut Atomic<Node>) {
    // SAFETY: the structure is borrowed exclusively, and a linked node is not retired.
    while let Some(node) = unsafe { mem::take(head).into_owned() } {
        *head = node.into_inner().next;
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        clear(&mut self.head);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        clear(&mut self.head);
    }
}

const PRODUCERS: u64 = 3;

/// Runs some threads that put numbers and as many that take them. Returns the numbers of each
/// taker, in the order in which it took them. Ends early if a thread panics, with its message.
fn run<P: Pile>(pile: &P, each: u64) -> Result<Vec<Vec<u64>>, String> {
    let failed = &AtomicBool::new(false);
    let left = &AtomicUsize::new(usize::try_from(PRODUCERS * each).unwrap());
    struct OnPanic<'a>(&'a AtomicBool);
    impl Drop for OnPanic<'_> {
        fn drop(&mut self) {
            self.0.fetch_or(thread::panicking(), Relaxed);
        }
    }
    thread::scope(|scope| {
        let putters = (0..PRODUCERS).map(|putter| {
            scope.spawn(move || {
                let _panic = OnPanic(failed);
                let mine = (0..each).map(|number| putter * each + number);
                mine.take_while(|_| !failed.load(Relaxed)).for_each(|number| pile.put(number));
                Vec::new()
            })
        });
        let putters: Vec<_> = putters.collect();
        let takers = (0..PRODUCERS).map(|_| {
            scope.spawn(move || {
                let _panic = OnPanic(failed);
                let mut taken = Vec::new();
                while left.load(Relaxed) != 0 && !failed.load(Relaxed) {
                    match pile.take() {
                        Some(number) => {
                            left.fetch_sub(1, Relaxed);
                            taken.push(number);
                        }
                        None => thread::yield_now(),
                    }
                }
                taken
            })
        });
        let takers: Vec<_> = takers.collect();
        let all = putters.into_iter().chain(takers).map(|thread| thread.join());
        let all: Vec<_> = all.collect();
        all.into_iter()
            .map(|end| {
                end.map_err(|said| match said.downcast_ref::<&str>() {
                    Some(text) => text.to_string(),
                    None => *said.downcast::<String>().expect("a text"),
                })
            })
            .collect()
    })
}

fn is_right_by_default<P: Pile>(is_fifo: bool) {
    let aviary = Aviary::new();
    let each = env::rounds(30_000) as u64;
    let pile = P::new(Domain::new(), Arc::clone(&aviary));
    let taken = run(&pile, each).unwrap();
    for numbers in &taken {
        for putter in 0..PRODUCERS {
            let own = numbers.iter().filter(|number| **number / each == putter);
            assert!(!is_fifo || own.is_sorted(), "not first in, first out");
        }
    }
    let mut all = taken.concat();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..PRODUCERS * each), "lost or doubled");
    (0..4).for_each(|_| pile.domain().collect());
    assert!(aviary.living() < 2, "{} nodes are left of an empty one", aviary.living());
    pile.put(1);
    drop(pile);
    assert_eq!(aviary.living(), 0);
}

#[test]
fn textbook_queue_is_right_in_the_default_mode() {
    is_right_by_default::<Queue>(true);
}

#[test]
fn textbook_stack_is_right_in_the_default_mode() {
    is_right_by_default::<Stack>(false);
}

/// A thread that stalls between two loads will at last find a link from a retired node.
#[cfg(debug_assertions)]
fn is_noticed_if_bounded<P: Pile>() {
    let until = std::time::Instant::now() + env::UNSEEN;
    loop {
        let pile = P::new(Domain::bounded(), Aviary::new());
        let Err(said) = run(&pile, 2_000) else {
            assert!(std::time::Instant::now() < until, "not noticed");
            continue;
        };
        for part in ["an untagged link of a retired node", "`Domain::new`", "Tag every link"] {
            assert!(said.contains(part), "{said}");
        }
        return;
    }
}

#[cfg(debug_assertions)]
#[test]
fn textbook_queue_is_noticed_in_a_bounded_domain() {
    is_noticed_if_bounded::<Queue>();
}

#[cfg(debug_assertions)]
#[test]
fn textbook_stack_is_noticed_in_a_bounded_domain() {
    is_noticed_if_bounded::<Stack>();
}

/// The same in one thread, step by step: the load that continues from a retired node panics.
#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "an untagged link of a retired node")]
fn walking_on_from_a_dequeued_node_panics_in_a_bounded_domain() {
    let queue = Queue::new(Domain::bounded(), Aviary::new());
    queue.put(1);
    queue.put(2);
    let section: Section<'_> = queue.domain.enter();
    let dummy = queue.head.load(&section).as_ref().unwrap();
    assert_eq!(queue.take(), Some(1));
    dummy.next.load(&section);
}
