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
        Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

#[cfg(manycore_shuttle)]
pub(crate) use shuttle::{
    hint,
    sync::{
        Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
    },
    thread,
};

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(crate) use std::{
    hint,
    sync::{
        Mutex, MutexGuard, RwLock,
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

#[cfg(manycore_loom)]
mod addresses;
mod bugs;
#[cfg_attr(any(manycore_loom, manycore_shuttle), allow(dead_code))] // globals are others there
mod raced;

pub(crate) use self::bugs::{is_planted, seeded_bug};
#[cfg(not(manycore_loom))]
pub(crate) use self::cell::{ConstPtr, MutPtr, UnsafeCell};
pub(crate) use self::raced::Raced;
/// Atomics that no model checker looks at, for the making of a [`Raced`] value.
use std::sync::atomic as unmodelled;

/// Keeps the compiler from reordering memory accesses; emits nothing.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
#[inline(always)]
pub(crate) fn compiler_fence() {
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// Fetches the line at `address` for reading. A hint, as below.
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

/// Fetches the line at `address` for writing. A hint: any address will do, also an invalid one.
/// Pays if a buffer is filled that another core has emptied.
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
/// loom remembers only an object's last access. A thread's own load just before its write would
/// hide from loom that another thread's earlier load could come after both. So under loom this is a
/// compare-exchange, which fails.
pub(crate) trait LoadToChange {
    /// Type of the loaded value.
    type Value;

    /// Same as `load`.
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

/// A process-wide value, made at compile time, or at first use (`made`), or once per execution
/// under a model checker.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
macro_rules! global {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        $(#[$doc])*
        static $name: $type = $init;
    };
    ($(#[$doc:meta])* made static $name:ident: $type:ty = $init:expr;) => {
        $(#[$doc])*
        static $name: $crate::sync::Raced<$type> = $crate::sync::Raced::new(|| $init);
    };
}
#[cfg(manycore_loom)]
macro_rules! global {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        loom::lazy_static! { $(#[$doc])* static ref $name: $type = $init; }
    };
    ($(#[$doc:meta])* made static $name:ident: $type:ty = $init:expr;) => {
        loom::lazy_static! { $(#[$doc])* static ref $name: $type = $init; }
    };
}
#[cfg(manycore_shuttle)]
macro_rules! global {
    ($(#[$doc:meta])* static $name:ident: $type:ty = $init:expr;) => {
        shuttle::lazy_static! { $(#[$doc])* static ref $name: $type = $init; }
    };
    ($(#[$doc:meta])* made static $name:ident: $type:ty = $init:expr;) => {
        shuttle::lazy_static! { $(#[$doc])* static ref $name: $type = $init; }
    };
}
pub(crate) use global;

/// A `const fn`. Under a model checker it is a plain `fn`, because atomics can't be made at compile
/// time there.
macro_rules! const_fn {
    ($(#[$attr:meta])* $vis:vis const fn $($rest:tt)*) => {
        #[cfg(not(any(manycore_loom, manycore_shuttle)))]
        $(#[$attr])* $vis const fn $($rest)*
        #[cfg(any(manycore_loom, manycore_shuttle))]
        $(#[$attr])* $vis fn $($rest)*
    };
}
pub(crate) use const_fn;

/// Returns how many threads can run at once: what the process may use, queried once.
pub(crate) fn parallelism() -> usize {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    {
        static CORES: Raced<usize> =
            Raced::new(|| std::thread::available_parallelism().map_or(1, usize::from));
        *CORES
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
    /// When the thread first gave its core to others.
    yielded: Option<std::time::Instant>,
}

impl Backoff {
    const SPINS: u32 = 6;
    /// What a short sleep takes with Linux' default slack of timers. If no other thread wants the
    /// core, yielding for as long, and only then sleeping, costs at most twice what either alone
    /// would have cost.
    const SLEEP: std::time::Duration = std::time::Duration::from_micros(100);

    pub(crate) const fn new() -> Self {
        Self { step: 0, yielded: None }
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

    /// Returns true if the wait has gone on so long that its thread gives its core to others. Never
    /// in a model.
    pub(crate) fn is_long(&self) -> bool {
        !cfg!(any(manycore_loom, manycore_shuttle)) && self.step >= Self::SPINS
    }

    #[cold]
    fn pause_slow(&mut self) {
        let now = std::time::Instant::now();
        if now.duration_since(*self.yielded.get_or_insert(now)) < Self::SLEEP {
            thread::yield_now();
        } else {
            sleep(Self::SLEEP / 2);
        }
    }
}

/// Returns the calling thread's number in the operating system, if it has one.
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

/// Returns true if this thread is unwinding.
#[inline]
pub(crate) fn panicking() -> bool {
    std::thread::panicking()
}

/// Returns true if loom has found an error and drops what the failed run left. Nothing of loom
/// works any more then.
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

/// Parks this thread, at most until `deadline`. Returns false, at once, if that has passed. loom
/// has no time: there this only lets other threads run.
pub(crate) fn park_until(deadline: Option<std::time::Instant>) -> bool {
    let Some(deadline) = deadline else {
        thread::park();
        return true;
    };
    let left = deadline.saturating_duration_since(std::time::Instant::now());
    #[cfg(not(manycore_loom))]
    if !left.is_zero() {
        thread::park_timeout(left);
    }
    #[cfg(manycore_loom)]
    thread::yield_now();
    !left.is_zero()
}

/// Runs user code on behalf of another thread: its panic ends here. (loom's panics pass, because
/// loom reports what it finds by panicking.)
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(panic) = caught(f) {
        discard(panic);
    }
}

/// Drops the payload of a panic. If that panics, too, the second payload is leaked.
fn discard(panic: Panic) {
    if let Err(again) = caught(|| drop(panic)) {
        std::mem::forget(again);
    }
}

/// The payload of a panic.
pub(crate) type Panic = Box<dyn std::any::Any + Send>;

/// Runs user code and returns its panic. (loom's panics pass, as above.)
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> Result<R, Panic> {
    if cfg!(manycore_loom) {
        return Ok(f());
    }
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f))
}

/// Takes all `results` of user code, and resumes the first panic among them. If the thread is
/// unwinding already, resuming would end the process; then the panic ends here.
pub(crate) fn resume_first(results: impl IntoIterator<Item = Result<(), Panic>>) {
    let mut first = None;
    for panic in results.into_iter().filter_map(Result::err) {
        match first {
            None => first = Some(panic),
            Some(_) => discard(panic),
        }
    }
    match first {
        Some(panic) if panicking() => discard(panic),
        Some(panic) => std::panic::resume_unwind(panic),
        None => {}
    }
}

/// Runs `f`, user code, on each of `things`, even if it panicked on an earlier one. Resumes the
/// first panic afterwards, as [`resume_first`] does.
pub(crate) fn run_each<X>(things: impl IntoIterator<Item = X>, mut f: impl FnMut(X)) {
    resume_first(things.into_iter().map(|thing| caught(|| f(thing))));
}

/// Drops each of `things`, as [`run_each`] does. (Dropping a vector aborts at the second panic.)
pub(crate) fn drop_each<X>(things: impl IntoIterator<Item = X>) {
    run_each(things, drop);
}

/// Returns shared access by a pointer for exclusive access. Makes no `&mut` on the way, because
/// that would end other shared references.
///
/// # Safety
/// As for dereferencing the pointer from the cell, with concurrent readers.
#[inline(always)]
pub(crate) unsafe fn deref_ref<T>(pointer: &MutPtr<T>) -> &T {
    // SAFETY: the caller promises that the cell is there, and that others only read (# Safety).
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
        /// As for dereferencing the pointer that `UnsafeCell::get` returned, with concurrent
        /// readers.
        #[inline(always)]
        pub(crate) unsafe fn deref(&self) -> &T {
            // SAFETY: the caller promises that the cell is there, and that others only read it
            // (# Safety).
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
            // SAFETY: the caller promises that the cell is there, and that no other thread has it
            // (# Safety).
            unsafe { &mut *self.0 }
        }
    }
}
