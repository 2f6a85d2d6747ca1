//! The program's arguments and environment, at places that do not depend on one another's lengths.
//!
//! The kernel puts them one behind the other above the stack. Which part of which cache line an
//! argument has would depend on the folder and the home that the environment names: a fetch more or
//! less for a program that reads it. Here each begins a line of its own.

use std::ffi::{CStr, c_char, c_int};

use crate::host;

/// Bytes of a cache line, or more.
const LINE: usize = 128;
/// What is mapped is a multiple of this, so that what is mapped later stays where it is.
const STEP: usize = 4 << 20;
/// Words of one entry of the list of facts that the kernel gives behind the environment.
const FACT: usize = 2;

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// Copies arguments, environment and the kernel's facts behind them; returns the arguments. As they
/// are if there is no memory.
///
/// # Safety
/// The arguments are those that the kernel gave, and no other thread runs.
pub(crate) unsafe fn relocated(count: c_int, arguments: *mut *mut c_char) -> *mut *mut c_char {
    let count = count as usize;
    // SAFETY: behind the arguments and a null there is the environment, with a null at its end, and
    // then pairs of words up to one whose first is zero (# Safety). `environ` may lack what was
    // taken out since the start.
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
        // An empty environment has its null, too.
        copied.resize(words - facts.len(), 0);
        copied.extend(facts);
        let list = place.cast::<usize>();
        list.copy_from_nonoverlapping(copied.as_ptr(), copied.len());
        environ = list.add(count + 1).cast();
        list.cast()
    }
}

/// The texts up to the null.
///
/// # Safety
/// A list of pointers that ends with a null.
unsafe fn list(first: *mut *mut c_char) -> Vec<*mut c_char> {
    // SAFETY: the caller promises that the list ends with a null (# Safety).
    (0..).map(|index| unsafe { *first.add(index) }).take_while(|text| !text.is_null()).collect()
}

/// The words behind the environment that begins at `environment`, as the kernel laid it out.
///
/// # Safety
/// As for [`relocated`].
unsafe fn facts(environment: *mut *mut c_char) -> Vec<usize> {
    let mut words = Vec::new();
    // SAFETY: the caller promises the kernel's layout (# Safety). A variable that was taken out has
    // left nulls at the end: what comes first behind them is a fact, whose kind is not zero.
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
