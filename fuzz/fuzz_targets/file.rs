#![no_main]

#[global_allocator]
static ALLOCATOR: manycored_fuzz::bounds::Counting = manycored_fuzz::bounds::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| manycored_fuzz::file::file(data));
