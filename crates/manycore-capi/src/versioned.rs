//! Structs of the header that carry their size. Programs and libraries of different versions know
//! different lengths of them.

use std::mem::MaybeUninit;
use std::ptr;

/// A struct of the header with its size, a `usize`, as the first field.
///
/// # Safety
/// The struct is `repr(C)` with the size as its first field. Any bytes are a valid value: the
/// fields are integers, pointers, or functions that may be null.
pub(crate) unsafe trait Versioned: Copy {}

/// The maximal length that a later version may have.
const LONGEST: usize = 4096;

/// Reads the part of a struct that the caller knows, and takes the rest from `none`. Returns `None`
/// if the size is invalid, or if the caller uses fields that this library does not know.
///
/// # Safety
/// The pointer is null, or the struct is as many bytes long as its first field says.
pub(crate) unsafe fn read<T: Versioned>(given: *const T, none: T) -> Option<T> {
    if given.is_null() {
        return Some(none);
    }
    // SAFETY: the caller promises that at least the first field is there, and the trait that it is
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
        // SAFETY: below `size`, so it is there.
        unsafe { given.cast::<u8>().add(at).read() == 0 }
    });
    beyond.then_some(read)
}

/// Writes as much of `value` as the caller knows, except for the size. Returns false if the size is
/// invalid.
///
/// # Safety
/// The pointer is null, or the struct is as many bytes long as its first field says, and may be
/// written.
pub(crate) unsafe fn write<T: Versioned>(out: *mut T, value: T) -> bool {
    if out.is_null() {
        return false;
    }
    // SAFETY: the caller promises that at least the first field is there, and the trait that it is
    // the size.
    let size = unsafe { out.cast::<usize>().read() };
    if size < size_of::<usize>() {
        return false;
    }
    let known = size.min(size_of::<T>());
    // SAFETY: `known` bytes are there on both sides; afterwards the size is as it was.
    unsafe {
        ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), out.cast(), known);
        out.cast::<usize>().write(size);
    }
    true
}
