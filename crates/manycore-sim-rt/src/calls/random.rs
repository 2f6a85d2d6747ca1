//! Random bytes of the system: the same in every run of a simulation.

use crate::host::{self, as_libc};
use crate::world;

/// Marsaglia's xorshift over 64 bits.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // A state of 0 would stay there.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15 | 1)
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            *byte = (self.0 >> 32) as u8;
        }
    }
}

/// The kernel's `getrandom` for a virtual thread: the bytes written.
///
/// # Safety
/// `buffer` is good for `bytes` bytes; it may be null if there are none.
pub(super) unsafe fn random_call(buffer: *mut u8, bytes: usize) -> isize {
    if bytes != 0 {
        // SAFETY: the caller promises a buffer of `bytes` bytes, so it is not null here.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer, bytes) };
        world::with(|world| world.random.fill(buffer));
    }
    bytes as isize
}

/// Random bytes.
///
/// # Safety
/// As for the function of libc.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getrandom(buffer: *mut u8, bytes: usize, flags: u32) -> isize {
    if world::active() {
        // SAFETY: the caller promises a buffer of `bytes` bytes, as libc's `getrandom` asks.
        return unsafe { random_call(buffer, bytes) };
    }
    let arguments = [buffer as usize, bytes, flags as usize, 0, 0, 0];
    // SAFETY: the caller promises a buffer of `bytes` bytes, as libc's `getrandom` asks; the kernel
    // writes no more.
    as_libc(unsafe { host::call(host::SYS_GETRANDOM, arguments) })
}
