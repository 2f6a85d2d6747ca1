//! The debts between the levels of a budget. Everything here runs under the tree's lock; only
//! stocks change without it.
//!
//! A level that cannot cover a request asks its parent. The parent may take what is idle in its
//! other children, but not in the child that asks, because that child's reserve is being filled.

use super::user::User;
use super::{Local, Stock};
use crate::sync::Ordering;
use std::sync::Arc;

/// The level where credits are missing, and how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Short {
    /// The level with the limit that blocks the request.
    pub(super) level: usize,
    missing: u64,
}

impl Short {
    /// Returns what a user is asked for: a batch more, so that not every charge asks.
    pub(super) fn wanted(self, tree: &mut Tree) -> u64 {
        self.missing.saturating_add(tree.node(self.level).batch)
    }

    pub(super) fn missing(self) -> u64 {
        self.missing
    }
}

/// A level.
struct Level {
    parent: Option<usize>,
    children: Vec<usize>,
    limit: u64,
    batch: u64,
    /// Taken from above; at the top, given out.
    taken: u64,
    /// Taken, and neither charged, nor in a stock, nor taken by a child.
    reserve: u64,
    local: Arc<Local>,
}

impl Level {
    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.taken)
    }

    /// Returns what was taken beyond a limit that has shrunk.
    fn excess(&self) -> u64 {
        self.taken.saturating_sub(self.limit)
    }
}

/// The levels of a budget, and the users that give back.
#[derive(Default)]
pub(super) struct Tree {
    /// Levels by number; closed ones are empty.
    levels: Vec<Option<Level>>,
    pub(super) users: Vec<Arc<User>>,
    /// True if a level has taken more than its limit, which was lowered (budget.B5).
    is_over: bool,
}

impl Tree {
    fn node(&mut self, number: usize) -> &mut Level {
        self.levels[number].as_mut().expect("a level that has handles is open")
    }

    pub(super) fn open(
        &mut self,
        parent: Option<usize>,
        limit: u64,
        batch: u64,
        local: Arc<Local>,
    ) -> usize {
        let node =
            Level { parent, children: Vec::new(), limit, batch, taken: 0, reserve: 0, local };
        let number = self.levels.iter().position(Option::is_none).unwrap_or(self.levels.len());
        if number == self.levels.len() {
            self.levels.push(None);
        }
        self.levels[number] = Some(node);
        if let Some(parent) = parent {
            debug_assert!(parent != number, "budget.B1: a level is its own parent");
            self.node(parent).children.push(number);
        }
        if self.is_over {
            self.set_stock_limits();
        }
        number
    }

    /// Closes a level, and gives everything idle back to the parent. Charged credits stay charged
    /// there.
    pub(super) fn close(&mut self, number: usize) {
        self.reclaim(number, u64::MAX);
        let Some(node) = self.levels[number].take() else { return };
        debug_assert!(node.children.is_empty(), "budget.B1: a level closes before its children");
        if let Some(parent) = node.parent {
            self.node(parent).children.retain(|child| *child != number);
        }
    }

    /// Takes `amount` out of what the level has or can get (budget.B3). The caller charges it.
    pub(super) fn grant(&mut self, number: usize, amount: u64) -> Result<(), Short> {
        if self.is_over {
            self.refuse_over(number, amount)?;
        }
        self.grant_to(number, amount, None)
    }

    /// Same as `grant`, for a child; takes nothing from that child.
    fn grant_to(&mut self, number: usize, amount: u64, child: Option<usize>) -> Result<(), Short> {
        let batch = self.node(number).batch;
        if self.expand(number, amount, batch).is_err() {
            self.sweep(number);
        }
        if self.expand(number, amount, 0).is_err() {
            self.sweep_below(number, amount, child);
        }
        self.expand(number, amount, 0)?;
        let node = self.node(number);
        debug_assert!(node.reserve >= amount, "budget.B3: granted without the credits");
        node.reserve -= amount;
        Ok(())
    }

    /// Fills the reserve to `amount` plus `more`, by taking from above. Returns an error if the
    /// reserve does not even reach `amount`.
    fn expand(&mut self, number: usize, amount: u64, more: u64) -> Result<(), Short> {
        let node = self.node(number);
        let Some(missing) = amount.checked_sub(node.reserve).filter(|missing| *missing > 0) else {
            return Ok(());
        };
        let (room, parent) = (node.room(), node.parent);
        if room < missing {
            return Err(Short { level: number, missing: missing - room });
        }
        let mut taken = missing.saturating_add(more).min(room);
        if let Some(parent) = parent {
            if self.grant_to(parent, taken, Some(number)).is_err() {
                taken = missing;
                self.grant_to(parent, taken, Some(number))?;
            }
        }
        let node = self.node(number);
        node.taken += taken;
        debug_assert!(node.taken <= node.limit, "budget.B1: a level has taken more than its limit");
        node.reserve += taken;
        Ok(())
    }

    /// Takes the credits in all threads' stocks of the level into its reserve.
    fn sweep(&mut self, number: usize) {
        let node = self.node(number);
        let swept = |sum: u64, stock: &Stock| sum.saturating_add(stock.take_all());
        node.reserve = node.local.stocks.iter().map(|(_, stock)| stock).fold(node.reserve, swept);
    }

    /// Takes what lies idle below, except in child `but`, until the reserve has `amount`.
    fn sweep_below(&mut self, number: usize, amount: u64, but: Option<usize>) {
        let children = self.node(number).children.clone();
        for child in children.into_iter().filter(|child| Some(*child) != but) {
            let reserve = self.node(number).reserve;
            if reserve >= amount {
                return;
            }
            self.reclaim(child, amount - reserve);
        }
    }

    /// Gives up to `amount` of what is idle at a level and below it to its parent.
    fn reclaim(&mut self, number: usize, amount: u64) {
        self.sweep(number);
        if self.node(number).reserve < amount {
            self.sweep_below(number, amount, None);
        }
        let idle = self.node(number).reserve.min(amount);
        self.hand_up(number, idle);
    }

    /// Gives a part of the reserve to the parent's. Returns how much of it did not come from there,
    /// and is dropped (budget.B4).
    fn hand_up(&mut self, number: usize, amount: u64) -> u64 {
        let node = self.node(number);
        debug_assert!(node.reserve >= amount, "budget.B1: credits go up that are not idle");
        let owed = amount.min(node.taken);
        node.reserve -= amount;
        node.taken -= owed;
        if let Some(parent) = node.parent {
            self.node(parent).reserve += owed;
        }
        amount - owed
    }

    /// Takes credits for the caller's stock out of the reserve, up to a batch.
    pub(super) fn spare(&mut self, number: usize) -> u64 {
        let node = self.node(number);
        let spare = node.reserve.min(node.batch);
        debug_assert!(node.taken <= node.limit, "budget.B1: a level has taken more than its limit");
        node.reserve -= spare;
        spare
    }

    /// Takes credits back from a stock. Excess over two batches goes up. Returns the surplus that
    /// was dropped (budget.B4).
    pub(super) fn give_back(&mut self, number: usize, amount: u64) -> u64 {
        let is_over = self.is_over;
        let node = self.node(number);
        node.reserve = node.reserve.saturating_add(amount);
        if is_over {
            self.shed();
        }
        let node = self.node(number);
        if node.reserve <= node.batch.saturating_mul(2) {
            return 0;
        }
        let (excess, parent) = (node.reserve - node.batch, node.parent);
        let surplus = self.hand_up(number, excess);
        surplus + parent.map_or(0, |parent| self.give_back(parent, 0))
    }

    /// Returns what is charged at a level and below.
    pub(super) fn used(&mut self, number: usize) -> u64 {
        let idle = self.idle(number);
        self.node(number).taken.saturating_sub(idle)
    }

    fn idle(&mut self, number: usize) -> u64 {
        let node = self.node(number);
        // ORDER: Relaxed; an estimate beside charges.
        let credits = |sum: u64, stock: &Stock| sum.saturating_add(stock.0.load(Ordering::Relaxed));
        let own = node.local.stocks.iter().map(|(_, stock)| stock).fold(node.reserve, credits);
        let children = node.children.clone();
        children.into_iter().fold(own, |sum, child| sum.saturating_add(self.idle(child)))
    }

    pub(super) fn limit(&mut self, number: usize) -> u64 {
        self.node(number).limit
    }

    /// Returns true if level `number` is `other` or below it.
    pub(super) fn is_below(&mut self, number: usize, other: usize) -> bool {
        let mut at = Some(number);
        while let Some(number) = at.filter(|number| *number != other) {
            at = self.node(number).parent;
        }
        at.is_some()
    }

    pub(super) fn set_limit(&mut self, number: usize, limit: u64) {
        self.node(number).limit = limit;
        self.is_over |= self.node(number).excess() > 0;
        // Before credits are collected, so that no thread puts some into a stock afterwards.
        self.set_stock_limits();
        self.shed();
    }

    /// Returns an error if more is taken than the limit is now, although all that is idle was given
    /// back.
    pub(super) fn keep_limit(&mut self, number: usize) -> Result<(), Short> {
        self.refuse_over_at(number, 0)
    }

    /// Same as `refuse_over_at`, for the level and those above.
    fn refuse_over(&mut self, number: usize, amount: u64) -> Result<(), Short> {
        let mut at = Some(number);
        while let Some(number) = at {
            self.refuse_over_at(number, amount)?;
            at = self.node(number).parent;
        }
        Ok(())
    }

    fn refuse_over_at(&mut self, number: usize, amount: u64) -> Result<(), Short> {
        self.shed();
        match self.node(number).excess() {
            0 => Ok(()),
            excess => Err(Short { level: number, missing: excess.saturating_add(amount) }),
        }
    }

    /// Gives back what is idle at and below levels that have taken more than their limit
    /// (budget.B5).
    fn shed(&mut self) {
        if !self.is_over {
            return;
        }
        let mut is_over = false;
        for number in 0..self.levels.len() {
            let excess = self.levels[number].as_ref().map_or(0, Level::excess);
            if excess > 0 {
                self.reclaim(number, excess);
                is_over |= self.node(number).excess() > 0;
            }
        }
        if !is_over {
            self.is_over = false;
            self.set_stock_limits();
        }
    }

    /// Lets stocks keep two batches, or nothing at and below a level that has taken too much.
    fn set_stock_limits(&mut self) {
        let over: Vec<usize> = (0..self.levels.len())
            .filter(|number| self.levels[*number].as_ref().is_some_and(|node| node.excess() > 0))
            .collect();
        for number in 0..self.levels.len() {
            if self.levels[number].is_some() {
                let is_below = over.iter().any(|over| self.is_below(number, *over));
                let node = self.node(number);
                let most = if is_below { 0 } else { node.batch.saturating_mul(2) };
                // ORDER: Relaxed; a release that read the older limit leaves its credits in its
                // stock until the next release there, or until credits are collected (budget.B5).
                node.local.most.store(most, Ordering::Relaxed);
            }
        }
    }
}
