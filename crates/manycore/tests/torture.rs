//! Sections under torture: readers and reclaimers of every mode at once, with an oracle.
//!
//! Each node has a body that outlives it. The body says *alive* while the node is linked, *retired*
//! once it is unlinked, and *dead* once it is freed. It also carries a version, which changes each
//! time the body is used again. A reader keeps the bodies of the nodes that it found and looks at
//! them again and again. If a body is dead, or its version has changed, the node was freed under
//! its reader. Nodes are retired with their births, so that a bounded domain filters them while
//! readers stall (section.E4).
//!
//! Some links lead to single nodes, others to chains of nodes. Any node of a chain may be unlinked,
//! after its own link was tagged. A reader walks down a chain, keeps the node it stood on, and
//! later walks on from there.
//!
//! `MANYCORE_SOAK=3600` runs it for an hour. `MANYCORE_SEED=0x12ab` repeats the random choices of
//! an earlier run. It prints its seed, then the reads, rounds and frees of each kind of domain, and
//! their sums. Built with `--cfg manycore_seeded_bugs`, it also demands that a filter that frees
//! too eagerly is caught.

mod common;

use common::env;
use common::rng::Rng;
use manycore::section::{Atomic, Domain, Mode, Owned, Section};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;
use std::time::{Duration, Instant};

const ALIVE: u64 = 0x00a1_17e0_00a1_17e0;
const RETIRED: u64 = 0x00de_7a11_00de_7a11;
const DEAD: u64 = 0xdead_dead_dead_dead;

const LINKS: usize = 16;
const CHAINS: usize = 8;
/// Length of a chain from which on its writers begin to remove more often than insert.
const CHAIN_LENGTH: usize = 6;

/// The part of a node that outlives it: the oracle reads it after the node was freed.
struct Body {
    state: AtomicU64,
    /// Another one each time the body is used.
    version: AtomicU64,
}

thread_local! {
    /// Bodies of nodes that this thread freed. They are reused after a while, as an allocator would
    /// reuse memory. Each thread has its own pool, so that threads meet in the domain and nowhere
    /// else.
    static POOL: RefCell<VecDeque<&'static Body>> = const { RefCell::new(VecDeque::new()) };
}
const REUSED_AFTER: usize = 64;

/// The node's value; freeing the node marks the body dead. A single node's link leads nowhere.
struct Node {
    body: &'static Body,
    next: Atomic<Node>,
}

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
        Self { body, next: Atomic::null() }
    }

    /// Returns the state that its reader sees now, to compare with a later look.
    fn look(&self) -> Seen {
        Seen { body: self.body, version: self.body.version.load(Acquire) }
    }

    /// Says that it was unlinked.
    fn unlinked(&self) {
        let was = self.body.state.swap(RETIRED, SeqCst);
        assert_eq!(was, ALIVE, "unlinked twice, or freed while linked");
    }
}

/// A node's body as it was at the first look.
#[derive(Clone, Copy)]
struct Seen {
    body: &'static Body,
    version: u64,
}

impl Drop for Node {
    fn drop(&mut self) {
        let old = self.body.state.swap(DEAD, SeqCst);
        assert_eq!(old, RETIRED, "freed without having been retired, or twice");
        FREED.fetch_add(1, Relaxed);
        let _ = POOL.try_with(|pool| pool.borrow_mut().push_back(self.body));
    }
}

static FREED: AtomicU64 = AtomicU64::new(0);

struct Field {
    domain: Domain,
    links: Vec<Atomic<Node>>,
    chains: Vec<Chain>,
    stop: AtomicBool,
    reads: AtomicU64,
    updates: AtomicU64,
}

/// The heads of a list. Its writers take turns, so only readers meet unlinked nodes.
struct Chain {
    head: Atomic<Node>,
    length: Mutex<usize>,
}

impl Field {
    fn new(domain: Domain) -> Self {
        let links = (0..LINKS).map(|_| Atomic::new(Node::new(0))).collect();
        let chain = || Chain { head: Atomic::null(), length: Mutex::new(0) };
        let chains = (0..CHAINS).map(|_| chain()).collect();
        let (reads, updates) = (AtomicU64::new(0), AtomicU64::new(1));
        Self { domain, links, chains, stop: AtomicBool::new(false), reads, updates }
    }

    fn fresh(&self) -> Owned<Node> {
        Owned::new(Node::new(self.updates.fetch_add(1, Relaxed)))
    }

    /// Looks at some nodes, several times each, and judges what it sees.
    fn read(&self, rng: &mut Rng, section: &Section<'_>, seed: u64) {
        let held: [_; 4] = std::array::from_fn(|_| {
            self.links[rng.below(LINKS)].load(section).as_ref().expect("never null").look()
        });
        let stall = rng.once_in(2_000);
        for look in 0..1 + rng.below(4) {
            linger(rng, stall);
            held.into_iter().for_each(|seen| self.judge(seen, look, seed));
        }
        self.reads.fetch_add(4, Relaxed);
    }

    /// Walks down a chain, lingers, walks on from the node where it stands, which may be unlinked
    /// by then, and judges all that it stood on.
    fn walk(&self, rng: &mut Rng, section: &Section<'_>, seed: u64) {
        let mut next = self.chains[rng.below(CHAINS)].head.load(section).as_ref();
        let mut held = Vec::with_capacity(2 * CHAIN_LENGTH);
        let stall = rng.once_in(2_000);
        while let Some(node) = next {
            held.push(node.look());
            if rng.once_in(4) {
                linger(rng, stall);
                held.iter().for_each(|seen| self.judge(*seen, held.len(), seed));
            }
            if held.len() == 2 * CHAIN_LENGTH {
                break;
            }
            next = node.next.load(section).as_ref(); // none if it is tagged, in a bounded domain
        }
        held.iter().for_each(|seen| self.judge(*seen, held.len(), seed));
        self.reads.fetch_add(held.len() as u64, Relaxed);
    }

    fn judge(&self, seen: Seen, look: usize, seed: u64) {
        // The version last: a body that is used again is dead before.
        let state = seen.body.state.load(Acquire);
        let (version, first) = (seen.body.version.load(Acquire), seen.version);
        assert!(
            (state == ALIVE || state == RETIRED) && version == first,
            "freed under its reader: state {state:#x}, version {first} and then {version} \
             at look {look}, {:?}, seed {seed:#x}",
            self.domain
        );
    }

    /// Replaces a node: of a shared link by a swap, of the thread's own link by a plain store.
    fn update(&self, rng: &mut Rng, section: &Section<'_>, number: usize) {
        let new = self.fresh();
        let (own, shared) = self.links.split_at(LINKS / 2);
        let old = match own.get(number).filter(|_| rng.once_in(2)) {
            Some(link) => {
                let old = link.load(section);
                link.store(new, section);
                old
            }
            None => shared[rng.below(shared.len())].swap(new, section),
        };
        old.as_ref().expect("never null").unlinked();
        // SAFETY: unlinked by the exchange, or by the store of the link's only writer; no links.
        unsafe { section.retire(old) };
    }

    /// Puts a node into a chain, or takes one out of it and sometimes the next one as well.
    fn change(&self, rng: &mut Rng, section: &Section<'_>) {
        let chain = &self.chains[rng.below(CHAINS)];
        let mut length = chain.length.lock().expect("no writer panicked");
        let mut link = &chain.head;
        for _ in 0..rng.below(*length + 1) {
            link = &link.load(section).as_ref().expect("within the chain").next;
        }
        let first = link.load(section);
        if first.is_null() || rng.below(CHAIN_LENGTH) >= *length {
            let new = self.fresh();
            new.next.store(first, section);
            link.store(new, section);
            *length += 1;
            return;
        }
        for _ in 0..1 + rng.below(2) {
            let node = link.load(section);
            let Some(value) = node.as_ref() else { return };
            let after = value.next.load(section);
            value.next.fetch_or(1, section);
            link.store(after, section);
            *length -= 1;
            value.unlinked();
            // SAFETY: unlinked by the store of the chain's only writer; its own link has a tag.
            unsafe { section.retire(node) };
        }
    }

    fn run(&self, seed: u64, number: usize, lifetime: u64) {
        let mut rng = Rng::part(seed, number as u64 + lifetime * 100);
        for _ in 0..2_000 + rng.below(20_000) {
            if self.stop.load(Relaxed) {
                return;
            }
            let mut section = self.domain.enter();
            for _ in 0..1 + rng.below(3) {
                match rng.below(20) {
                    0..=5 => self.read(&mut rng, &section, seed),
                    6..=11 => self.walk(&mut rng, &section, seed),
                    12..=14 => self.update(&mut rng, &section, number),
                    15..=17 => self.change(&mut rng, &section),
                    _ if rng.once_in(50) => section.refresh(),
                    _ => {
                        let inner = self.domain.enter();
                        self.read(&mut rng, &inner, seed);
                        self.walk(&mut rng, &inner, seed);
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

/// Lets other threads run: sometimes briefly, sometimes for long.
fn linger(rng: &mut Rng, stall: bool) {
    if stall {
        thread::sleep(Duration::from_micros(200));
    } else if rng.once_in(64) {
        thread::yield_now();
    }
}

/// Counts of what a run did.
#[derive(Debug, Default)]
struct Tally {
    reads: u64,
    updates: u64,
    rounds: u64,
    freed: u64,
}

fn torture(name: &str, domain: Domain, share: Duration, seed: u64) -> Tally {
    let freed_before = FREED.load(SeqCst);
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
    let Field { domain, links, chains, reads, updates, .. } = field;
    let rounds = rounds_of(&domain);
    drop(domain);
    let heads = chains.into_iter().map(|chain| chain.head);
    links.into_iter().chain(heads).for_each(|link| take_apart(link, seed));
    let freed = FREED.load(SeqCst) - freed_before;
    let tally = Tally { reads: reads.into_inner(), updates: updates.into_inner(), rounds, freed };
    println!("{name}: {tally:?}, seed {seed:#x}");
    tally
}

/// Returns how many rounds were led.
fn rounds_of(domain: &Domain) -> u64 {
    let text = format!("{:?}", domain.now());
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().expect("a moment is a number")
}

/// Frees all nodes that are still linked.
fn take_apart(mut link: Atomic<Node>, seed: u64) {
    // SAFETY: the threads are gone.
    while let Some(node) = unsafe { std::mem::take(&mut link).into_owned() } {
        let mut node = node.into_inner();
        let state = node.body.state.swap(RETIRED, SeqCst);
        assert_eq!(state, ALIVE, "a linked node was freed, seed {seed:#x}");
        link = std::mem::take(&mut node.next);
    }
}

#[test]
fn nodes_are_never_freed_under_a_reader() {
    let bounded = || Domain::builder().mode(Mode::Bounded);
    let kinds = [
        ("epoch", Domain::builder().mode(Mode::Epoch)),
        ("epoch, batches of 3", Domain::builder().mode(Mode::Epoch).batch_nodes(3)),
        ("bounded", bounded().batch_nodes(64)),
        ("bounded, batches of 3", bounded().batch_nodes(3)),
        ("bounded, fenced", bounded().batch_nodes(5).asymmetric(false)),
        ("bounded, reclaiming", bounded().batch_nodes(8).bound(32)),
    ];
    let whole = env::number("MANYCORE_SOAK").map_or(Duration::from_secs(2), Duration::from_secs);
    let share = whole / kinds.len() as u32;
    let seed = env::seed();
    let mut sum = Tally::default();
    for (name, builder) in kinds {
        let done = torture(name, builder.build().unwrap(), share, seed);
        sum.reads += done.reads;
        sum.updates += done.updates;
        sum.rounds += done.rounds;
        sum.freed += done.freed;
    }
    println!(
        "SUMMARY torture: {} s, {} reads, {} updates, {} rounds, {} freed, seed {seed:#x}",
        whole.as_secs(),
        sum.reads,
        sum.updates,
        sum.rounds,
        sum.freed
    );
    assert!(sum.freed > 1000, "hardly anything was ever freed");
}

/// Tests the test: with the bug in place, the oracle must report it.
#[cfg(manycore_seeded_bugs)]
#[test]
fn too_eager_filter_is_caught() {
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "nodes_are_never_freed_under_a_reader", "--nocapture"])
        .env("MANYCORE_SEEDED_BUG", "eager-filter")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("running 1 test"), "no test ran:\n{said}");
    assert!(!run.status.success(), "a too eager filter passes:\n{said}");
    assert!(said.contains("freed under its reader"), "another failure:\n{said}");
}
