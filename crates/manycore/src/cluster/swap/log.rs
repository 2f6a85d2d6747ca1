//! Updates that came while the object was closed, in the order of their arrival.
//!
//! Owns: the queue, and the turn: a mutex. Its holder applies the queue. Laws:
//! - swap_log.W4 The object opens under the queue's lock, with the queue empty. An update is queued
//!   under that lock, after a look that found the object closed. So every update is applied before
//!   the object opens, or runs when it is open.
//! - swap_log.W5 A thread that takes updates out applies them before it releases the turn. So a
//!   thread that has had the turn knows that everything queued before is applied.
//! - swap_log.W6 An update calls no exchangeable object ([`leaf`]). So the turn is released in the
//!   end, whatever other threads wait for.

use crate::config::SWAP_LOG_MAX;
use crate::percpu::calls::leaf;
use crate::sync::{self, Mutex, MutexGuard, Panic};
use std::collections::VecDeque;
use std::sync::PoisonError;

/// A queued update.
pub(super) type Update<F> = Box<dyn FnOnce(&F) + Send>;

/// The outcome of the updates of one swap.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) updates: usize,
    /// Payloads of their panics. They are dropped when calls go on, because dropping is user code
    /// (swap_protocol.W8).
    pub(super) panics: Vec<Panic>,
}

struct Queue<F: ?Sized> {
    waiting: VecDeque<Update<F>>,
    replayed: Replayed,
    /// Number of updates that have panicked, in all swaps.
    panics: usize,
}

pub(super) struct Log<F: ?Sized> {
    queue: Mutex<Queue<F>>,
    turn: Mutex<()>,
}

/// The outcome of an attempt to queue an update.
pub(super) enum Queued<U> {
    Yes,
    /// The object is open.
    Open(U),
    /// The queue is full.
    Full(U),
}

impl<F: ?Sized> Log<F> {
    pub(super) fn new() -> Self {
        let queue = Queue { waiting: VecDeque::new(), replayed: Replayed::default(), panics: 0 };
        Self { queue: Mutex::new(queue), turn: Mutex::new(()) }
    }

    /// Queues an update if the object is closed.
    pub(super) fn push<U>(&self, is_closed: impl FnOnce() -> bool, update: U) -> Queued<U>
    where
        U: FnOnce(&F) + Send + 'static,
    {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_closed() {
            return Queued::Open(update);
        }
        if queue.waiting.len() >= SWAP_LOG_MAX {
            return Queued::Full(update);
        }
        queue.waiting.push_back(Box::new(update));
        Queued::Yes
    }

    /// Applies what was queued before this call.
    pub(super) fn catch_up(&self, to: &F) {
        drop(self.apply(to, || ()));
    }

    /// Applies everything, and calls `open` when nothing is left (swap_log.W4). Returns the outcome
    /// of the updates since the last such call.
    pub(super) fn apply_and_open(&self, to: &F, open: impl FnOnce()) -> Replayed {
        let queue = &mut *self.apply(to, open);
        std::mem::take(&mut queue.replayed)
    }

    /// Returns how many queued updates have panicked.
    pub(super) fn panics(&self) -> usize {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).panics
    }

    /// Applies what is queued, then calls `done` under the lock.
    fn apply(&self, to: &F, done: impl FnOnce()) -> MutexGuard<'_, Queue<F>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if queue.waiting.is_empty() {
                done();
                return queue;
            }
            let batch = std::mem::take(&mut queue.waiting);
            queue.replayed.updates += batch.len();
            drop(queue);
            let panics = batch.into_iter().filter_map(|update| apply_one(update, to));
            let panics: Vec<_> = panics.collect();
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.panics += panics.len();
            queue.replayed.panics.extend(panics);
        }
    }
}

/// Applies an update. Its panic is only counted, because it would reach a thread that did not make
/// the update.
fn apply_one<F: ?Sized>(update: Update<F>, to: &F) -> Option<Panic> {
    let _leaf = leaf();
    sync::caught(|| update(to)).err()
}
