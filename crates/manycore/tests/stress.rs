//! Everything at once, with an oracle: objects of every kind, threads that start and end,
//! promotion, demotion, eviction, bounded logs, updates that panic.
//!
//! These must always hold: nothing is lost, nothing counts twice, and the updates of one producer
//! keep their order. A thread that has updated an object sees the update in its next read. The
//! statistics add up.
//!
//! `MANYCORE_STRESS_SECONDS=60` (or `MANYCORE_SOAK`) sets how long it runs. `MANYCORE_SEED=0x12ab`
//! repeats the random choices of an earlier run, per world number. It prints its seed first, and at
//! the end a line that sums up what was done.

mod common;

use common::env;
use common::kinds::{Add, Set, SumLog, Toggle};
use common::rng::Rng;
use manycore::oplog::*;
use std::collections::HashMap;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The numbers that each producer has written to a journal: the next must follow the last.
#[derive(Debug, Default)]
struct Journal {
    last: HashMap<u32, u32>,
    entries: u64,
}

/// An entry of a journal, or an update that panics instead.
#[derive(Debug, Clone, Copy)]
struct Write {
    producer: u32,
    number: u32,
    panics: bool,
}

const PLANNED: &str = "planned";

impl Op<Journal> for Write {
    fn apply(self, journal: &mut Journal) {
        if self.panics {
            std::panic::panic_any(PLANNED);
        }
        let last = journal.last.entry(self.producer).or_default();
        assert_eq!(*last + 1, self.number, "order of producer {}", self.producer);
        *last = self.number;
        journal.entries += 1;
    }
}

type Ordinary = Deferred<Journal, Ordered<Write>>;

/// Returns every configuration that an object may have here.
fn builder<T: Send + 'static, L: Log<T>>(rng: &mut Rng, tiny: &Arc<LogTable>) -> Builder<T, L> {
    let mut builder = Deferred::builder()
        .logs(*rng.pick(&[Logs::Always, Logs::Always, Logs::Auto]))
        .publish(*rng.pick(&[Publish::Auto, Publish::Biased, Publish::Locked]))
        .max_entries(*rng.pick(&[2, 100, 4096]))
        .growth(*rng.pick(&[1, 4]));
    if rng.once_in(2) {
        builder = builder.table(Arc::clone(tiny));
    }
    if rng.once_in(4) {
        builder = builder.max_delay(Duration::from_micros(50));
    }
    builder
}

/// An object, and what the test knows of it.
struct Watched<T: Send + 'static, L: Log<T>> {
    object: Deferred<T, L>,
    /// Sum of the updates that have returned.
    done: AtomicU64,
}

impl<T: Send + Default + 'static, L: Log<T>> Watched<T, L> {
    fn new(rng: &mut Rng, tiny: &Arc<LogTable>) -> Self {
        let object = builder(rng, tiny).build(T::default()).expect("bounds that can work");
        Self { object, done: AtomicU64::new(0) }
    }

    fn disturb(&self, rng: &mut Rng) {
        match rng.below(6) {
            0 => drop(self.object.promote()),
            1 => self.object.demote(),
            2 => self.object.synchronize(),
            3 => drop(self.object.try_read()),
            _ => {
                let stats = self.object.stats();
                let sum = stats.absorbed + stats.applied + stats.pending;
                assert_eq!(stats.appended, sum, "{stats:?}");
            }
        }
    }
}

/// State that all workers share.
struct World {
    journals: Vec<Watched<Journal, Ordered<Write>>>,
    commuting: Vec<Watched<u64, Commuting<Add>>>,
    combining: Vec<Watched<u64, Combining<Add>>>,
    own: Vec<Watched<u64, SumLog>>,
    cancelling: Vec<Watched<Set, Cancelling<Toggle>>>,
    /// One worker inserts, and another removes.
    handed_over: Vec<Watched<Set, Cancelling<Toggle>>>,
    /// Updates of these may panic; the oracle counts those that do not.
    fragile: Vec<Watched<Journal, Ordered<Write>>>,
    /// A full log of this one waits for a reader: the main thread reads it.
    patient: Deferred<u64, Commuting<Add>>,
    patient_done: AtomicU64,
    /// Elements that one worker has inserted and another is to remove: object and key.
    orphans: Mutex<Vec<(usize, u8)>>,
    producers: AtomicUsize,
    table: Arc<LogTable>,
}

const EACH: usize = 2;

impl World {
    fn new(rng: &mut Rng) -> Self {
        let table = Arc::new(LogTable::new(2));
        macro_rules! some {
            () => {
                (0..EACH).map(|_| Watched::new(rng, &table)).collect()
            };
        }
        Self {
            journals: some!(),
            commuting: some!(),
            combining: some!(),
            own: some!(),
            cancelling: some!(),
            handed_over: some!(),
            fragile: some!(),
            patient: Deferred::builder()
                .logs(Logs::Always)
                .max_entries(50)
                .growth(1)
                .build(0)
                .expect("bounds that can work"),
            patient_done: AtomicU64::new(0),
            orphans: Mutex::default(),
            producers: AtomicUsize::new(1),
            table,
        }
    }
}

/// One worker's life: some hundred operations, each checked as far as one thread can.
struct Worker<'a> {
    world: &'a World,
    rng: Rng,
    producer: u32,
    /// The last number that this producer has written, per journal.
    written: [u32; EACH],
    /// The same numbers for the journals with updates that may panic.
    dared: [u32; EACH],
    /// The largest sums seen.
    seen: [u64; EACH],
    /// Elements of the cancelling sets that are this worker's and present.
    mine: [[bool; 4]; EACH],
    /// Reads and updates that it made.
    done: (u64, u64),
}

/// Totals of the workers that have ended.
static READS: AtomicU64 = AtomicU64::new(0);
static UPDATES: AtomicU64 = AtomicU64::new(0);

impl<'a> Worker<'a> {
    fn new(world: &'a World, rng: Rng) -> Self {
        let producer = world.producers.fetch_add(1, SeqCst) as u32;
        let (written, dared, seen) = ([0; EACH], [0; EACH], [0; EACH]);
        let mine = [[false; 4]; EACH];
        Self { world, rng, producer, written, dared, seen, mine, done: (0, 0) }
    }

    fn live(mut self, until: Instant) {
        for _ in 0..50 + self.rng.below(400) {
            if Instant::now() > until {
                break;
            }
            match self.rng.below(8) {
                0 => self.write(),
                1 => self.add(),
                2 => self.toggle(),
                3 => self.hand_over(),
                4 => self.dare(),
                5 => self.wait_patiently(),
                6 => self.disturb(),
                _ => self.look(),
            }
        }
        // Elements of its own end with the worker, so that others may use them.
        for object in 0..EACH {
            for slot in 0..4 {
                if self.mine[object][slot] {
                    self.toggle_own(object, slot);
                }
            }
        }
        READS.fetch_add(self.done.0, SeqCst);
        UPDATES.fetch_add(self.done.1, SeqCst);
    }

    fn write(&mut self) {
        let which = self.rng.below(EACH);
        for _ in 0..1 + self.rng.below(20) {
            self.written[which] += 1;
            let (producer, number) = (self.producer, self.written[which]);
            let journal = &self.world.journals[which];
            journal.object.append(Write { producer, number, panics: false });
            journal.done.fetch_add(1, SeqCst);
            self.done.1 += 1;
        }
    }

    fn add(&mut self) {
        let which = self.rng.below(EACH);
        let amount = 1 + self.rng.below(1000) as u64;
        macro_rules! to {
            ($kind:ident) => {{
                self.world.$kind[which].object.append(Add(amount));
                self.world.$kind[which].done.fetch_add(amount, SeqCst);
            }};
        }
        for _ in 0..1 + self.rng.below(20) {
            match self.rng.below(3) {
                0 => to!(commuting),
                1 => to!(combining),
                _ => to!(own),
            }
            self.done.1 += 1;
        }
    }

    /// Elements of one worker: only it inserts and removes them, so they alternate.
    fn toggle(&mut self) {
        let (which, slot) = (self.rng.below(EACH), self.rng.below(4));
        self.toggle_own(which, slot);
        if self.rng.once_in(4) {
            let set = &self.world.cancelling[which].object;
            self.done.0 += 1;
            let present = self.mine[which][slot];
            let count = set.read().get(&self.key(slot)).copied().unwrap_or_default();
            // Workers share keys when they are many; each present element counts one.
            assert!(count >= i8::from(present), "an insert is missing: {count}");
        }
    }

    fn key(&self, slot: usize) -> u8 {
        (self.producer as usize * 4 + slot) as u8
    }

    fn toggle_own(&mut self, which: usize, slot: usize) {
        let insert = !self.mine[which][slot];
        self.mine[which][slot] = insert;
        self.done.1 += 1;
        let key = self.key(slot);
        self.world.cancelling[which].object.append(Toggle { key, insert });
    }

    /// Inserts an element that another thread will remove, or removes another thread's element.
    fn hand_over(&mut self) {
        let orphans = || self.world.orphans.lock().expect("no thread panics under it");
        let found = orphans().pop();
        if let Some((which, key)) = found {
            self.world.handed_over[which].object.append(Toggle { key, insert: false });
            self.done.1 += 1;
        }
        self.done.1 += 1;
        let which = self.rng.below(EACH);
        let key = self.rng.next() as u8;
        self.world.handed_over[which].object.append(Toggle { key, insert: true });
        orphans().push((which, key));
    }

    /// Writes to a journal with updates that may panic, and repairs the effects.
    fn dare(&mut self) {
        let which = self.rng.below(EACH);
        let fragile = &self.world.fragile[which];
        let panics = self.rng.once_in(10);
        self.done.1 += 1;
        let (producer, number) = (self.producer, self.dared[which] + 1);
        let append = || fragile.object.append(Write { producer, number, panics });
        // The panic of this update, or of an earlier update that this thread applies to make room,
        // or no panic. A cold object applies at once, and then a panic means that this update was
        // tried.
        let outcome = catch_unwind(AssertUnwindSafe(append));
        if let Err(panic) = &outcome {
            assert_planned(panic.as_ref());
        }
        fragile.object.clear_poison();
        if !panics {
            let kept = outcome.is_ok() || self.is_written(which, number);
            self.dared[which] += u32::from(kept);
            fragile.done.fetch_add(u64::from(kept), SeqCst);
        }
    }

    /// Whether the fragile journal has this producer's entry.
    fn is_written(&self, which: usize, number: u32) -> bool {
        self.mended_read(which, |journal| journal.last.get(&self.producer) == Some(&number))
    }

    /// Reads a fragile journal, and clears poison until that works.
    fn mended_read<R>(&self, which: usize, look: impl Fn(&Journal) -> R) -> R {
        let object = &self.world.fragile[which].object;
        loop {
            match catch_unwind(AssertUnwindSafe(|| look(&object.read()))) {
                Ok(result) => return result,
                Err(panic) => assert_planned_or_poisoned(panic.as_ref()),
            }
            object.clear_poison();
        }
    }

    fn wait_patiently(&mut self) {
        for _ in 0..self.rng.below(10) {
            self.world.patient.append(Add(1));
            self.world.patient_done.fetch_add(1, SeqCst);
            self.done.1 += 1;
        }
    }

    fn disturb(&mut self) {
        let which = self.rng.below(EACH);
        let (world, rng) = (self.world, &mut self.rng);
        match rng.below(6) {
            0 => world.journals[which].disturb(rng),
            1 => world.commuting[which].disturb(rng),
            2 => world.combining[which].disturb(rng),
            3 => world.own[which].disturb(rng),
            4 => world.cancelling[which].disturb(rng),
            _ => world.handed_over[which].disturb(rng),
        }
    }

    /// Reads an object: updates that have returned must be there, and later reads see no less.
    fn look(&mut self) {
        let which = self.rng.below(EACH);
        self.done.0 += 3;
        let world = self.world;
        let done = world.journals[which].done.load(SeqCst);
        let journal = world.journals[which].object.read();
        assert!(journal.entries >= done, "entries were lost: {} of {done}", journal.entries);
        let own = journal.last.get(&self.producer).copied().unwrap_or_default();
        assert_eq!(own, self.written[which], "what this thread wrote is not what is there");
        drop(journal);

        let done = world.commuting[which].done.load(SeqCst);
        let sum = *world.commuting[which].object.read();
        assert!(sum >= done.max(self.seen[which]), "a sum went back");
        self.seen[which] = sum;

        let entries = self.mended_read(which, |journal| {
            journal.last.get(&self.producer).copied().unwrap_or_default()
        });
        assert_eq!(entries, self.dared[which], "the fragile journal");
    }
}

fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let string = panic.downcast_ref::<String>().map(String::as_str);
    string.or(panic.downcast_ref::<&str>().copied()).unwrap_or("something else")
}

fn assert_planned(panic: &(dyn std::any::Any + Send)) {
    assert_eq!(text(panic), PLANNED);
}

fn assert_planned_or_poisoned(panic: &(dyn std::any::Any + Send)) {
    let text = text(panic);
    assert!(text == PLANNED || text.contains("is poisoned"), "{text}");
}

/// Keeps the planned panics out of the output.
fn hide_planned_panics() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let text = text(info.payload());
        if text != PLANNED && !text.contains("is poisoned") {
            default(info);
        }
    }));
}

/// Prints how to repeat a run that panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("MANYCORE_SEED={:#x} makes the same choices", self.0);
        }
    }
}

const AT_ONCE: usize = 6;

/// Starts and ends workers until the time is up. Returns how many there were.
fn populate(world: &World, seed: u64, until: Instant) -> u64 {
    let (ended, endings) = mpsc::channel();
    thread::scope(|scope| {
        let mut born = 0;
        let mut alive = 0;
        loop {
            while alive < AT_ONCE && Instant::now() < until {
                let (rng, ended) = (Rng::part(seed, born), ended.clone());
                born += 1;
                alive += 1;
                scope.spawn(move || {
                    let life = AssertUnwindSafe(|| Worker::new(world, rng).live(until));
                    let result = catch_unwind(life);
                    ended.send(result).expect("the main thread waits for every worker");
                });
            }
            if alive == 0 {
                return born;
            }
            world.patient.synchronize(); // a thread may wait for room
            while let Ok(result) = endings.recv_timeout(Duration::from_millis(1)) {
                alive -= 1;
                if let Err(panic) = result {
                    // Others may wait for what that worker would have done: end at once. What
                    // `eprintln` captures would be lost with the process, and an exit in order
                    // would report everything that is in use as leaked.
                    let said = text(panic.as_ref());
                    let seed = format_args!("MANYCORE_SEED={seed:#x} makes the same choices");
                    let _ = writeln!(std::io::stderr(), "{seed}\na worker panicked: {said}");
                    std::process::abort();
                }
            }
        }
    })
}

/// The oracle: demands that every object holds exactly what was done to it.
fn settle(world: World) -> u64 {
    let mut updates = 0;
    for (which, journal) in world.journals.into_iter().enumerate() {
        let done = journal.done.into_inner();
        assert_eq!(journal.object.into_inner().entries, done, "journal {which}");
        updates += done;
    }
    macro_rules! sums {
        ($($kind:ident),*) => {$(
            for sum in world.$kind {
                assert_eq!(sum.object.into_inner(), sum.done.into_inner(), stringify!($kind));
            }
        )*};
    }
    sums!(commuting, combining, own);
    for (which, set) in world.cancelling.into_iter().enumerate() {
        assert_eq!(set.object.into_inner(), Set::new(), "cancelling {which}");
    }
    let mut left: [Set; EACH] = Default::default();
    for (which, key) in world.orphans.into_inner().expect("no thread panicked under it") {
        Toggle { key, insert: true }.apply(&mut left[which]);
    }
    for (set, left) in world.handed_over.into_iter().zip(left) {
        assert_eq!(set.object.into_inner(), left);
    }
    for (which, fragile) in world.fragile.into_iter().enumerate() {
        let done = fragile.done.into_inner();
        drained(&fragile.object);
        assert_eq!(fragile.object.into_inner().entries, done, "fragile {which}");
    }
    assert_eq!(world.patient.into_inner(), world.patient_done.into_inner());
    updates
}

/// Applies all updates that are left, however many of them panic.
fn drained(object: &Ordinary) {
    while catch_unwind(AssertUnwindSafe(|| object.synchronize())).is_err() {
        object.clear_poison();
    }
}

#[test]
fn everything_at_once_keeps_every_update() {
    hide_planned_panics();
    let seed = env::seed();
    let _seed = Seed(seed);
    let seconds = env::number("MANYCORE_STRESS_SECONDS").or_else(|| env::number("MANYCORE_SOAK"));
    let until = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
    println!("stress: seed {seed:#x}");
    let begin = Instant::now();
    let (mut worlds, mut workers, mut entries, mut evictions) = (0, 0, 0, 0);
    while Instant::now() < until {
        let seed = seed ^ worlds;
        let world = World::new(&mut Rng::new(seed));
        let table = Arc::clone(&world.table);
        workers += populate(&world, seed, until.min(Instant::now() + Duration::from_secs(1)));
        entries += settle(world);
        evictions += table.evictions();
        worlds += 1;
    }
    println!(
        "SUMMARY stress: {} s, {} reads, {} updates ({entries} in journals), {worlds} worlds, \
         {workers} threads, {evictions} evictions, seed {seed:#x}",
        begin.elapsed().as_secs(),
        READS.load(SeqCst),
        UPDATES.load(SeqCst)
    );
}
