//! Stress of sets with marks: many threads, members that pass between threads, reads all the time,
//! and an oracle. Also run under AddressSanitizer, because members are freed while they are queued.
//!
//! `MANYCORE_SOAK=60` runs it for 60 seconds. `MANYCORE_SEED=0x12ab` repeats the random choices of
//! an earlier run.

use crate::common::{env, rng::Rng};
use manycore::ldu::*;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

const THREADS: usize = 4;
const KEYS: usize = 8;
const SHARE: Duration = Duration::from_millis(800);

/// A member's number, stored twice, so that reused memory is detected.
#[derive(Debug)]
struct Body {
    number: u64,
    again: Box<u64>,
}

impl Body {
    fn new(number: u64) -> Self {
        Self { number, again: Box::new(!number) }
    }

    fn check(&self) -> u64 {
        assert_eq!(*self.again, !self.number, "a member's memory is not its own");
        self.number
    }
}

/// Keeps pointers to its members, as the contract permits. Each member must be alive while it is in
/// the set.
#[derive(Default)]
struct Members(HashMap<u64, *const Element<Body>>);

// SAFETY: members are shared between threads (`Linked`).
unsafe impl Send for Members {}
// SAFETY: shared access gives out members, which are `Sync` (`Linked`).
unsafe impl Sync for Members {}

impl Structure<Element<Body>> for Members {
    fn insert(&mut self, member: &Element<Body>) {
        let before = self.0.insert(member.check(), member);
        assert!(before.is_none(), "{} is told twice", member.number);
    }

    fn remove(&mut self, member: &Element<Body>) {
        let before = self.0.remove(&member.check());
        assert_eq!(before, Some(std::ptr::from_ref(member)), "{} was never told", member.number);
    }
}

impl Members {
    fn check(&self) {
        for (number, member) in &self.0 {
            // SAFETY: a member lives until `remove` has returned.
            assert_eq!(unsafe { (**member).check() }, *number);
        }
    }
}

type Set = DeferredSet<Members, Element<Body>>;
type Mailbox<'s> = Mutex<Vec<Attached<'s, Members, Element<Body>>>>;

/// The handle that a thread holds.
enum Own<'s> {
    Nothing,
    In(Attached<'s, Members, Element<Body>>),
    Out(Detached<'s, Members, Element<Body>>),
}

/// The number of members, as the test knows it from outside.
#[derive(Default)]
struct Oracle {
    inserted: AtomicI64,
    numbers: AtomicU64,
    stop: AtomicBool,
}

fn step<'s>(
    set: &'s Set,
    own: Own<'s>,
    mail: &Mailbox<'s>,
    oracle: &Oracle,
    rng: &mut Rng,
) -> Own<'s> {
    match (own, rng.below(6)) {
        (Own::Nothing, _) => {
            let member = set.add(Body::new(oracle.numbers.fetch_add(1, SeqCst)));
            oracle.inserted.fetch_add(1, SeqCst);
            Own::In(member)
        }
        (Own::In(member), 0) => {
            drop(member);
            oracle.inserted.fetch_sub(1, SeqCst);
            Own::Nothing
        }
        (Own::In(member), 1) => {
            let mut mail = mail.lock().unwrap();
            mail.push(member);
            let place = rng.below(mail.len());
            Own::In(mail.swap_remove(place))
        }
        (Own::In(member), _) => {
            let member = member.remove();
            oracle.inserted.fetch_sub(1, SeqCst);
            Own::Out(member)
        }
        (Own::Out(member), 0) => {
            drop(member);
            Own::Nothing
        }
        (Own::Out(member), 1) => {
            let mut member = member.into_box();
            **member = Body::new(oracle.numbers.fetch_add(1, SeqCst));
            oracle.inserted.fetch_add(1, SeqCst);
            Own::In(set.insert(member))
        }
        (Own::Out(member), _) => {
            oracle.inserted.fetch_add(1, SeqCst);
            Own::In(member.insert())
        }
    }
}

fn work<'s>(set: &'s Set, mail: &Mailbox<'s>, oracle: &Oracle, mut rng: Rng) {
    let mut own: Vec<_> = (0..KEYS).map(|_| Own::Nothing).collect();
    while !oracle.stop.load(SeqCst) {
        let key = rng.below(KEYS);
        let one = std::mem::replace(&mut own[key], Own::Nothing);
        own[key] = step(set, one, mail, oracle, &mut rng);
        if rng.once_in(50) {
            match rng.below(2) {
                0 => look(&set.read(), &own),
                _ => look(&set.read_shared(), &own),
            }
        }
    }
    for one in own {
        if let Own::In(member) = one {
            drop(member);
            oracle.inserted.fetch_sub(1, SeqCst);
        }
    }
}

fn look(seen: &Members, own: &[Own<'_>]) {
    seen.check();
    let mine = own.iter().filter_map(|own| if let Own::In(one) = own { Some(one) } else { None });
    mine.for_each(|one| assert!(seen.0.contains_key(&one.number), "an own member is missing"));
}

fn stress(queue: Queue, max_queued: usize) {
    let _alone = env::alone();
    let seed = env::seed();
    println!("{queue:?}, at most {max_queued}: MANYCORE_SEED={seed:#x}");
    let until = env::soak(SHARE / 4);
    let set: Set = DeferredSet::builder()
        .queue(queue)
        .max_queued(max_queued)
        .build(Members::default())
        .unwrap();
    let (oracle, mail) = (Oracle::default(), Mailbox::default());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (set, mail, oracle) = (&set, &mail, &oracle);
            scope.spawn(move || work(set, mail, oracle, Rng::part(seed, thread as u64)));
        }
        while std::time::Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
            set.read().check();
        }
        oracle.stop.store(true, SeqCst);
    });
    assert_eq!(set.read().0.len() as i64, oracle.inserted.load(SeqCst), "seed {seed:#x}");
    mail.lock().unwrap().clear();
    set.synchronize();
    assert!(set.read().0.is_empty(), "seed {seed:#x}");
    println!("{} members: {:?}", oracle.numbers.load(SeqCst), set.stats());
}

#[test]
fn per_core_queues_survive_a_stress() {
    stress(Queue::PerThread, 4096);
    stress(Queue::PerThread, 2);
}

#[test]
fn global_queue_survives_a_stress() {
    stress(Queue::Global, 4096);
    stress(Queue::Global, 2);
}
