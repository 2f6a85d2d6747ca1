//! The big-reader lock: a reader writes only its own cache line, and a writer looks at all of them.
//! Law lock.K6 of the parent module.
//!
//! ```text
//! reader   lane.count += 1 -- word is OPEN? --> read --> lane.count -= 1
//!                               no: count back, park until OPEN
//! writer   lock `writers` -> close the word -> barrier -> wait until every lane and the list of
//!          strays is empty -> write -> open the word -> unlock `writers`
//! ```
//!
//! Owns: what this lock adds to a [`percpu::gate`](crate::percpu::gate): mutual exclusion of
//! writers, parking of readers, and a list for the rare reader that has no lane.
//! - br.R1 A reader enters the gate while the gate's word is `OPEN`. A writer holds the word lock
//!   of the writers, closes the gate, and waits until no lane counts a reader (gate.E1 to gate.E3).
//! - br.R2 The bias is that of the process, and never changes (gate.E4).
//! - br.R3 Strays are threads without a lane. They are in a list under a mutex.
//! - br.R4 A thread that is counted already counts itself once more, in the same place and without
//!   looking at the word (gate.E7): the writer waits for it anyway. So a thread may read while it
//!   reads: also when a writer waits, and also if it has since lost its slot or was given a lane.

use super::word::{self, Refused};
use super::{futex, spin_until};
use crate::percpu::gate::{self, Gate, Lane};
use crate::percpu::{self, barrier};
use crate::profile::{Of, Wait};
use crate::sync::{
    self, AtomicUsize, ConstPtr, MutPtr, Mutex, MutexGuard, Ordering, UnsafeCell, const_fn,
};
use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// The gate's word: readers may enter. Otherwise a writer has closed the lock.
const OPEN: usize = 1;
/// The gate's word: a writer has closed the lock, and readers may be parked until it opens.
const SLEEPERS: usize = 2;

/// A reader-writer lock for values that every core reads and that are hardly ever written.
///
/// *For* configuration, routing tables, lists of handlers. A reader writes one cache line that no
/// other thread writes, so readers scale with the cores, unlike those of `std::sync::RwLock`. *Not
/// for* values that are written more than once in thousands of reads, and not for many small
/// objects (see *Memory*). If readers must never wait for a writer, use read-side sections
/// ([`crate::section`]).
///
/// *Consistency*: readers exclude writers, and writers exclude each other. *Progress*: blocking. A
/// writer that has closed the lock comes before readers that arrive later; writers that arrive
/// without a pause can starve readers. Writers are served in no particular order.
///
/// *Re-entrancy*: a thread may read while it reads, also when a writer waits. It panics if it
/// writes while it reads or writes, or reads while it writes.
///
/// *Cost*: where the kernel offers `membarrier` (Linux), a read without a writer is a handful of
/// plain loads and stores, 3 to 5 ns. Elsewhere it takes one more locked instruction. The lock
/// finds out at run time. A write calls `membarrier` (some microseconds) and looks at a line for
/// each slot that was ever in use. A waiting reader spins for some tens of microseconds and then
/// parks. A writer that waits for readers spins, yields, and then looks every 50 us. *Memory*: 128
/// bytes for each slot, allocated in segments: 4 KiB from the first read on. *Panics*: on
/// re-entrancy, as above. A panic of a holder releases the lock and does not poison it.
///
/// ```
/// use manycore::lock::BrLock;
///
/// static ROUTES: BrLock<Vec<&str>> = BrLock::new(Vec::new());
/// ROUTES.write().push("localhost");
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| assert_eq!(ROUTES.read().len(), 1));
///     }
/// });
/// ```
#[doc(alias = "RwLock")]
#[doc(alias = "big-reader lock")]
pub struct BrLock<T> {
    gate: Gate,
    /// Tokens of readers without a lane, one for each of their guards (br.R3).
    strays: Mutex<Vec<usize>>,
    /// The word lock of the writers.
    writers: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: lock.K6 - a writer has the value exclusively and may move it out; readers share it.
unsafe impl<T: Send + Sync> Sync for BrLock<T> {}
// SAFETY: an owned lock is an owned value: no guard borrows it, so no thread waits in it.
unsafe impl<T: Send> Send for BrLock<T> {}

impl<T> BrLock<T> {
    const_fn! {
        /// Makes a free lock around `value`.
        #[must_use]
        pub const fn new(value: T) -> Self {
            Self {
                gate: Gate::new(OPEN),
                strays: Mutex::new(Vec::new()),
                writers: AtomicUsize::new(0),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// Waits until no writer holds the lock, then returns a read guard.
    ///
    /// # Panics
    /// If this thread is writing.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> BrReadGuard<'_, T> {
        match self.gate.enter(OPEN, barrier::is_asymmetric()) {
            Some(lane) => self.read_guard(Some(lane)),
            None => self.read_slow(),
        }
    }

    /// Returns a read guard if no writer holds the lock or waits for it.
    #[inline]
    pub fn try_read(&self) -> Option<BrReadGuard<'_, T>> {
        match self.gate.enter(OPEN, barrier::is_asymmetric()) {
            Some(lane) => Some(self.read_guard(Some(lane))),
            None => self.enter().ok().map(|lane| self.read_guard(lane)),
        }
    }

    fn strays(&self) -> MutexGuard<'_, Vec<usize>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters through a lane or as a stray, unless a writer has closed the lock.
    fn enter(&self) -> Result<Option<&Lane>, Closed> {
        if let Some(lane) = self.gate.enter_again() {
            return Ok(Some(lane)); // br.R4
        }
        let me = percpu::thread_token();
        let is_stray = self.strays().contains(&me);
        if !is_stray && self.gate.claim() {
            return self.gate.enter(OPEN, barrier::is_asymmetric()).map(Some).ok_or(Closed);
        }
        let mut strays = self.strays();
        // ORDER: Acquire; pairs with Release in `open`. The mutex decides between this reader and
        // the writer. Either the writer closed the lock before it found the list empty, or it finds
        // this stray in the list.
        let may_enter = is_stray || self.gate.word.load(Ordering::Acquire) == OPEN;
        if !may_enter {
            return Err(Closed);
        }
        strays.push(me);
        Ok(None)
    }

    #[cold]
    #[track_caller]
    fn read_slow(&self) -> BrReadGuard<'_, T> {
        loop {
            match self.enter() {
                Ok(lane) => return self.read_guard(lane),
                Err(Closed) => {
                    let wait = Wait::begin();
                    self.wait_until_open();
                    wait.end(Of::new("BrLock", self), 1);
                }
            }
        }
    }

    fn wait_until_open(&self) {
        assert!(
            !word::is_held_by(&self.writers, percpu::thread_token()),
            "manycore: a thread reads a BrLock that it is writing: it would wait for itself"
        );
        // ORDER: Relaxed, here and below; the reader looks again after it has counted itself.
        let word = &self.gate.word;
        if spin_until(1, || word.load(Ordering::Relaxed) == OPEN) {
            return;
        }
        loop {
            // lock.K5: announced in the word that the swap in `open` replaces.
            match word.compare_exchange(0, SLEEPERS, Ordering::Relaxed, Ordering::Relaxed) {
                Err(OPEN) => return,
                _ => {
                    futex::wait(word, SLEEPERS);
                }
            }
        }
    }

    fn read_guard<'a>(&'a self, lane: Option<&'a Lane>) -> BrReadGuard<'a, T> {
        BrReadGuard {
            value: ManuallyDrop::new(self.value.get()),
            lane,
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Waits until no thread reads or writes, then returns a write guard.
    ///
    /// # Panics
    /// If this thread is reading or writing.
    #[track_caller]
    pub fn write(&self) -> BrWriteGuard<'_, T> {
        let token = percpu::thread_token();
        let of = Of::new("BrLock", self);
        let is_own = self.is_read_by_me()
            || word::lock(&self.writers, token, of, None) == Err(Refused::HeldBySelf);
        assert!(
            !is_own,
            "manycore: a thread writes a BrLock that it is reading or writing: it would wait for \
             itself"
        );
        self.close();
        if !self.is_drained() {
            let wait = Wait::begin();
            self.drain();
            wait.end(of, 1);
        }
        self.write_guard()
    }

    /// Returns a write guard if no thread reads or writes. May also fail because a reader is just
    /// entering or leaving.
    ///
    /// *Cost*: looks at each lane; if it sees no reader, it pays a barrier, like a write.
    pub fn try_write(&self) -> Option<BrWriteGuard<'_, T>> {
        if !self.is_drained() || word::try_lock(&self.writers, percpu::thread_token()).is_err() {
            return None;
        }
        self.close();
        if self.is_drained() {
            return Some(self.write_guard());
        }
        self.open();
        None
    }

    /// Keeps new readers out from now on. The caller holds `writers`.
    fn close(&self) {
        debug_assert!(
            cfg!(manycore_loom) || self.gate.word.load(Ordering::Relaxed) == OPEN,
            "br.R1: a lock is closed that is not open"
        );
        // ORDER: Relaxed; the barrier decides (gate.E2).
        self.gate.word.store(0, Ordering::Relaxed);
        gate::pass_barrier(barrier::is_asymmetric()); // br.R2
    }

    /// Waits for the readers that entered before the lock was closed.
    fn drain(&self) {
        let Ok(()) = self.gate.wait(|_| Ok::<(), Infallible>(()));
        gate::wait_forever_while(|| !self.has_no_strays());
    }

    fn is_drained(&self) -> bool {
        self.gate.is_empty() && self.has_no_strays()
    }

    fn has_no_strays(&self) -> bool {
        self.strays().is_empty()
    }

    /// Lets readers and other writers in. The caller holds `writers`.
    fn open(&self) {
        debug_assert!(
            cfg!(manycore_loom) || word::is_held_by(&self.writers, percpu::thread_token()),
            "br.R1: a lock is opened by a thread that does not write"
        );
        // ORDER: Release; pairs with Acquire in `Gate::enter` (gate.E3): what the writer wrote.
        let before = self.gate.word.swap(OPEN, Ordering::Release);
        debug_assert!(before & OPEN == 0, "br.R1: a lock is opened that is not closed");
        if before & SLEEPERS != 0 {
            futex::wake_all(&self.gate.word);
        }
        // SAFETY: lock_word.K1 - called by the writer that closed the lock, which holds the word
        // lock; `self` keeps the word.
        unsafe { word::unlock(&self.writers, 0) };
    }

    /// Ends the read of a stray.
    #[cold]
    fn leave_strays(&self) {
        let me = percpu::thread_token();
        let mut strays = self.strays();
        let mine = strays.iter().position(|token| *token == me);
        strays.swap_remove(mine.expect("a stray stands in the list until its guard is dropped"));
    }

    /// Ends a read with a forgotten guard.
    ///
    /// # Safety
    /// The calling thread reads, and the guard of that read gives no access any more.
    #[cfg(all(feature = "lock_api", not(manycore_loom), not(manycore_shuttle)))]
    #[inline]
    pub(super) unsafe fn end_read(&self) {
        // All reads of the thread are counted in one place (br.R4).
        match self.gate.inside() {
            Some(lane) => lane.leave(),
            None => self.leave_strays(),
        }
    }

    /// Ends a write with a forgotten guard.
    ///
    /// # Safety
    /// The calling thread writes, and the guard of that write gives no access any more.
    #[cfg(all(feature = "lock_api", not(manycore_loom), not(manycore_shuttle)))]
    pub(super) unsafe fn end_write(&self) {
        self.open();
    }

    fn is_read_by_me(&self) -> bool {
        self.gate.inside().is_some() || self.strays().contains(&percpu::thread_token())
    }

    fn write_guard(&self) -> BrWriteGuard<'_, T> {
        BrWriteGuard {
            value: ManuallyDrop::new(self.value.get_mut()),
            lock: self,
            not_send: PhantomData,
        }
    }

    /// Consumes the lock and returns the value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Returns the value without locking: `&mut self` proves that no guard is left.
    #[must_use]
    pub fn get_mut(&mut self) -> &mut T {
        let value = self.value.get_mut();
        // SAFETY: `&mut self` - the only guards left are forgotten ones, which give no access. The
        // pointer is into `self`, which is borrowed for as long.
        unsafe { &mut *std::ptr::from_mut(value.deref()) }
    }
}

/// Says that a writer has closed the lock.
struct Closed;

impl<T: fmt::Debug> fmt::Debug for BrLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("BrLock");
        match self.try_read() {
            Some(guard) => text.field("value", &*guard),
            None => text.field("value", &format_args!("<locked>")),
        };
        text.finish()
    }
}

impl<T: Default> Default for BrLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for BrLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Guard of a reader of a [`BrLock`]: shared access to the value. Stays on its thread.
///
/// See [`BrLock`] for an example.
#[must_use = "the lock is given up when the guard is dropped"]
pub struct BrReadGuard<'a, T> {
    /// Dropped before the lock is released.
    value: ManuallyDrop<ConstPtr<T>>,
    /// The lane that counts the reader; `None` for a stray.
    lane: Option<&'a Lane>,
    lock: &'a BrLock<T>,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives only shared access to `T`.
unsafe impl<T: Sync> Sync for BrReadGuard<'_, T> {}

impl<T> Deref for BrReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: lock.K6 - no writer has the value while this reader is counted.
        unsafe { (*self.value).deref() }
    }
}

impl<T: fmt::Debug> fmt::Debug for BrReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for BrReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped only here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        match self.lane {
            Some(lane) => lane.leave(),
            None => self.lock.leave_strays(),
        }
    }
}

/// Guard of a writer of a [`BrLock`]: exclusive access to the value. Stays on its thread.
///
/// See [`BrLock`] for an example.
#[must_use = "the lock is given up when the guard is dropped"]
pub struct BrWriteGuard<'a, T> {
    /// Dropped before the lock is released.
    value: ManuallyDrop<MutPtr<T>>,
    lock: &'a BrLock<T>,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives only shared access to `T`.
unsafe impl<T: Sync> Sync for BrWriteGuard<'_, T> {}

impl<T> Deref for BrWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: lock.K6 - this writer has drained the lanes and keeps the lock closed.
        unsafe { sync::deref_ref(&self.value) }
    }
}

impl<T> DerefMut for BrWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: lock.K6 - this writer has drained the lanes and keeps the lock closed. `&mut
        // self` is the guard's only access to the value.
        unsafe { (*self.value).deref() }
    }
}

impl<T: fmt::Debug> fmt::Debug for BrWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for BrWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped only here, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        self.lock.open();
    }
}
