//! Moving pieces from the old implementation to the new, with the help of waiting threads.
//!
//! Owns: the job and its pieces. Law transfer.W7: the job lives from before LENDING is set until
//! after the last helper is counted out (admission.W3), and one thread moves each piece.

use super::admission::Admission;
use super::family::Family;
use crate::percpu::calls::leaf;
use crate::sync::{self, AtomicUsize, Mutex, MutexGuard, Ordering, Panic, UnsafeCell};
use std::sync::{Arc, PoisonError};

/// The two implementations of a transfer.
struct Job<F: ?Sized> {
    old: Arc<F>,
    new: Arc<F>,
    parts: usize,
}

/// The transfer of one object's swaps.
pub(super) struct Transfer<F: ?Sized> {
    /// Written by the swapper while there are no helpers; read by helpers (transfer.W7).
    job: UnsafeCell<Option<Job<F>>>,
    /// The next piece that no thread moves yet.
    next: AtomicUsize,
    panics: Mutex<Vec<Panic>>,
}

// SAFETY: transfer.W7 - the job is shared only while no thread writes it, and `F: Send + Sync`.
unsafe impl<F: ?Sized + Send + Sync> Sync for Transfer<F> {}
// SAFETY: owned data.
unsafe impl<F: ?Sized + Send + Sync> Send for Transfer<F> {}

impl<F: Family + ?Sized> Transfer<F> {
    pub(super) fn new() -> Self {
        let (job, next) = (UnsafeCell::new(None), AtomicUsize::new(0));
        Self { job, next, panics: Mutex::new(Vec::new()) }
    }

    /// Moves everything, and returns the panics, if any. Called by the swapper, while `door` is
    /// sealed.
    pub(super) fn run(&self, door: &Admission, old: Arc<F>, new: Arc<F>) -> Result<(), Vec<Panic>> {
        let parts = {
            let _leaf = leaf();
            sync::caught(|| old.parts()).map_err(|panic| vec![panic])?
        };
        if parts == 1 {
            return move_part(&*old, &*new, 0).map_err(|panic| vec![panic]);
        }
        // ORDER: Relaxed; published by `lend`.
        self.next.store(0, Ordering::Relaxed);
        // SAFETY: transfer.W7 - no helper is counted yet.
        self.job.with_mut(|job| unsafe { *job = Some(Job { old, new, parts }) });
        door.lend();
        self.work();
        door.end_lending();
        // SAFETY: transfer.W7 - no helper is counted any more.
        let done = self.job.with_mut(|job| unsafe { (*job).take() });
        drop(done);
        let panics = std::mem::take(&mut *self.panics());
        if panics.is_empty() { Ok(()) } else { Err(panics) }
    }

    fn panics(&self) -> MutexGuard<'_, Vec<Panic>> {
        self.panics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Helps, if the transfer accepts helpers. Returns true if it moved something.
    pub(super) fn help(&self, door: &Admission) -> bool {
        if !door.join() {
            return false;
        }
        let has_moved = self.work();
        door.leave();
        has_moved
    }

    /// Moves pieces until none is left. Returns true if it moved any. Called by the swapper and by
    /// helpers that are counted in.
    fn work(&self) -> bool {
        self.job.with(|job| {
            let mut has_moved = false;
            // SAFETY: transfer.W7 - written before `lend`, and not again before `end_lending`.
            let Some(job) = (unsafe { (*job).as_ref() }) else { return has_moved };
            // ORDER: Relaxed; all that matters is that no other thread gets the number.
            let next = || self.next.fetch_add(1, Ordering::Relaxed);
            while let Some(part) = Some(next()).filter(|part| *part < job.parts) {
                has_moved = true;
                if let Err(panic) = move_part(&*job.old, &*job.new, part) {
                    // The transfer has failed, so the other threads need not go on.
                    self.next.fetch_max(job.parts, Ordering::Relaxed);
                    self.panics().push(panic);
                }
            }
            has_moved
        })
    }
}

fn move_part<F: Family + ?Sized>(old: &F, new: &F, part: usize) -> Result<(), Panic> {
    let _leaf = leaf();
    sync::caught(|| new.import(old.export(part)))
}
