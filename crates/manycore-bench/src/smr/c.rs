//! Schemes written in C: liburcu and Concurrency Kit, and the library's own sections from C.
//!
//! Owns: the Rust side of `c/smr.h`. The loops over a trace and over empty sections run in C, where
//! a section is inlined. Single operations are calls through a pointer.

use std::{
    ffi::c_void,
    marker::PhantomData,
    ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use super::{Counts, Node, Op, Payload, Read, Scheme, SchemeHandle, Setup};

// The functions behind the header that `c/manycore.c` includes.
use manycore_capi as _;

/// A node with room for two words of the library.
type CNode = Node<[usize; 2], 3>;

/// What C has for each thread; only C looks inside.
#[repr(C)]
struct Thread {
    _opaque: [u8; 0],
}

/// `struct scheme` of `c/smr.h`, field by field.
#[repr(C)]
pub(super) struct Vtable {
    open: unsafe extern "C" fn() -> *mut c_void,
    close: unsafe extern "C" fn(*mut c_void),
    join:
        unsafe extern "C" fn(*mut c_void, *const AtomicPtr<CNode>, &'static Counts) -> *mut Thread,
    leave: unsafe extern "C" fn(*mut Thread),
    empty: unsafe extern "C" fn(*mut Thread),
    read: unsafe extern "C" fn(*mut Thread, usize) -> u64,
    update: unsafe extern "C" fn(*mut Thread, usize, u64),
    enter: unsafe extern "C" fn(*mut Thread, usize) -> *const CNode,
    exit: unsafe extern "C" fn(*mut Thread),
    rest: unsafe extern "C" fn(*mut Thread),
    flush: unsafe extern "C" fn(*mut Thread),
    pause: unsafe extern "C" fn(*mut Thread),
    resume: unsafe extern "C" fn(*mut Thread),
    run: unsafe extern "C" fn(*mut Thread, *const Op, usize, i32, &mut u64) -> u64,
    sections: unsafe extern "C" fn(*mut Thread, u64),
}

/// A new node, for C.
#[unsafe(no_mangle)]
extern "C" fn manycore_smr_node(value: u64, counts: &'static Counts) -> *mut CNode {
    Box::into_raw(Box::new(CNode::new(value, counts)))
}

/// The end of a node, for C.
///
/// # Safety
/// The node came from `manycore_smr_node`, no thread can reach it, and it is dropped once.
#[unsafe(no_mangle)]
unsafe extern "C" fn manycore_smr_drop(node: *mut CNode) {
    // SAFETY: the caller promises that the node came from `manycore_smr_node`, so from a box, that
    // no thread can reach it, and that it is dropped once.
    drop(unsafe { Box::from_raw(node) });
}

/// A library's way to reclaim.
pub(super) trait Library: Sync + Send + 'static {
    /// Its functions.
    fn vtable() -> &'static Vtable;
}

macro_rules! libraries {
    ($($(#[$doc:meta])* $type:ident => $symbol:ident;)*) => {
        unsafe extern "C" {
            $(static $symbol: Vtable;)*
        }
        $(
            $(#[$doc])*
            pub(super) struct $type;

            impl Library for $type {
                #[inline(always)]
                fn vtable() -> &'static Vtable {
                    // SAFETY: a constant of that type, defined in the folder `c`.
                    unsafe { &$symbol }
                }
            }
        )*
    };
}

libraries! {
    /// The membarrier flavour.
    MembCall => urcu_memb_call_scheme;
    /// The membarrier flavour.
    MembDefer => urcu_memb_defer_scheme;
    /// The flavour with full fences.
    MbCall => urcu_mb_call_scheme;
    /// The flavour with full fences.
    MbDefer => urcu_mb_defer_scheme;
    /// The flavour that is told when a thread rests.
    QsbrCall => urcu_qsbr_call_scheme;
    /// The flavour that is told when a thread rests.
    QsbrDefer => urcu_qsbr_defer_scheme;
    /// The flavour that registers threads by itself.
    BpCall => urcu_bp_call_scheme;
    /// The flavour that registers threads by itself.
    BpDefer => urcu_bp_defer_scheme;
    /// Epochs.
    CkEpoch => ck_epoch_scheme;
    /// The big-reader lock.
    CkBrlock => ck_brlock_scheme;
    /// The queue lock.
    CkMcs => ck_mcs_scheme;
    /// The library's own sections, inlined from its header.
    OwnC => manycore_c_scheme;
    /// The same, with quiescent states in place of sections.
    OwnQuiescentC => manycore_c_quiescent_scheme;
}

/// A table that a library looks after.
pub(super) struct Native<L: Library> {
    table: Box<[AtomicPtr<CNode>]>,
    domain: *mut c_void,
    counts: &'static Counts,
    library: PhantomData<L>,
}

// SAFETY: the domain is C's, which lets any thread join it at any time; the rest is shared safely.
unsafe impl<L: Library> Sync for Native<L> {}

/// A thread's membership.
pub(super) struct NativeHandle<'a, L: Library> {
    thread: *mut Thread,
    scheme: PhantomData<&'a Native<L>>,
}

impl<L: Library> Scheme for Native<L> {
    type Handle<'a> = NativeHandle<'a, L>;

    fn new(setup: Setup) -> Self {
        // SAFETY: may be called at any time.
        let domain = unsafe { (L::vtable().open)() };
        assert!(!domain.is_null(), "no memory for a domain");
        let table = setup.table(|value, counts| AtomicPtr::new(manycore_smr_node(value, counts)));
        Self { table, domain, counts: setup.counts, library: PhantomData }
    }

    fn handle(&self, _: usize) -> NativeHandle<'_, L> {
        // SAFETY: domain and table live as long as the handle's lifetime says, and the handle does
        // not leave the thread: the pointer in it sees to that.
        let thread = unsafe { (L::vtable().join)(self.domain, self.table.as_ptr(), self.counts) };
        NativeHandle { thread, scheme: PhantomData }
    }
}

impl<L: Library> Drop for Native<L> {
    fn drop(&mut self) {
        // SAFETY: every handle is gone, as they borrow `self`.
        unsafe { (L::vtable().close)(self.domain) };
        for slot in &self.table {
            // SAFETY: the slot owns its node, and no other thread has access.
            unsafe { manycore_smr_drop(slot.swap(ptr::null_mut(), Relaxed)) };
        }
    }
}

impl<L: Library> Drop for NativeHandle<'_, L> {
    fn drop(&mut self) {
        // SAFETY: the thread that joined leaves, once.
        unsafe { (L::vtable().leave)(self.thread) };
    }
}

// A handle stays with the thread that joined, as it has a raw pointer, and leaves when it is
// dropped. The slots of its calls are below `SLOTS`: those of operations (`Op`), or taken so.
impl<L: Library> SchemeHandle for NativeHandle<'_, L> {
    #[inline]
    fn empty(&mut self, _: usize) {
        // SAFETY: `thread` is the calling thread's, joined and not yet left.
        unsafe { (L::vtable().empty)(self.thread) };
    }

    #[inline]
    fn read(&mut self, slot: usize) -> u64 {
        // SAFETY: `thread` is the calling thread's, joined and not yet left; `slot` is within the
        // table.
        unsafe { (L::vtable().read)(self.thread, slot) }
    }

    #[inline]
    fn update(&mut self, slot: usize, value: u64) {
        // SAFETY: `thread` is the calling thread's, joined and not yet left; `slot` is within the
        // table.
        unsafe { (L::vtable().update)(self.thread, slot, value) };
    }

    fn hold(&mut self, slot: usize, inside: &mut dyn FnMut(&Payload)) {
        // SAFETY: `thread` is the calling thread's, joined and not yet left; `slot` is within the
        // table, and what `enter` returns is kept until `exit`.
        unsafe {
            inside((*(L::vtable().enter)(self.thread, slot)).payload());
            (L::vtable().exit)(self.thread);
        }
    }

    #[inline]
    fn rest(&mut self) {
        // SAFETY: `thread` is the calling thread's, joined and not yet left; it is outside of
        // sections.
        unsafe { (L::vtable().rest)(self.thread) };
    }

    fn flush(&mut self) {
        // SAFETY: `thread` is the calling thread's, joined and not yet left; it is outside of
        // sections.
        unsafe { (L::vtable().flush)(self.thread) };
    }

    fn idle(&mut self, wait: &mut dyn FnMut()) {
        // SAFETY: `thread` is the calling thread's, joined and not yet left; `wait` uses nothing of
        // the table.
        unsafe {
            (L::vtable().pause)(self.thread);
            wait();
            (L::vtable().resume)(self.thread);
        }
    }

    fn run(&mut self, ops: &[Op], read: Read, number: &mut u64) -> u64 {
        let node = i32::from(read == Read::Node);
        // SAFETY: `thread` is the calling thread's, joined and not yet left; the slice is valid for
        // its length, and the slots of its operations are within the table (`Op::slot`).
        unsafe { (L::vtable().run)(self.thread, ops.as_ptr(), ops.len(), node, number) }
    }

    fn sections(&mut self, _: usize, count: u64) {
        // SAFETY: `thread` is the calling thread's, joined and not yet left.
        unsafe { (L::vtable().sections)(self.thread, count) };
    }
}
