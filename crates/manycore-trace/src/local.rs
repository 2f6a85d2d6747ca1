//! The calling thread's ring.
//!
//! This module owns the thread's writer, and decides when the writer is in use. It does not own the
//! set of rings (`session`).
//!
//! ```text
//! generation 0, no writer --first event: attach--> generation g, writer and clock
//!        ^                                                   |
//!        +---- thread ends, or records for a recording g' ---+
//! ```
//!
//! # Laws
//!
//! - local.L1 Only its own thread uses the writer. While the thread is marked busy, only the code
//!   that marked it uses the writer (`busy`). A signal handler that finds the thread busy records
//!   nothing and counts one event as lost.
//! - local.L2 A thread that ends gives its writer back before its slot can be used again. A later
//!   event of that thread, in another destructor, is refused and counted.
//! - local.L3 Only the thread that has a writer drops it and unmaps its ring: when the thread ends,
//!   or when it begins to write for another recording. So the end of a recording waits for no
//!   thread, and no thread writes to unmapped memory.
//! - local.L4 The thread's generation is not 0 only while there are a writer and a clock. It is set
//!   after them, and reset before the writer is taken away. A recording's generation is never 0.

use crate::busy;
use crate::class;
use crate::format::ring;
use crate::ring::{Ring, Writer};
use crate::session;
use crate::site::Event;
use crate::sync::{AtomicPtr, AtomicU64, Ordering, compiler_fence};
use manycore::clock::Clock;
use std::cell::{Cell, UnsafeCell};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

struct Local {
    /// The recording that the writer belongs to, or 0 without a writer.
    generation: Cell<u64>,
    clock: Cell<Option<&'static Clock>>,
    /// Has no destructor of its own, so that access costs one load. `OnExit` cleans it up.
    writer: UnsafeCell<ManuallyDrop<Option<Writer>>>,
    /// The writer's ring, for a handler that finds the writer busy. Null while it changes.
    ring: AtomicPtr<Ring>,
}

/// Gives the writer back when the thread ends.
struct OnExit;

thread_local! {
    static LOCAL: Local = const {
        Local {
            generation: Cell::new(0),
            clock: Cell::new(None),
            writer: UnsafeCell::new(ManuallyDrop::new(None)),
            ring: AtomicPtr::new(ptr::null_mut()),
        }
    };
    static ON_EXIT: OnExit = const { OnExit };
}

impl Local {
    /// Runs `f` with the writer. Returns `None` if the thread is busy.
    #[inline(always)]
    fn with_writer<R>(&self, f: impl FnOnce(&mut Option<Writer>) -> R) -> Option<R> {
        let place = self.writer.get();
        // SAFETY: the cell is this thread's own, and nothing else uses the writer while the thread
        // is marked busy (local.L1). `f` is this module's code and runs none of the program's.
        busy::if_idle(|| f(unsafe { &mut *place }))
    }

    /// Replaces the writer and returns the old one.
    fn replace(&self, place: &mut Option<Writer>, new: Option<Writer>) -> Option<Writer> {
        // ORDER: Relaxed; only a handler of this thread reads it. It finds null until the writer in
        // place keeps the ring.
        self.ring.store(ptr::null_mut(), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let old = std::mem::replace(place, new);
        compiler_fence(Ordering::SeqCst);
        if let Some(writer) = place {
            let ring = Arc::as_ptr(writer.ring()).cast_mut();
            // ORDER: Relaxed; as above.
            self.ring.store(ring, Ordering::Relaxed);
        }
        old
    }
}

impl Drop for OnExit {
    fn drop(&mut self) {
        LOCAL.with(|local| {
            let generation = local.generation.replace(0);
            let writer = local.with_writer(|place| local.replace(place, None));
            if let Some(Some(writer)) = writer {
                session::give_back(generation, writer);
            }
        });
    }
}

/// Records an event of `length` words. `fill` stores all words except the first.
#[inline(always)]
pub(crate) fn record(event: &'static Event, length: usize, fill: impl FnOnce(&[AtomicU64])) {
    // Not all inside `with`: the compiler does not inline `with` around a large closure.
    let local = LOCAL.with(ptr::from_ref);
    // SAFETY: the variable is the thread's own and has no destructor, so it lives as long as the
    // thread.
    let local = unsafe { &*local };
    let done = local.with_writer(|place| {
        // ORDER: Relaxed; the number is in the file before it is stored (`session::register`). This
        // thread stored it, or another thread did and `attach` has taken the lock since.
        let mut tag = event.tag.load(Ordering::Relaxed);
        if tag == 0 || local.generation.get() != class::generation() {
            match prepare(local, place, event) {
                Some(registered) => tag = registered,
                None => return,
            }
        }
        debug_assert!(place.is_some() && local.clock.get().is_some(), "local.L4: no writer");
        // SAFETY: the thread's generation is that of a recording (or `prepare` has checked), so
        // there are a writer and a clock (local.L4).
        let (writer, clock) =
            unsafe { (place.as_mut().unwrap_unchecked(), local.clock.get().unwrap_unchecked()) };
        writer.record(tag, length, clock.ticks_now(), fill);
    });
    if done.is_none() {
        refuse(local);
    }
}

/// Counts an event of a handler that interrupted another event (local.L1).
#[cold]
fn refuse(local: &Local) {
    // ORDER: Relaxed; stored by this thread.
    let found = local.ring.load(Ordering::Relaxed);
    // SAFETY: null, or the ring that the writer in place keeps alive (`replace`). The interrupted
    // code may take the writer away, but it goes on only after this handler.
    match unsafe { found.as_ref() } {
        // ORDER: Relaxed; a count.
        Some(found) => _ = found.words()[ring::REENTRANT].fetch_add(1, Ordering::Relaxed),
        None => session::count_refused(),
    }
}

/// Does the slow work of a site's first event, or of a thread's first event in this recording.
///
/// Returns the event's tag, if the event can be recorded.
#[cold]
#[inline(never)]
fn prepare(local: &Local, place: &mut Option<Writer>, event: &'static Event) -> Option<u64> {
    let tag = session::register(event)?;
    if local.generation.get() != class::generation() {
        attach(local, place);
    }
    place.is_some().then_some(tag)
}

fn attach(local: &Local, place: &mut Option<Writer>) {
    let clock = Clock::system();
    local.clock.set(Some(clock));
    let old_generation = local.generation.replace(0);
    let old = local.replace(place, None);
    if let Some(old) = old {
        session::give_back(old_generation, old);
    }
    if ON_EXIT.try_with(|_| ()).is_err() {
        session::refuse_event(); // local.L2
        return;
    }
    let Some((generation, mut writer)) = session::take_writer() else { return };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    writer.change_thread(thread_number(), name.as_bytes(), clock.ticks_now());
    local.replace(place, Some(writer));
    local.generation.set(generation);
}

/// Returns the system's number of the calling thread, or a number unique in this process.
fn thread_number() -> u64 {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: the call has no arguments and always succeeds.
        let number = unsafe { libc::syscall(libc::SYS_gettid) };
        number.unsigned_abs()
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            // ORDER: Relaxed; only uniqueness matters.
            static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        OWN.try_with(|own| *own).unwrap_or(0)
    }
}
