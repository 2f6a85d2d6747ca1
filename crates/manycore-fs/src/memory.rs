//! Objects that branches share: each has a count of the links that lead to it. This file owns the
//! counts and the account in which live objects and bytes of content are counted.
//!
//! ```text
//! link --+--> object (count 2)        unlinked: the reference is retired
//! link --+                            after its grace period: count - 1, freed at zero
//! ```
//!
//! - memory.M1 Each link holds one reference. A reader reaches an object only through a link,
//!   inside a section of the file system's domain.
//! - memory.M2 A reference that a reader may have followed is released after a grace period. A
//!   reference that no reader can follow (to an object that was never linked, or within an object
//!   that is being freed) is released at once. So an object is freed when no reader can hold it.

use manycore::collections::{BudgetTree, Counter};
use manycore::section::Section;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Counts what lives in one file system.
pub(crate) struct Account {
    /// Bytes of content: pages and extended attributes.
    pub(crate) budget: BudgetTree,
    pub(crate) limit: Option<u64>,
    pub(crate) inodes: Counter,
    pub(crate) nodes: Counter,
    pub(crate) pages: Counter,
    pub(crate) buckets: Counter,
}

/// Without a limit, a thread takes this many bytes at a time.
const BATCH: u64 = 16 << 20;

impl Account {
    pub(crate) fn open(limit: Option<u64>) -> OwnedAccount {
        let budget = match limit {
            // Exact near the limit, however small it is.
            Some(limit) => BudgetTree::with_batch(limit, (limit / 256).min(1 << 20)),
            None => BudgetTree::with_batch(1 << 60, BATCH),
        };
        let zero = || Counter::new(0);
        let (inodes, nodes, pages, buckets) = (zero(), zero(), zero(), zero());
        let account = Box::new(Self { budget, limit, inodes, nodes, pages, buckets });
        OwnedAccount(AccountRef(NonNull::from(Box::leak(account))))
    }
}

/// The account of an object's file system. The file system frees its account last.
#[derive(Clone, Copy)]
pub(crate) struct AccountRef(NonNull<Account>);

// SAFETY: memory.M1 - leads to an `Account`, which is `Sync`.
unsafe impl Send for AccountRef {}
// SAFETY: memory.M1 - leads to an `Account`, which is `Sync`.
unsafe impl Sync for AccountRef {}

impl Deref for AccountRef {
    type Target = Account;

    fn deref(&self) -> &Account {
        // SAFETY: `Core` has the owner of the account, which it drops after all objects.
        unsafe { self.0.as_ref() }
    }
}

/// The owner of an account. (No box: moving a box would claim the account for the box alone.)
pub(crate) struct OwnedAccount(AccountRef);

impl OwnedAccount {
    /// Returns a reference. The caller drops every object that has it before it drops the owner.
    pub(crate) fn shared(&self) -> AccountRef {
        self.0
    }
}

impl Deref for OwnedAccount {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.0
    }
}

impl Drop for OwnedAccount {
    fn drop(&mut self) {
        // SAFETY: made as a box (`Account::open`); the objects that led to it are gone
        // (system.C1).
        drop(unsafe { Box::from_raw(self.0.0.as_ptr()) });
    }
}

/// The first words of each object.
pub(crate) struct Head {
    /// The generation of the branch that may write the object in place.
    pub(crate) token: u64,
    pub(crate) account: AccountRef,
    count: AtomicU32,
}

impl Head {
    pub(crate) fn new(token: u64, account: AccountRef) -> Self {
        Self { token, account, count: AtomicU32::new(1) }
    }
}

/// An object with a count. It lies in a box.
pub(crate) trait Object: Send + Sync + Sized {
    fn head(&self) -> &Head;

    /// Bytes that are given back when it is freed, for the domain's budget of garbage.
    fn weight(&self) -> usize {
        size_of::<Self>()
    }
}

/// Adds a reference. The caller reaches the object through a link or has a reference.
pub(crate) fn retain<T: Object>(object: &T) {
    // ORDER: Relaxed; the link or reference that led here keeps the count above zero.
    object.head().count.fetch_add(1, Ordering::Relaxed);
}

/// Gives up a reference, and frees the object if it was the last.
///
/// # Safety
/// The caller has the reference, and no reader can follow it any more (memory.M2).
pub(crate) unsafe fn release<T: Object>(object: NonNull<T>) {
    // SAFETY: memory.M1 - the caller's reference keeps the object until the count is lowered.
    let count = unsafe { &object.as_ref().head().count };
    // ORDER: Release; pairs with the fence below: all that its users did comes before it is freed.
    if count.fetch_sub(1, Ordering::Release) == 1 {
        // ORDER: Acquire; pairs with the Release of all who gave up a reference before.
        fence(Ordering::Acquire);
        // SAFETY: memory.M2 - the last reference is gone. It was made as a box (`Counted::new`).
        drop(unsafe { Box::from_raw(object.as_ptr()) });
    }
}

/// A reference to an object that is given up at once when dropped: of an object that no reader
/// reaches by this reference.
pub(crate) struct Counted<T: Object>(NonNull<T>);

// SAFETY: as an `Arc`: the object is `Send` and `Sync`, and its count is atomic.
unsafe impl<T: Object> Send for Counted<T> {}
// SAFETY: as an `Arc`: the object is `Send` and `Sync`, and its count is atomic.
unsafe impl<T: Object> Sync for Counted<T> {}

impl<T: Object> Counted<T> {
    /// Puts an object with a count of one into a box.
    pub(crate) fn new(object: T) -> Self {
        Self::of_box(Box::new(object))
    }

    /// As [`new`](Self::new), of an object that is in a box.
    pub(crate) fn of_box(object: Box<T>) -> Self {
        Self(NonNull::from(Box::leak(object)))
    }

    pub(crate) fn into_raw(self) -> *mut T {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl<T: Object> Deref for Counted<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: memory.M1 - the reference keeps the object.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Object> Clone for Counted<T> {
    fn clone(&self) -> Self {
        retain(&**self);
        Self(self.0)
    }
}

impl<T: Object> Drop for Counted<T> {
    fn drop(&mut self) {
        // SAFETY: memory.M2 - this value has the reference, and no reader follows it.
        unsafe { release(self.0) }
    }
}

/// Gives `address` to `free` after a grace period.
///
/// # Safety
/// As for [`Section::retire_raw`]; the section is of the file system's domain.
pub(crate) unsafe fn after_grace(
    section: &Section<'_>,
    address: NonNull<()>,
    weight: usize,
    free: unsafe fn(NonNull<()>),
) {
    // SAFETY: memory.M2 - the caller's promises; `free` touches only objects and their account.
    unsafe { section.retire_raw(address, weight, free) }
}
