//! Exchanging an implementation while it is in use. Law cluster.H2, as laws swap.W1 to swap.W7.
//!
//! Owns: [`Swappable`] (`call`, `update`), and the rules of entry. `protocol` has the swapper's
//! side, `admission` the count of the calls that are admitted late, `log` the updates that need not
//! wait, `transfer` the moving of what the old implementation has.
//! - swap.W1 A call enters by [`crate::percpu::gate`]: it announces the object on its thread's
//!   stack of calls ([`crate::percpu::calls`]), and the gate's word is the address of what calls go
//!   to. The swapper waits until no stack has the object. So (gate.E1, gate.E2) a call saw the gate
//!   closed, or is waited for. A thread's stack serves all objects, so that an object costs no
//!   memory for each thread.
//!
//! The other laws stand in their files: swap.W2 and swap.W3 in `admission`, swap.W4 to swap.W6 in
//! `log`, swap.W7 in `transfer`, swap.W8 in `protocol`.
//!
//! A call that finds the gate closed waits, unless its thread is inside of a call already, of this
//! object or any other: then it is counted and admitted, until the count seals at zero. So waits
//! form no cycle: a call from outside and a nested call of a sealed object wait for a transfer, a
//! transfer waits for no call, and a swapper waits for calls, none of which waits for a swapper
//! that drains.
//!
//! Linearization during a swap: calls that were announced before the closing can all be thought to
//! happen before the first update that was queued, because all were under way when it came; a call
//! that is admitted applies first what was queued before it.

mod admission;
mod error;
mod family;
mod log;
mod protocol;
mod transfer;

pub use error::{SwapError, SwapFailure, Swapped};
pub use family::Family;
pub use protocol::Layer;

use self::admission::Admission;
use self::log::{Log, Queued};
use self::protocol::Held;
use self::transfer::Transfer;
use crate::percpu::calls::{self, Call, Depth, LEAF};
use crate::percpu::{self, barrier};
use crate::sync::{AtomicBool, AtomicPtr, Backoff, Ordering, UnsafeCell, model_failed, seeded_bug};
use std::fmt;
use std::ptr;
use std::sync::Arc;

/// A flag beside the address in the gate: calls from outside wait.
const CLOSED: usize = 1;

/// The target of calls: the implementation, or the outermost of its wrappers.
struct Top<F: ?Sized>(Arc<F>);

/// An object whose implementation can be exchanged while threads call it.
///
/// What for: an object that begins simple and becomes distributed when many threads use it, or the
/// other way round; a service whose new version takes over from the old one; watching the calls of
/// a running object ([`interpose`](Self::interpose)). When not: for a value that is replaced as a
/// whole, an `Arc` behind a lock or [`section::Atomic`](crate::section::Atomic) is simpler; for one
/// that is never exchanged, a `Box<dyn Interface>`.
///
/// The type parameter is the interface, usually a `dyn Trait` whose trait has [`Family`] as its
/// supertrait. [`family!`](crate::family) generates a handle whose methods go through here.
///
/// During a [`swap`](Self::swap), calls from outside wait until the new implementation has
/// everything. Calls that were under way end on the old one. A call from within a call, of this
/// object or another exchangeable one, is admitted until no call is inside any more, so that
/// objects may call each other while they are exchanged. [Updates](Self::update) do not
/// wait.
///
/// - Consistency: an exchange is invisible except for latency. If the implementations are
///   linearizable, so is the object.
/// - Progress: a call is wait-free unless a swap is under way. A swap waits for the calls under
///   way; so a call must not wait for a thread that may be waiting to call the same object.
/// - Cost: a call costs some 2 to 4 ns more than one through a `dyn` reference: two thread-locals,
///   two stores to a line of its own, three loads (one locked instruction more where the kernel has
///   no `membarrier`). No shared line is written. A call more than 16 deep inside of others is
///   counted in the object, with two locked instructions. A swap: a `membarrier`, some
///   microseconds, a look at a line for each thread, the wait for the calls under way, and the
///   transfer.
/// - Memory: 128 bytes and a box of some 300; each thread has 128 bytes for all objects.
/// - Panics: a call's panic passes to the caller and changes nothing. An update or a transfer
///   that calls an exchangeable object panics.
/// - Fork: a swap or a call that another thread was inside of never ends in the child.
/// - Source: K42's hot swapping, section 3.4; Soules and others, *System support for online
///   reconfiguration* (USENIX 2003).
///
/// See [`Family`] for an example.
#[doc(alias = "hot swap")]
#[repr(align(128))]
pub struct Swappable<F: Family + ?Sized> {
    /// The address of a [`Top`], from a box, perhaps with CLOSED. Changed only by the swapper.
    gate: AtomicPtr<Top<F>>,
    /// Whether calls leave the fence to the swapper.
    biased: bool,
    rest: Box<Rest<F>>,
}

/// The fields that only swaps, and calls during swaps, touch.
struct Rest<F: ?Sized> {
    door: Admission,
    log: Log<F>,
    transfer: Transfer<F>,
    /// A swap is under way.
    claimed: AtomicBool,
    /// For the thread that has claimed the object.
    held: UnsafeCell<Held<F>>,
}

// SAFETY: only the thread that has set `claimed` touches `held` (see `protocol`), and `F: Send +
// Sync`.
unsafe impl<F: Family + ?Sized> Sync for Rest<F> {}
// SAFETY: owned data.
unsafe impl<F: Family + ?Sized> Send for Rest<F> {}

/// A call inside of the object, entered by the slow path: until it is dropped, no swap completes.
struct Inside<'a, F: ?Sized> {
    top: &'a F,
    _how: Announcement<'a>,
}

enum Announcement<'a> {
    Announced(#[allow(dead_code, reason = "for its drop")] Call),
    Counted(#[allow(dead_code, reason = "for its drop")] Counted<'a>),
}

/// A call that is counted in the object.
struct Counted<'a> {
    door: &'a Admission,
    _depth: Depth,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.door.dismiss();
    }
}

fn is_closed<F: ?Sized>(gate: *mut Top<F>) -> bool {
    gate.addr() & CLOSED != 0
}

/// The address without CLOSED.
fn top_of<F: ?Sized>(gate: *mut Top<F>) -> *mut Top<F> {
    gate.map_addr(|address| address & !CLOSED)
}

/// How many calls the thread is inside of.
fn assert_may_call() -> usize {
    let depth = calls::depth();
    assert!(
        depth != LEAF,
        "manycore: an update or a transfer calls an exchangeable object: the swap that runs \
         it would wait for itself"
    );
    depth
}

impl<F: Family + ?Sized> Swappable<F> {
    /// An object with this implementation.
    #[must_use]
    pub fn new(first: Arc<F>) -> Self {
        let top = Box::new(Top(Arc::clone(&first)));
        Self {
            gate: AtomicPtr::new(Box::into_raw(top)),
            biased: barrier::is_asymmetric(),
            rest: Box::new(Rest {
                door: Admission::new(),
                log: Log::new(),
                transfer: Transfer::new(),
                claimed: AtomicBool::new(false),
                held: UnsafeCell::new(Held::new(first)),
            }),
        }
    }

    /// The word that calls announce.
    #[inline(always)]
    fn number(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Calls the implementation. A panic of the call passes to the caller.
    ///
    /// # Panics
    /// If it is called from within an update or a transfer.
    #[inline]
    pub fn call<R>(&self, call: impl FnOnce(&F) -> R) -> R {
        match self.enter_announced() {
            Some((_announced, top)) => call(top),
            None => self.call_slow(call),
        }
    }

    /// Announces a call, if the object is open (swap.W1). The reference returned must not be used
    /// after the announcement is dropped.
    #[inline(always)]
    fn enter_announced(&self) -> Option<(Call, &F)> {
        let announced = calls::enter(self.number(), self.biased)?;
        // ORDER: Acquire; pairs with Release in `Swappable::open` (gate.E3): the implementation
        // before its address. Behind the announcement by gate.E1.
        let gate = self.gate.load(Ordering::Acquire);
        if is_closed(gate) {
            return None;
        }
        // SAFETY: swap.W1 - announced while open: no swap frees it before `announced` is dropped.
        Some((announced, unsafe { &(*gate).0 }))
    }

    #[cold]
    #[inline(never)]
    fn call_slow<R>(&self, call: impl FnOnce(&F) -> R) -> R {
        call(self.enter().top)
    }

    /// Enters, waiting while the object is closed.
    fn enter(&self) -> Inside<'_, F> {
        let mut backoff = Backoff::new();
        loop {
            match self.try_enter() {
                Some(inside) => return inside,
                None => self.wait(&mut backoff),
            }
        }
    }

    /// Enters, if a call of this thread is admitted now.
    fn try_enter(&self) -> Option<Inside<'_, F>> {
        let depth = assert_may_call();
        // BUG: a thread inside a call waits at a closed object as all others do (cluster.H2).
        let is_insider = depth > 0 && !seeded_bug!("unadmitted-insider");
        // After the thread's destructors there is no slot to announce in.
        if is_insider || percpu::own_slot().is_none() {
            return self.rest.door.admit().then(|| self.counted());
        }
        // A look before the announcement, which would delay the swapper.
        // ORDER: Relaxed; looked at again below.
        if is_closed(self.gate.load(Ordering::Relaxed)) {
            return None;
        }
        let (announced, top) = self.enter_announced()?;
        Some(Inside { top, _how: Announcement::Announced(announced) })
    }

    /// To be called for a call that has just been admitted.
    fn counted(&self) -> Inside<'_, F> {
        let how = Announcement::Counted(Counted { door: &self.rest.door, _depth: calls::deeper() });
        // ORDER: Acquire; as in `enter_announced`. The count, too, was read with Acquire.
        let gate = self.gate.load(Ordering::Acquire);
        // SAFETY: swap.W2 - not sealed before this call is counted out, so no swapper exchanges it.
        let top: &F = unsafe { &(*top_of(gate)).0 };
        // BUG: a call that is admitted to a closed object does not apply the updates that wait
        // (swap.W5).
        if is_closed(gate) && !seeded_bug!("skipped-log") {
            self.rest.log.catch_up(top); // swap.W5
        }
        Inside { top, _how: how }
    }

    /// Waits a moment for a swap, or helps it.
    fn wait(&self, backoff: &mut Backoff) {
        if !self.rest.transfer.help(&self.rest.door) {
            backoff.pause();
        }
    }

    /// Calls the implementation with an update that returns nothing and so need not wait: if the
    /// implementation is being exchanged, the update is queued and applied, in the order of these
    /// calls, before the object opens.
    ///
    /// The thread's own later calls see it, and so do calls of all threads that began after this
    /// returned. At most 65,536 updates are queued at a time; further ones wait. If a queued update
    /// panics, the exchange goes on and [`update_panics`](Self::update_panics) counts the panic;
    /// the panic of one that was not queued passes to its caller.
    ///
    /// # Panics
    /// If the update calls an exchangeable object (it may have to run inside a swap), or if this is
    /// called from within such an update.
    #[inline]
    pub fn update<U: FnOnce(&F) + Send + 'static>(&self, update: U) {
        match self.enter_announced() {
            Some((_announced, top)) => {
                let _leaf = calls::leaf();
                update(top);
            }
            None => self.update_slow(update),
        }
    }

    /// How many [updates](Self::update) have panicked so far after they were queued, and so
    /// without a caller to pass the panic to: in a [`swap`](Self::swap) that was made, which
    /// reports its own in [`Swapped::panics`], in one that failed, or while a wrapper was added or
    /// removed.
    ///
    /// ```
    /// # use manycore::cluster::{Family, Swappable};
    /// # struct Nothing;
    /// # impl Family for Nothing {
    /// #     type Part = ();
    /// #     fn export(&self, _: usize) {}
    /// #     fn import(&self, (): ()) {}
    /// # }
    /// let object = Swappable::new(std::sync::Arc::new(Nothing));
    /// assert_eq!(object.update_panics(), 0);
    /// ```
    pub fn update_panics(&self) -> usize {
        self.rest.log.panics()
    }

    #[cold]
    #[inline(never)]
    fn update_slow<U: FnOnce(&F) + Send + 'static>(&self, mut update: U) {
        assert_may_call();
        let mut backoff = Backoff::new();
        loop {
            // ORDER: Relaxed; the gate opens under the lock under which this looks (swap.W4).
            let is_closed = || is_closed(self.gate.load(Ordering::Relaxed));
            update = match self.rest.log.push(is_closed, update) {
                Queued::Yes => return,
                Queued::Open(update) | Queued::Full(update) => update,
            };
            if let Some(inside) = self.try_enter() {
                let _leaf = calls::leaf();
                return update(inside.top);
            }
            self.wait(&mut backoff);
        }
    }
}

impl<F: Family + ?Sized> Drop for Swappable<F> {
    fn drop(&mut self) {
        if model_failed() {
            return;
        }
        // ORDER: Relaxed; `&mut self` is exclusive.
        let top = top_of(self.gate.load(Ordering::Relaxed));
        // SAFETY: swap.W1 - from a box, and `&mut self`: no call is inside.
        drop(unsafe { Box::from_raw(top) });
    }
}

impl<F: Family + ?Sized> fmt::Debug for Swappable<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ORDER: Relaxed; only printed.
        let is_closed = is_closed(self.gate.load(Ordering::Relaxed));
        f.debug_struct("Swappable").field("is_closed", &is_closed).finish_non_exhaustive()
    }
}
