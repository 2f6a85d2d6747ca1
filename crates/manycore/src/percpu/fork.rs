//! Consistency across `fork`: locks of the process that a thread holds for a few instructions.
//!
//! Owns: the list of such locks. Before a fork, the forking thread takes them all; afterwards it
//! releases them, in the parent and in the child. So none is held in the child by a thread that
//! does not exist there, and what they guard is consistent. No user code runs under these locks, so
//! the forking thread holds none of them, and each is free soon.

use crate::sync::{AtomicBool, Ordering};
use std::any::Any;

/// A lock, or several, that must be free across a fork.
pub(crate) struct AtFork {
    is_listed: AtomicBool,
    /// Takes the locks; they are released when the result is dropped.
    hold: fn() -> Box<dyn Any>,
    /// Runs in the child when the locks are released: clears what was recorded by threads that the
    /// child does not have.
    in_child: fn(),
}

impl AtFork {
    pub(crate) const fn new(hold: fn() -> Box<dyn Any>, in_child: fn()) -> Self {
        Self { is_listed: AtomicBool::new(false), hold, in_child }
    }

    /// Registers the locks that `hold` takes, so that each fork from now on takes them; to be
    /// called before their first use. Not from within the initialization of what `hold` uses: a
    /// fork would wait for the initialization, and the initialization for the fork.
    #[inline]
    pub(crate) fn list(&'static self) {
        // ORDER: Relaxed; the list has a lock of its own.
        if !self.is_listed.load(Ordering::Relaxed) {
            imp::list(self);
        }
    }
}

#[cfg(all(unix, not(miri)))]
mod imp {
    use super::AtFork;
    use crate::sync::{AtomicBool, Ordering, thread_local};
    use std::any::Any;
    use std::cell::RefCell;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    static LIST: Mutex<Vec<&'static AtFork>> = Mutex::new(Vec::new());

    /// What the forking thread holds; the fields are dropped in this order.
    #[derive(Default)]
    struct Held {
        _locks: Vec<Box<dyn Any>>,
        list: Option<MutexGuard<'static, Vec<&'static AtFork>>>,
    }

    thread_local! {
        static HELD: RefCell<Held> = RefCell::default();
    }

    /// Whether the functions below are registered; by two threads at once perhaps twice.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

    #[cold]
    pub(super) fn list(new: &'static AtFork) {
        // Before the lock, which a fork takes from then on. One that does not yet must not copy it
        // while this thread has it: no thread of the child would release it. (libc makes the
        // registration wait while a fork copies the process.)
        // ORDER: Relaxed; the flag tells of nothing but itself.
        if !IS_REGISTERED.load(Ordering::Relaxed) {
            // SAFETY: the functions live as long as the process and do not unwind.
            let failed =
                unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            assert!(failed == 0, "manycore: no memory to register what a fork needs");
            IS_REGISTERED.store(true, Ordering::Relaxed);
        }
        let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.iter().any(|other| std::ptr::eq(*other, new)) {
            list.push(new);
        }
        // ORDER: Relaxed; as in `AtFork::list`.
        new.is_listed.store(true, Ordering::Relaxed);
    }

    extern "C" fn before() {
        // Registered twice: this thread has the locks.
        if HELD.try_with(|held| held.borrow().list.is_some()) == Ok(true) {
            return;
        }
        let list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        let locks = list.iter().map(|at_fork| (at_fork.hold)()).collect();
        // A fork in the thread's last destructors has no place to keep the locks, and releases
        // them.
        let _ = HELD.try_with(|held| *held.borrow_mut() = Held { _locks: locks, list: Some(list) });
    }

    extern "C" fn in_parent() {
        let held = HELD.try_with(|held| std::mem::take(&mut *held.borrow_mut()));
        drop(held);
    }

    extern "C" fn in_child() {
        let held = HELD.try_with(|held| std::mem::take(&mut *held.borrow_mut()));
        let Ok(Held { _locks, list: Some(list) }) = held else { return };
        drop(_locks);
        list.iter().for_each(|at_fork| (at_fork.in_child)());
    }
}

#[cfg(not(all(unix, not(miri))))]
mod imp {
    pub(super) fn list(new: &'static super::AtFork) {
        let _ = (new.hold, new.in_child);
    }
}
