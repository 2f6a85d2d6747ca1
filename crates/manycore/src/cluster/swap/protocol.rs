//! The swapper's side: claim, close, drain, transfer, open.
//!
//! Owns: what a claim protects. The thread that has set `claimed` is the swapper: only it changes
//! the gate and touches `held`, until it clears `claimed`.
//! - swap_protocol.W8 While an object is closed, no user value is dropped. What an exchange leaves
//!   to be dropped ([`Left`]) is dropped when calls go on and the claim is released. However the
//!   swapper leaves, the object opens ([`Closed`]).

use super::error::{SwapFailure, Swapped};
use super::family::Family;
use super::{CLOSED, Swappable, Top, top_of};
use crate::percpu::{calls, gate};
use crate::sync::{self, Backoff, Ordering, Panic};
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes a wrapper around the implementation it is given.
type Wrap<F> = Box<dyn Fn(Arc<F>) -> Arc<F> + Send + Sync>;

/// The parts that a claim protects: the implementation, and what makes the wrapper around it.
pub(super) struct Held<F: ?Sized> {
    pub(super) base: Arc<F>,
    pub(super) wrap: Option<Wrap<F>>,
}

/// Returns the target of calls: `base`, inside of its wrapper if there is one.
fn wrapped<F: ?Sized>(wrap: Option<&Wrap<F>>, base: &Arc<F>) -> Result<Arc<F>, SwapFailure> {
    let base = Arc::clone(base);
    let Some(wrap) = wrap else { return Ok(base) };
    let _leaf = calls::leaf();
    sync::caught(|| wrap(base)).map_err(SwapFailure::Panicked)
}

/// User values that an exchange has replaced, to be dropped later (swap_protocol.W8).
struct Left<F: ?Sized> {
    wrap: Option<Wrap<F>>,
    panics: Vec<Panic>,
}

/// The new target of calls, and the implementation that was there.
type Replaced<F> = (Arc<F>, Arc<F>);

/// A closed object.
struct Closed<'a, F: Family + ?Sized> {
    object: &'a Swappable<F>,
    /// The target of calls before the closing.
    before: *mut Top<F>,
}

impl<F: Family + ?Sized> Closed<'_, F> {
    fn open(self, top: *mut Top<F>) {
        ManuallyDrop::new(self).object.open(top);
    }
}

impl<F: Family + ?Sized> Drop for Closed<'_, F> {
    /// Opens the object when a panic unwinds: calls go on as before.
    fn drop(&mut self) {
        self.object.open(self.before);
    }
}

/// The right to swap; dropping it releases the claim.
struct Claim<'a, F: Family + ?Sized>(&'a Swappable<F>);

impl<F: Family + ?Sized> Drop for Claim<'_, F> {
    fn drop(&mut self) {
        // ORDER: Release; pairs with Acquire in `claim`: what the swapper changed.
        self.0.rest.claimed.store(false, Ordering::Release);
    }
}

/// The deadline of the wait for calls; `None` for no deadline.
type Patience = Option<Instant>;

fn is_over(patience: Patience) -> bool {
    patience.is_some_and(|until| Instant::now() >= until)
}

impl<F: Family + ?Sized> Swappable<F> {
    /// Exchanges the implementation for `new`, which takes over the state of the present one.
    ///
    /// Waits for the calls that are under way, however long they take; see
    /// [`swap_within`](Self::swap_within). Calls that arrive during the swap wait, and help with
    /// the transfer if it moves in several pieces. The wrapper is made anew around the new
    /// implementation.
    ///
    /// # Errors
    /// If another swap is under way, if this is called from within a call, or if the transfer
    /// panics. The object keeps the implementation it had.
    pub fn swap(&self, new: Arc<F>) -> Result<Swapped<F>, SwapFailure> {
        self.swap_until(new, None)
    }

    /// Same as [`swap`](Self::swap), but fails if calls that were under way have not ended within
    /// `patience`. The time of the transfer is not bounded.
    ///
    /// # Errors
    /// Same as [`swap`](Self::swap), and if the time is over.
    pub fn swap_within(&self, new: Arc<F>, patience: Duration) -> Result<Swapped<F>, SwapFailure> {
        self.swap_until(new, Instant::now().checked_add(patience))
    }

    fn swap_until(&self, new: Arc<F>, patience: Patience) -> Result<Swapped<F>, SwapFailure> {
        // `new` is dropped after the exchange, whatever becomes of it (swap_protocol.W8).
        self.exchange(patience, |held, left| {
            let moved = self.rest.transfer.run(Arc::clone(&held.base), Arc::clone(&new));
            if let Err(mut panics) = moved {
                let first = panics.swap_remove(0);
                left.panics = panics;
                return Err(SwapFailure::Panicked(first));
            }
            let top = wrapped(held.wrap.as_ref(), &new)?;
            Ok((top, mem::replace(&mut held.base, Arc::clone(&new))))
        })
    }

    /// Puts a wrapper around the implementation, in place of the wrapper that is there. From the
    /// moment this returns, the wrapper gets every call, and the one before it gets none. `wrap`
    /// gets the object to pass calls on to. It is called again, with another object, at each swap,
    /// so a wrapper shares its lasting state with the closure. The implementation's state is not
    /// moved.
    ///
    /// ```
    /// # use manycore::cluster::Family;
    /// use manycore::cluster::Swappable;
    /// use std::sync::Arc;
    ///
    /// /// What is called, and what watches the calls.
    /// trait Greet: Family<Part = ()> {
    ///     fn greet(&self) -> String;
    /// }
    ///
    /// struct English;
    /// struct Loud(Arc<dyn Greet>);
    /// impl Greet for English {
    ///     fn greet(&self) -> String {
    ///         "hello".into()
    ///     }
    /// }
    /// impl Greet for Loud {
    ///     fn greet(&self) -> String {
    ///         self.0.greet().to_uppercase()
    ///     }
    /// }
    /// # impl Family for English {
    /// #     type Part = ();
    /// #     fn export(&self, _: usize) {}
    /// #     fn import(&self, (): ()) {}
    /// # }
    /// # impl Family for Loud {
    /// #     type Part = ();
    /// #     fn export(&self, _: usize) {}
    /// #     fn import(&self, (): ()) {}
    /// # }
    ///
    /// let greeter: Swappable<dyn Greet> = Swappable::new(Arc::new(English));
    /// greeter.interpose(|inner| Arc::new(Loud(inner))).unwrap();
    /// assert_eq!(greeter.call(|greeter| greeter.greet()), "HELLO");
    /// greeter.withdraw().unwrap();
    /// assert_eq!(greeter.call(|greeter| greeter.greet()), "hello");
    /// ```
    ///
    /// # Errors
    /// If a swap is under way, if this is called from within a call, or if `wrap` panics.
    ///
    /// # Panics
    /// If the `Drop` of a wrapper that is replaced panics. The exchange is done by then.
    pub fn interpose(
        &self,
        wrap: impl Fn(Arc<F>) -> Arc<F> + Send + Sync + 'static,
    ) -> Result<(), SwapFailure> {
        self.rewrap(Some(Box::new(wrap)))
    }

    /// Removes the wrapper, if there is one. From the moment this returns, the wrapper gets no call
    /// and is in none.
    ///
    /// # Errors
    /// As [`interpose`](Self::interpose).
    ///
    /// # Panics
    /// As [`interpose`](Self::interpose).
    pub fn withdraw(&self) -> Result<(), SwapFailure> {
        self.rewrap(None)
    }

    fn rewrap(&self, wrap: Option<Wrap<F>>) -> Result<(), SwapFailure> {
        let replace = |held: &mut Held<F>, left: &mut Left<F>| {
            let top = wrapped(wrap.as_ref(), &held.base);
            left.wrap = if top.is_ok() { mem::replace(&mut held.wrap, wrap) } else { wrap };
            Ok((top?, Arc::clone(&held.base)))
        };
        self.exchange(None, replace).map(drop)
    }

    /// Runs the whole protocol. `replace` runs while no call is inside.
    fn exchange(
        &self,
        patience: Patience,
        replace: impl FnOnce(&mut Held<F>, &mut Left<F>) -> Result<Replaced<F>, SwapFailure>,
    ) -> Result<Swapped<F>, SwapFailure> {
        let mut left = Left { wrap: None, panics: Vec::new() };
        let claim = self.claim()?;
        let since = Instant::now();
        let closed = self.close();
        let replaced = if self.drain(patience) {
            // SAFETY: this thread has set `claimed`, and only the swapper touches `held`.
            self.rest.held.with_mut(|held| replace(unsafe { &mut *held }, &mut left))
        } else {
            Err(SwapFailure::TimedOut)
        };
        let before = closed.before;
        let (top, replaced) = match replaced {
            Ok((top, old)) => (Box::into_raw(Box::new(Top(top))), Ok(old)),
            Err(failure) => (before, Err(failure)),
        };
        closed.open(top);
        let closed_for = since.elapsed();
        drop(claim);
        if replaced.is_ok() {
            // SAFETY: from a box, and not reached any more: the gate leads elsewhere, and no call
            // was inside when it was changed.
            drop(unsafe { Box::from_raw(before) });
        }
        // User values are dropped here, and not on return: if a destructor panicked then, the value
        // being returned would never be dropped.
        drop(left);
        Ok(Swapped { old: replaced?, closed_for })
    }

    fn claim(&self) -> Result<Claim<'_, F>, SwapFailure> {
        if calls::depth() > 0 {
            return Err(SwapFailure::InsideCall);
        }
        // ORDER: Acquire; pairs with Release in `Claim::drop`.
        if self.rest.claimed.swap(true, Ordering::Acquire) {
            return Err(SwapFailure::Busy);
        }
        Ok(Claim(self))
    }

    /// Keeps calls from outside out from now on. The caller has claimed the object.
    fn close(&self) -> Closed<'_, F> {
        // ORDER: Relaxed; the swapper reads what swappers wrote.
        let top = self.gate.load(Ordering::Relaxed);
        // ORDER: Relaxed; the barrier decides (gate.E2).
        self.gate.store(top.map_addr(|address| address | CLOSED), Ordering::Relaxed);
        gate::pass_barrier(self.biased);
        Closed { object: self, before: top_of(top) }
    }

    /// Waits until no call is inside, and then admits none (swap.W1, admission.W2). Returns false
    /// if it took too long, and the object is not sealed.
    fn drain(&self, patience: Patience) -> bool {
        let in_time = |_: &Backoff| if is_over(patience) { Err(()) } else { Ok(()) };
        if gate::wait_while(|| calls::is_anybody_inside(self.number()), in_time).is_err() {
            return false;
        }
        self.rest.door.drained();
        let mut backoff = Backoff::new();
        while !self.rest.door.is_sealed() {
            if is_over(patience) && self.rest.door.give_up() {
                return false;
            }
            backoff.pause();
        }
        true
    }

    /// Opens the object for calls to `top`.
    fn open(&self, top: *mut Top<F>) {
        // ORDER: Release; pairs with Acquire in `call`: the implementation and all that was moved.
        self.gate.store(top, Ordering::Release);
        self.rest.door.unseal();
    }
}
