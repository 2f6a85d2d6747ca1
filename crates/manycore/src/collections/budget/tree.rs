//! What the levels of a budget owe each other. Everything here runs under the tree's lock; stocks
//! alone change beside it.
//!
//! A level that cannot cover what it is asked for asks its parent, which may take what is idle in
//! its other children: never in the one that asks, whose reserve is being brought up.

use super::Stocks;
use crate::sync::Ordering;
use std::sync::Arc;

/// A level.
struct Level {
    parent: Option<usize>,
    children: Vec<usize>,
    limit: u64,
    batch: u64,
    /// What was taken from above; at the top, what was given out.
    taken: u64,
    /// Taken, and neither charged, nor in a stock, nor taken by a child.
    reserve: u64,
    stocks: Arc<Stocks>,
}

impl Level {
    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.taken)
    }
}

/// Levels by number; closed ones are empty.
#[derive(Default)]
pub(super) struct Tree(Vec<Option<Level>>);

impl Tree {
    fn node(&mut self, number: usize) -> &mut Level {
        self.0[number].as_mut().expect("a level that has handles is open")
    }

    pub(super) fn open(
        &mut self,
        parent: Option<usize>,
        limit: u64,
        batch: u64,
        stocks: Arc<Stocks>,
    ) -> usize {
        let node =
            Level { parent, children: Vec::new(), limit, batch, taken: 0, reserve: 0, stocks };
        let number = self.0.iter().position(Option::is_none).unwrap_or(self.0.len());
        if number == self.0.len() {
            self.0.push(None);
        }
        self.0[number] = Some(node);
        if let Some(parent) = parent {
            debug_assert!(parent != number, "budget.B1: a level is its own parent");
            self.node(parent).children.push(number);
        }
        number
    }

    /// Gives everything idle back to the parent. What is charged still stays charged there.
    pub(super) fn close(&mut self, number: usize) {
        self.reclaim(number, u64::MAX);
        let Some(node) = self.0[number].take() else { return };
        debug_assert!(node.children.is_empty(), "budget.B1: a level closes before its children");
        if let Some(parent) = node.parent {
            self.node(parent).children.retain(|child| *child != number);
        }
    }

    /// Takes `amount` out of what the level has or can get (budget.B3); the caller has it charged.
    pub(super) fn grant(&mut self, number: usize, amount: u64) -> Result<(), ()> {
        self.grant_to(number, amount, None)
    }

    /// As `grant`, for a child, from which nothing is taken for that.
    fn grant_to(&mut self, number: usize, amount: u64, child: Option<usize>) -> Result<(), ()> {
        let batch = self.node(number).batch;
        if !self.expand(number, amount, batch) {
            self.sweep(number);
        }
        if !self.expand(number, amount, 0) {
            self.sweep_below(number, amount, child);
        }
        if !self.expand(number, amount, 0) {
            return Err(());
        }
        let node = self.node(number);
        debug_assert!(node.reserve >= amount, "budget.B3: granted without the credits");
        node.reserve -= amount;
        Ok(())
    }

    /// Brings the reserve to `amount` and `more`, by taking from above. Says whether the reserve
    /// has `amount` now.
    fn expand(&mut self, number: usize, amount: u64, more: u64) -> bool {
        let node = self.node(number);
        let Some(missing) = amount.checked_sub(node.reserve).filter(|missing| *missing > 0) else {
            return true;
        };
        let (room, parent) = (node.room(), node.parent);
        if room < missing {
            return false;
        }
        let wanted = missing.saturating_add(more).min(room);
        let taken = [wanted, missing].into_iter().find(|taken| match parent {
            Some(parent) => self.grant_to(parent, *taken, Some(number)).is_ok(),
            None => true,
        });
        let Some(taken) = taken else { return false };
        let node = self.node(number);
        node.taken += taken;
        debug_assert!(node.taken <= node.limit, "budget.B1: a level has taken more than its limit");
        node.reserve += taken;
        true
    }

    /// Takes what other threads hold at the level into its reserve.
    fn sweep(&mut self, number: usize) {
        let node = self.node(number);
        let swept = |sum: u64, stock: &super::Stock| sum.saturating_add(stock.take_all());
        node.reserve = node.stocks.gather(node.reserve, swept);
    }

    /// Takes what lies idle below, but for one child, until the reserve has `amount`.
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

    /// Gives a part of the reserve to the parent's. Says how much of it did not come from there,
    /// and is nowhere any more (budget.B4).
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

    /// What is in the reserve for the caller's stock, up to a batch.
    pub(super) fn spare(&mut self, number: usize) -> u64 {
        let node = self.node(number);
        let spare = node.reserve.min(node.batch);
        debug_assert!(node.taken <= node.limit, "budget.B1: a level has taken more than its limit");
        node.reserve -= spare;
        spare
    }

    /// Takes credits back from a stock. What is more than two batches goes up. Returns the surplus
    /// that was dropped (budget.B4).
    pub(super) fn give_back(&mut self, number: usize, amount: u64) -> u64 {
        let node = self.node(number);
        node.reserve = node.reserve.saturating_add(amount);
        if node.reserve <= node.batch.saturating_mul(2) {
            return 0;
        }
        let (excess, parent) = (node.reserve - node.batch, node.parent);
        let surplus = self.hand_up(number, excess);
        surplus + parent.map_or(0, |parent| self.give_back(parent, 0))
    }

    /// What is charged at a level and below.
    pub(super) fn used(&mut self, number: usize) -> u64 {
        let idle = self.idle(number);
        self.node(number).taken.saturating_sub(idle)
    }

    fn idle(&mut self, number: usize) -> u64 {
        let node = self.node(number);
        // ORDER: Relaxed; an estimate beside charges.
        let credits =
            |sum: u64, stock: &super::Stock| sum.saturating_add(stock.0.load(Ordering::Relaxed));
        let own = node.stocks.gather(node.reserve, credits);
        let children = node.children.clone();
        children.into_iter().fold(own, |sum, child| sum.saturating_add(self.idle(child)))
    }

    pub(super) fn limit(&mut self, number: usize) -> u64 {
        self.node(number).limit
    }
}
