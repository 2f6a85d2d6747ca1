//! The library's types.

use manycore::{
    collections::{ActiveSet, BudgetTree, CounterArray, ObjectPool},
    oplog::{Combine, Combining, Deferred, Op},
};

use super::{BUCKETS, Buffer, Handle, LIMIT, OBJECTS, Pairs, USERS, buffer};

/// Transactions that begin at random times.
pub(super) struct Active(ActiveSet<u64>);

impl Pairs for Active {
    type Handle<'a> = &'a ActiveSet<u64>;

    fn new() -> Self {
        Self(ActiveSet::new())
    }

    fn handle(&self, _index: usize) -> &ActiveSet<u64> {
        &self.0
    }
}

impl Handle for &ActiveSet<u64> {
    #[inline]
    fn pair(&mut self, random: u64) {
        drop(self.register(random));
    }

    fn read(&mut self) -> u64 {
        self.oldest().unwrap_or(u64::MAX)
    }
}

/// Users below one limit.
pub(super) struct Budget {
    all: BudgetTree,
    users: Vec<BudgetTree>,
}

impl Pairs for Budget {
    type Handle<'a> = (&'a BudgetTree, &'a BudgetTree);

    fn new() -> Self {
        let all = BudgetTree::new(LIMIT);
        let users = (0..USERS).map(|_| all.child(LIMIT)).collect();
        Self { all, users }
    }

    fn handle(&self, index: usize) -> (&BudgetTree, &BudgetTree) {
        (&self.all, &self.users[index % USERS])
    }
}

impl Handle for (&BudgetTree, &BudgetTree) {
    #[inline]
    fn pair(&mut self, random: u64) {
        drop(self.1.charge(random % 16 + 1).expect("far below the limit"));
    }

    fn read(&mut self) -> u64 {
        self.0.used()
    }
}

/// Buffers.
pub(super) struct Pool(ObjectPool<Buffer>);

impl Pairs for Pool {
    type Handle<'a> = &'a ObjectPool<Buffer>;

    fn new() -> Self {
        Self(ObjectPool::new(OBJECTS, buffer))
    }

    fn handle(&self, _index: usize) -> &ObjectPool<Buffer> {
        &self.0
    }
}

impl Handle for &ObjectPool<Buffer> {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.take().expect("there are more than threads")[0] = random as u8;
    }

    fn read(&mut self) -> u64 {
        self.idle() as u64
    }
}

/// Counts side by side.
pub(super) struct Counters(CounterArray);

impl Pairs for Counters {
    type Handle<'a> = &'a CounterArray;

    fn new() -> Self {
        Self(CounterArray::new(BUCKETS))
    }

    fn handle(&self, _index: usize) -> &CounterArray {
        &self.0
    }
}

impl Handle for &CounterArray {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.add(random as usize % BUCKETS, 1);
    }

    fn read(&mut self) -> u64 {
        self.snapshot().iter().sum::<i64>() as u64
    }
}

/// So many more in a bucket.
pub(super) struct Add(usize, u64);

impl Op<[u64; BUCKETS]> for Add {
    fn apply(self, counts: &mut [u64; BUCKETS]) {
        counts[self.0] += self.1;
    }
}

impl Combine for Add {
    type Key = usize;

    fn key(&self) -> usize {
        self.0
    }

    fn combine(&mut self, other: Self) {
        self.1 += other.1;
    }
}

type Deferring = Deferred<[u64; BUCKETS], Combining<Add>>;

/// Counts whose updates are deferred.
pub(super) struct Combined(Deferring);

impl Pairs for Combined {
    type Handle<'a> = &'a Deferring;

    fn new() -> Self {
        Self(Deferred::new([0; BUCKETS]))
    }

    fn handle(&self, _index: usize) -> &Deferring {
        &self.0
    }
}

impl Handle for &Deferring {
    #[inline]
    fn pair(&mut self, random: u64) {
        self.append(Add(random as usize % BUCKETS, 1));
    }

    fn read(&mut self) -> u64 {
        Deferred::read(self).iter().sum()
    }
}
