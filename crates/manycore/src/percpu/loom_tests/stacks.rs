//! Stacks of loom's threads. Each execution of a model makes one for each thread and gives it back,
//! by system calls, and then touches new pages: a third of all time. Here they are kept.
//!
//! The crate below loom calls `mmap` and `munmap` of the C library. In a program of models, these
//! two take their place.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a stack and its guard page.
const STACK_BYTES: usize = 0x9000;

/// Addresses of stacks that threads have, and of those that are kept.
struct Stacks {
    used: Vec<usize>,
    kept: Vec<usize>,
}

fn stacks() -> MutexGuard<'static, Stacks> {
    static STACKS: Mutex<Stacks> = Mutex::new(Stacks { used: Vec::new(), kept: Vec::new() });
    STACKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Same as the C library's, but for a stack that is kept: it has the bytes of its last thread.
///
/// # Safety
/// As the C library's.
// SAFETY: it has the type and the meaning of the C library's function, and alone replaces it.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    bytes: usize,
    access: c_int,
    flags: c_int,
    file: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let map = || {
        // SAFETY: the arguments are the caller's.
        unsafe { libc::syscall(libc::SYS_mmap, address, bytes, access, flags, file, offset) }
    };
    let is_stack = address.is_null() && bytes == STACK_BYTES && flags & libc::MAP_STACK != 0;
    if !is_stack {
        return ptr::with_exposed_provenance_mut(map() as usize);
    }
    let mut stacks = stacks();
    let stack = stacks.kept.pop().unwrap_or_else(|| map() as usize);
    let pointer = ptr::with_exposed_provenance_mut(stack);
    if pointer != libc::MAP_FAILED {
        stacks.used.push(stack);
    }
    pointer
}

/// Same as the C library's, but that it keeps a stack.
///
/// # Safety
/// As the C library's.
// SAFETY: it has the type and the meaning of the C library's function, and alone replaces it.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(address: *mut c_void, bytes: usize) -> c_int {
    if bytes == STACK_BYTES {
        let mut stacks = stacks();
        let stack = address.expose_provenance();
        if let Some(at) = stacks.used.iter().position(|used| *used == stack) {
            stacks.used.swap_remove(at);
            stacks.kept.push(stack);
            return 0;
        }
    }
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_munmap, address, bytes) as c_int }
}

#[test]
fn loom_stacks_are_kept() {
    super::model(1, || super::thread::spawn(|| ()).join().unwrap());
    assert!(
        !stacks().kept.is_empty(),
        "loom's threads have stacks of another size: see STACK_BYTES"
    );
}
