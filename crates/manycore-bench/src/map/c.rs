//! The library's map as C programs use it.

// The functions behind the headers that `c/objects.c` includes.
use manycore_capi as _;

use super::{MapHandle, MapImpl};

/// `mc_map`; only C looks inside.
#[repr(C)]
struct Raw {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn manycore_c_map_new() -> *mut Raw;
    fn manycore_c_map_free(map: *mut Raw);
    fn manycore_c_map_get(map: *const Raw, key: u64) -> u64;
    fn manycore_c_map_put(map: *mut Raw, key: u64, value: u64);
    fn manycore_c_map_remove(map: *mut Raw, key: u64);
}

/// `mc_map` with numbers for keys and values, by a function of C's for each operation.
pub(super) struct FromC(*mut Raw);

// SAFETY: C lets any thread use the map at a time.
unsafe impl Sync for FromC {}

impl MapImpl for FromC {
    type Handle<'a> = &'a Self;

    fn new(_: usize) -> Self {
        // SAFETY: may be called at any time.
        Self(unsafe { manycore_c_map_new() })
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl Drop for FromC {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and no other thread has access.
        unsafe { manycore_c_map_free(self.0) };
    }
}

impl MapHandle for &FromC {
    #[inline]
    fn get(&mut self, key: u64) -> Option<u64> {
        // SAFETY: made by `new`, and freed with `self`.
        unsafe { manycore_c_map_get(self.0, key) }.checked_sub(1)
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u64) {
        // SAFETY: made by `new`, and freed with `self`.
        unsafe { manycore_c_map_put(self.0, key, value) };
    }

    #[inline]
    fn remove(&mut self, key: u64) {
        // SAFETY: made by `new`, and freed with `self`.
        unsafe { manycore_c_map_remove(self.0, key) };
    }
}
