//! Moves the program's arguments and environment to places that do not depend on each other's
//! lengths.
//!
//! The kernel puts them one after the other above the stack. There, the folder and the home in the
//! environment decide which part of which cache line an argument has. A program that reads it then
//! fetches a line more or less. Here each text begins on a line of its own.

use std::ffi::{CStr, c_char, c_int};

use crate::host;

/// Bytes of a cache line, or more.
const LINE: usize = 128;
/// The mapping's size is a multiple of this, so that later mappings stay where they are.
const STEP: usize = 4 << 20;
/// Words of one entry of the kernel's list of facts after the environment.
const FACT: usize = 2;

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Copies the arguments, the environment and the kernel's facts after them, and returns the copied
/// arguments. Returns the original arguments if there is no memory.
///
/// # Safety
/// The arguments are those from the kernel, and no other thread runs.
pub(crate) unsafe fn relocated(count: c_int, arguments: *mut *mut c_char) -> *mut *mut c_char {
    let count = count as usize;
    // SAFETY: the environment follows the arguments and a null, and ends in a null. Then come pairs
    // of words, up to a pair with a first word of zero (# Safety). Variables that were removed
    // since the start are missing in `environ`.
    unsafe {
        let environment = list(environ);
        let all: Vec<*mut c_char> = (0..count)
            .map(|index| *arguments.add(index))
            .chain(environment.iter().copied())
            .collect();
        let facts = facts(arguments.add(count + 1));
        let line = |bytes: usize| bytes.next_multiple_of(LINE);
        let length = |text: *mut c_char| CStr::from_ptr(text).to_bytes_with_nul().len();
        let words = all.len() + 2 + facts.len();
        let texts: usize = all.iter().map(|&text| line(length(text))).sum();
        let place = host::map(0, (line(words * 8) + texts).next_multiple_of(STEP));
        if place.is_null() {
            return arguments;
        }
        let mut next = place.add(line(words * 8));
        let mut copied = Vec::with_capacity(words);
        for (index, text) in all.into_iter().enumerate() {
            if index == count {
                copied.push(0);
            }
            text.cast::<u8>().copy_to_nonoverlapping(next, length(text));
            copied.push(next as usize);
            next = next.add(line(length(text)));
        }
        // An empty environment has its null too.
        copied.resize(words - facts.len(), 0);
        copied.extend(facts);
        let list = place.cast::<usize>();
        list.copy_from_nonoverlapping(copied.as_ptr(), copied.len());
        environ = list.add(count + 1).cast();
        list.cast()
    }
}

/// Returns the texts up to the null.
///
/// # Safety
/// The list of pointers ends with a null.
unsafe fn list(first: *mut *mut c_char) -> Vec<*mut c_char> {
    // SAFETY: the caller promises that the list ends with a null (# Safety).
    (0..).map(|index| unsafe { *first.add(index) }).take_while(|text| !text.is_null()).collect()
}

/// Returns the words after the environment that begins at `environment`, as the kernel laid it out.
///
/// # Safety
/// As for [`relocated`].
unsafe fn facts(environment: *mut *mut c_char) -> Vec<usize> {
    let mut words = Vec::new();
    // SAFETY: the caller promises the kernel's layout (# Safety). A removed variable has left nulls
    // at the end. The first non-null word after them is a fact, because its kind is not zero.
    unsafe {
        let mut at = environment.add(list(environment).len());
        while (*at).is_null() {
            at = at.add(1);
        }
        loop {
            let fact = at.cast::<[usize; FACT]>().read();
            words.extend(fact);
            if fact[0] == 0 {
                return words;
            }
            at = at.add(FACT);
        }
    }
}
