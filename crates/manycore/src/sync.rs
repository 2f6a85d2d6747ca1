//! The facade: every atomic, cell, thread and thread-local of the library comes through here.
//!
//! Owns: the choice between the standard library, loom (`--cfg manycore_loom`) and shuttle
//! (`--cfg manycore_shuttle`). The cfg names are our own because dependencies also answer to
//! `cfg(loom)`. No other file of this crate names `std::sync::atomic`, `std::cell::UnsafeCell` or
//! `std::thread`; `ci/layers.sh` checks it. What the model checkers run is therefore the code that
//! users run.

#[cfg(manycore_loom)]
pub(crate) use loom::{
    MAX_THREADS,
    cell::{ConstPtr, MutPtr, UnsafeCell},
    hint,
    lazy_static::Lazy,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

#[cfg(manycore_shuttle)]
pub(crate) use shuttle::{
    hint,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(crate) use std::{
    hint,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

/// loom's `thread_local!`, one declaration at a time and with `const` initialisers allowed.
#[cfg(manycore_loom)]
macro_rules! loom_thread_local {
    ($($(#[$attr:meta])* $vis:vis static $name:ident: $type:ty = $init:expr;)*) => {
        $(loom::thread_local! { $(#[$attr])* $vis static $name: $type = $init; })*
    };
}
#[cfg(manycore_loom)]
pub(crate) use loom_thread_local as thread_local;
#[cfg(manycore_shuttle)]
pub(crate) use shuttle::thread_local;
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(crate) use std::thread_local;

#[cfg(not(manycore_loom))]
pub(crate) use self::cell::{ConstPtr, MutPtr, UnsafeCell};

/// Keeps the compiler from reordering memory accesses; emits nothing.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
#[inline(always)]
pub(crate) fn compiler_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Asks for the line at `address` to be brought here for reading. A hint, as below.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, manycore_loom, manycore_shuttle))))]
    // SAFETY: the instruction never faults, wherever the address leads.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, manycore_loom, manycore_shuttle)))))]
    let _ = address;
}

/// Asks for the line at `address` to be brought here for writing. A hint: any address will do, also
/// one that leads nowhere. Pays where a buffer is filled that another core has emptied.
#[inline(always)]
pub(crate) fn prefetch_for_write<T>(address: *const T) {
    // Not the intrinsic: without a target feature it asks for a copy to read, which does not help.
    #[cfg(all(target_arch = "x86_64", not(any(miri, manycore_loom, manycore_shuttle))))]
    // SAFETY: the instruction never faults and changes no register and no memory. Processors that
    // do not know it do nothing (Intel SDM volume 2, PREFETCHW; AMD APM volume 3).
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) address,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, manycore_loom, manycore_shuttle)))))]
    let _ = address;
}

/// A load by a thread that may write the word next.
///
/// loom remembers an object's last access alone: a thread's own load just before its write would
/// hide from it that another thread's earlier load could come after both. So there it is a
/// compare-exchange, which fails.
pub(crate) trait LoadToChange {
    /// What is loaded.
    type Value;

    /// As `load`.
    fn load_to_change(&self, order: Ordering) -> Self::Value;
}

macro_rules! load_to_change {
    ($($Atomic:ident $(<$T:ident>)?, $Value:ty, $unlikely:expr;)*) => {$(
        impl$(<$T>)? LoadToChange for $Atomic $(<$T>)? {
            type Value = $Value;

            #[inline(always)]
            fn load_to_change(&self, order: Ordering) -> $Value {
                if cfg!(not(manycore_loom)) {
                    return self.load(order);
                }
                match self.compare_exchange($unlikely, $unlikely, order, order) {
                    Ok(found) | Err(found) => found,
                }
            }
        }
    )*};
}
load_to_change! {
    AtomicU64, u64, !1;
    AtomicUsize, usize, !1;
    AtomicPtr<T>, *mut T, std::ptr::without_provenance_mut(!1);
}

/// A process-wide value made at first use, or one per execution under a model checker.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
macro_rules! global {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        $(#[$doc])*
        static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| $init);
    };
}
#[cfg(manycore_loom)]
macro_rules! global {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        loom::lazy_static! { $(#[$doc])* static ref $name: $type = $init; }
    };
}
#[cfg(manycore_shuttle)]
macro_rules! global {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        shuttle::lazy_static! { $(#[$doc])* static ref $name: $type = $init; }
    };
}
pub(crate) use global;

/// A `const fn`, or under a model checker, whose atomics can't be made at compile time, a `fn`.
macro_rules! const_fn {
    ($(#[$attr:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        $(#[$attr])* $vis const fn $($rest)*
        #[cfg(any(manycore_loom, manycore_shuttle))]
        $(#[$attr])* $vis fn $($rest)*
    };
}
pub(crate) use const_fn;

/// How many threads can run at once: what the process may use, asked once.
pub(crate) fn parallelism() -> usize {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    {
        static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
    }
    #[cfg(any(manycore_loom, manycore_shuttle))]
    {
        2
    }
}

/// Waits a little longer each time: pause instructions first, then the scheduler, then sleep.
///
/// For conditions that another *running* thread is about to change.
#[derive(Debug)]
pub(crate) struct Backoff {
    step: u32,
}

impl Backoff {
    const SPINS: u32 = 6;
    const YIELDS: u32 = 40;

    pub(crate) const fn new() -> Self {
        Self { step: 0 }
    }

    #[inline]
    pub(crate) fn pause(&mut self) {
        if cfg!(any(manycore_loom, manycore_shuttle)) {
            thread::yield_now();
        } else if self.step < Self::SPINS {
            for _ in 0..1 << self.step {
                hint::spin_loop();
            }
        } else {
            self.pause_slow();
        }
        self.step = self.step.saturating_add(1);
    }

    #[cold]
    fn pause_slow(&self) {
        if self.step < Self::YIELDS {
            thread::yield_now();
        } else {
            sleep(std::time::Duration::from_micros(50));
        }
    }
}

/// The calling thread's number in the operating system, where it has one.
pub(crate) fn os_id() -> Option<u64> {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: the call has no arguments and always succeeds.
        let id = unsafe { libc::syscall(libc::SYS_gettid) };
        u64::try_from(id).ok()
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    None
}

/// Whether this thread is unwinding.
pub(crate) fn panicking() -> bool {
    std::thread::panicking()
}

/// Whether loom has found something and drops what the failed run left, when nothing of loom's
/// works any more.
pub(crate) fn model_failed() -> bool {
    cfg!(manycore_loom) && panicking()
}

/// Sleeps; a model checker only switches threads.
pub(crate) fn sleep(time: std::time::Duration) {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    thread::sleep(time);
    #[cfg(any(manycore_loom, manycore_shuttle))]
    {
        let _ = time;
        thread::yield_now();
    }
}

/// Runs user code on behalf of another thread: its panic ends here. (loom's is let through, because
/// loom reports what it finds by panicking.)
pub(crate) fn contain(f: impl FnOnce()) {
    if cfg!(manycore_loom) {
        f();
    } else {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    }
}

/// What a panic says.
pub(crate) type Panic = Box<dyn std::any::Any + Send>;

/// Runs user code whose panic is for somebody else to know. (loom's is let through, as above.)
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> Result<R, Panic> {
    if cfg!(manycore_loom) {
        return Ok(f());
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
}

/// Bugs to plant, each the opposite of a law: a test that passes with its bug in place tests
/// nothing. Loom models, shuttle histories and histories of real threads run once without a bug and
/// once with each that they claim to catch, in a process of its own, because a planted bug may do
/// anything, crash included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Readers collect whatever they find, log after log: no cut in time, no gate for all (D2).
    NoCut,
    /// An update's stamp may be as old as its slot's last update, as if the clock were read before
    /// the loads that come before the update (C1 of the clock).
    UnfencedStamp,
    /// Announcements are plain stores whose reader pays no barrier for them (D1, S6).
    PlainPublish,
    /// A reader takes any answer for one to its own collection (G1 of the gates).
    UnaskedAnswer,
    /// A batch of retired nodes is stamped with no fence after the unlinks (S2): the paper's
    /// Figure 2.
    UnfencedRetire,
    /// A round is stamped after it has looked at the others (S3): the paper's public code.
    LateRound,
    /// Blocks of a slab go home without the order that lets their owner reuse them (B3).
    RelaxedReturn,
    /// A removed id's slot is free at once, while sections may still look at the node (N4).
    EagerReuse,
    /// A slot's next id has the generation of its last one (N5).
    SameGeneration,
    /// An extent's first id is published before the others (`namespace`'s extents).
    HeadFirst,
    /// Rows of a reference count are summed while their owners may be half-way (A4).
    UnfrozenRows,
    /// A reference count is zero when the word says so, whatever the rows hold (A2).
    CentralAlone,
    /// A handle is taken whatever the object's generation has become (A8).
    UncheckedGeneration,
    /// A map's entry is linked before its slot has a tag (H2).
    LinkBeforeTag,
    /// A map's entry loses its tag before its link (H2).
    TagBeforeUnlink,
    /// Who waits takes the round that was under way when it came for its own (`lock::rounds`, V2).
    OldRound,
    /// A drain reads where its queue goes on after it has let a member go (`ldu`, U3).
    NextAfterClear,
    /// A member is freed while it is queued (`ldu`, U3).
    FreeQueued,
    /// A clustered object's representative is made without the list lock (R1, R2).
    UnlistedRep,
    /// An implementation is exchanged while admitted calls are inside (W2).
    UnsealedTransfer,
    /// Who is inside of a call waits at a closed object as everybody else does (H2).
    UnadmittedInsider,
    /// A call that is let into a closed object does not look at the updates that wait (W5).
    SkippedLog,
    /// The object opens without a last look at the updates that wait (W4).
    HastyOpening,
    /// The sieve of a bounded domain frees what an open section may hold, whatever its birth (E4).
    EagerSieve,
    /// A reader asks whose a lane is before it asks whether anybody is counted there (R4 of the
    /// big-reader lock).
    TokenBeforeCount,
    /// A found value is cached after the root's lock was given up (H5).
    CachedUnlocked,
    /// An element is removed after the locks under which it was looked at were given up (M3 of
    /// `dhash`).
    TornGather,
    /// A whole element is looked at without the part that was used before the table spread (M7 of
    /// `dhash`).
    ForgottenCentre,
    /// A whole element is looked for where the table's form says, not where its holders are (M7 of
    /// `dhash`).
    FormAlone,
    /// A page is loaded without a look whether somebody else does (G1 of `page_cache`).
    SecondLoad,
    /// A stock of credits is emptied by a load and a store (B1 of the budget).
    TornStock,
    /// A pool's new thing is counted after the lock was given up (P1 of the pool).
    LateCount,
    /// A timer's value is taken without a look whether it is there (T1 of the timers).
    TimerTakenTwice,
    /// A shared object's gate is closed, and those inside are not waited for (A2).
    HastyClosing,
    /// An update acts on the mode that it saw before it took the lock (A7).
    UncheckedMode,
    /// A shared object gets logs while its gate is open (A8).
    OpenPromotion,
    /// Who fires a timer looks for its handle after it took the value (T2 of the timers).
    TimerLateLook,
    /// Who looks at a lock goes to sleep, and the word still says that it looks (K2).
    SilentSpinner,
    /// A thread that was woken says nothing of the others that may sleep (K2).
    ForgottenSleepers,
    /// A private page is written without a look whether a fork has frozen its layer (F2 of
    /// `private_pages`).
    StaleLayer,
    /// A layer is frozen with no fence after it (F3 of `private_pages`).
    UnfencedFreeze,
    /// A private page is written in place without a look whether somebody reads it (F4 of
    /// `private_pages`).
    WrittenUnderReader,
    /// A reader leaves a branch as it is that nobody has claimed (B2 of `oplog`'s tree).
    UnshutBranch,
}

/// Whether `bug` is planted: the environment variable `MANYCORE_SEEDED_BUG` names it (below). In
/// ordinary builds there is no such variable.
#[cfg(any(manycore_loom, manycore_shuttle, manycore_seeded_bugs))]
pub(crate) fn seeded_bug(bug: Bug) -> bool {
    static PLANTED: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    let planted = PLANTED.get_or_init(|| match std::env::var("MANYCORE_SEEDED_BUG").as_deref() {
        Err(_) => None,
        Ok("no-cut") => Some(Bug::NoCut),
        Ok("unfenced-stamp") => Some(Bug::UnfencedStamp),
        Ok("plain-publish") => Some(Bug::PlainPublish),
        Ok("unasked-answer") => Some(Bug::UnaskedAnswer),
        Ok("unfenced-retire") => Some(Bug::UnfencedRetire),
        Ok("late-round") => Some(Bug::LateRound),
        Ok("relaxed-return") => Some(Bug::RelaxedReturn),
        Ok("eager-reuse") => Some(Bug::EagerReuse),
        Ok("same-generation") => Some(Bug::SameGeneration),
        Ok("head-first") => Some(Bug::HeadFirst),
        Ok("unfrozen-rows") => Some(Bug::UnfrozenRows),
        Ok("central-alone") => Some(Bug::CentralAlone),
        Ok("unchecked-generation") => Some(Bug::UncheckedGeneration),
        Ok("link-before-tag") => Some(Bug::LinkBeforeTag),
        Ok("tag-before-unlink") => Some(Bug::TagBeforeUnlink),
        Ok("old-round") => Some(Bug::OldRound),
        Ok("next-after-clear") => Some(Bug::NextAfterClear),
        Ok("free-queued") => Some(Bug::FreeQueued),
        Ok("unlisted-rep") => Some(Bug::UnlistedRep),
        Ok("unsealed-transfer") => Some(Bug::UnsealedTransfer),
        Ok("unadmitted-insider") => Some(Bug::UnadmittedInsider),
        Ok("skipped-log") => Some(Bug::SkippedLog),
        Ok("hasty-opening") => Some(Bug::HastyOpening),
        Ok("eager-sieve") => Some(Bug::EagerSieve),
        Ok("token-before-count") => Some(Bug::TokenBeforeCount),
        Ok("cached-unlocked") => Some(Bug::CachedUnlocked),
        Ok("torn-gather") => Some(Bug::TornGather),
        Ok("forgotten-centre") => Some(Bug::ForgottenCentre),
        Ok("form-alone") => Some(Bug::FormAlone),
        Ok("second-load") => Some(Bug::SecondLoad),
        Ok("torn-stock") => Some(Bug::TornStock),
        Ok("late-count") => Some(Bug::LateCount),
        Ok("timer-taken-twice") => Some(Bug::TimerTakenTwice),
        Ok("hasty-closing") => Some(Bug::HastyClosing),
        Ok("unchecked-mode") => Some(Bug::UncheckedMode),
        Ok("open-promotion") => Some(Bug::OpenPromotion),
        Ok("timer-late-look") => Some(Bug::TimerLateLook),
        Ok("silent-spinner") => Some(Bug::SilentSpinner),
        Ok("forgotten-sleepers") => Some(Bug::ForgottenSleepers),
        Ok("stale-layer") => Some(Bug::StaleLayer),
        Ok("unfenced-freeze") => Some(Bug::UnfencedFreeze),
        Ok("written-under-reader") => Some(Bug::WrittenUnderReader),
        Ok("unshut-branch") => Some(Bug::UnshutBranch),
        Ok(other) => panic!("MANYCORE_SEEDED_BUG: there is no bug {other:?}"),
    });
    *planted == Some(bug)
}
#[cfg(not(any(manycore_loom, manycore_shuttle, manycore_seeded_bugs)))]
#[inline(always)]
pub(crate) const fn seeded_bug(_bug: Bug) -> bool {
    false
}

/// Shared access by a pointer for exclusive access: makes no `&mut` on the way, which would end
/// other shared references.
///
/// # Safety
/// As for dereferencing what the pointer was made of, with others who read.
#[inline(always)]
pub(crate) unsafe fn deref_ref<T>(pointer: &MutPtr<T>) -> &T {
    // SAFETY: the caller's duty, stated above.
    unsafe { &*pointer.with(|pointer| pointer.cast_const()) }
}

/// loom's interface to a cell (access through guards that loom checks), at no cost on std.
#[cfg(not(manycore_loom))]
mod cell {
    /// `std::cell::UnsafeCell` behind loom's closure and guard interface.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn get(&self) -> ConstPtr<T> {
            ConstPtr(self.0.get())
        }

        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    /// A pointer for shared access; loom's twin tracks how long it lives.
    #[derive(Debug)]
    pub(crate) struct ConstPtr<T>(*const T);

    impl<T> ConstPtr<T> {
        /// # Safety
        /// As for dereferencing the pointer that `UnsafeCell::get` returned, with others who read.
        #[inline(always)]
        pub(crate) unsafe fn deref(&self) -> &T {
            // SAFETY: the caller's duty, stated above.
            unsafe { &*self.0 }
        }
    }

    /// A pointer for exclusive access; loom's twin tracks how long it lives.
    #[derive(Debug)]
    pub(crate) struct MutPtr<T>(*mut T);

    impl<T> MutPtr<T> {
        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0)
        }

        /// # Safety
        /// As for dereferencing the pointer that `UnsafeCell::get_mut` returned, exclusively.
        #[inline(always)]
        #[allow(clippy::mut_from_ref)] // loom's signature
        pub(crate) unsafe fn deref(&self) -> &mut T {
            // SAFETY: the caller's duty, stated above.
            unsafe { &mut *self.0 }
        }
    }
}
