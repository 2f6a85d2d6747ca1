//! Structs of the header that carry their size: programs and libraries of different versions know
//! different lengths of them.

use std::mem::MaybeUninit;
use std::ptr;

/// A struct of the header whose first field is its size, a `usize`.
///
/// # Safety
/// `repr(C)`, with the size as its first field, and any bytes are a value that is safe to have: the
/// fields are integers, pointers, or functions that may be null.
pub(crate) unsafe trait Versioned: Copy {}

/// The longest that a later version is taken to have.
const LONGEST: usize = 4096;

/// What the caller knows of a struct, the rest from `none`; `None` if it has a size that cannot be,
/// or knows more than this library, and uses it.
///
/// # Safety
/// Null, or as many bytes long as the first field says.
pub(crate) unsafe fn read<T: Versioned>(given: *const T, none: T) -> Option<T> {
    if given.is_null() {
        return Some(none);
    }
    // SAFETY: the caller promises that the first field is there at least, and the trait that it is
    // the size.
    let size = unsafe { given.cast::<usize>().read() };
    if !(size_of::<usize>()..=LONGEST).contains(&size) {
        return None;
    }
    let mut read = MaybeUninit::new(none);
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are there on both sides, and the trait says that any bytes are a value.
    let read = unsafe {
        ptr::copy_nonoverlapping(given.cast::<u8>(), read.as_mut_ptr().cast(), known);
        read.assume_init()
    };
    let beyond = (known..size).all(|at| {
        // SAFETY: below `size`, so there.
        unsafe { given.cast::<u8>().add(at).read() == 0 }
    });
    beyond.then_some(read)
}

/// Writes as much of `value` as the caller knows, except for the size; whether it has a size that
/// can be.
///
/// # Safety
/// Null, or as many bytes long as the first field says, which may be written.
pub(crate) unsafe fn write<T: Versioned>(out: *mut T, value: T) -> bool {
    if out.is_null() {
        return false;
    }
    // SAFETY: the caller promises that the first field is there at least, and the trait that it is
    // the size.
    let size = unsafe { out.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return false;
    }
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are there on both sides; then the size is as it was.
    unsafe {
        ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), out.cast(), known);
        out.cast::<usize>().write(size);
    }
    true
}
