//! Two halves of a store-load fence: cheap for the frequent side, dear for the rare side.
//!
//! Owns: the process's membarrier registration.
//! Law B1: if thread A stores x, calls `light` and loads y, while thread B stores y, calls
//! `heavy` and loads x, then A sees B's store or B sees A's (the store-buffering litmus).
//! `membarrier(PRIVATE_EXPEDITED)` makes every running thread of the process execute a full fence
//! between its call and its return; a thread that is not running has executed one on its way out.
//! So whichever side of that fence A's store falls on, B1 holds. Where the call is missing,
//! [`is_asymmetric`] is false and callers use `swap_full` with `fence_full` in its place.
//! Source: DESIGN of asymmetric fences after OpLog's per-core locks (section 4.1) and liburcu.

use crate::sync::{AtomicUsize, Ordering, fence};

/// Whether `light` and `heavy` may be used. Decided once per process.
#[inline]
pub fn is_asymmetric() -> bool {
    imp::is_asymmetric()
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

/// Waits until this thread's stores are visible, after a full fence: for a clock to be read after
/// them. A fence orders accesses to memory; reading a clock is none.
#[inline]
pub(crate) fn stores_are_visible() {
    // On x86 the fence itself waits for the store buffer, and `rdtscp` for the fence.
    #[cfg(all(target_arch = "aarch64", not(any(manycore_loom, manycore_shuttle, miri))))]
    // SAFETY: waits; touches neither memory nor registers.
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
    // A locked read-modify-write is a full fence on x86. Elsewhere (and for loom) it is not.
    if cfg!(any(manycore_loom, not(any(target_arch = "x86_64", target_arch = "x86")))) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri))))]
mod imp {
    use std::sync::OnceLock;

    const QUERY: libc::c_int = 0;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn membarrier(command: libc::c_int) -> libc::c_long {
        // SAFETY: the call takes plain integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }

    #[inline]
    pub(super) fn is_asymmetric() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| {
            let commands = membarrier(QUERY);
            let needed = libc::c_long::from(PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED);
            commands >= 0
                && commands & needed == needed
                && membarrier(REGISTER_PRIVATE_EXPEDITED) == 0
                && membarrier(PRIVATE_EXPEDITED) == 0
        })
    }

    #[inline(always)]
    pub(super) fn light() {
        crate::sync::compiler_fence();
    }

    pub(super) fn heavy() {
        let failed = membarrier(PRIVATE_EXPEDITED);
        assert!(failed == 0, "manycore: membarrier worked at start-up and fails now");
    }
}

/// A model of the kernel's call. `heavy` meets every thread once, at a word of that thread's,
/// before or after each of its `light`s: before, and the thread sees what the caller stored; after,
/// and the caller sees what the thread announced. Two lights order nothing, and neither does a
/// light with a mere fence, so that loom finds a reader that chose the wrong barrier.
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

    pub(super) fn light() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn heavy() {
        fence(Ordering::SeqCst);
    }
}
