//! Consistency across `fork`: locks of the process that a thread holds for a few instructions.
//!
//! Owns: the list of such locks. Before a fork, the forking thread takes them all, the last listed
//! first. Afterwards it releases them, in the parent and in the child. So no lock is held in the
//! child by a thread that does not exist there, and what the locks guard is consistent. No user
//! code runs under these locks, so the forking thread holds none of them, and each is free soon.

use crate::sync::{AtomicBool, Ordering};
use std::any::Any;

/// A lock, or several, that must be free across a `fork`, and what the child clears after the fork.
///
/// For a lock of the whole process that each thread holds for a few instructions: the lock of a
/// list of all objects, for example. A thread that is not in the child may hold it at the fork, and
/// then it would stay locked there. When not: for the lock of an object that user code runs under,
/// because a fork would wait for that code.
///
/// A fork takes the locks in the reverse order of their listing. So list a lock before the locks
/// that a thread takes first. Cost: a load at each [`list`](Self::list) after the first; a fork
/// takes each lock once. On systems without `fork`, this does nothing.
///
/// ```
/// use manycore::percpu::AtFork;
/// use std::sync::{Mutex, PoisonError};
///
/// static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// static AT_FORK: AtFork =
///     AtFork::new(|| Box::new(NAMES.lock().unwrap_or_else(PoisonError::into_inner)), || ());
///
/// fn add(name: &str) {
///     AT_FORK.list();
///     NAMES.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
/// }
/// add("first");
/// ```
#[derive(Debug)]
pub struct AtFork {
    is_listed: AtomicBool,
    /// Takes the locks. Dropping the result releases them.
    hold: fn() -> Box<dyn Any>,
    /// Runs in the child when the locks are released: clears what was recorded by threads that the
    /// child does not have.
    in_child: fn(),
}

impl AtFork {
    /// Makes an entry for the locks that `hold` takes; dropping its result releases them.
    /// `in_child` is called in the child, by its only thread, after all locks of the list have been
    /// released. Neither may panic, and neither may run user code.
    pub const fn new(hold: fn() -> Box<dyn Any>, in_child: fn()) -> Self {
        Self { is_listed: AtomicBool::new(false), hold, in_child }
    }

    /// Registers the locks that `hold` takes, so that each fork from now on takes them. Call it
    /// before each use of the locks, without holding any. Do not call it from within the
    /// initialization of what `hold` uses: a fork would wait for the initialization, and the
    /// initialization for the fork.
    #[inline]
    pub fn list(&'static self) {
        // ORDER: Relaxed; the list has a lock of its own.
        if !self.is_listed.load(Ordering::Relaxed) {
            imp::list(self);
        }
    }
}

#[cfg(all(unix, not(miri)))]
mod imp {
    use super::AtFork;
    use crate::sync::{AtomicBool, AtomicPtr, Ordering, thread_local};
    use std::any::Any;
    use std::cell::Cell;
    use std::ptr;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    static LIST: Mutex<Vec<&'static AtFork>> = Mutex::new(Vec::new());

    /// Everything that the forking thread holds; the fields are dropped in this order.
    struct Held {
        locks: Vec<Box<dyn Any>>,
        list: MutexGuard<'static, Vec<&'static AtFork>>,
    }

    /// From a box, while a thread forks. Belongs to the thread that holds the list.
    static HELD: AtomicPtr<Held> = AtomicPtr::new(ptr::null_mut());

    thread_local! {
        /// True while this thread forks. It has no destructor: a thread may fork in its last ones.
        static FORKS: Cell<bool> = const { Cell::new(false) };
    }

    /// True once the functions below are registered. Two threads at once may register them twice.
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

    #[cold]
    pub(super) fn list(new: &'static AtFork) {
        // Before the lock, which each fork takes once this is registered. An earlier fork must not
        // copy the lock while this thread has it: no thread of the child would release it. (libc
        // makes the registration wait while a fork copies the process.)
        // ORDER: Relaxed; the flag tells of nothing but itself.
        if !IS_REGISTERED.load(Ordering::Relaxed) {
            // SAFETY: the functions live as long as the process and do not unwind.
            let failed =
                unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            assert!(failed == 0, "manycore: no memory to register what a fork needs");
            IS_REGISTERED.store(true, Ordering::Relaxed);
        }
        let mut list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        if !list.iter().any(|other| ptr::eq(*other, new)) {
            list.push(new);
        }
        // ORDER: Relaxed; as in `AtFork::list`.
        new.is_listed.store(true, Ordering::Relaxed);
    }

    extern "C" fn before() {
        if FORKS.replace(true) {
            return; // registered twice: this thread has the locks
        }
        let list = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        let locks = list.iter().rev().map(|at_fork| (at_fork.hold)()).collect();
        let held = Box::into_raw(Box::new(Held { locks, list }));
        // ORDER: Relaxed; of the thread that holds the list.
        HELD.store(held, Ordering::Relaxed);
    }

    /// Takes what this thread holds, unless it was released before.
    fn held() -> Option<Box<Held>> {
        if !FORKS.replace(false) {
            return None;
        }
        // ORDER: Relaxed; as in `before`.
        let held = HELD.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: from a box that this thread has made in `before`: it holds the list since.
        Some(unsafe { Box::from_raw(held) })
    }

    extern "C" fn in_parent() {
        drop(held());
    }

    extern "C" fn in_child() {
        let Some(held) = held() else { return };
        let Held { locks, list } = *held;
        drop(locks);
        list.iter().for_each(|at_fork| (at_fork.in_child)());
    }
}

#[cfg(not(all(unix, not(miri))))]
mod imp {
    pub(super) fn list(new: &'static super::AtFork) {
        let _ = (new.hold, new.in_child);
    }
}
