//! The state of an adopted thread and of its real thread.
//!
//! Law threads.S2 (in [`crate::threads`]) says what its `place` is.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU32;

use crate::frames::CallPath;
use crate::interpose::Next;
use crate::pipeline::Registers;
use crate::{rseq, switch};

/// A thread's main function.
pub(crate) type Entry = extern "C" fn(*mut c_void) -> *mut c_void;
pub(crate) type Destructor = extern "C" fn(*mut c_void);

/// An adopted thread. The program's first thread has no entry.
pub(crate) struct Thread {
    pub(crate) entry: Option<Entry>,
    pub(crate) argument: *mut c_void,
    pub(crate) result: *mut c_void,
    /// libc's handle.
    pub(crate) handle: usize,
    /// The saved stack pointer (threads.S2).
    pub(crate) place: usize,
    pub(crate) pointer: usize,
    /// Bytes of its stack, which ends a little above `pointer`. The first thread's stack is
    /// elsewhere; for it, the bytes that thread-locals may have.
    pub(crate) stack: usize,
    /// The place where it gave way: in the tree of calls, and its block.
    pub(crate) frame: (CallPath, usize),
    /// When its registers have their values.
    pub(crate) registers: Registers,
    /// The cores that it may use, or `None` for all.
    pub(crate) allowed: Option<Vec<u32>>,
    pub(crate) destructors: Vec<(Destructor, *mut c_void)>,
    /// 1 when the kernel thread sleeps on its parking stack.
    pub(crate) parked: AtomicU32,
    /// 1 when the kernel thread shall go back to its stack and end.
    pub(crate) released: AtomicU32,
    pub(crate) ended: bool,
    pub(crate) detached: bool,
    /// True once its real thread is gone: the handle may then belong to another thread.
    pub(crate) collected: bool,
}

impl Thread {
    pub(crate) fn new(entry: Option<Entry>, argument: *mut c_void) -> Box<Self> {
        Box::new(Self {
            entry,
            argument,
            result: std::ptr::null_mut(),
            handle: 0,
            place: 0,
            pointer: 0,
            stack: 64 << 10,
            frame: (CallPath::default(), 0),
            registers: Registers::default(),
            allowed: None,
            destructors: Vec::new(),
            parked: AtomicU32::new(0),
            released: AtomicU32::new(0),
            ended: false,
            detached: false,
            collected: false,
        })
    }

    /// Returns the state of the calling thread, which is the program's first.
    pub(crate) fn first() -> Box<Self> {
        let mut thread = Self::new(None, std::ptr::null_mut());
        thread.pointer = switch::thread_pointer();
        rseq::release(thread.pointer);
        thread
    }
}

/// libc's `pthread_join`.
pub(crate) fn join_real(handle: usize, result: *mut *mut c_void) -> c_int {
    type Join = extern "C" fn(usize, *mut *mut c_void) -> c_int;
    static JOIN: Next = Next::new(c"pthread_join");
    // SAFETY: the type of pthread_join.
    let real: Join = unsafe { std::mem::transmute(JOIN.get()) };
    real(handle, result)
}
