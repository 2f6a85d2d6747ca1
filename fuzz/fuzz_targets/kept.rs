#![no_main]

#[path = "../src/bounds.rs"]
mod bounds;
#[path = "../src/kept.rs"]
#[allow(dead_code, reason = "corpus.rs makes inputs with the rest")]
mod check;

#[global_allocator]
static ALLOCATOR: bounds::Counting = bounds::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::kept(data));
