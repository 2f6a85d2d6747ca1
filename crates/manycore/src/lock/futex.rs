//! Sleeping on a word: Linux futexes, elsewhere short naps. Under loom, a model of the futex, so
//! that a lost wake-up is a deadlock that loom reports; under shuttle and miri, naps.
//!
//! Only the low 32 bits are compared by the kernel. They hold the WAITERS bit, and law K2 needs no
//! more: a sleeper that meets another owner's equal bits is woken by that owner.

use crate::sync::AtomicUsize;

#[cfg(all(target_os = "linux", not(any(manycore_loom, manycore_shuttle, miri))))]
mod imp {
    use super::AtomicUsize;

    /// Address of the low 32 bits.
    fn low_half(word: *const AtomicUsize) -> *const u32 {
        let half = word.cast::<u32>();
        if cfg!(all(target_endian = "big", target_pointer_width = "64")) {
            half.wrapping_add(1)
        } else {
            half
        }
    }

    pub(in crate::lock) fn wait(word: &AtomicUsize, expected: usize) {
        // SAFETY: FUTEX_WAIT reads four bytes inside `word`, which is borrowed for the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                low_half(word),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected as u32,
                std::ptr::null::<libc::timespec>(),
            );
        }
    }

    fn wake(word: *const AtomicUsize, count: libc::c_int) {
        // SAFETY: FUTEX_WAKE uses the address as a key and never reads the memory behind it, which
        // may be freed by now (K3).
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                low_half(word),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                count,
            );
        }
    }

    pub(in crate::lock) fn wake_one(word: *const AtomicUsize) {
        wake(word, 1);
    }

    pub(in crate::lock) fn wake_all(word: *const AtomicUsize) {
        wake(word, libc::c_int::MAX);
    }
}

#[cfg(manycore_loom)]
mod imp {
    use super::AtomicUsize;
    use crate::sync::{Mutex, Ordering, global, thread};

    global! {
        /// Who sleeps on which address. The kernel compares and queues under one lock, too.
        static SLEEPERS: Mutex<Vec<(usize, thread::Thread)>> = Mutex::new(Vec::new());
    }

    fn address(word: *const AtomicUsize) -> usize {
        word as usize
    }

    pub(in crate::lock) fn wait(word: &AtomicUsize, expected: usize) {
        let me = thread::current();
        {
            let mut sleepers = SLEEPERS.lock().unwrap();
            // ORDER: Relaxed; as the kernel's. Only the low half is compared, as there.
            if word.load(Ordering::Relaxed) as u32 != expected as u32 {
                return;
            }
            sleepers.push((address(word), me.clone()));
        }
        thread::park();
        SLEEPERS.lock().unwrap().retain(|(_, sleeper)| sleeper.id() != me.id());
    }

    pub(in crate::lock) fn wake_one(word: *const AtomicUsize) {
        let mut sleepers = SLEEPERS.lock().unwrap();
        if let Some(first) = sleepers.iter().position(|(key, _)| *key == address(word)) {
            sleepers.remove(first).1.unpark();
        }
    }

    pub(in crate::lock) fn wake_all(word: *const AtomicUsize) {
        let mut sleepers = SLEEPERS.lock().unwrap();
        sleepers.retain(|(key, sleeper)| {
            let sleeps_here = *key == address(word);
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

    pub(in crate::lock) fn wait(_word: &AtomicUsize, _expected: usize) {
        crate::sync::sleep(std::time::Duration::from_micros(50));
    }

    pub(in crate::lock) fn wake_one(_word: *const AtomicUsize) {}

    pub(in crate::lock) fn wake_all(_word: *const AtomicUsize) {}
}

pub(super) use imp::{wait, wake_all, wake_one};
