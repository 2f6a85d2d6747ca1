//! Models of sections: laws section.S1 to section.S9, section.S13 and section.E1 to section.E4 in
//! every interleaving up to a bound. The header of [`crate::percpu::loom_tests`] says what loom can
//! and cannot show, and how a model is itself tested.
//!
//! Every node has a canary, a loom cell that readers read and its destructor writes. So a model
//! fails, whatever its assertions say, if a node is freed under a reader or with no happens-before
//! between the two. A node that is freed twice or never makes a count wrong.

mod chain;
mod locks;
mod owned;
mod readers;
mod reuse;
mod seeded;

use super::{Atomic, Builder, Domain, Mode, Owned, Section};
use crate::sync::{AtomicUsize, Ordering, UnsafeCell, thread};
use std::sync::Arc;

/// Counts what is freed.
type Freed = Arc<AtomicUsize>;

struct Canary {
    number: usize,
    alive: UnsafeCell<bool>,
    freed: Freed,
}

impl Canary {
    fn new(number: usize, freed: &Freed) -> Self {
        Self { number, alive: UnsafeCell::new(true), freed: Arc::clone(freed) }
    }

    fn sing(&self) -> usize {
        // SAFETY: no thread writes while a section keeps the node; loom checks it.
        assert!(self.alive.with(|alive| unsafe { *alive }), "a dead canary sang");
        self.number
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        // SAFETY: the node is freed, so no other thread has access; loom checks it.
        self.alive.with_mut(|alive| unsafe { *alive = false });
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: the cell is what the tests are about.
unsafe impl Sync for Canary {}

/// A domain and one link: the start of every model.
struct Cage {
    domain: Domain,
    link: Atomic<Canary>,
    freed: Freed,
}

impl Cage {
    fn new(builder: Builder) -> Arc<Self> {
        Self::of(builder.batch_nodes(1))
    }

    fn of(builder: Builder) -> Arc<Self> {
        let freed = Freed::default();
        let link = Atomic::new(Canary::new(0, &freed));
        Arc::new(Self { domain: builder.build().unwrap(), link, freed })
    }

    /// Replaces the node and retires the old one.
    fn replace(&self, number: usize) {
        let section = self.domain.enter();
        self.replace_in(number, &section);
    }

    fn replace_in(&self, number: usize, section: &Section<'_>) {
        let old = self.link.swap(Owned::new(Canary::new(number, &self.freed)), section);
        // SAFETY: unlinked by the swap; nothing else leads to it; it has no links.
        unsafe { section.retire(old) };
    }

    fn look(&self) -> usize {
        let section = self.domain.enter();
        self.link.load(&section).as_ref().expect("there is always one").sing()
    }

    fn freed(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        if !crate::sync::model_failed() {
            // SAFETY: the cage is gone, so no other thread has the link.
            drop(unsafe { std::mem::take(&mut self.link).into_owned() });
        }
    }
}

/// A name and what it stands for.
type Kind = (&'static str, fn() -> Builder);

/// A builder for each way to find grace periods.
fn kinds() -> [Kind; 3] {
    [
        ("epoch", || Domain::builder().mode(Mode::Epoch)),
        ("bounded", || Domain::builder().mode(Mode::Bounded)),
        ("bounded, fenced", || Domain::builder().mode(Mode::Bounded).asymmetric(false)),
    ]
}

fn kind(name: &str) -> fn() -> Builder {
    kinds().into_iter().find(|(own, _)| *own == name).expect("a kind of this name").1
}

/// Starts a thread with its own reference to `cage`. The caller joins it.
fn spawn<R: 'static>(
    cage: &Arc<Cage>,
    f: impl FnOnce(&Cage) -> R + 'static,
) -> thread::JoinHandle<R> {
    let cage = Arc::clone(cage);
    thread::spawn(move || f(&cage))
}
