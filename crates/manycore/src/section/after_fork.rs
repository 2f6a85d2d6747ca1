//! The child of a `fork`: how it ends the threads that it does not have (section.S9).

use super::domain::Domain;
use super::home::HOME;
use super::limbo::RetiredNode;
use super::state::State;
use crate::sync::Ordering;
use std::ptr::NonNull;

impl Domain {
    /// Ends the threads that the child of a `fork` does not have.
    ///
    /// Closes their sections in the child's copy of this domain, so that
    /// [`synchronize`](Self::synchronize) returns there and what is retired is freed.
    ///
    /// What for: a child that goes on to use the domain. The library does not do this by itself,
    /// because the forking thread may have references that another thread's section protects. When
    /// not: in a child that goes on to `exec`.
    ///
    /// If another thread was inside a section at the fork, or was retiring or freeing, what it had
    /// retired is leaked. Everything else is freed as usual. Calls `kept` for each node that waits,
    /// with its address and the function that will free it.
    ///
    /// Cost: looks at each thread's part and at each node that waits.
    ///
    /// # Safety
    /// - The calling thread is the only one of the process: the process was forked, and has started
    ///   no thread since.
    /// - Nothing is used any more that was protected by a section which another thread had open at
    ///   the fork. No [`OwnedSection`](super::OwnedSection) of the domain is used any more.
    /// - The caller is in no function of this domain, except in the destructor of a node; and
    ///   `kept` calls no function of this domain.
    ///
    /// ```
    /// # #[cfg(unix)] {
    /// use manycore::section::Domain;
    ///
    /// let domain = Domain::new();
    /// let (inside, is_inside) = std::sync::mpsc::channel();
    /// let (end, ended) = std::sync::mpsc::channel::<()>();
    /// std::thread::scope(|scope| {
    ///     let domain = &domain;
    ///     scope.spawn(move || {
    ///         let section = domain.enter();
    ///         inside.send(()).unwrap();
    ///         ended.recv().unwrap_err();
    ///         drop(section);
    ///     });
    ///     is_inside.recv().unwrap();
    ///     // SAFETY: the child calls functions of this library alone, and ends by `_exit`.
    ///     let child = unsafe { libc::fork() };
    ///     if child == 0 {
    ///         // SAFETY: there is no other thread; nothing is used that its section protected.
    ///         unsafe { domain.abandon_other_threads(|_, _| ()) };
    ///         domain.synchronize();
    ///         // SAFETY: ends the process.
    ///         unsafe { libc::_exit(0) };
    ///     }
    ///     let mut status = 1;
    ///     // SAFETY: the child is this process's own, and the status may be written.
    ///     assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    ///     assert_eq!(status, 0);
    ///     drop(end);
    /// });
    /// # }
    /// ```
    pub unsafe fn abandon_other_threads(
        &self,
        mut kept: impl FnMut(NonNull<()>, unsafe fn(NonNull<()>)),
    ) {
        // SAFETY: what the caller promises.
        unsafe { self.state().abandon_others(&mut |node| kept(node.address, node.free)) };
    }
}

impl State {
    /// Does what [`Domain::abandon_other_threads`] says.
    ///
    /// # Safety
    /// As for [`Domain::abandon_other_threads`].
    unsafe fn abandon_others(&self, kept: &mut dyn FnMut(&RetiredNode)) {
        let own = HOME.with(|home| home.slot.get());
        let mut writers = 0;
        for (slot, local) in self.locals() {
            if slot != own {
                // SAFETY: the caller promises that there is no other thread, and that nothing is
                // used that the slot's sections protected.
                unsafe { local.abandon() };
            }
            // SAFETY: the only thread, as above; it is in the destructor of a node at most.
            writers += usize::from(unsafe { local.for_each_waiting(kept) });
        }
        // ORDER: Relaxed; there is one thread.
        self.found.0.writers.store(writers, Ordering::Relaxed);
        self.left().for_each(kept);
    }
}
