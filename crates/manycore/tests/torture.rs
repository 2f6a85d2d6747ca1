//! Sections under torture: readers and reclaimers of every mode at once, with an oracle.
//!
//! A node carries a word that says *alive* while it is linked, *retired* with the moment it was
//! unlinked, and *dead* once it was freed; its memory is then kept and checked, so that a use after
//! free is seen as what it is. A reader notes how old what it saw has become: a linked node is of
//! age 0, one that was unlinked under the section of age 1; anything else is a node that was freed
//! under its reader, or one that was reachable although its grace period was over.
//!
//! `MANYCORE_SOAK=3600` runs it for an hour; `MANYCORE_SEED=0x12ab` repeats the choices of an
//! earlier run. It prints its seed and how many reads it made.

mod common;

use common::env;
use common::rng::Rng;
use manycore::section::{Domain, Mode, Section};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

const ALIVE: u64 = 0x00a1_17e0_00a1_17e0;
const RETIRED: u64 = 0x00de_7a11_00de_7a11;
const DEAD: u64 = 0xdead_dead_dead_dead;

const LINKS: usize = 16;

/// A node whose memory outlives it: the oracle reads it after it was freed.
struct Node {
    state: AtomicU64,
    /// The section counter of the link's writer when it was linked: reads must not go backwards.
    version: AtomicU64,
}

thread_local! {
    /// Nodes that this thread freed, to be used again after a while, as an allocator would. One
    /// pool a thread, so that threads meet in the domain and nowhere else.
    static POOL: RefCell<VecDeque<&'static Node>> = const { RefCell::new(VecDeque::new()) };
}
const REUSED_AFTER: usize = 64;

fn make(version: u64) -> *mut Node {
    let reused = POOL
        .with_borrow_mut(|pool| if pool.len() < REUSED_AFTER { None } else { pool.pop_front() });
    let node = reused.unwrap_or_else(|| {
        Box::leak(Box::new(Node { state: AtomicU64::new(DEAD), version: AtomicU64::new(0) }))
    });
    assert_eq!(node.state.load(SeqCst), DEAD, "a node is in use twice");
    node.version.store(version, Relaxed);
    node.state.store(ALIVE, Release);
    ptr::from_ref(node).cast_mut()
}

unsafe fn kill(address: NonNull<()>) {
    // SAFETY: leaked by `make`, never unmapped.
    let node = unsafe { address.cast::<Node>().as_ref() };
    let old = node.state.swap(DEAD, SeqCst);
    assert_eq!(old, RETIRED, "freed without having been retired, or twice");
    FREED.fetch_add(1, Relaxed);
    POOL.with_borrow_mut(|pool| pool.push_back(node));
}

static FREED: AtomicU64 = AtomicU64::new(0);

struct Field {
    domain: Domain,
    links: Vec<AtomicPtr<Node>>,
    stop: AtomicBool,
    reads: AtomicU64,
    updates: AtomicU64,
}

impl Field {
    fn new(domain: Domain) -> Self {
        let links = (0..LINKS).map(|_| AtomicPtr::new(make(0))).collect();
        let stop = AtomicBool::new(false);
        Self { domain, links, stop, reads: AtomicU64::new(0), updates: AtomicU64::new(0) }
    }

    /// Looks at some nodes, several times each, and judges what it sees.
    fn read(&self, rng: &mut Rng, section: &Section<'_>, seed: u64) {
        let mut held = [None::<&Node>; 4];
        for place in &mut held {
            let node = section.protect(&self.links[rng.below(LINKS)]);
            // SAFETY: nodes are leaked; whether this one may be looked at is what is tested.
            *place = Some(unsafe { &*node });
        }
        for look in 0..1 + rng.below(4) {
            if rng.once_in(64) {
                thread::yield_now();
            }
            for node in held.iter().flatten() {
                let state = node.state.load(Acquire);
                assert!(
                    state == ALIVE || state == RETIRED,
                    "freed under its reader: state {state:#x} at look {look}, {:?}, seed {seed:#x}",
                    self.domain
                );
            }
        }
        self.reads.fetch_add(4, Relaxed);
    }

    /// Replaces a node: of a shared link by a swap, of the thread's own link by a plain store.
    fn update(&self, rng: &mut Rng, section: &Section<'_>, number: usize) {
        let new = make(self.updates.fetch_add(1, Relaxed));
        let (own, shared) = self.links.split_at(LINKS / 2);
        let old = match own.get(number).filter(|_| rng.once_in(2)) {
            Some(link) => {
                let old = link.load(Relaxed);
                link.store(new, Release);
                old
            }
            None => shared[rng.below(shared.len())].swap(new, AcqRel),
        };
        // SAFETY: leaked.
        let was = unsafe { &*old }.state.swap(RETIRED, SeqCst);
        assert_eq!(was, ALIVE, "unlinked twice, or freed while linked");
        let address = NonNull::new(old).unwrap().cast();
        // SAFETY: unlinked by the exchange; freed once; no links.
        unsafe { section.retire_raw(address, size_of::<Node>(), kill) };
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
        // SAFETY: leaked.
        let state = unsafe { &*link.load(SeqCst) }.state.load(SeqCst);
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
