//! Sections under torture: readers and reclaimers of every mode at once, with an oracle.
//!
//! A node leads to a body that outlives it. The body says *alive* while the node is linked,
//! *retired* once it is unlinked, and *dead* once it is freed, and carries a version, which is new
//! each time the body is used again. A reader keeps the bodies of the nodes it has found and looks
//! at them again and again: dead, or of another version than at the first look, is a node that was
//! freed under its reader. Nodes are retired with their births, so that a bounded domain sieves
//! them while readers stall (E4 of `section`).
//!
//! `MANYCORE_SOAK=3600` runs it for an hour; `MANYCORE_SEED=0x12ab` repeats the choices of an
//! earlier run. It prints its seed and how many reads it made. Built with
//! `--cfg manycore_seeded_bugs`, it also demands that a too eager sieve is caught.

mod common;

use common::env;
use common::rng::Rng;
use manycore::section::{Atomic, Domain, Mode, Owned, Section};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

const ALIVE: u64 = 0x00a1_17e0_00a1_17e0;
const RETIRED: u64 = 0x00de_7a11_00de_7a11;
const DEAD: u64 = 0xdead_dead_dead_dead;

const LINKS: usize = 16;

/// What outlives its node: the oracle reads it after the node was freed.
struct Body {
    state: AtomicU64,
    /// Another one each time the body is used.
    version: AtomicU64,
}

thread_local! {
    /// Bodies whose nodes this thread freed, to be used again after a while, as an allocator would.
    /// One pool a thread, so that threads meet in the domain and nowhere else.
    static POOL: RefCell<VecDeque<&'static Body>> = const { RefCell::new(VecDeque::new()) };
}
const REUSED_AFTER: usize = 64;

/// The node's value: freeing the node kills the body.
struct Node(&'static Body);

impl Node {
    fn new(version: u64) -> Self {
        let reused =
            POOL.with_borrow_mut(
                |pool| {
                    if pool.len() < REUSED_AFTER { None } else { pool.pop_front() }
                },
            );
        let body = reused.unwrap_or_else(|| {
            Box::leak(Box::new(Body { state: AtomicU64::new(DEAD), version: AtomicU64::new(0) }))
        });
        assert_eq!(body.state.load(SeqCst), DEAD, "a body is in use twice");
        body.version.store(version, Relaxed);
        body.state.store(ALIVE, Release);
        Self(body)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let old = self.0.state.swap(DEAD, SeqCst);
        assert_eq!(old, RETIRED, "freed without having been retired, or twice");
        FREED.fetch_add(1, Relaxed);
        let _ = POOL.try_with(|pool| pool.borrow_mut().push_back(self.0));
    }
}

static FREED: AtomicU64 = AtomicU64::new(0);

struct Field {
    domain: Domain,
    links: Vec<Atomic<Node>>,
    stop: AtomicBool,
    reads: AtomicU64,
    updates: AtomicU64,
}

impl Field {
    fn new(domain: Domain) -> Self {
        let links = (0..LINKS).map(|_| Atomic::new(Node::new(0))).collect();
        let stop = AtomicBool::new(false);
        Self { domain, links, stop, reads: AtomicU64::new(0), updates: AtomicU64::new(1) }
    }

    /// Looks at some nodes, several times each, and judges what it sees.
    fn read(&self, rng: &mut Rng, section: &Section<'_>, seed: u64) {
        let held: [_; 4] = std::array::from_fn(|_| {
            let node = self.links[rng.below(LINKS)].load(section).as_ref().expect("never null");
            (node.0, node.0.version.load(Acquire))
        });
        let stall = rng.once_in(2_000);
        for look in 0..1 + rng.below(4) {
            if stall {
                thread::sleep(Duration::from_micros(200));
            } else if rng.once_in(64) {
                thread::yield_now();
            }
            for (body, first) in held {
                // The version last: a body that is used again is dead before.
                let (state, version) = (body.state.load(Acquire), body.version.load(Acquire));
                assert!(
                    (state == ALIVE || state == RETIRED) && version == first,
                    "freed under its reader: state {state:#x}, version {first} and then {version} \
                     at look {look}, {:?}, seed {seed:#x}",
                    self.domain
                );
            }
        }
        self.reads.fetch_add(4, Relaxed);
    }

    /// Replaces a node: of a shared link by a swap, of the thread's own link by a plain store.
    fn update(&self, rng: &mut Rng, section: &Section<'_>, number: usize) {
        let new = Owned::new(Node::new(self.updates.fetch_add(1, Relaxed)));
        let (own, shared) = self.links.split_at(LINKS / 2);
        let old = match own.get(number).filter(|_| rng.once_in(2)) {
            Some(link) => {
                let old = link.load(section);
                link.store(new, section);
                old
            }
            None => shared[rng.below(shared.len())].swap(new, section),
        };
        let was = old.as_ref().expect("never null").0.state.swap(RETIRED, SeqCst);
        assert_eq!(was, ALIVE, "unlinked twice, or freed while linked");
        // SAFETY: unlinked by the exchange, or by the store of the link's only writer; no links.
        unsafe { section.retire(old) };
    }

    fn run(&self, seed: u64, number: usize, lifetime: u64) {
        let mut rng = Rng::part(seed, number as u64 + lifetime * 100);
        for _ in 0..2_000 + rng.below(20_000) {
            if self.stop.load(Relaxed) {
                return;
            }
            let mut section = self.domain.enter();
            for _ in 0..1 + rng.below(3) {
                match rng.below(10) {
                    0..=5 => self.read(&mut rng, &section, seed),
                    6..=8 => self.update(&mut rng, &section, number),
                    _ if rng.once_in(50) => section.refresh(),
                    _ => {
                        let inner = self.domain.enter();
                        self.read(&mut rng, &inner, seed);
                    }
                }
            }
            if rng.once_in(2_000) {
                thread::sleep(Duration::from_micros(200)); // a stalled reader
            }
            drop(section);
            match rng.below(500) {
                0 => self.domain.collect(),
                1 => drop(self.domain.backlog(Duration::ZERO)),
                2 => drop(self.domain.quiesced(self.domain.now())),
                3 if rng.once_in(20) => self.domain.synchronize(),
                _ => {}
            }
        }
    }
}

fn torture(name: &str, domain: Domain, share: Duration) {
    let seed = env::seed();
    let field = Field::new(domain);
    let until = Instant::now() + share;
    let threads = thread::available_parallelism().map_or(2, usize::from) + 2;
    thread::scope(|s| {
        for number in 0..threads {
            let field = &field;
            s.spawn(move || {
                let mut lifetime = 0;
                while Instant::now() < until {
                    // Threads come and go, and leave limbo behind.
                    let run = || field.run(seed, number, lifetime);
                    let ended = thread::scope(|inner| inner.spawn(run).join());
                    if let Err(panic) = ended {
                        field.stop.store(true, Relaxed);
                        eprintln!("{name}: seed {seed:#x}");
                        std::panic::resume_unwind(panic);
                    }
                    lifetime += 1;
                }
            });
        }
    });
    let Field { domain, links, reads, updates, .. } = field;
    let (reads, updates) = (reads.into_inner(), updates.into_inner());
    println!("{name}: {reads} reads, {updates} updates, seed {seed:#x}");
    drop(domain);
    for link in links {
        // SAFETY: the threads are gone.
        let node = unsafe { link.into_owned() }.expect("never null").into_inner();
        let state = node.0.state.swap(RETIRED, SeqCst);
        assert_eq!(state, ALIVE, "a linked node was freed, seed {seed:#x}");
    }
}

#[test]
fn nodes_are_never_freed_under_a_reader() {
    let kinds = [
        ("epoch", Domain::builder().mode(Mode::Epoch)),
        ("epoch, batches of 3", Domain::builder().mode(Mode::Epoch).batch_nodes(3)),
        ("bounded", Domain::builder().mode(Mode::Bounded).batch_nodes(64)),
        ("bounded, batches of 3", Domain::builder().mode(Mode::Bounded).batch_nodes(3)),
        ("bounded, fenced", Domain::builder().batch_nodes(5).asymmetric(false)),
        ("bounded, reclaiming", Domain::builder().batch_nodes(8).bound(32)),
        ("clock", Domain::builder().mode(Mode::Clock).batch_nodes(7)),
    ];
    let whole = env::number("MANYCORE_SOAK").map_or(Duration::from_secs(4), Duration::from_secs);
    let share = whole / kinds.len() as u32;
    for (name, builder) in kinds {
        torture(name, builder.build().unwrap(), share);
    }
    assert!(FREED.load(SeqCst) > 1000, "hardly anything was ever freed");
}

/// The test of the test: with the bug in place the oracle must speak.
#[cfg(manycore_seeded_bugs)]
#[test]
fn too_eager_sieve_is_caught() {
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nodes_are_never_freed_under_a_reader", "--nocapture"])
        .env("MANYCORE_SEEDED_BUG", "eager-sieve")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("running 1 test"), "no test ran:\n{said}");
    assert!(!run.status.success(), "a too eager sieve passes:\n{said}");
    assert!(said.contains("freed under its reader"), "another failure:\n{said}");
}
