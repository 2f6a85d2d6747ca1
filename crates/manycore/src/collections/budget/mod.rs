//! A hierarchy of quotas with credits near each thread.
//!
//! Owns: [`BudgetTree`], [`Charge`], and the credits that threads hold. `tree` has what the levels
//! owe each other, under one lock.
//!
//! ```text
//! process   limit | charged | reserve | stocks of threads | taken by: ann, bob
//!              /                 \            one tree, one lock
//! ann       limit | ...        bob   limit | ...
//!              ^ a charge takes from the stock of its thread's slot; if that is empty, from
//!                the reserve, the parent, other threads' stocks and the children, in this order
//! ```
//!
//! Laws:
//! - budget.B1 For every level: taken = charged + taken by children + reserve + credits in the
//!   stocks. Taken never exceeds the limit. So a level never has more charged than its limit.
//! - budget.B2 A charge takes from the stock of the thread's slot, by an exchange on a line of its
//!   own. It needs the tree's lock when the stock is empty; a release needs it when the stock
//!   overflows.
//! - budget.B3 A thread without enough credits takes idle ones: from the level's reserve, its
//!   parent, the other threads' stocks, the children; in this order. A charge is refused only after
//!   all of them.
//! - budget.B4 If more is released than was charged, the surplus credits end at the level where
//!   they would exceed what it has taken. They are dropped there, and that `release` reports it. A
//!   charge, the closing of a level, or the drop of a [`Charge`] does not report it.
//! - budget.B5 A limit may be set below what is taken. Until enough came back, no charge at or
//!   below that level takes credits from the tree, and what is released there goes up at once
//!   instead of into a stock. So budget.B1's bound holds with the larger of the two.
//! - budget.B6 Users are asked only if idle credits do not suffice (`user` has the rule). Those at
//!   and below the level whose limit is in the way are asked, for what is missing there and a
//!   batch.
//! - budget.B7 A user's callback runs with no lock held and never twice at once. Other threads ask
//!   other users, or wait for the call's end and look again instead of asking for the same memory.
//!   A thread within a callback never waits for another call, so waits form no cycle.
//! - budget.B8 Nothing that a callback answers is trusted: only what was released counts. Its
//!   answer decides only whether this charge asks it again, at most 64 times, because what it gave
//!   may have gone to other charges. So each charge ends if the callbacks do, and a callback that
//!   panics leaves nothing charged.
//! - budget.B9 When a [`Reclaimer`] has been dropped outside callbacks, its callback is not running
//!   and is not called again.
//!
//! Source: K42, section 3.2 (page managers that take from and give to each other by levels) and
//! 4.2, whose free lists are not balanced; stealing is ours.

#[cfg(all(test, manycore_loom))]
mod loom_tests;
mod reclaim;
mod tree;
mod user;

pub use self::reclaim::Reclaimer;

use self::tree::Tree;
use super::Counter;
use crate::percpu::slot_table::SlotBoxes;
use crate::percpu::{self, Slot};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, seeded_bug};
use std::fmt;
use std::sync::{Arc, PoisonError};

/// Batches in a level's limit, by default.
const BATCHES: u64 = 64;

/// Credits of one slot. Its threads take from them, and other threads when credits are short.
#[repr(align(128))]
struct Stock(AtomicU64);

impl From<usize> for Stock {
    fn from(_: usize) -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Stock {
    /// Takes `amount` credits, if there are that many.
    #[inline]
    fn take(&self, amount: u64) -> bool {
        // ORDER: Relaxed; credits carry no data. What is charged for has its own order.
        let less = |credits: u64| credits.checked_sub(amount);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Puts credits back. Returns how many there are now.
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

/// The part of a level that threads use without the tree's lock.
struct Local {
    stocks: SlotBoxes<Stock>,
    /// Credits that a stock may hold: two batches, or none (budget.B5).
    most: AtomicU64,
}

impl Local {
    /// Returns the stock of the calling thread's slot, if it exists and the slot is among the
    /// first.
    #[inline(always)]
    fn near_stock(&self) -> Option<&Stock> {
        percpu::known_slot().and_then(|slot| self.stocks.get_near(slot))
    }

    /// Returns true if a stock with this many credits has too many.
    #[inline(always)]
    fn overflows(&self, credits: u64) -> bool {
        // ORDER: Relaxed; see `set_stock_limits`.
        credits > self.most.load(Ordering::Relaxed)
    }

    /// Returns the stock of the calling thread's slot.
    fn stock(&self) -> &Stock {
        self.stocks.get_or_init(percpu::with_own_slot(Slot::index))
    }
}

/// Locks the tree. No user code runs under its lock (budget.B7), so a panic leaves it whole.
fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A level, as its handles share it.
struct Level {
    number: usize,
    batch: u64,
    local: Arc<Local>,
    tree: Arc<Mutex<Tree>>,
    /// Keeps the levels above alive.
    _parent: Option<BudgetTree>,
}

impl Drop for Level {
    fn drop(&mut self) {
        if !crate::sync::model_failed() {
            lock(&self.tree).close(self.number);
        }
    }
}

/// A quota that many threads charge, perhaps part of a larger one: memory of a query within that of
/// a user within that of the process.
///
/// What for: limits that must hold exactly, over things that are taken and given back all the time:
/// bytes, pages, connections, tokens. When not: for a count without a limit, take a
/// [`Counter`](super::Counter). If a limit may be overshot a little, keep a number for each thread.
/// Two threads of an EPYC that charge and release make 177 million pairs a second; with an atomic
/// count at each level, 29 million (`manycore-bench bench budget`).
///
/// Each thread holds some credits at each level that it charges. A charge that they cover touches a
/// line of the thread's own. When the credits run out, the charge takes a batch from the level
/// above, under a lock of the whole tree. If there is none, it takes what lies idle with other
/// threads and lower levels.
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
///
/// - Consistency: a level never has more charged than its limit, at any moment. A charge is refused
///   only if what it needs was idle nowhere when it looked. While others release, it may be refused
///   although the last release made room after its look.
/// - Progress: blocking, only for the tree's lock.
/// - Cost: one atomic exchange on a line of the thread's own for a charge that finds credits, one
///   addition there for a release, and no shared line written. One charge in a batch takes the
///   lock, and looks at a line for each thread if credits are short; near a limit that is most
///   charges.
/// - Memory: some 700 bytes for each level, and 128 for each thread that charges it; 256 more for
///   every 32 threads of the process beyond the first 32.
/// - Users that [give memory back](Self::on_reclaim) can be asked before a charge is refused.
/// - Panics: [`release`](Self::release) may, if more comes back than was charged; see there. A
///   user's callback may. Nothing else does.
/// - Source: [K42](crate#sources)'s page managers, section 3.2.
#[doc(alias = "memory limit")]
#[doc(alias = "quota")]
#[doc(alias = "semaphore")]
#[derive(Clone)]
pub struct BudgetTree {
    level: Arc<Level>,
}

impl BudgetTree {
    /// Makes the top of a tree. Threads take a 64th of the limit at a time.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self::with_batch(limit, limit / BATCHES)
    }

    /// Makes the top of a tree. Threads take `batch` at a time; with zero, just what they need.
    #[must_use]
    pub fn with_batch(limit: u64, batch: u64) -> Self {
        let tree = Arc::new(Mutex::new(Tree::default()));
        Self::open(&tree, None, limit, batch)
    }

    /// Makes a level below this one: what the child has charged, this level has charged. The limits
    /// of the children may add up to more than this level's; then the first charge gets it.
    #[must_use]
    pub fn child(&self, limit: u64) -> Self {
        self.child_with_batch(limit, limit / BATCHES)
    }

    /// Same as [`child`](Self::child), with its own batch.
    #[must_use]
    pub fn child_with_batch(&self, limit: u64, batch: u64) -> Self {
        Self::open(&self.level.tree, Some(self), limit, batch)
    }

    fn open(tree: &Arc<Mutex<Tree>>, parent: Option<&Self>, limit: u64, batch: u64) -> Self {
        let most = AtomicU64::new(batch.saturating_mul(2));
        let local = Arc::new(Local { stocks: SlotBoxes::new(), most });
        let above = parent.map(|parent| parent.level.number);
        let number = lock(tree).open(above, limit, batch, Arc::clone(&local));
        let (tree, parent) = (Arc::clone(tree), parent.cloned());
        Self { level: Arc::new(Level { number, batch, local, tree, _parent: parent }) }
    }

    /// Charges `amount`, here and above. The caller gives it back by [`release`](Self::release).
    ///
    /// # Errors
    /// If a limit is in the way, here or above, and no [user](Self::on_reclaim) gives enough back.
    /// Nothing is charged then.
    #[inline]
    pub fn try_charge(&self, amount: u64) -> Result<(), Exceeded> {
        // budget.B2: the stock covers most charges; the tree's lock is for the rest.
        match self.level.local.near_stock() {
            Some(stock) if stock.take(amount) => Ok(()),
            _ => self.charge_slow(amount),
        }
    }

    #[cold]
    #[inline(never)]
    fn charge_slow(&self, amount: u64) -> Result<(), Exceeded> {
        let (number, local) = (self.level.number, &self.level.local);
        if local.stock().take(amount) {
            return Ok(());
        }
        let spare = reclaim::attempt(&self.level.tree, |tree| {
            tree.grant(number, amount)?;
            Ok(tree.spare(number))
        });
        let spare = spare.map_err(|_| Exceeded { amount })?;
        if spare > 0 {
            local.stock().put(spare);
        }
        Ok(())
    }

    /// Charges `amount` for as long as the returned value lives.
    ///
    /// # Errors
    /// As [`try_charge`](Self::try_charge).
    pub fn charge(&self, amount: u64) -> Result<Charge, Exceeded> {
        self.try_charge(amount)?;
        Ok(Charge { budget: self.clone(), amount })
    }

    /// Gives back what was charged before, in this thread or another.
    ///
    /// Giving back more than was charged is a mistake. It makes limits higher than they are until
    /// it is noticed.
    ///
    /// # Panics
    /// If this call notices the mistake: it brings credits to the level above that it never gave.
    /// They are forgotten, and the limit holds again.
    #[inline]
    pub fn release(&self, amount: u64) {
        if let Err(rest) = self.put_near(amount) {
            self.release_slow(rest);
        }
    }

    #[cold]
    #[inline(never)]
    fn release_slow(&self, rest: u64) {
        let surplus = self.give_back_slow(rest);
        assert!(
            surplus == 0,
            "manycore: {surplus} more was released to a BudgetTree than was charged to it; its \
             limits were too high by so much"
        );
    }

    /// Gives back. Returns how much of it (or of what others gave back) was never charged.
    #[inline]
    fn give_back(&self, amount: u64) -> u64 {
        self.put_near(amount).map_or_else(|rest| self.give_back_slow(rest), |()| 0)
    }

    /// Puts credits into the thread's stock, if that is near. Returns `Err` with what is left to
    /// put there if the stock is not near, or if it overflows.
    #[inline(always)]
    fn put_near(&self, amount: u64) -> Result<(), u64> {
        let local = &*self.level.local;
        let Some(stock) = local.near_stock() else { return Err(amount) };
        if local.overflows(stock.put(amount)) { Err(0) } else { Ok(()) }
    }

    /// Puts the rest into the thread's stock. If that overflows, keeps a batch and gives the rest
    /// to the level.
    #[cold]
    #[inline(never)]
    fn give_back_slow(&self, rest: u64) -> u64 {
        let (level, local) = (&*self.level, &*self.level.local);
        let stock = local.stock();
        if !local.overflows(stock.put(rest)) {
            return 0;
        }
        let all = stock.take_all();
        // ORDER: Relaxed; as in `overflows`.
        let kept = all.min(level.batch).min(local.most.load(Ordering::Relaxed));
        stock.put(kept);
        lock(&level.tree).give_back(level.number, all - kept)
    }

    /// Returns how much is charged here and below. It is an estimate while others charge and
    /// release.
    ///
    /// Cost: the tree's lock, and a cache miss for each thread at each level below.
    pub fn used(&self) -> u64 {
        lock(&self.level.tree).used(self.level.number)
    }

    /// Returns the most that may be charged here and below.
    pub fn limit(&self) -> u64 {
        lock(&self.level.tree).limit(self.level.number)
    }

    /// Sets the most that may be charged here and below, and asks users for what is charged beyond
    /// it. Returns what is still charged beyond it: zero if they gave enough.
    ///
    /// Until the rest is released, no charge here or below succeeds, with one exception: credits
    /// that a concurrent release leaves with its thread, at most two batches.
    ///
    /// # Panics
    /// If a callback of [`on_reclaim`](Self::on_reclaim) does; the limit is set then.
    ///
    /// ```
    /// use manycore::collections::BudgetTree;
    ///
    /// let budget = BudgetTree::with_batch(100, 0);
    /// let charge = budget.charge(80)?;
    /// assert_eq!(budget.set_limit(50), 30);
    /// assert!(budget.charge(1).is_err());
    /// drop(charge);
    /// assert!(budget.charge(50).is_ok());
    /// # Ok::<(), manycore::collections::Exceeded>(())
    /// ```
    pub fn set_limit(&self, limit: u64) -> u64 {
        let number = self.level.number;
        lock(&self.level.tree).set_limit(number, limit);
        let kept = reclaim::attempt(&self.level.tree, |tree| tree.keep_limit(number));
        kept.map_or_else(tree::Short::missing, |()| 0)
    }

    /// Registers a user of this level's memory, which gives some back when a charge can't be met.
    /// `reclaim` is called with the amount wanted. It gives back what it can (by
    /// [`release`](Self::release), or by dropping each [`Charge`]), and returns how much.
    ///
    /// The charge, or the [`set_limit`](Self::set_limit), that lacks memory calls it, on its own
    /// thread, and only after all idle credits were taken. Users at and below the level whose limit
    /// is in the way are asked, the level's own users included. The first is the one that holds the
    /// most, beyond its [share](Reclaimer::set_share), for each of its recent
    /// [uses](Reclaimer::note_uses). It may be asked for a batch of that level more than is
    /// missing.
    ///
    /// - Re-entrancy: it may use the tree, and charge: that asks other users. It runs with no lock
    ///   of the tree held, and in one thread at a time. A charge in another thread that has no
    ///   other user to ask waits for its end, some five seconds in all; a thread in a callback does
    ///   not wait. So do not charge while holding a lock that the callback takes.
    /// - A wrong answer does no harm: a charge counts what was released. It asks a user that
    ///   answers with less than was wanted only once. It asks any other user again while other
    ///   charges get what that user gave, at most 64 times.
    /// - Panics: a panic reaches the caller of the charge; nothing is charged then.
    ///
    /// Cost: a request reads a line for each thread at each user's level, under the tree's lock.
    /// Memory: some 300 bytes. See [`Reclaimer`] for an example.
    pub fn on_reclaim(&self, reclaim: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Reclaimer {
        Reclaimer::register(self.clone(), Box::new(reclaim))
    }
}

impl fmt::Debug for BudgetTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, limit) = (self.used(), self.limit());
        f.debug_struct("BudgetTree").field("used", &used).field("limit", &limit).finish()
    }
}

/// An amount charged to a [`BudgetTree`]; dropping it gives the amount back.
///
/// ```
/// use manycore::collections::BudgetTree;
///
/// let memory = BudgetTree::new(1000);
/// let mut buffer = memory.charge(100)?;
/// buffer.resize(400)?; // it grows
/// assert!(buffer.resize(1001).is_err());
/// assert_eq!((buffer.amount(), memory.used()), (400, 400));
/// drop(buffer);
/// assert_eq!(memory.used(), 0);
/// # Ok::<(), manycore::collections::Exceeded>(())
/// ```
#[must_use = "what is charged is given back when this is dropped"]
#[derive(Debug)]
pub struct Charge {
    budget: BudgetTree,
    amount: u64,
}

impl Charge {
    /// Returns the amount.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Changes the amount.
    ///
    /// # Errors
    /// If it grows, and a limit is in the way. Nothing changes then.
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

/// A charge would exceed a limit, here or above.
///
/// See [`Charge`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exceeded {
    /// The amount of the refused charge.
    pub amount: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "less than {} is left of the budget", self.amount)
    }
}

impl std::error::Error for Exceeded {}
