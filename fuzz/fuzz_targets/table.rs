#![no_main]

#[path = "../src/bounds.rs"]
mod bounds;
#[path = "../src/table.rs"]
mod check;
#[path = "../../crates/manycore-bench/src/compare.rs"]
mod compare;

#[global_allocator]
static ALLOCATOR: bounds::Counting = bounds::Counting;

libfuzzer_sys::fuzz_target!(|data: &[u8]| check::table(data));
