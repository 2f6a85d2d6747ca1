//! Finds the libc functions that this crate's functions replace.
//!
//! Owns: the lookup. A call of `pthread_create` from this crate would come back to this crate,
//! because its symbols come first. [`Next`] returns the function of the next object in the search
//! order.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::diagnostics;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A libc function that one of this crate's functions replaces, looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Makes one from a name that ends in a zero byte, as `concat!` produces it.
    pub(crate) const fn of(name: &'static str) -> Self {
        match CStr::from_bytes_with_nul(name.as_bytes()) {
            Ok(name) => Self::new(name),
            Err(_) => panic!("the name has one zero byte, at its end"),
        }
    }

    /// Returns the address, to be cast to a function pointer of the right type.
    pub(crate) fn get(&self) -> *mut c_void {
        const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;
        // ORDER: Relaxed; the address is all there is, and any thread finds the same one.
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: `name` is a C string; RTLD_NEXT searches the objects after ours.
        let found = unsafe { dlsym(RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            diagnostics::fatal(format_args!("libc has no {}", self.name.to_string_lossy()));
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Returns the address of an object or function, if a loaded object has it.
pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: `name` is a C string; null is RTLD_DEFAULT.
    unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }
}
