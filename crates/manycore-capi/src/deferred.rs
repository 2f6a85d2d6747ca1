//! `mc_deferred`: an object with call-backs as updates, which are applied at the next read.

use crate::versioned::{self, Versioned};
use crate::{cancel, running};
use libc::c_int;
use manycore::oplog::{Commuting, Deferred as Object, Op, Ordered};
use std::ffi::c_void;

/// `mc_update`: called with the object's state and the update's argument.
pub type Update = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);

/// The program's state. One thread at a time has it.
struct State(*mut c_void);

// SAFETY: the header says that any thread may update and read the state, one thread at a time.
unsafe impl Send for State {}

struct Call {
    update: Update,
    argument: *mut c_void,
}

// SAFETY: the header says that any thread may call it.
unsafe impl Send for Call {}

impl Op<State> for Call {
    fn apply(self, state: &mut State) {
        // SAFETY: the caller of `mc_deferred_append` permits any thread to call it with the state,
        // which this thread has alone.
        running::during(|| unsafe { (self.update)(state.0, self.argument) });
    }
}

/// `mc_deferred`.
#[derive(Debug)]
pub struct Deferred(Kind);

#[derive(Debug)]
enum Kind {
    Ordered(Object<State, Ordered<Call>>),
    Commuting(Object<State, Commuting<Call>>),
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("State").field(&self.0).finish()
    }
}

/// `struct mc_deferred_options`. Zero is the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeferredOptions {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Bit 0: the state does not depend on the order of updates.
    pub flags: u64,
    /// Maximal updates in a thread's log.
    pub max_entries: usize,
}

const COMMUTING: u64 = 1;

// SAFETY: `repr(C)`, the size first; then numbers.
unsafe impl Versioned for DeferredOptions {}

/// Makes a new object with this state.
///
/// # Safety
/// `out` is null or may be written. `options` is null, or has as many bytes as its first field
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_deferred_new(
    out: *mut *mut Deferred,
    state: *mut c_void,
    options: *const DeferredOptions,
) -> c_int {
    let none = DeferredOptions { size: size_of::<DeferredOptions>(), flags: 0, max_entries: 0 };
    // SAFETY: the caller promises that it is null, or as long as it says.
    let options = unsafe { versioned::read(options, none) };
    let options = options.filter(|options| options.flags & !COMMUTING == 0 && !out.is_null());
    let Some(options) = options else { return -libc::EINVAL };
    let state = State(state);
    let kind = if options.flags & COMMUTING == 0 {
        let builder = Object::builder();
        let builder = match options.max_entries {
            0 => builder,
            entries => builder.max_entries(entries),
        };
        builder.build(state).map(Kind::Ordered)
    } else {
        let builder = Object::builder();
        let builder = match options.max_entries {
            0 => builder,
            entries => builder.max_entries(entries),
        };
        builder.build(state).map(Kind::Commuting)
    };
    let Ok(kind) = kind else { return -libc::EINVAL };
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(Deferred(kind)))) };
    0
}

/// Applies the waiting updates, frees the object and returns the state.
///
/// # Safety
/// From `mc_deferred_new`, freed once, and used by no thread any more. The state may be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_deferred_free(object: *mut Deferred) -> *mut c_void {
    if object.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: from the box of `mc_deferred_new`; the caller promises that it comes back once.
    let Deferred(kind) = *unsafe { Box::from_raw(object) };
    let State(state) = match kind {
        Kind::Ordered(object) => object.into_inner(),
        Kind::Commuting(object) => object.into_inner(),
    };
    state
}

/// Appends an update.
///
/// # Safety
/// The object is not freed; any thread may call `update` with the state and `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_deferred_append(
    object: *const Deferred,
    update: Option<Update>,
    argument: *mut c_void,
) -> c_int {
    let Some(update) = update else { return -libc::EINVAL };
    let call = Call { update, argument };
    // SAFETY: the caller promises an object that has not been freed.
    match &unsafe { &*object }.0 {
        Kind::Ordered(object) => object.append(call),
        Kind::Commuting(object) => object.append(call),
    }
    0
}

/// Applies every update that was appended before, then calls `read` with the state, under the
/// object's lock.
///
/// # Safety
/// The object is not freed; `read` may be called with the state and `argument`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_deferred_read(
    object: *const Deferred,
    read: Option<Update>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller promises an object that has not been freed.
    let object = unsafe { &*object };
    let _no_cancel = cancel::disable();
    let read = |state: &State| {
        if let Some(read) = read {
            // SAFETY: the caller permits this thread to call it with the state, which the thread
            // has alone.
            running::during(|| unsafe { read(state.0, argument) });
        }
    };
    match &object.0 {
        Kind::Ordered(object) => read(&object.read()),
        Kind::Commuting(object) => read(&object.read()),
    }
    0
}
