//! Parking on a word, by Linux futexes. Elsewhere, and under shuttle and miri, a thread sleeps for
//! a short time instead. Under loom there is a model of the futex, so a lost wake-up becomes a
//! deadlock that loom reports.
//!
//! The kernel compares only the low 32 bits of the word. For an object's lock word they hold the
//! WAITERS bit, and law lock_word.K2 needs no more: if a thread parks on the equal bits of another
//! owner, that owner wakes it. For a ticket 32 bits are enough, because tickets never get 2^32
//! ahead of a parked thread.
//!
//! A parked thread may say which of 32 `bits` wake it; a wake-up names bits, too.

use crate::sync::AtomicUsize;

#[cfg(all(target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri))))]
mod imp {
    use super::AtomicUsize;

    /// Returns the address of the low 32 bits.
    fn low_half(word: *const AtomicUsize) -> *const u32 {
        let half = word.cast::<u32>();
        if cfg!(all(target_endian = "big", target_pointer_width = "64")) {
            half.wrapping_add(1)
        } else {
            half
        }
    }

    pub(in crate::lock) fn wait_bits(word: &AtomicUsize, expected: usize, bits: u32) -> bool {
        // SAFETY: FUTEX_WAIT_BITSET reads four bytes inside `word`, which is borrowed for the call.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_futex,
                low_half(word),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                expected as u32,
                std::ptr::null::<libc::timespec>(),
                std::ptr::null::<u32>(),
                bits,
            )
        };
        answer == 0
    }

    fn wake(word: *const AtomicUsize, count: libc::c_int, bits: u32) {
        // SAFETY: FUTEX_WAKE_BITSET uses the address as a key and never reads the memory behind
        // it, which may be freed by now (lock_word.K3).
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                low_half(word),
                libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG,
                count,
                std::ptr::null::<libc::timespec>(),
                std::ptr::null::<u32>(),
                bits,
            );
        }
    }

    pub(in crate::lock) fn wake_one(word: *const AtomicUsize) {
        wake(word, 1, !0);
    }

    pub(in crate::lock) fn wake_bits(word: *const AtomicUsize, bits: u32) {
        wake(word, libc::c_int::MAX, bits);
    }
}

#[cfg(manycore_loom)]
mod imp {
    use super::AtomicUsize;
    use crate::sync::{Mutex, Ordering, global, thread};

    global! {
        /// The parked threads: the address, the bits that wake the thread, and the thread. Like the
        /// kernel, this compares and queues under one lock.
        static SLEEPERS: Mutex<Vec<(usize, u32, thread::Thread)>> = Mutex::new(Vec::new());
    }

    fn address(word: *const AtomicUsize) -> usize {
        word as usize
    }

    pub(in crate::lock) fn wait_bits(word: &AtomicUsize, expected: usize, bits: u32) -> bool {
        let me = thread::current();
        {
            let mut sleepers = SLEEPERS.lock().unwrap();
            // ORDER: Relaxed; as in the kernel. Only the low half is compared, as there.
            if word.load(Ordering::Relaxed) as u32 != expected as u32 {
                return false;
            }
            sleepers.push((address(word), bits, me.clone()));
        }
        thread::park();
        SLEEPERS.lock().unwrap().retain(|(_, _, sleeper)| sleeper.id() != me.id());
        true
    }

    pub(in crate::lock) fn wake_one(word: *const AtomicUsize) {
        let mut sleepers = SLEEPERS.lock().unwrap();
        if let Some(first) = sleepers.iter().position(|(key, ..)| *key == address(word)) {
            sleepers.remove(first).2.unpark();
        }
    }

    pub(in crate::lock) fn wake_bits(word: *const AtomicUsize, bits: u32) {
        let mut sleepers = SLEEPERS.lock().unwrap();
        sleepers.retain(|(key, answers, sleeper)| {
            let sleeps_here = *key == address(word) && answers & bits != 0;
            if sleeps_here {
                sleeper.unpark();
            }
            !sleeps_here
        });
    }
}

#[cfg(not(any(
    manycore_loom,
    all(target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri)))
)))]
mod imp {
    use super::AtomicUsize;

    pub(in crate::lock) fn wait_bits(_word: &AtomicUsize, _expected: usize, _bits: u32) -> bool {
        crate::sync::sleep(std::time::Duration::from_micros(50));
        true
    }

    pub(in crate::lock) fn wake_one(_word: *const AtomicUsize) {}

    pub(in crate::lock) fn wake_bits(_word: *const AtomicUsize, _bits: u32) {}
}

pub(super) use imp::{wait_bits, wake_bits, wake_one};

/// Parks if the low half of `word` equals that of `expected`, until a wake-up comes, or spuriously.
/// Returns true if there may have been a wake-up. If false, no wake-up was spent on this thread.
pub(super) fn wait(word: &AtomicUsize, expected: usize) -> bool {
    wait_bits(word, expected, !0)
}

/// Wakes every thread parked on `word`.
pub(super) fn wake_all(word: *const AtomicUsize) {
    wake_bits(word, !0);
}
