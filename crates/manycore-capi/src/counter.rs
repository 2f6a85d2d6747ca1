//! `struct mc_counter`: the library's counter, in the caller's memory.

use libc::c_int;
use manycore::collections::Counter;
use std::mem;

/// Bytes of a counter. They are all zero at first, as `MC_COUNTER_INIT` of the header requires.
pub const COUNTER_BYTES: usize = size_of::<Counter>();

const _: () = {
    assert!(COUNTER_BYTES == 16 && align_of::<Counter>() == 8, "the header says so");
    // SAFETY: the sizes are equal, and all bytes are initialized, because the fields are two words.
    let [low, high] = unsafe { mem::transmute::<Counter, [u64; 2]>(Counter::new(0)) };
    assert!(low == 0 && high == 0, "the header's initializer");
};

/// Adds `n`, which may be negative.
///
/// # Safety
/// A counter that was initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_counter_add(counter: *const Counter, n: i64) {
    // SAFETY: the caller promises an initialized counter.
    unsafe { &*counter }.add(n);
}

/// Returns the count.
///
/// # Safety
/// A counter that was initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_counter_sum(counter: *const Counter) -> i64 {
    // SAFETY: the caller promises an initialized counter.
    unsafe { &*counter }.sum()
}

/// Returns the count and sets it to zero.
///
/// # Safety
/// A counter that was initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_counter_take(counter: *const Counter) -> i64 {
    // SAFETY: the caller promises an initialized counter.
    unsafe { &*counter }.take()
}

/// Returns 1 if each thread counts on a line of its own, else 0.
///
/// # Safety
/// A counter that was initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_counter_is_hot(counter: *const Counter) -> c_int {
    // SAFETY: the caller promises an initialized counter.
    unsafe { &*counter }.is_hot().into()
}

/// Lets each thread count on a line of its own from now on.
///
/// # Safety
/// A counter that was initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_counter_promote(counter: *const Counter) -> c_int {
    // SAFETY: the caller promises an initialized counter.
    if unsafe { &*counter }.promote() { 0 } else { -libc::EBUSY }
}

/// Makes the counter one word again.
///
/// # Safety
/// A counter that was initialized.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_counter_demote(counter: *const Counter) {
    // SAFETY: the caller promises an initialized counter.
    unsafe { &*counter }.demote();
}

/// Frees what the counter has beside its two words, and leaves it at zero.
///
/// # Safety
/// A counter that was initialized, which no other thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_counter_destroy(counter: *mut Counter) {
    // SAFETY: the caller promises an initialized counter, and that no other thread uses it.
    drop(unsafe { counter.replace(Counter::new(0)) });
}
