//! Exchanging an implementation while it is in use. Law cluster.H2, as laws swap.W1 to
//! swap_protocol.W8.
//!
//! Owns: [`Swappable`], and the rules of entry. `protocol` has the swapper's side, `admission` the
//! count of the calls that are admitted late, `transfer` the moving of what the old implementation
//! has.
//!
//! ```text
//! swapper:  claim -> close -> drain -> transfer -> open
//! calls:    run       from outside: wait (and help)   run
//!                     nested: admitted until the count seals at zero
//! ```
//!
//! - swap.W1 A call enters by [`crate::percpu::gate`]: it announces the object on its thread's
//!   stack of calls ([`crate::percpu::calls`]). The gate's word is the address of the target of
//!   calls. The swapper waits until no stack has the object. So (gate.E1, gate.E2) a call saw the
//!   gate closed, or the swapper waits for it. A thread's stack serves all objects, so an object
//!   costs no memory for each thread.
//!
//! The other laws are in their files: admission.W2 in `admission`, transfer.W7 in `transfer`,
//! swap_protocol.W8 in `protocol`.
//!
//! A call that finds the gate closed waits, unless its thread is inside of a call already, of this
//! object or any other. Then the call is counted and admitted, until the count seals at zero. So
//! waits form no cycle. A call from outside, and a nested call of a sealed object, wait for a
//! transfer. A transfer waits for no call. A swapper waits for calls, none of which waits for a
//! swapper that drains.

mod admission;
mod call;
mod error;
mod family;
mod protocol;
mod transfer;

pub use error::{SwapFailure, Swapped};
pub use family::Family;

use self::admission::Admission;
use self::protocol::Held;
use self::transfer::Transfer;
use crate::sync::{AtomicBool, AtomicPtr, Ordering, UnsafeCell, model_failed};
use std::fmt;
use std::sync::Arc;

/// A flag beside the address in the gate: calls from outside wait.
const CLOSED: usize = 1;

/// The target of calls: the implementation, or the wrapper around it.
struct Top<F: ?Sized>(Arc<F>);

/// An object that can exchange its implementation while threads call it.
///
/// What for: an object that begins simple and becomes distributed when many threads use it, or the
/// other way round. A service whose new version takes over from the old one. Watching the calls of
/// a running object ([`interpose`](Self::interpose)). When not: for a value that is replaced as a
/// whole, an `Arc` behind a lock or [`section::Atomic`](crate::section::Atomic) is simpler. For an
/// implementation that is never exchanged, a `Box<dyn Interface>` is.
///
/// The type parameter is the interface, usually a `dyn Trait` whose trait has [`Family`] as its
/// supertrait. [`family!`](crate::family) generates a handle whose methods call the object.
///
/// During a [`swap`](Self::swap), calls from outside wait until the new implementation has
/// everything. Calls that were under way end on the old one. A call from within a call, of this
/// object or another exchangeable one, is admitted until no call is inside any more. So objects may
/// call each other while they are exchanged.
///
/// ```
/// use manycore::cluster::{Family, Swappable};
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}};
///
/// /// A counter, and the version of the code that counts.
/// struct Counter(AtomicU64, &'static str);
/// impl Family for Counter {
///     type Part = u64;
///     fn export(&self, _part: usize) -> u64 {
///         self.0.load(Relaxed)
///     }
///     fn import(&self, count: u64) {
///         self.0.store(count, Relaxed);
///     }
/// }
///
/// let counter = Swappable::new(Arc::new(Counter(AtomicU64::new(0), "1.0")));
/// std::thread::scope(|s| {
///     s.spawn(|| (0..1000).for_each(|_| drop(counter.call(|c| c.0.fetch_add(1, Relaxed)))));
///     s.spawn(|| counter.swap(Arc::new(Counter(AtomicU64::new(0), "1.1"))).unwrap());
/// });
/// assert_eq!(counter.call(|c| (c.0.load(Relaxed), c.1)), (1000, "1.1"));
/// ```
///
/// - Consistency: an exchange is invisible except for latency. If the implementations are
///   linearizable, so is the object.
/// - Progress: a call is wait-free unless a swap is under way. A swap waits for the calls under
///   way, so a call must not wait for a thread that may be waiting to call the same object.
/// - Cost of a call: some 2 to 4 ns more than through a `dyn` reference. This is two thread-locals,
///   two stores to a line of its own, and three loads (one locked instruction more if the kernel
///   has no `membarrier`). No shared line is written. A call more than 16 deep inside of others is
///   counted in the object, with two locked instructions.
/// - Cost of a swap: a `membarrier`, some microseconds, a look at a line for each thread, the wait
///   for the calls under way, and the transfer.
/// - Memory: 128 bytes and a box of some 200; each thread has 128 bytes for all objects.
/// - Panics: a call's panic passes to the caller and changes nothing. A transfer that calls an
///   exchangeable object panics.
/// - Fork: a swap or a call that another thread was inside of never ends in the child.
/// - Source: [K42](crate#sources)'s hot swapping, section 3.4; Soules and others, *System support
///   for online reconfiguration* (USENIX 2003).
///
/// [`Family`] has an example with an interface and two implementations.
#[doc(alias = "hot swap")]
#[repr(align(128))]
pub struct Swappable<F: Family + ?Sized> {
    /// The address of a [`Top`], from a box, perhaps with CLOSED. Changed only by the swapper.
    gate: AtomicPtr<Top<F>>,
    /// True if calls leave the fence to the swapper.
    biased: bool,
    rest: Box<Rest<F>>,
}

/// The fields that only swaps, and calls during swaps, touch.
struct Rest<F: ?Sized> {
    door: Admission,
    transfer: Transfer<F>,
    /// True while a swap is under way.
    claimed: AtomicBool,
    /// Used only by the thread that has claimed the object.
    held: UnsafeCell<Held<F>>,
}

// SAFETY: only the thread that has set `claimed` touches `held` (see `protocol`), and `F: Send +
// Sync`.
unsafe impl<F: Family + ?Sized> Sync for Rest<F> {}
// SAFETY: owned data.
unsafe impl<F: Family + ?Sized> Send for Rest<F> {}

fn is_closed<F: ?Sized>(gate: *mut Top<F>) -> bool {
    gate.addr() & CLOSED != 0
}

/// Returns the address without CLOSED.
fn top_of<F: ?Sized>(gate: *mut Top<F>) -> *mut Top<F> {
    gate.map_addr(|address| address & !CLOSED)
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
