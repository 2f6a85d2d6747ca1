//! The calling thread's ring.
//!
//! # Laws
//!
//! Owns: the thread's writer, and when it is in use. Does not own: which rings there are
//! (`session`).
//!
//! - local.L1 The writer is used by its own thread, and while the thread is marked busy, only by
//!   the code that marked it (`busy`). A signal's handler that finds it so records nothing, and
//!   counts one event as lost.
//! - local.L2 A thread that ends gives its writer back before its slot can be used again; a later
//!   event of that thread, in another destructor, is refused and counted.
//! - local.L3 A writer is dropped, and its ring unmapped, only by the thread that has it: at its
//!   end, or when it begins to write for another recording. So the end of a recording waits for no
//!   thread, and no thread writes to memory that is gone.
//! - local.L4 The thread's generation is not 0 only while there are a writer and a clock: it is set
//!   after them, and reset before the writer is taken away. A recording's is never 0.

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
    /// The recording that the writer is of; 0 without one.
    generation: Cell<u64>,
    clock: Cell<Option<&'static Clock>>,
    /// Without a destructor of its own, so that reaching it is one load; `OnExit` has it.
    writer: UnsafeCell<ManuallyDrop<Option<Writer>>>,
    /// The writer's ring, for a handler that finds the writer busy; null while it changes.
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
    /// Runs `f` with the writer; `None` if that is busy.
    #[inline(always)]
    fn with_writer<R>(&self, f: impl FnOnce(&mut Option<Writer>) -> R) -> Option<R> {
        let place = self.writer.get();
        // SAFETY: this thread's own, and nothing else of it uses the writer while it is marked busy
        // (local.L1); `f` is this module's code, which runs none of the program's.
        busy::if_idle(|| f(unsafe { &mut *place }))
    }

    /// Puts another writer in place, and returns the old one.
    fn replace(&self, place: &mut Option<Writer>, new: Option<Writer>) -> Option<Writer> {
        // ORDER: Relaxed; only a handler of this thread looks. It finds null until the ring is kept
        // by the writer in place.
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

/// Records an event of `length` words, of which `fill` stores all but the first.
#[inline(always)]
pub(crate) fn record(event: &'static Event, length: usize, fill: impl FnOnce(&[AtomicU64])) {
    // Not all in `with`: the compiler does not inline that where much is done in it.
    let local = LOCAL.with(ptr::from_ref);
    // SAFETY: the thread's own, without a destructor: it is there as long as the thread.
    let local = unsafe { &*local };
    let done = local.with_writer(|place| {
        // ORDER: Relaxed; the number is the file's before it is stored (`session::register`), by
        // this thread or, as it is read through the lock of `attach`, by another one.
        let mut tag = event.tag.load(Ordering::Relaxed);
        if tag == 0 || local.generation.get() != class::generation() {
            match prepare(local, place, event) {
                Some(registered) => tag = registered,
                None => return,
            }
        }
        debug_assert!(place.is_some() && local.clock.get().is_some(), "local.L4: no writer");
        // SAFETY: the thread's generation is that of a recording (or `prepare` has looked), so
        // there are a writer and a clock (local.L4).
        let (writer, clock) =
            unsafe { (place.as_mut().unwrap_unchecked(), local.clock.get().unwrap_unchecked()) };
        writer.record(tag, length, clock.ticks_now(), fill);
    });
    if done.is_none() {
        refuse(local);
    }
}

/// A handler has interrupted an event (local.L1).
#[cold]
fn refuse(local: &Local) {
    // ORDER: Relaxed; stored by this thread.
    let found = local.ring.load(Ordering::Relaxed);
    // SAFETY: null, or the ring that the writer in place keeps (`replace`); the code that this
    // handler interrupted, which may take the writer away, goes on only after it.
    match unsafe { found.as_ref() } {
        // ORDER: Relaxed; a count.
        Some(found) => _ = found.words()[ring::REENTRANT].fetch_add(1, Ordering::Relaxed),
        None => session::count_refused(),
    }
}

/// The slow way: a first event of the site, or of the thread in this recording. Returns the
/// event's tag, if it can be recorded.
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

/// The calling thread's number in the system, or one of this process.
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
            // ORDER: Relaxed; a number of its own.
            static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        OWN.try_with(|own| *own).unwrap_or(0)
    }
}
