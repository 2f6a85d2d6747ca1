//! The same types, as they are commonly made.

use std::{
    collections::BTreeMap,
    hint::black_box,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crossbeam_queue::ArrayQueue;
use crossbeam_skiplist::SkipMap;
use crossbeam_utils::CachePadded;

use super::{BUCKETS, Buffer, Handle, LIMIT, OBJECTS, Pairs, USERS, buffer};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many have begun with each key.
type Starts = BTreeMap<u64, u64>;

fn register(starts: &mut Starts, key: u64) {
    *starts.entry(key).or_default() += 1;
}

fn leave(starts: &mut Starts, key: u64) {
    if let Some(count) = starts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            starts.remove(&key);
        }
    }
}

fn oldest(starts: &Starts) -> u64 {
    starts.first_key_value().map_or(u64::MAX, |(key, _)| *key)
}

/// The baseline: locked once by the only thread that uses it.
pub(super) struct Unshared(Mutex<Starts>);

impl Pairs for Unshared {
    type Handle<'a> = MutexGuard<'a, Starts>;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, _index: usize) -> MutexGuard<'_, Starts> {
        locked(&self.0)
    }
}

impl Handle for MutexGuard<'_, Starts> {
    #[inline]
    fn pair(&mut self, random: u64) {
        register(self, random);
        leave(self, black_box(random));
    }

    fn read(&mut self) -> u64 {
        oldest(self)
    }
}

/// One lock for all.
pub(super) struct Mutexed(Mutex<Starts>);

impl Pairs for Mutexed {
    type Handle<'a> = &'a Self;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, _index: usize) -> &Self {
        self
    }
}

impl Handle for &Mutexed {
    #[inline]
    fn pair(&mut self, random: u64) {
        register(&mut locked(&self.0), random);
        leave(&mut locked(&self.0), black_box(random));
    }

    fn read(&mut self) -> u64 {
        oldest(&locked(&self.0))
    }
}

/// Keys with the thread's number behind, so that no two threads have the same.
pub(super) struct SkipList(SkipMap<(u64, usize), ()>);

impl Pairs for SkipList {
    type Handle<'a> = (&'a SkipMap<(u64, usize), ()>, usize);

    fn new() -> Self {
        Self(SkipMap::new())
    }

    fn handle(&self, index: usize) -> Self::Handle<'_> {
        (&self.0, index)
    }
}

impl Handle for (&SkipMap<(u64, usize), ()>, usize) {
    #[inline]
    fn pair(&mut self, random: u64) {
        let entry = self.0.insert((random, self.1), ());
        entry.remove();
    }

    fn read(&mut self) -> u64 {
        self.0.front().map_or(u64::MAX, |entry| entry.key().0)
    }
}

/// What databases do: each connection has a fixed slot, in which it says when it began.
pub(super) struct Board(Box<[CachePadded<AtomicU64>]>);

impl Pairs for Board {
    type Handle<'a> = (&'a Self, &'a AtomicU64);

    const THREADS_MAX: usize = 64;

    fn new() -> Self {
        Self((0..Self::THREADS_MAX).map(|_| CachePadded::new(AtomicU64::new(u64::MAX))).collect())
    }

    fn handle(&self, index: usize) -> Self::Handle<'_> {
        (self, &self.0[index])
    }
}

impl Handle for (&Board, &AtomicU64) {
    #[inline]
    fn pair(&mut self, random: u64) {
        // ORDER: SeqCst; a transaction reads only after it can be seen.
        self.1.swap(random, Ordering::SeqCst);
        // ORDER: Release; pairs with Acquire in `read`.
        self.1.store(u64::MAX, Ordering::Release);
    }

    fn read(&mut self) -> u64 {
        // ORDER: Acquire; pairs with Release in `pair`.
        let began = |slot: &CachePadded<AtomicU64>| slot.load(Ordering::Acquire);
        self.0.0.iter().map(began).min().unwrap_or(u64::MAX)
    }
}

/// Adds `amount` to `used`, and takes it back if that is above the limit, as Linux's page counters
/// do.
#[inline]
fn charge(used: &AtomicU64, amount: u64) -> bool {
    // ORDER: Relaxed (both); a number.
    let fits = used.fetch_add(amount, Ordering::Relaxed) + amount <= LIMIT;
    if !fits {
        used.fetch_sub(amount, Ordering::Relaxed);
    }
    fits
}

/// Counts on lines of their own.
pub(super) struct Atomics {
    all: CachePadded<AtomicU64>,
    users: [CachePadded<AtomicU64>; USERS],
}

impl Pairs for Atomics {
    type Handle<'a> = (&'a AtomicU64, &'a CachePadded<AtomicU64>);

    fn new() -> Self {
        Self { all: CachePadded::default(), users: Default::default() }
    }

    fn handle(&self, index: usize) -> Self::Handle<'_> {
        (&self.all, &self.users[index % USERS])
    }
}

impl Handle for (&AtomicU64, &CachePadded<AtomicU64>) {
    #[inline]
    fn pair(&mut self, random: u64) {
        let amount = random % 16 + 1;
        assert!(charge(self.1, amount) && charge(self.0, amount), "far below the limit");
        // ORDER: Relaxed (both); a number.
        self.0.fetch_sub(black_box(amount), Ordering::Relaxed);
        self.1.fetch_sub(amount, Ordering::Relaxed);
    }

    fn read(&mut self) -> u64 {
        // ORDER: Relaxed; a number.
        self.0.load(Ordering::Relaxed)
    }
}

/// What all use, and each user.
#[derive(Default)]
pub(super) struct Used {
    all: u64,
    users: [u64; USERS],
}

impl Used {
    fn charge(&mut self, user: usize, amount: u64) {
        assert!(self.all + amount <= LIMIT && self.users[user] + amount <= LIMIT, "far below it");
        self.all += amount;
        self.users[user] += amount;
    }

    fn release(&mut self, user: usize, amount: u64) {
        self.all -= amount;
        self.users[user] -= amount;
    }
}

/// The baseline of budgets.
pub(super) struct OwnAccounts(Mutex<Used>);

impl Pairs for OwnAccounts {
    type Handle<'a> = (MutexGuard<'a, Used>, usize);

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, index: usize) -> Self::Handle<'_> {
        (locked(&self.0), index % USERS)
    }
}

impl Handle for (MutexGuard<'_, Used>, usize) {
    #[inline]
    fn pair(&mut self, random: u64) {
        let amount = random % 16 + 1;
        self.0.charge(self.1, amount);
        self.0.release(self.1, black_box(amount));
    }

    fn read(&mut self) -> u64 {
        self.0.all
    }
}

/// One lock for all counts.
pub(super) struct Accounts(Mutex<Used>);

impl Pairs for Accounts {
    type Handle<'a> = (&'a Self, usize);

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, index: usize) -> (&Self, usize) {
        (self, index % USERS)
    }
}

impl Handle for (&Accounts, usize) {
    #[inline]
    fn pair(&mut self, random: u64) {
        let amount = random % 16 + 1;
        locked(&self.0.0).charge(self.1, amount);
        locked(&self.0.0).release(self.1, black_box(amount));
    }

    fn read(&mut self) -> u64 {
        locked(&self.0.0).all
    }
}

/// The baseline of pools.
pub(super) struct OwnStack(Mutex<Vec<Buffer>>);

impl Pairs for OwnStack {
    type Handle<'a> = MutexGuard<'a, Vec<Buffer>>;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, _index: usize) -> Self::Handle<'_> {
        locked(&self.0)
    }
}

impl Handle for MutexGuard<'_, Vec<Buffer>> {
    #[inline]
    fn pair(&mut self, random: u64) {
        let mut taken = self.pop().unwrap_or_else(buffer);
        taken[0] = random as u8;
        self.push(black_box(taken));
    }

    fn read(&mut self) -> u64 {
        self.len() as u64
    }
}

/// Buffers on one stack.
pub(super) struct Stack(Mutex<Vec<Buffer>>);

impl Pairs for Stack {
    type Handle<'a> = &'a Self;

    fn new() -> Self {
        Self(Mutex::default())
    }

    fn handle(&self, _index: usize) -> &Self {
        self
    }
}

impl Handle for &Stack {
    #[inline]
    fn pair(&mut self, random: u64) {
        let taken = locked(&self.0).pop();
        let mut taken = taken.unwrap_or_else(buffer);
        taken[0] = random as u8;
        locked(&self.0).push(taken);
    }

    fn read(&mut self) -> u64 {
        locked(&self.0).len() as u64
    }
}

/// Buffers in a queue without a lock.
pub(super) struct Ring(ArrayQueue<Buffer>);

impl Pairs for Ring {
    type Handle<'a> = &'a ArrayQueue<Buffer>;

    fn new() -> Self {
        Self(ArrayQueue::new(OBJECTS))
    }

    fn handle(&self, _index: usize) -> &ArrayQueue<Buffer> {
        &self.0
    }
}

impl Handle for &ArrayQueue<Buffer> {
    #[inline]
    fn pair(&mut self, random: u64) {
        let mut taken = self.pop().unwrap_or_else(buffer);
        taken[0] = random as u8;
        self.push(taken).expect("there are fewer than it holds");
    }

    fn read(&mut self) -> u64 {
        self.len() as u64
    }
}

/// The allocator.
pub(super) struct Fresh;

impl Pairs for Fresh {
    type Handle<'a> = Self;

    fn new() -> Self {
        Self
    }

    fn handle(&self, _index: usize) -> Self {
        Self
    }
}

impl Handle for Fresh {
    #[inline]
    fn pair(&mut self, random: u64) {
        let mut taken = buffer();
        taken[0] = random as u8;
        black_box(taken);
    }

    fn read(&mut self) -> u64 {
        1
    }
}

type Counts = [u64; BUCKETS];

/// The baseline of histograms.
pub(super) struct Plain(Mutex<Counts>);

impl Pairs for Plain {
    type Handle<'a> = MutexGuard<'a, Counts>;

    fn new() -> Self {
        Self(Mutex::new([0; BUCKETS]))
    }

    fn handle(&self, _index: usize) -> MutexGuard<'_, Counts> {
        locked(&self.0)
    }
}

impl Handle for MutexGuard<'_, Counts> {
    #[inline]
    fn pair(&mut self, random: u64) {
        self[random as usize % BUCKETS] += 1;
    }

    fn read(&mut self) -> u64 {
        self.iter().sum()
    }
}

/// One lock for all buckets.
pub(super) struct Locked(Mutex<Counts>);

impl Pairs for Locked {
    type Handle<'a> = &'a Self;

    fn new() -> Self {
        Self(Mutex::new([0; BUCKETS]))
    }

    fn handle(&self, _index: usize) -> &Self {
        self
    }
}

impl Handle for &Locked {
    #[inline]
    fn pair(&mut self, random: u64) {
        locked(&self.0)[random as usize % BUCKETS] += 1;
    }

    fn read(&mut self) -> u64 {
        locked(&self.0).iter().sum()
    }
}

macro_rules! buckets {
    ($(#[$doc:meta])* $Name:ident, $Bucket:ty) => {
        $(#[$doc])*
        pub(super) struct $Name(Box<[$Bucket]>);

        impl Pairs for $Name {
            type Handle<'a> = &'a Self;

            fn new() -> Self {
                Self((0..BUCKETS).map(|_| <$Bucket>::default()).collect())
            }

            fn handle(&self, _index: usize) -> &Self {
                self
            }
        }

        impl Handle for &$Name {
            #[inline]
            fn pair(&mut self, random: u64) {
                // ORDER: Relaxed; a number.
                self.0[random as usize % BUCKETS].fetch_add(1, Ordering::Relaxed);
            }

            fn read(&mut self) -> u64 {
                // ORDER: Relaxed; numbers.
                self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
            }
        }
    };
}

buckets!(
    /// Eight buckets share a line.
    Shared,
    AtomicU64
);
buckets!(
    /// Each bucket has a line, or two.
    Padded,
    CachePadded<AtomicU64>
);
