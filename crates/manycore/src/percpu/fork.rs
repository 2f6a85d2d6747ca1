//! What a fork must not cut in half: locks of the process that a thread takes for some
//! instructions.
//!
//! Owns: the list of functions that hold such locks. Before a fork, the forking thread takes them
//! all; afterwards it lets them go, in the parent and in the child. So none is held in the child by
//! a thread that does not exist there, and what they guard is in order. No user code runs under
//! these locks, so the forking thread holds none of them, and each is free soon.

use std::any::Any;

/// Takes locks; they are released when the result is dropped.
pub(crate) type Hold = fn() -> Box<dyn Any>;

/// Has `hold` called before each fork from now on. May be called again and again. Not from within
/// the initialization of what `hold` uses: a fork would wait for that, and that for the fork.
pub(crate) fn at_fork(hold: Hold) {
    imp::at_fork(hold);
}

#[cfg(all(unix, not(miri)))]
mod imp {
    use super::Hold;
    use crate::sync::thread_local;
    use std::any::Any;
    use std::cell::RefCell;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    static HOLDS: Mutex<Vec<Hold>> = Mutex::new(Vec::new());

    /// What the forking thread holds: dropped in this order.
    #[derive(Default)]
    struct Held {
        _locks: Vec<Box<dyn Any>>,
        _list: Option<MutexGuard<'static, Vec<Hold>>>,
    }

    thread_local! {
        static HELD: RefCell<Held> = RefCell::default();
    }

    pub(super) fn at_fork(hold: Hold) {
        let mut holds = HOLDS.lock().unwrap_or_else(PoisonError::into_inner);
        if holds.is_empty() {
            // SAFETY: the functions live as long as the process and do not unwind.
            let failed = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
            assert!(failed == 0, "manycore: no memory to register what a fork needs");
        }
        if !holds.iter().any(|other| std::ptr::fn_addr_eq(*other, hold)) {
            holds.push(hold);
        }
    }

    extern "C" fn before() {
        let list = HOLDS.lock().unwrap_or_else(PoisonError::into_inner);
        let locks = list.iter().map(|hold| hold()).collect();
        // A thread that forks in its last destructors goes without.
        let _ =
            HELD.try_with(|held| *held.borrow_mut() = Held { _locks: locks, _list: Some(list) });
    }

    extern "C" fn after() {
        let held = HELD.try_with(|held| std::mem::take(&mut *held.borrow_mut()));
        drop(held);
    }
}

#[cfg(not(all(unix, not(miri))))]
mod imp {
    pub(super) fn at_fork(hold: super::Hold) {
        let _ = hold;
    }
}
