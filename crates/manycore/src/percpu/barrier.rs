//! An asymmetric store-load fence in two halves: cheap for the frequent side, expensive for the
//! rare side.
//!
//! [`is_asymmetric`] says whether this process has it. The library decides by it in which cases
//! updates and reads pay for a fence of their own. It exists since Linux 4.14, and needs no setup.
//!
//! # Laws
//!
//! Owns: the process's membarrier registration.
//!
//! - barrier.B1 If thread A stores x, calls `light` and loads y, while thread B stores y, calls
//!   `heavy` and loads x, then A sees B's store or B sees A's (the store-buffering litmus test).
//!
//! `membarrier(PRIVATE_EXPEDITED)` makes every running thread of the process execute a full fence
//! between its call and its return. A thread that is not running has executed a fence when it was
//! switched out. So whichever side of that fence A's store falls on, barrier.B1 holds. If the call
//! is missing, [`is_asymmetric`] is false and callers use `swap_full` with `fence_full` in its
//! place.
//!
//! The call may be denied later (a seccomp filter that is installed after the start), when threads
//! rely on it already: `light` leaves nothing that a fence of the caller could pair with. Then
//! `heavy` runs on each CPU of the process's set in turn. When it runs on a CPU, the thread that
//! ran there has been switched out, which is a full fence, as above. So barrier.B1 holds, at the
//! cost of some microseconds to milliseconds for each CPU. (All threads must be in the same cpuset.
//! They are, unless a program moves single threads between control groups.) If that is denied too,
//! barrier.B1 cannot be kept, and the process aborts with a message. New domains use fences from
//! the first denial on (`is_denied`).
//!
//! Source: asymmetric fences as in [OpLog](crate#sources)'s per-core locks (section 4.1) and
//! liburcu.

use crate::sync::{AtomicUsize, Ordering, fence};

/// Returns true if `light` and `heavy` may be used. Decided once per process.
///
/// ```
/// use manycore::percpu::barrier;
///
/// if !barrier::is_asymmetric() {
///     println!("no membarrier here: each update and each read pays for a fence of its own");
/// }
/// let elsewhere = std::thread::spawn(barrier::is_asymmetric).join().unwrap();
/// assert_eq!(elsewhere, barrier::is_asymmetric()); // decided once, for the process
/// ```
#[inline]
pub fn is_asymmetric() -> bool {
    imp::is_asymmetric()
}

/// Returns true if the kernel has denied a barrier since the start, so that `heavy` is slow.
pub(crate) fn is_denied() -> bool {
    imp::is_denied()
}

/// The frequent half: keeps the compiler from moving a load above an earlier store.
#[inline(always)]
pub(crate) fn light() {
    imp::light();
}

/// The rare half: a fence on behalf of every thread of this process.
pub(crate) fn heavy() {
    imp::heavy();
}

/// A full fence for the calling thread alone; pairs with `swap_full`.
#[inline]
pub(crate) fn fence_full() {
    fence(Ordering::SeqCst);
}

/// A full fence, after which this thread's stores are visible to all: for a clock that is read
/// after them. A fence orders only accesses to memory, and reading a clock is not one.
#[inline]
pub(crate) fn stores_are_visible() {
    // On x86 the fence itself waits for the store buffer, and `rdtscp` for the fence.
    #[cfg(all(target_arch = "aarch64", not(any(manycore_loom, manycore_shuttle, miri))))]
    // SAFETY: the instruction waits; it touches neither memory nor registers.
    unsafe {
        std::arch::asm!("dsb ish", options(nostack, preserves_flags));
    }
}

/// Stores `value` and orders it before every later load of this thread; pairs with
/// `fence_full` and with `heavy`.
#[inline(always)]
pub(crate) fn swap_full(word: &AtomicUsize, value: usize) {
    word.swap(value, Ordering::SeqCst);
    full_after_rmw();
}

/// Makes the atomic read-modify-write just before it a full fence; pairs with `fence_full` and
/// with `heavy`.
#[inline(always)]
pub(crate) fn full_after_rmw() {
    // A locked read-modify-write is a full fence on x86. Elsewhere it is not, nor in the language's
    // memory model, which loom and Miri follow.
    if cfg!(any(manycore_loom, miri, not(any(target_arch = "x86_64", target_arch = "x86")))) {
        fence(Ordering::SeqCst);
    }
}

/// Makes the thread's next atomic read-modify-write a full fence for the stores before this; pairs
/// as [`full_after_rmw`] does.
#[inline(always)]
pub(crate) fn full_by_next_rmw() {
    full_after_rmw(); // if that instruction is no fence, this is one
}

#[cfg(all(target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri))))]
mod imp {
    use crate::percpu::pin;
    use crate::sync::{AtomicBool, Ordering, Raced, fence};

    const QUERY: libc::c_int = 0;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn membarrier(command: libc::c_int) -> libc::c_long {
        // SAFETY: the call takes plain integers and touches no memory of the process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }

    #[inline]
    pub(super) fn is_asymmetric() -> bool {
        static REGISTERED: Raced<bool> = Raced::new(|| {
            let commands = membarrier(QUERY);
            let needed = libc::c_long::from(PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED);
            commands >= 0
                && commands & needed == needed
                && membarrier(REGISTER_PRIVATE_EXPEDITED) == 0
                && membarrier(PRIVATE_EXPEDITED) == 0
        });
        *REGISTERED
    }

    #[inline(always)]
    pub(super) fn light() {
        crate::sync::compiler_fence();
    }

    static DENIED: AtomicBool = AtomicBool::new(false);

    pub(super) fn is_denied() -> bool {
        // ORDER: Relaxed; a hint, either barrier is correct.
        DENIED.load(Ordering::Relaxed)
    }

    pub(super) fn heavy() {
        if membarrier(PRIVATE_EXPEDITED) != 0 {
            heavy_without();
        }
    }

    #[cold]
    fn heavy_without() {
        // ORDER: Relaxed; as above.
        DENIED.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if let Err(error) = pin::visit_all() {
            // Not a panic: the caller may hold an object's lock, and readers rely on this barrier.
            eprintln!(
                "manycore: membarrier was permitted at the start and is denied now, and so is \
                 sched_setaffinity ({error}), which could replace it; permit one of the two"
            );
            std::process::abort();
        }
        fence(Ordering::SeqCst);
    }
}

/// A model of the kernel's call. `heavy` synchronizes with every thread once, at a word of that
/// thread's, before or after each of its `light`s. If before, the thread sees what the caller
/// stored. If after, the caller sees what the thread announced. Two lights order nothing, and
/// neither does a light with a mere fence, so that loom finds a reader that chose the wrong
/// barrier.
#[cfg(manycore_loom)]
mod imp {
    use crate::sync::{AtomicUsize, MAX_THREADS, Ordering, fence, global, thread_local};
    use std::sync::Mutex;

    global! {
        static MET: [AtomicUsize; MAX_THREADS] = std::array::from_fn(|_| AtomicUsize::new(0));
    }
    global! {
        static THREADS: Mutex<usize> = Mutex::new(0);
    }
    thread_local! {
        static NUMBER: usize = {
            let mut threads = THREADS.lock().unwrap();
            *threads += 1;
            *threads - 1
        };
    }

    pub(super) fn is_asymmetric() -> bool {
        true
    }

    pub(super) fn is_denied() -> bool {
        false
    }

    pub(super) fn light() {
        // ORDER: AcqRel; pairs with `heavy`, see above.
        NUMBER.with(|number| MET[*number].fetch_add(1, Ordering::AcqRel));
    }

    pub(super) fn heavy() {
        fence(Ordering::SeqCst);
        for met in MET.iter() {
            // ORDER: AcqRel; pairs with `light`.
            met.fetch_add(1, Ordering::AcqRel);
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(not(manycore_loom), not(all(target_os = "linux", not(any(manycore_shuttle, miri))))))]
mod imp {
    use crate::sync::{Ordering, fence};

    /// shuttle's memory is sequentially consistent: the guarantee that the kernel gives.
    pub(super) fn is_asymmetric() -> bool {
        cfg!(manycore_shuttle)
    }

    pub(super) fn is_denied() -> bool {
        false
    }

    pub(super) fn light() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn heavy() {
        fence(Ordering::SeqCst);
    }
}
