#![no_main]

#[path = "../src/trace.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::trace(data));
