//! The library's cache as C programs use it.

use std::{ffi::c_void, ptr};

// The functions behind the headers that `c/objects.c` includes.
use manycore_capi as _;

use super::{Key, KvHandle, KvImpl, Value};

/// `mc_cache`; only C looks inside.
#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn manycore_c_cache_new(bytes: u64) -> *mut Raw;
    fn manycore_c_cache_free(cache: *mut Raw);
    fn manycore_c_cache_get(
        cache: *mut Raw,
        key: *const c_void,
        key_length: usize,
        buffer: *mut c_void,
        room: usize,
    ) -> isize;
    fn manycore_c_cache_put(
        cache: *mut Raw,
        key: *const c_void,
        key_length: usize,
        value: *const c_void,
        length: usize,
    );
}

/// `mc_cache`, by a function of C's for each operation.
pub(super) struct FromC(*mut Raw);

// SAFETY: C lets any thread use the cache at a time.
unsafe impl Sync for FromC {}

impl KvImpl for FromC {
    type Handle<'a> = &'a Self;

    fn new(capacity: usize, _: usize) -> Self {
        // SAFETY: may be called at any time.
        Self(unsafe { manycore_c_cache_new(super::bytes_of(capacity)) })
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl Drop for FromC {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and no other thread has access.
        unsafe { manycore_c_cache_free(self.0) };
    }
}

impl KvHandle for &FromC {
    #[inline]
    fn get(&mut self, key: &Key) -> Option<u64> {
        let mut value: Value = [0; 32];
        let (at, buffer) = (ptr::from_ref(key).cast(), (&raw mut value).cast());
        // SAFETY: made by `new`, and freed with `self`; key and buffer have so many bytes.
        let length =
            unsafe { manycore_c_cache_get(self.0, at, key.len(), buffer, size_of::<Value>()) };
        (length >= 0).then(|| super::word_of(&value))
    }

    #[inline]
    fn set(&mut self, key: Key, value: Value) {
        let (at, from) = (ptr::from_ref(&key).cast(), ptr::from_ref(&value).cast());
        // SAFETY: made by `new`, and freed with `self`; key and value have so many bytes.
        unsafe { manycore_c_cache_put(self.0, at, key.len(), from, value.len()) };
    }
}
