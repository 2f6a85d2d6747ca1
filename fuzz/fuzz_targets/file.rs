#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| manycored_fuzz::file::file(data));
