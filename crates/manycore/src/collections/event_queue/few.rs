//! A queue's small form: events behind a lock.
//!
//! Owns: [`Few`]. A queue becomes [`Full`] when threads meet at that lock, when a thread has to
//! wait, or when the bound is near: law event_queue.Q11 of the parent module.

use super::full::Full;
use super::run::{Inbox, KEPT, Run};
use super::signals::Signals;
use super::{EventQueue, RecvError};
use crate::collections::promoted::SmallForm;
use crate::oplog::{ConfigId, Deferred};
use std::collections::VecDeque;
use std::mem::{replace, take};
use std::sync::Arc;

/// Events in order, and the settings of the queue.
pub(super) struct Few<E> {
    pub(super) events: VecDeque<E>,
    pub(super) max_events: usize,
    /// Settings of the large form's inbox, until it is made.
    pub(super) settings: Option<ConfigId>,
    /// True if the queue chooses when it has logs.
    pub(super) tunes: bool,
}

impl<E: Send + 'static> SmallForm for Few<E> {
    type Large = Full<E>;

    fn promote(&mut self, contended: bool) -> Full<E> {
        let signals = Arc::new(Signals::new(self.max_events));
        let inbox = Inbox::new(Arc::clone(&signals), take(&mut self.events).into());
        let settings = self.settings.take().expect("promoted.P1: a queue is promoted once");
        let mut inbox = Deferred::<_, Run<E>>::with_config(inbox, settings);
        if contended && self.tunes {
            inbox.rest_at_first(); // the receiver finds out whether logs pay (`front`)
        }
        Full::new(inbox, signals, self.tunes)
    }
}

impl<E> Few<E> {
    /// Takes the next event.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Result<E, RecvError> {
        match self.events.pop_front() {
            Some(event) => Ok(event),
            None => {
                self.give_back();
                Err(RecvError::Empty)
            }
        }
    }

    /// Gives the memory of a peak back. Called when the queue is found empty.
    #[cold]
    fn give_back(&mut self) {
        if self.events.capacity().saturating_mul(size_of::<E>()) > KEPT {
            self.events = VecDeque::new();
        }
    }

    /// Moves all events to the end of `out`.
    pub(super) fn move_all(&mut self, out: &mut Vec<E>) {
        if self.events.is_empty() {
            self.give_back();
        } else if out.is_empty() {
            let memory = take(out);
            *out = replace(&mut self.events, memory.into()).into();
        } else {
            out.extend(self.events.drain(..));
        }
    }

    /// Moves up to `most` events to the end of `out`.
    pub(super) fn move_at_most(&mut self, most: usize, out: &mut Vec<E>) {
        if most >= self.events.len() {
            return self.move_all(out);
        }
        out.extend(self.events.drain(..most));
    }
}

impl<E: Send + 'static> EventQueue<E> {
    /// Sends by the small form. Calls `otherwise` if there is a large form, or if this send needs
    /// one. Inlined, so that the event goes there without being stored in between.
    #[inline(always)]
    pub(super) fn send_small<R>(
        &self,
        event: E,
        sent: R,
        otherwise: impl FnOnce(&Full<E>, E) -> R,
    ) -> R {
        let full = match self.forms.small() {
            // The bound is the large form's to watch (event_queue.Q11).
            Ok(few) if few.events.len() + 1 >= few.max_events => few.promote(),
            Ok(mut few) => {
                few.events.push_back(event);
                return sent;
            }
            Err(full) => full,
        };
        otherwise(full, event)
    }
}
