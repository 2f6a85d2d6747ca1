//! Node locks against each other and against the freeing of the node: section.S7.

use super::{Freed, kind};
use crate::percpu::loom_tests::{model, unexplored};
use crate::section::{Atomic, Domain, NodeLock, Shared};
use crate::sync::{Ordering, UnsafeCell, thread};
use std::sync::Arc;

struct Account {
    lock: NodeLock,
    balance: UnsafeCell<u32>,
    freed: Freed,
}

// SAFETY: `balance` is touched under `lock` or by the destructor; loom checks it.
unsafe impl Sync for Account {}

impl Drop for Account {
    fn drop(&mut self) {
        // SAFETY: freed, so no other thread has access; loom checks it.
        self.balance.with_mut(|balance| unsafe { *balance = 0 });
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

struct Bank {
    domain: Domain,
    link: Atomic<Account>,
}

impl Bank {
    /// Returns whether there was still an account to modify.
    fn modify(&self) -> bool {
        let section = self.domain.enter();
        let Some(account) = self.link.load(&section).as_ref() else {
            return false;
        };
        let Some(guard) = account.lock.lock(&section) else {
            return false;
        };
        assert!(!account.lock.is_freed(), "locked, and freed all the same");
        // SAFETY: under the lock.
        account.balance.with_mut(|balance| unsafe { *balance += 1 });
        drop(guard);
        true
    }

    /// Returns whether this call closed the account.
    fn close(&self) -> bool {
        let section = self.domain.enter();
        let Some(account) = self.link.load(&section).as_ref() else {
            return false;
        };
        let Some(guard) = account.lock.lock(&section) else {
            return false;
        };
        // SAFETY: under the lock.
        account.balance.with_mut(|balance| unsafe { *balance = u32::MAX });
        let node = self.link.swap(Shared::null(), &section);
        // SAFETY: unlinked by the swap, once, since only the lock's holder does.
        unsafe { guard.retire(node, &section) };
        true
    }
}

fn bank() -> (Arc<Bank>, Freed) {
    let freed = Freed::default();
    let account =
        Account { lock: NodeLock::new(), balance: UnsafeCell::new(0), freed: Arc::clone(&freed) };
    let domain = kind("epoch")().batch_nodes(1).build().unwrap();
    (Arc::new(Bank { domain, link: Atomic::new(account) }), freed)
}

#[test]
fn loom_section_lock_of_a_freed_node_is_refused() {
    model(2, || {
        let (bank, freed) = bank();
        let other = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.modify())
        };
        assert!(bank.close());
        let _ = other.join().unwrap();
        assert!(!bank.modify());
        unexplored(|| (0..2).for_each(|_| bank.domain.collect()));
        assert_eq!(freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn loom_section_only_one_of_two_closes_the_node() {
    model(2, || {
        let (bank, _freed) = bank();
        let other = {
            let bank = Arc::clone(&bank);
            thread::spawn(move || bank.close())
        };
        let here = bank.close();
        assert!(here != other.join().unwrap(), "an account is closed once");
    });
}
