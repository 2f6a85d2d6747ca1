//! A hierarchy of quotas with credits near each thread.
//!
//! Owns: [`BudgetTree`], [`Charge`], and the credits that threads hold. `tree` has what the levels
//! owe each other, under one lock.
//!
//! Laws:
//! - budget.B1 Of every level: taken = charged + taken by children + reserve + credits in the
//!   stocks; and taken is at most the limit, always. So a level never has more charged than its
//!   limit.
//! - budget.B2 A charge takes from the stock of the thread's slot, by an exchange on a line of its
//!   own. The tree's lock is needed when the stock is empty, and when it overflows.
//! - budget.B3 A thread without enough credits takes idle ones: the level's reserve, its
//!   parent, the other threads' stocks, the children's; in this order. A charge is refused only
//!   after all of them.
//! - budget.B4 Surplus credits, because more is released than was charged, end where they would
//!   exceed what a level has taken: there they are dropped, and that `release` reports it. A
//!   charge, the closing of a level, or the drop of a [`Charge`] does not.
//!
//! Source: K42, section 3.2 (page managers that take from and give to each other by levels) and
//! 4.2, whose free lists are not balanced; stealing is ours.

#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod tree;

use self::tree::Tree;
use crate::cluster::{Clustered, Placement, Rep};
use crate::sync::{AtomicU64, Mutex, Ordering, seeded_bug};
use std::fmt;
use std::sync::{Arc, PoisonError};

/// A share of a level's limit that a part of it takes at a time, by default.
const BATCHES: u64 = 64;

/// Credits of one slot. Taken from by its threads and, when credits are short, by others.
struct Stock(AtomicU64);

impl Rep for Stock {
    type Root = ();

    fn create(_root: &(), _place: usize) -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Stock {
    /// Takes so many, if there are.
    #[inline]
    fn take(&self, amount: u64) -> bool {
        // ORDER: Relaxed; credits carry no data. What is charged for has its own order.
        let less = |credits: u64| credits.checked_sub(amount);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Puts so many back, and says how many there are now.
    #[inline]
    fn put(&self, amount: u64) -> u64 {
        // ORDER: Relaxed; as in `take`.
        self.0.fetch_add(amount, Ordering::Relaxed).wrapping_add(amount)
    }

    fn take_all(&self) -> u64 {
        // BUG: a stock of credits is emptied by a load and a store (budget.B1).
        if seeded_bug!("torn-stock") {
            let credits = self.0.load(Ordering::Relaxed);
            self.0.store(0, Ordering::Relaxed);
            return credits;
        }
        // ORDER: Relaxed; as in `take`.
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// One level's stocks.
type Stocks = Clustered<Stock>;

/// A level, as its handles share it.
struct Level {
    number: usize,
    batch: u64,
    stocks: Arc<Stocks>,
    tree: Arc<Mutex<Tree>>,
    /// Keeps the levels above.
    _parent: Option<BudgetTree>,
}

impl Drop for Level {
    fn drop(&mut self) {
        if !crate::sync::model_failed() {
            self.tree.lock().unwrap_or_else(PoisonError::into_inner).close(self.number);
        }
    }
}

/// A quota that many threads charge, perhaps a part of a larger one: memory of a query within that
/// of a user within that of the process.
///
/// What for: limits that must hold exactly, over things that are taken and given back all the time:
/// bytes, pages, connections, tokens. When not: for a count without a limit, a
/// [`Counter`](super::Counter); where a limit may be overshot a little, a number for each thread.
/// Two threads of an EPYC that charge and release make 177 million pairs a second, with an atomic
/// count at each level 29 (`manycore bench budget`).
///
/// Each thread holds some credits at each level that it charges. A charge that they cover touches a
/// line of the thread's own; when they run out, it takes a batch from the level above, under a lock
/// of the whole tree, and when there is none, what lies idle with other threads and lower levels.
///
/// - Consistency: a level never has more charged than its limit, at any moment. A charge is refused
///   if what it needs was idle nowhere when it looked; beside releases by others it may be refused
///   although the last of them made room behind its back.
/// - Progress: blocking, for the tree's lock alone.
/// - Cost: one atomic exchange on a line of the thread's own for a charge that finds credits, one
///   addition there for a release, and no shared line written. One charge in a batch takes the
///   lock, and looks at a line for each thread when credits are short; near a limit that is most of
///   them.
/// - Memory: some 650 bytes for each level, 256 more for every 32 threads of the process once it is
///   charged, and 128 for each thread that charges it.
/// - Panics: [`release`](Self::release) may, if more comes back than was charged; see there.
///   Nothing else does.
/// - Source: K42's page managers, section 3.2.
///
/// ```
/// use manycore::collections::BudgetTree;
///
/// let process = BudgetTree::new(1000);
/// let (ann, bob) = (process.child(800), process.child(800));
/// let charge = ann.charge(700).unwrap();
/// assert!(ann.try_charge(101).is_err()); // over ann's own limit
/// assert!(bob.try_charge(301).is_err()); // over the limit of all
/// drop(charge);
/// bob.try_charge(301).unwrap();
/// assert_eq!((process.used(), ann.used(), bob.used()), (301, 0, 301));
/// ```
#[derive(Clone)]
pub struct BudgetTree {
    level: Arc<Level>,
}

impl BudgetTree {
    /// The top of a tree. Threads take a 64th of the limit at a time.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self::with_batch(limit, limit / BATCHES)
    }

    /// The top of a tree; threads take `batch` at a time. Zero: just what they need.
    #[must_use]
    pub fn with_batch(limit: u64, batch: u64) -> Self {
        let tree = Arc::new(Mutex::new(Tree::default()));
        Self::open(&tree, None, limit, batch)
    }

    /// A level below this one: what it has charged, this one has charged. Several children may have
    /// larger limits than there is for all; then the first charge gets it.
    #[must_use]
    pub fn child(&self, limit: u64) -> Self {
        self.child_with_batch(limit, limit / BATCHES)
    }

    /// A level below this one, with another batch.
    #[must_use]
    pub fn child_with_batch(&self, limit: u64, batch: u64) -> Self {
        Self::open(&self.level.tree, Some(self), limit, batch)
    }

    fn open(tree: &Arc<Mutex<Tree>>, parent: Option<&Self>, limit: u64, batch: u64) -> Self {
        let stocks = Arc::new(Stocks::new(Placement::PerCore, ()));
        let above = parent.map(|parent| parent.level.number);
        let number = tree.lock().unwrap_or_else(PoisonError::into_inner).open(
            above,
            limit,
            batch,
            Arc::clone(&stocks),
        );
        let (tree, parent) = (Arc::clone(tree), parent.cloned());
        Self { level: Arc::new(Level { number, batch, stocks, tree, _parent: parent }) }
    }

    /// Charges so much, here and above. The caller gives it back by [`release`](Self::release).
    ///
    /// # Errors
    /// If a limit is in the way, here or above. Nothing is charged then.
    #[inline]
    pub fn try_charge(&self, amount: u64) -> Result<(), Exceeded> {
        // budget.B2: the stock covers most charges; the tree's lock is for the rest.
        if self.level.stocks.local().take(amount) {
            return Ok(());
        }
        self.charge_slow(amount)
    }

    #[cold]
    fn charge_slow(&self, amount: u64) -> Result<(), Exceeded> {
        let spare = {
            let mut tree = self.level.tree.lock().unwrap_or_else(PoisonError::into_inner);
            tree.grant(self.level.number, amount).map_err(|()| Exceeded { amount })?;
            tree.spare(self.level.number)
        };
        if spare > 0 {
            self.level.stocks.local().put(spare);
        }
        Ok(())
    }

    /// Charges so much for as long as the answer lives.
    ///
    /// # Errors
    /// As [`try_charge`](Self::try_charge).
    pub fn charge(&self, amount: u64) -> Result<Charge, Exceeded> {
        self.try_charge(amount)?;
        Ok(Charge { budget: self.clone(), amount })
    }

    /// Gives back what was charged before, in this thread or another.
    ///
    /// To give back more than was charged is a mistake that makes limits higher than they are until
    /// it is noticed.
    ///
    /// # Panics
    /// If it is noticed by this call: if it brings credits to the level above that it never gave.
    /// They are forgotten, and the limit holds again.
    #[inline]
    pub fn release(&self, amount: u64) {
        let surplus = self.give_back(amount);
        assert!(
            surplus == 0,
            "manycore: {surplus} more was released to a BudgetTree than was charged to it; its \
             limits were too high by so much"
        );
    }

    /// Gives back, and says how much of it (or of what others gave back) was never charged.
    #[inline]
    fn give_back(&self, amount: u64) -> u64 {
        let stock = self.level.stocks.local();
        if stock.put(amount) > self.level.batch.saturating_mul(2) {
            self.give_back_slow(stock)
        } else {
            0
        }
    }

    /// Keeps a batch and gives the rest to the level.
    #[cold]
    fn give_back_slow(&self, stock: &Stock) -> u64 {
        let all = stock.take_all();
        let kept = all.min(self.level.batch);
        stock.put(kept);
        let mut tree = self.level.tree.lock().unwrap_or_else(PoisonError::into_inner);
        tree.give_back(self.level.number, all - kept)
    }

    /// How much is charged here and below. Beside charges and releases, an estimate.
    ///
    /// Cost: the tree's lock, and a cache miss for each thread at each level below.
    pub fn used(&self) -> u64 {
        self.level.tree.lock().unwrap_or_else(PoisonError::into_inner).used(self.level.number)
    }

    /// The most that may be charged here and below.
    pub fn limit(&self) -> u64 {
        self.level.tree.lock().unwrap_or_else(PoisonError::into_inner).limit(self.level.number)
    }
}

impl fmt::Debug for BudgetTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, limit) = (self.used(), self.limit());
        f.debug_struct("BudgetTree").field("used", &used).field("limit", &limit).finish()
    }
}

/// Something charged to a [`BudgetTree`]; dropping it gives it back.
#[must_use = "what is charged is given back when this is dropped"]
#[derive(Debug)]
pub struct Charge {
    budget: BudgetTree,
    amount: u64,
}

impl Charge {
    /// How much.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Changes how much.
    ///
    /// # Errors
    /// If it is more, and a limit is in the way. Then nothing changes.
    pub fn resize(&mut self, amount: u64) -> Result<(), Exceeded> {
        match amount.checked_sub(self.amount) {
            Some(more) => self.budget.try_charge(more)?,
            None => drop(self.budget.give_back(self.amount - amount)),
        }
        self.amount = amount;
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.amount);
    }
}

/// A charge would pass a limit, here or above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// How much was asked for.
    pub amount: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "less than {} is left of the budget", self.amount)
    }
}

impl std::error::Error for Exceeded {}
