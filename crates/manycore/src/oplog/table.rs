//! The table that decides which objects have logs: direct-mapped, of fixed size [O-12].
//!
//! Owns: the right of an object to have logs. Does not own: the logs.
//!
//! Laws:
//! - oplog_table.T1 At most as many objects of a table have logs as the table has places. There is
//!   an exception: objects that got logs because an update could neither be applied nor wait. (It
//!   was under its own thread's guard, within another update of the object, or the object was
//!   poisoned.) The next read of such an object that finds no poison takes the place if it is free;
//!   else it demotes the object.
//! - oplog_table.T2 An entry's pointer is alive while the place's mutex is held: an object leaves
//!   the table under that mutex before its hot state is freed.
//! - oplog_table.T3 Lock order is hot state, then place. An evictor goes the other way and only
//!   *tries* the hot state's lock, so it cannot deadlock. If two objects evict each other, at least
//!   one gives up.
//! - oplog_table.T4 If an entry was used since it was last inspected (by a newcomer or by
//!   oplog_table.T7), it stays (second chance), unless the newcomer insists.
//! - oplog_table.T5 Places are made 32 at a time, when an object first asks for one of them. So the
//!   first promotion of a process, for which all its threads may be waiting, does not initialize
//!   all 4,096. No model checker sees the initialization (`sync::Raced`): nothing in it waits for
//!   another thread, and a place is reached only through it.
//! - oplog_table.T6 A thread evicts only if it holds no object but the newcomer and has no log in
//!   hand. An eviction runs user code, and that code would wait for what other threads hold, while
//!   they might wait for what this thread holds. A thread that is inside is denied the eviction.
//! - oplog_table.T7 Each promotion also inspects one place, in turn. An object that was not updated
//!   during `IDLE_SWEEPS` inspections is evicted. So an idle object loses its logs even if it is
//!   never read, as long as others are promoted.
//!
//! Source: OpLog section 6. There the table is per core and per type. Here it is shared and used
//! only at promotion and demotion, so no update accesses it.

use super::word::State;
use crate::config::{DEFAULT_TABLE_OBJECTS, IDLE_SWEEPS};
use crate::lock::held;
use crate::percpu;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::percpu::AtFork;
use crate::policy::Streak;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, Raced};
use std::fmt;

/// The number of places that are allocated together (oplog_table.T5).
const CHUNK: usize = 32;

/// A place, with the object that has its logs by this place.
type EntrySlot = Mutex<Option<Entry>>;
type Chunk = Raced<Box<[EntrySlot]>, ()>;

/// The table's interface to an object's hot state.
pub(crate) trait Evictable: State + Sync {
    /// Takes the hot state's lock if it is free, and never waits for it. The caller holds the
    /// place's mutex, and other threads take the two in the opposite order (oplog_table.T3). After
    /// success, [`finish_eviction`](Self::finish_eviction) must be called.
    fn try_claim(&self) -> bool;

    /// Returns a number that changes with each update of the object.
    fn activity(&self) -> u64;

    /// Applies pending updates, frees the logs and releases the lock.
    ///
    /// # Safety
    /// `try_claim` returned true, once for this call. The hot state may have been freed on return.
    unsafe fn finish_eviction(this: *const Self)
    where
        Self: Sized;
}

/// A hot state of any type, by address. Law oplog_table.T2 says when it may be used.
#[derive(Clone, Copy)]
struct Entry {
    hot: *const (),
    vtable: &'static VTable,
    /// Its activity at the last inspection, and how many sweeps have found it unchanged.
    seen: u64,
    idle: Streak,
}

struct VTable {
    runs_user_code: bool,
    try_claim: unsafe fn(*const ()) -> bool,
    activity: unsafe fn(*const ()) -> u64,
    finish_eviction: unsafe fn(*const ()),
}

impl Entry {
    fn new<R: Evictable + 'static>(hot: *const R) -> Self {
        Self { hot: hot.cast(), vtable: Methods::<R>::VTABLE, seen: 0, idle: Streak::NONE }
    }
}

// SAFETY: oplog_table.T2 keeps the pointer alive while it is used, and `Evictable` demands `Sync`.
// `finish_eviction`, which any thread may run, moves only what is `Send`.
unsafe impl Send for Entry {}

struct Methods<R>(std::marker::PhantomData<R>);

impl<R: Evictable + 'static> Methods<R> {
    const VTABLE: &'static VTable = &VTable {
        runs_user_code: R::RUNS_USER_CODE,
        // SAFETY: `new` erased `hot` from `*const R` and chose this table for `R`; the place's
        // mutex is held (oplog_table.T2).
        try_claim: |hot| unsafe { (*hot.cast::<R>()).try_claim() },
        // SAFETY: `new` erased `hot` from `*const R` and chose this table for `R`; the place's
        // mutex is held (oplog_table.T2).
        activity: |hot| unsafe { (*hot.cast::<R>()).activity() },
        // SAFETY: `new` erased `hot` from `*const R` and chose this table for `R`; `try_claim`
        // returned true, which `Eviction` alone passes on, once.
        finish_eviction: |hot| unsafe { R::finish_eviction(hot.cast::<R>()) },
    };
}

/// Says that a busier object has the place.
#[derive(Debug)]
pub(crate) struct Denied;

/// Evictions that were decided; dropping this runs them.
#[must_use]
pub(crate) struct Eviction {
    victims: [Option<Entry>; 2],
    /// For victims that run no user code. (A fork must not wait for user code, and a child finds
    /// the locks of the others held.)
    folding: Option<Folding>,
}

impl Drop for Eviction {
    fn drop(&mut self) {
        // Evictions that run no user code come first. The user code of the others may use these
        // very objects, and would wait for the end of this thread's own claim (promotion.H5).
        self.victims.sort_by_key(|old| old.is_some_and(|old| old.vtable.runs_user_code));
        for old in self.victims.iter_mut().filter_map(Option::take) {
            debug_assert!(!percpu::has_log(), "oplog_table.T6: an eviction with a log in hand");
            if old.vtable.runs_user_code {
                self.folding = None;
            }
            // SAFETY: promotion.H5 - `enter` claimed it, so its owner does not free it before this.
            unsafe { (old.vtable.finish_eviction)(old.hot) };
        }
    }
}

/// Bounds how many objects have logs at the same time. The process has one table, of 4,096 places;
/// the [module](super) says what that means for users. Tests have other tables, of a few places, by
/// `Builder::table`.
///
/// ```
/// use manycore::oplog::{Commuting, Deferred, LogTable, Op};
/// use std::sync::Arc;
///
/// # struct Add(u64);
/// # impl Op<u64> for Add {
/// #     fn apply(self, sum: &mut u64) {
/// #         *sum += self.0;
/// #     }
/// # }
/// type Sum = Deferred<u64, Commuting<Add>>;
///
/// let table = Arc::new(LogTable::new(1)); // room for one object with logs
/// let first = Sum::builder().table(table.clone()).build(0)?;
/// let second = Sum::builder().table(table.clone()).build(0)?;
/// assert!(first.promote());
/// first.append(Add(1));
/// assert!(second.promote()); // takes the place
/// assert!(!first.is_hot() && second.is_hot());
/// assert_eq!((table.hot_objects(), table.evictions()), (1, 1));
/// assert_eq!(*first.read(), 1); // applied by the eviction
/// # Ok::<(), manycore::oplog::BuildError>(())
/// ```
pub struct LogTable {
    chunks: Box<[Chunk]>,
    places: usize,
    /// The number of places that sweeps have inspected (oplog_table.T7).
    swept: AtomicUsize,
    evictions: AtomicU64,
}

impl fmt::Debug for LogTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTable")
            .field("places", &self.places)
            .field("hot_objects", &self.hot_objects())
            .field("evictions", &self.evictions())
            .finish()
    }
}

impl LogTable {
    /// Makes a table with this many places.
    ///
    /// # Panics
    /// If `places` is zero: no object could ever have logs (use [`Logs::Never`](super::Logs) for
    /// that).
    #[must_use]
    pub fn new(places: usize) -> Self {
        assert!(places > 0, "manycore: a LogTable needs at least one place");
        Self {
            chunks: (0..places.div_ceil(CHUNK)).map(|_| Chunk::unmade()).collect(),
            places,
            swept: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// Returns the number of objects that have logs now.
    #[must_use]
    pub fn hot_objects(&self) -> usize {
        let made = self.chunks.iter().filter_map(Chunk::get).flatten();
        made.filter(|place| lock(place).is_some()).count()
    }

    /// Returns the number of evictions so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        // ORDER: Relaxed; a statistic.
        self.evictions.load(Ordering::Relaxed)
    }

    /// Returns the object's place (oplog_table.T5).
    fn place(&self, hot: *const ()) -> &EntrySlot {
        // Hot states are 128-byte aligned; the multiplication spreads them (Fibonacci hashing).
        let spread = (hot as usize as u64 >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = spread as usize % self.places;
        let chunk = self.chunks[at / CHUNK].get_or_make(|| {
            let there = CHUNK.min(self.places - at / CHUNK * CHUNK);
            (0..there).map(|_| Mutex::new(None)).collect()
        });
        &chunk[at % CHUNK]
    }

    /// Gives the object a place. Evicts the object that has the place, if that is allowed
    /// (oplog_table.T4, oplog_table.T6). The eviction runs when the result is dropped: drop it
    /// after releasing the object's own lock.
    ///
    /// `own` is the number of object locks that the calling thread holds for this call.
    pub(crate) fn enter<R: Evictable + 'static>(
        &self,
        hot: *const R,
        insist: bool,
        own: usize,
    ) -> Result<Eviction, Denied> {
        prepare_for_forks();
        let may_evict = !held::may_be_waited_for(own);
        // Before a place's lock, which a fork takes behind this.
        let folding = Some(Folding::begin());
        let _leaf = held::leaf();
        let mut place = lock(self.place(hot.cast()));
        let victim = place.take();
        debug_assert!(
            !victim.is_some_and(|old| std::ptr::eq(old.hot, hot.cast())),
            "oplog_table.T1: a hot state enters the table twice"
        );
        if let Some(mut old) = victim {
            // SAFETY: oplog_table.T2 - the entry was in its place, whose mutex is held.
            let (used, claimed) = unsafe {
                let activity = (old.vtable.activity)(old.hot);
                let used = activity != old.seen && !insist;
                old.seen = activity;
                (used, !used && may_evict && (old.vtable.try_claim)(old.hot))
            };
            if used || !claimed {
                *place = Some(old);
                return Err(Denied);
            }
        }
        *place = Some(Entry::new(hot));
        drop(place);
        let idle = if may_evict { self.sweep(hot.cast()) } else { None };
        let victims = [victim, idle];
        // ORDER: Relaxed; a statistic.
        self.evictions.fetch_add(victims.iter().flatten().count() as u64, Ordering::Relaxed);
        Ok(Eviction { victims, folding })
    }

    /// Inspects the next place. Takes out its object if that has been idle for `IDLE_SWEEPS` sweeps
    /// (oplog_table.T7).
    fn sweep(&self, newcomer: *const ()) -> Option<Entry> {
        // ORDER: Relaxed; any place will do.
        let at = self.swept.fetch_add(1, Ordering::Relaxed) % self.places;
        let mut place = lock(&self.chunks[at / CHUNK].get()?[at % CHUNK]);
        let entry = place.as_mut().filter(|entry| !std::ptr::eq(entry.hot, newcomer))?;
        // SAFETY: oplog_table.T2 - the entry is in its place, whose mutex is held.
        let activity = unsafe { (entry.vtable.activity)(entry.hot) };
        let is_idle = entry.idle.observe(activity == entry.seen).is_due(IDLE_SWEEPS);
        entry.seen = activity;
        // SAFETY: oplog_table.T2 - the entry is in its place, whose mutex is held until it has been
        // taken out.
        let claimed = is_idle && unsafe { (entry.vtable.try_claim)(entry.hot) };
        if claimed { place.take() } else { None }
    }

    /// Gives the object its place if the place is free.
    pub(crate) fn enter_if_free<R: Evictable + 'static>(&self, hot: *const R) -> bool {
        let mut place = lock(self.place(hot.cast()));
        if place.is_none() {
            *place = Some(Entry::new(hot));
            return true;
        }
        false
    }

    /// Takes the object out of the table, if it is in it.
    pub(crate) fn leave<R>(&self, hot: *const R) {
        let mut place = lock(self.place(hot.cast()));
        if place.is_some_and(|entry| std::ptr::eq(entry.hot, hot.cast())) {
            *place = None;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    // No code that can panic runs under it, so it is never poisoned.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

crate::sync::global! {
    /// The table of every object that is built with default settings.
    made static OF_PROCESS: LogTable = LogTable::new(DEFAULT_TABLE_OBJECTS);
}

/// The process's table.
pub(crate) fn shared() -> &'static LogTable {
    &OF_PROCESS
}

/// Holds all places of the process's table over a fork, so that in the child none is held by a
/// thread that does not exist there. (Tables that users make are not locked.) Waits for the threads
/// that fold first: they may want a place.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static AT_FORK: AtFork = AtFork::new(
    || {
        let no_other_folds = folds::wait_for_others();
        let chunks = OF_PROCESS.get().into_iter().flat_map(|table| &table.chunks);
        let made = chunks.filter_map(Chunk::get).flatten();
        Box::new((no_other_folds, made.map(lock).collect::<Vec<_>>()))
    },
    || percpu::records().withdraw_in_child(super::word::runs_library_code), // promotion.H6
);

/// Prepares for forks: for hot states that are in no table ([`LogTable::enter`] does it, too).
pub(crate) fn prepare_for_forks() {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    AT_FORK.list();
}

/// The calling thread closes and folds a hot state whose readers wait for that, by code of the
/// library alone; or has claimed it, or has locked what such code locks. A fork waits for the end
/// of this: in the child, readers would wait for ever for a thread that does not exist there.
///
/// Such a thread may wait for another (promotion.H5). So none waits to begin as long as another has
/// begun: a fork does not come in between.
pub(crate) struct Folding(std::marker::PhantomData<*const ()>);

#[cfg(any(manycore_loom, manycore_shuttle))]
impl Folding {
    /// A model has no fork.
    pub(crate) fn begin() -> Self {
        Self(std::marker::PhantomData)
    }
}

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
mod folds {
    use super::{Folding, lock, prepare_for_forks};
    use std::cell::Cell;
    use std::marker::PhantomData;
    use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

    /// Of all threads; its lock is not held while they fold.
    static FOLDS: Mutex<usize> = Mutex::new(0);
    static FEWER: Condvar = Condvar::new();

    crate::sync::thread_local! {
        /// Of this thread, which may fork within one, from an observer ([`crate::profile`]).
        static OWN: Cell<usize> = const { Cell::new(0) };
    }

    impl Folding {
        pub(crate) fn begin() -> Self {
            prepare_for_forks();
            *lock(&FOLDS) += 1;
            OWN.with(|own| own.set(own.get() + 1));
            Self(PhantomData)
        }
    }

    impl Drop for Folding {
        fn drop(&mut self) {
            OWN.with(|own| own.set(own.get() - 1));
            *lock(&FOLDS) -= 1;
            FEWER.notify_all();
        }
    }

    /// Returns when no other thread folds. None begins before the result is dropped.
    pub(super) fn wait_for_others() -> MutexGuard<'static, usize> {
        let own = OWN.with(Cell::get);
        let all = FOLDS.lock().unwrap_or_else(PoisonError::into_inner);
        FEWER.wait_while(all, |all| *all > own).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle))))]
mod tests {
    use super::*;
    use crate::sync::AtomicU32;

    /// Records when its eviction ended, by a counter that all fakes of a test share.
    struct Fake<const USER_CODE: bool> {
        clock: std::sync::Arc<AtomicU32>,
        ended: AtomicU32,
    }

    impl<const USER_CODE: bool> State for Fake<USER_CODE> {
        const RUNS_USER_CODE: bool = USER_CODE;
    }

    impl<const USER_CODE: bool> Evictable for Fake<USER_CODE> {
        fn try_claim(&self) -> bool {
            true
        }

        fn activity(&self) -> u64 {
            0
        }

        unsafe fn finish_eviction(this: *const Self) {
            // SAFETY: the test keeps it.
            let this = unsafe { &*this };
            let now = this.clock.fetch_add(1, Ordering::Relaxed);
            this.ended.store(now, Ordering::Relaxed);
        }
    }

    #[test]
    fn evictions_without_user_code_come_first() {
        let clock = std::sync::Arc::new(AtomicU32::new(1));
        let ended = || AtomicU32::new(0);
        let user = Fake::<true> { clock: clock.clone(), ended: ended() };
        let quiet = Fake::<false> { clock, ended: ended() };
        let due = [Some(Entry::new(&raw const user)), Some(Entry::new(&raw const quiet))];
        drop(Eviction { victims: due, folding: None });
        assert_eq!(quiet.ended.into_inner(), 1);
        assert_eq!(user.ended.into_inner(), 2);
    }
}
