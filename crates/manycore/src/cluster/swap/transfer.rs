//! Moving pieces from the old implementation to the new, with the help of waiting threads.
//!
//! Owns: the job and its pieces. Law transfer.W7: helpers are readers of the job's lock. The
//! swapper puts the job in before the first piece is moved. It takes the job out after the last
//! helper has released the lock, and before it opens the object. One thread moves each piece.

use super::family::Family;
use crate::percpu::calls::leaf;
use crate::sync::{self, AtomicBool, AtomicUsize, Mutex, Ordering, Panic, RwLock};
use std::mem;
use std::sync::{Arc, PoisonError};

/// The two implementations of a transfer.
struct Job<F: ?Sized> {
    old: Arc<F>,
    new: Arc<F>,
    parts: usize,
    /// The next piece that no thread moves yet.
    next: AtomicUsize,
    panics: Mutex<Vec<Panic>>,
}

/// The transfer of one object's swaps.
pub(super) struct Transfer<F: ?Sized> {
    job: RwLock<Option<Job<F>>>,
    /// True while there is a job: most waiters only look.
    is_wanted: AtomicBool,
}

impl<F: Family + ?Sized> Transfer<F> {
    pub(super) fn new() -> Self {
        Self { job: RwLock::new(None), is_wanted: AtomicBool::new(false) }
    }

    /// Moves everything, and returns the panics, if any. Called by the swapper, while the object is
    /// sealed.
    pub(super) fn run(&self, old: Arc<F>, new: Arc<F>) -> Result<(), Vec<Panic>> {
        let parts = {
            let _leaf = leaf();
            sync::caught(|| old.parts()).map_err(|panic| vec![panic])?
        };
        if parts == 1 {
            return move_part(&*old, &*new, 0).map_err(|panic| vec![panic]);
        }
        let (next, panics) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        self.set(Some(Job { old, new, parts, next, panics }));
        self.work();
        let Some(done) = self.set(None) else { return Ok(()) }; // waits for the helpers
        let panics = mem::take(&mut *done.panics.lock().unwrap_or_else(PoisonError::into_inner));
        if panics.is_empty() { Ok(()) } else { Err(panics) }
    }

    fn set(&self, job: Option<Job<F>>) -> Option<Job<F>> {
        // ORDER: Relaxed; a hint. The lock decides.
        self.is_wanted.store(job.is_some(), Ordering::Relaxed);
        mem::replace(&mut *self.job.write().unwrap_or_else(PoisonError::into_inner), job)
    }

    /// Helps, if there is a transfer. Returns true if it moved something.
    pub(super) fn help(&self) -> bool {
        // ORDER: Relaxed; as in `set`.
        self.is_wanted.load(Ordering::Relaxed) && self.work()
    }

    /// Moves pieces until none is left. Returns true if it moved any.
    fn work(&self) -> bool {
        let job = self.job.read().unwrap_or_else(PoisonError::into_inner);
        let Some(job) = &*job else { return false };
        let mut has_moved = false;
        // ORDER: Relaxed; all that matters is that no other thread gets the number.
        let next = || job.next.fetch_add(1, Ordering::Relaxed);
        while let Some(part) = Some(next()).filter(|part| *part < job.parts) {
            has_moved = true;
            if let Err(panic) = move_part(&*job.old, &*job.new, part) {
                // The transfer has failed, so the other threads need not go on.
                job.next.fetch_max(job.parts, Ordering::Relaxed);
                job.panics.lock().unwrap_or_else(PoisonError::into_inner).push(panic);
            }
        }
        has_moved
    }
}

fn move_part<F: Family + ?Sized>(old: &F, new: &F, part: usize) -> Result<(), Panic> {
    let _leaf = leaf();
    sync::caught(|| new.import(old.export(part)))
}
