//! `mc_domain`: a domain with what the header's inline functions need of it in front; and the list
//! of those that exist, by which a handle that is freed twice is refused, and a thread that ends
//! finds the sections that it left open.

use crate::pending::Pending;
use manycore::section::Domain as Sections;
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::thread;

/// The number of a domain whose sections are opened by calls alone: no record has it.
const NOT_INLINABLE: u64 = u64::MAX;

/// `struct mc_domain`. Its first two fields are the header's by contract.
#[repr(C)]
#[derive(Debug)]
pub struct Domain {
    /// No other domain of the process has it, nor will have.
    pub(crate) number: u64,
    era: *const u64,
    /// Objects with nodes in the domain have it, too, and keep it from being freed.
    pub(crate) sections: Arc<Sections>,
    pub(crate) pending: Pending,
}

// SAFETY: the pointer is to the era of `sections`, an atomic word that lives as long as it; the
// other parts are Sync.
unsafe impl Sync for Domain {}
// SAFETY: nothing in it has ties to a thread; the pointer is to a word of `sections`, which is
// Send.
unsafe impl Send for Domain {}

impl Domain {
    /// The fields that the header knows, as it names them, and where they are.
    pub const FRONT: [(&str, usize); 2] =
        [("number", offset_of!(Self, number)), ("era", offset_of!(Self, era))];

    /// A domain on these sections; not listed.
    pub(crate) fn new(sections: Sections) -> Box<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let open = sections.enter().leave_open();
        let (era, announced, is_inlinable) = (open.era(), open.announced(), open.is_inlinable());
        // SAFETY: opened above, by this thread, and closed once.
        drop(unsafe { sections.resume(announced) });
        // ORDER: Relaxed; only uniqueness matters.
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Box::new(Self {
            number: if is_inlinable { number } else { NOT_INLINABLE },
            era,
            sections: Arc::new(sections),
            pending: Pending::new(),
        })
    }

    /// Closes the section that the calling thread opened last, if there is one: found by the
    /// thread's slot.
    pub(crate) fn close_innermost(&self) {
        if self.sections.is_inside() {
            // One more, whose word is the thread's; then both are closed.
            let announced = self.sections.enter().leave_open().announced();
            // SAFETY: two sections are open, the one that was found and the one above, and of
            // neither is there another guard in use.
            drop(unsafe { self.sections.resume(announced) });
            // SAFETY: the section that was found is open still, and has no other guard.
            drop(unsafe { self.sections.resume(announced) });
        }
    }
}

/// The domain that the program shares; it is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn mc_domain_default() -> *const Domain {
    static DEFAULT: OnceLock<Box<Domain>> = OnceLock::new();
    &**DEFAULT.get_or_init(|| {
        let domain = Domain::new(Sections::new());
        add(&raw const *domain);
        domain
    })
}

/// A lock that a fork can hold from one handler to another.
struct Locked<T> {
    is_held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is accessed by the thread alone that has changed `is_held` to true.
unsafe impl<T> Sync for Locked<T> {}

/// Addresses that are compared, and followed only as long as they are in the list.
struct Handles(Vec<*const Domain>);

static HANDLES: Locked<Handles> =
    Locked { is_held: AtomicBool::new(false), value: UnsafeCell::new(Handles(Vec::new())) };

fn lock() {
    // ORDER: Acquire; pairs with Release in `unlock`.
    while HANDLES.is_held.swap(true, Ordering::Acquire) {
        thread::yield_now();
    }
}

fn unlock() {
    // ORDER: Release; pairs with Acquire in `lock`.
    HANDLES.is_held.store(false, Ordering::Release);
}

/// Runs `f` with the list; it must run no user code.
fn with<R>(f: impl FnOnce(&mut Vec<*const Domain>) -> R) -> R {
    lock();
    // SAFETY: the lock is held, by this thread, and `f` does not come here again.
    let result = f(unsafe { &mut (*HANDLES.value.get()).0 });
    unlock();
    result
}

/// Lists a domain.
pub(crate) fn add(domain: *const Domain) {
    // After the domain was made, so that a fork takes this lock before those of the domains.
    #[cfg(unix)]
    at_fork();
    with(|handles| handles.push(domain));
}

/// Takes a domain out of the list; says whether it was there.
pub(crate) fn remove(domain: *const Domain) -> bool {
    with(|handles| {
        let found = handles.iter().position(|listed| *listed == domain);
        found.map(|at| handles.swap_remove(at)).is_some()
    })
}

/// A domain in which the calling thread has a section open.
pub(crate) fn entered() -> Option<*const Domain> {
    with(|handles| {
        // SAFETY: in the list, hence not freed, and `mc_domain_free` waits for the lock.
        handles.iter().copied().find(|domain| unsafe { &**domain }.sections.is_inside())
    })
}

#[cfg(unix)]
fn at_fork() {
    extern "C" fn before() {
        lock();
    }
    extern "C" fn after() {
        unlock();
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions live as long as the process and do not unwind.
        let failed = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        assert!(failed == 0, "manycore: no memory to register what a fork needs");
    });
}
