//! Models of laws clustered.R1 and clustered.R2, and of swap.W1 to transfer.W7. What loom can and
//! can't show, and how a model is itself tested, is in the header of [`crate::percpu::loom_tests`].
//!
//! Every implementation has a canary: a loom cell that calls read, that `export` writes in the old
//! implementation, and that `import` writes in the new one. So the model fails, whatever its
//! assertions say, if a call is concurrent with the transfer, or if a call on a new implementation
//! has no happens-before from what was moved.

mod make;
mod nested;
mod swap;

use super::{Family, Swappable};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell};
use std::sync::Arc;

/// A sum that moves in pieces.
pub(super) trait Sum: Family<Part = usize> {
    fn add(&self, n: usize);
    fn total(&self) -> usize;
}

pub(super) struct Plain {
    canary: UnsafeCell<()>,
    sum: AtomicUsize,
    parts: usize,
}

// SAFETY: the cell is what the tests are about; loom checks each access.
unsafe impl Sync for Plain {}
// SAFETY: the cell has no contents that are bound to a thread; the tests are about its sharing.
unsafe impl Send for Plain {}

impl Plain {
    fn in_parts(parts: usize) -> Arc<dyn Sum> {
        Arc::new(Self { canary: UnsafeCell::new(()), sum: AtomicUsize::new(0), parts })
    }
}

impl Sum for Plain {
    fn add(&self, n: usize) {
        self.canary.with(|_| self.sum.fetch_add(n, Ordering::Relaxed));
    }

    fn total(&self) -> usize {
        self.canary.with(|_| self.sum.load(Ordering::Relaxed))
    }
}

impl Family for Plain {
    type Part = usize;

    fn parts(&self) -> usize {
        self.parts
    }

    /// Returns one of equal pieces. A transfer in one piece has the cell exclusively.
    fn export(&self, part: usize) -> usize {
        if self.parts == 1 {
            self.canary.with_mut(|_| ());
        }
        let sum = self.sum.load(Ordering::Relaxed);
        sum / self.parts + usize::from(part < sum % self.parts)
    }

    fn import(&self, part: usize) {
        if self.parts == 1 {
            self.canary.with_mut(|_| ());
        }
        self.sum.fetch_add(part, Ordering::Relaxed);
    }
}

type Object = Swappable<dyn Sum>;

fn object() -> Arc<Object> {
    Arc::new(Swappable::new(Plain::in_parts(1)))
}

fn add(object: &Object) {
    object.call(|sum| sum.add(1));
}

fn total(object: &Object) -> usize {
    object.call(|sum| sum.total())
}

/// What loom prints when threads wait for each other by spinning.
const STUCK: &str = "exceeded maximum number of branches";
