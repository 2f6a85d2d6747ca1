//! The big-reader lock: a reader writes its own line, a writer looks at all of them. Law lock.K6 of
//! the parent module.
//!
//! Owns: one lane for each slot, and a list for the rare reader that has no lane.
//! - br.R1 A reader counts itself in its lane, then looks whether a writer has closed the lock, and
//!   if so takes itself out again. A writer closes, then waits until no lane counts anybody.
//! - br.R2 A lane belongs to the thread whose token it carries. The next owner of a slot takes the
//!   lane over when its count is zero; until then (a guard of a thread that is ending, or a
//!   forgotten one) it reads as a stray.
//! - br.R3 Strays are threads without a lane; they stand in a list under a mutex.
//! - br.R4 Who is counted already counts itself once more, where it is counted and without looking:
//!   the writer waits for it anyway. So a thread may read while it reads, also when a writer waits,
//!   when it has lost its slot since, or got the use of a lane.

use super::word::{self, Refused};
use super::{futex, spin_until};
use crate::percpu::segmented::Segmented;
use crate::percpu::{self, barrier};
use crate::profile::{Of, Wait};
use crate::sync::{
    self, AtomicUsize, Backoff, ConstPtr, LoadToChange, MutPtr, Mutex, Ordering, UnsafeCell,
    const_fn,
};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// `state`: a writer has closed the lock.
const CLOSED: usize = 1;
/// `state`: readers sleep until it opens.
const SLEEPERS: usize = 2;

/// Where the readers of one slot count themselves.
#[repr(align(128))]
struct Lane {
    /// The thread whose lane it is (br.R2).
    token: AtomicUsize,
    /// Its guards. Written by that thread alone.
    readers: AtomicUsize,
}

impl From<usize> for Lane {
    fn from(_: usize) -> Self {
        Self { token: AtomicUsize::new(0), readers: AtomicUsize::new(0) }
    }
}

impl Lane {
    /// Counts a reader, unless a writer has closed the lock (br.R1). For the lane's owner.
    #[inline(always)]
    fn enter(&self, state: &AtomicUsize, biased: bool) -> bool {
        // ORDER: Relaxed; the owner alone writes it.
        let readers = self.readers.load_to_change(Ordering::Relaxed);
        if readers > 0 {
            // ORDER: Release, here and below; pairs with Acquire in `is_empty`: who sees that the
            // lane counts somebody sees whom (`lane_of`).
            self.readers.store(readers + 1, Ordering::Release); // br.R4
            return true;
        }
        if sync::seeded_bug!("plain-publish") {
            self.readers.store(1, Ordering::Release);
        } else if biased {
            // ORDER: the store before the load below, by law percpu.B1; pairs with `heavy` in
            // `close`.
            self.readers.store(1, Ordering::Release);
            barrier::light();
        } else {
            // ORDER: a full fence after the store; pairs with the one in `close`.
            barrier::swap_full(&self.readers, 1);
        }
        // ORDER: Acquire; pairs with Release in `open`: what the writer wrote.
        if state.load(Ordering::Acquire) == 0 {
            return true;
        }
        // ORDER: Release; as in `leave`, though nothing was read.
        self.readers.store(0, Ordering::Release);
        false
    }

    #[inline(always)]
    fn leave(&self) {
        // ORDER: Relaxed; the owner alone writes it, also when its slot is another's by now
        // (br.R2).
        let readers = self.readers.load_to_change(Ordering::Relaxed);
        // ORDER: Release; pairs with Acquire in `is_empty`: the reads before the writer's writes,
        // and the last owner's stores before the next owner's.
        debug_assert!(readers > 0, "lock.K6: a lane's reader is counted out twice");
        self.readers.store(readers - 1, Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        // ORDER: Acquire; pairs with Release in `leave`.
        self.readers.load(Ordering::Acquire) == 0
    }
}

/// A reader-writer lock for values that are read by every core and hardly ever written.
///
/// *For* configuration, routing tables, lists of handlers: a reader writes one line that no other
/// thread writes, so readers scale with the cores, unlike those of `std::sync::RwLock`. *Not for*
/// values that are written more than once in thousands of reads, and not for many small objects
/// (see memory). Where readers must never wait for a writer, parallel sections are the better way.
///
/// *Consistency*: readers exclude writers, and writers each other. *Progress*: blocking. A writer
/// that has closed the lock is served before readers that come later; writers that come without a
/// pause can keep readers out. Among themselves writers are served in no order.
/// *Re-entrance*: a thread may read while it reads, also when a writer waits. It may not write
/// while it reads or writes, nor read while it writes: that panics.
/// *Cost*: a read without a writer is a handful of plain loads and stores, 3 to 5 ns, where the
/// kernel offers `membarrier` (Linux), and otherwise one locked instruction more. Which, is found
/// at run time. A write calls `membarrier` (some microseconds) and looks at a line for each slot
/// that was ever in use. A waiting reader spins for some tens of microseconds and then sleeps; a
/// writer that waits for readers spins, yields, and then looks every 50 us.
/// *Memory*: 128 bytes for each slot, made by the segment: 4 KiB from the first read on.
/// *Panics*: on re-entrance, as above. A panic of a holder gives the lock up and does not poison.
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
pub struct BrLock<T> {
    lanes: Segmented<Lane>,
    /// Zero (open), or CLOSED and perhaps SLEEPERS.
    state: AtomicUsize,
    /// Whether readers pay for a full fence although they need not.
    fenced: bool,
    /// Tokens of readers without a lane, one for each guard (br.R3).
    strays: Mutex<Vec<usize>>,
    /// The word lock of the writers.
    writers: AtomicUsize,
    value: UnsafeCell<T>,
}

// SAFETY: lock.K6 - a writer has the value alone and may take it along; readers share it.
unsafe impl<T: Send + Sync> Sync for BrLock<T> {}
// SAFETY: an owned lock is an owned value; nobody waits in it.
unsafe impl<T: Send> Send for BrLock<T> {}

impl<T> BrLock<T> {
    const_fn! {
        /// A free lock around `value`.
        #[must_use]
        pub const fn new(value: T) -> Self {
            Self {
                lanes: Segmented::new(),
                state: AtomicUsize::new(0),
                fenced: false,
                strays: Mutex::new(Vec::new()),
                writers: AtomicUsize::new(0),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// A lock whose readers pay a full fence each, as where the kernel has no `membarrier`.
    #[cfg(all(test, manycore_loom))]
    pub(super) fn with_full_fences(value: T) -> Self {
        Self { fenced: true, ..Self::new(value) }
    }

    #[inline(always)]
    fn is_biased(&self) -> bool {
        !self.fenced && barrier::is_asymmetric()
    }

    /// Waits until no writer has the lock, and reads.
    ///
    /// # Panics
    /// If this thread is writing.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> BrReadGuard<'_, T> {
        match self.enter_own_lane() {
            Some(lane) => self.read_guard(Some(lane)),
            None => self.read_slow(),
        }
    }

    /// Reads if no writer has the lock or waits for it.
    #[inline]
    pub fn try_read(&self) -> Option<BrReadGuard<'_, T>> {
        match self.enter_own_lane() {
            Some(lane) => Some(self.read_guard(Some(lane))),
            None => self.enter().ok().map(|lane| self.read_guard(lane)),
        }
    }

    /// Enters by the calling thread's lane if it has one already.
    #[inline(always)]
    fn enter_own_lane(&self) -> Option<&Lane> {
        let lane = self.lanes.get(percpu::own_slot()?.index())?;
        // ORDER: Relaxed; the token is this thread's own store, or none of its (br.R2).
        let is_mine = lane.token.load(Ordering::Relaxed) == percpu::thread_token();
        (is_mine && lane.enter(&self.state, self.is_biased())).then_some(lane)
    }

    /// Takes the lane of the thread's slot over, if its last owner has left it (br.R2).
    fn claim_lane(&self) -> Option<&Lane> {
        let lane = self.lanes.get_or_init(percpu::own_slot()?.index());
        let me = percpu::thread_token();
        if lane.token.load(Ordering::Relaxed) == me {
            return Some(lane);
        }
        if !lane.is_empty() {
            return None;
        }
        // ORDER: Relaxed; slots pass from thread to thread by Release and Acquire (percpu.P2), and
        // the Release store that counts this thread (`Lane::enter`) makes the token known
        // (`lane_of`).
        lane.token.store(me, Ordering::Relaxed);
        Some(lane)
    }

    /// The lane that counts this thread, wherever it is (br.R4).
    fn lane_of(&self, token: usize) -> Option<&Lane> {
        // ORDER: the count before the token. `is_empty` is Acquire and pairs with the Release
        // stores of `Lane::enter`: the token seen then is that of who is counted, or a later one.
        // The lane of a dead thread that had the same token goes over to another that way only: the
        // dead one's token, seen before, would go with the count of who took the lane meanwhile.
        // (A dead thread may have forgotten a guard: its lane is written by nobody else.) The first
        // look, which proves nothing, passes over the lanes that others are counting in.
        let has_token = |lane: &Lane| lane.token.load(Ordering::Relaxed) == token;
        // BUG: a reader asks whose a lane is before it asks whether anybody is counted there (br.R4
        // of the big-reader lock).
        let unsure = sync::seeded_bug!("token-before-count");
        let is_its =
            |lane: &Lane| has_token(lane) && !lane.is_empty() && (unsure || has_token(lane));
        self.lanes.iter().map(|(_, lane)| lane).find(|lane| is_its(lane))
    }

    /// Enters by a lane or as a stray, unless a writer has closed the lock.
    fn enter(&self) -> Result<Option<&Lane>, Closed> {
        let me = percpu::thread_token();
        let strays = || self.strays.lock().unwrap_or_else(PoisonError::into_inner);
        let is_stray = strays().contains(&me);
        let lane = if is_stray { None } else { self.lane_of(me).or_else(|| self.claim_lane()) };
        if let Some(lane) = lane {
            return if lane.enter(&self.state, self.is_biased()) {
                Ok(Some(lane))
            } else {
                Err(Closed)
            };
        }
        let mut strays = strays();
        // ORDER: Acquire; pairs with Release in `open`. The mutex decides between this and the
        // writer: it closed before it found the list empty, or it finds this stray in the list.
        let may_enter = is_stray || self.state.load(Ordering::Acquire) == 0;
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
        // ORDER: Relaxed, here and below; the reader looks again when it has counted itself.
        let is_open = || self.state.load(Ordering::Relaxed) == 0;
        if spin_until(1, is_open) {
            return;
        }
        let asleep = CLOSED | SLEEPERS;
        loop {
            // lock.K5: said in the word that the opening swap replaces.
            match self.state.compare_exchange(CLOSED, asleep, Ordering::Relaxed, Ordering::Relaxed)
            {
                Err(0) => return,
                _ => {
                    futex::wait(&self.state, asleep);
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

    /// Waits until nobody reads or writes, and writes.
    ///
    /// # Panics
    /// If this thread is reading or writing.
    #[track_caller]
    pub fn write(&self) -> BrWriteGuard<'_, T> {
        let token = percpu::thread_token();
        let of = Of::new("BrLock", self);
        let is_own = self.is_read_by(token)
            || word::lock(&self.writers, token, of) == Err(Refused::HeldBySelf);
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

    /// Writes if nobody reads or writes. A reader that is just coming or going may refuse it.
    ///
    /// *Cost*: a look at each lane, and if nobody seems to read, a barrier, as for a write.
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

    /// Keeps readers out that come from now on. For the holder of `writers`.
    fn close(&self) {
        // ORDER: the store before the loads of the lanes; pairs with the fence of `Lane::enter`.
        self.state.store(CLOSED, Ordering::Relaxed);
        if self.is_biased() { barrier::heavy() } else { barrier::fence_full() }
    }

    /// Waits for readers that came before.
    fn drain(&self) {
        for (_, lane) in self.lanes.iter() {
            let mut backoff = Backoff::new();
            while !lane.is_empty() {
                backoff.pause();
            }
        }
        let mut backoff = Backoff::new();
        while !self.has_no_strays() {
            backoff.pause();
        }
    }

    fn is_drained(&self) -> bool {
        self.lanes.iter().all(|(_, lane)| lane.is_empty()) && self.has_no_strays()
    }

    fn has_no_strays(&self) -> bool {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Lets readers and other writers in. For the holder of `writers`.
    fn open(&self) {
        // ORDER: Release; pairs with Acquire in `Lane::enter`: what the writer wrote.
        let before = self.state.swap(0, Ordering::Release);
        debug_assert!(before & CLOSED != 0, "br.R1: a lock is opened that is not closed");
        if before & SLEEPERS != 0 {
            futex::wake_all(&self.state);
        }
        // SAFETY: lock.K1 - the writer that closed the lock calls this, and holds the word lock;
        // `self` keeps the word.
        unsafe { word::unlock(&self.writers, 0) };
    }

    fn is_read_by(&self, token: usize) -> bool {
        self.lane_of(token).is_some()
            || self.strays.lock().unwrap_or_else(PoisonError::into_inner).contains(&token)
    }

    fn write_guard(&self) -> BrWriteGuard<'_, T> {
        BrWriteGuard {
            value: ManuallyDrop::new(self.value.get_mut()),
            lock: self,
            not_send: PhantomData,
        }
    }

    /// The value; the lock is not needed any more.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// The value, without locking: nobody else has the lock.
    #[must_use]
    pub fn get_mut(&mut self) -> &mut T {
        let value = self.value.get_mut();
        // SAFETY: `&mut self` - no guard is left but forgotten ones, and they give no access. The
        // pointer is into `self`, which is borrowed for as long.
        unsafe { &mut *std::ptr::from_mut(value.deref()) }
    }
}

/// A writer has closed the lock.
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

/// What a reader of a [`BrLock`] has: the value, shared. Stays on its thread.
#[must_use = "the lock is given up when the guard is dropped"]
pub struct BrReadGuard<'a, T> {
    /// Dropped before the lock is given up.
    value: ManuallyDrop<ConstPtr<T>>,
    /// Where the reader is counted; a stray if nowhere.
    lane: Option<&'a Lane>,
    lock: &'a BrLock<T>,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared access to `T` alone.
unsafe impl<T: Sync> Sync for BrReadGuard<'_, T> {}

impl<T> BrReadGuard<'_, T> {
    #[cold]
    fn leave_strays(&self) {
        let me = percpu::thread_token();
        let mut strays = self.lock.strays.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = strays.iter().position(|token| *token == me);
        strays.swap_remove(mine.expect("a stray stands in the list until its guard is dropped"));
    }
}

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
        // SAFETY: dropped here alone, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        match self.lane {
            Some(lane) => lane.leave(),
            None => self.leave_strays(),
        }
    }
}

/// What a writer of a [`BrLock`] has: the value, alone. Stays on its thread.
#[must_use = "the lock is given up when the guard is dropped"]
pub struct BrWriteGuard<'a, T> {
    /// Dropped before the lock is given up.
    value: ManuallyDrop<MutPtr<T>>,
    lock: &'a BrLock<T>,
    not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared access to `T` alone.
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
        // SAFETY: lock.K6 - this writer has drained the lanes and keeps the lock closed; `&mut
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
        // SAFETY: dropped here alone, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.value) };
        self.lock.open();
    }
}
