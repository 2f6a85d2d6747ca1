//! The inputs that the fuzzer keeps (`ci/fuzz.sh`) of logs, under its demands.
#![cfg(not(miri))] // the host's files

#[path = "../../../fuzz/src/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/kept.rs"]
mod kept;

#[global_allocator]
static ALLOCATOR: bounds::Counting = bounds::Counting;

#[test]
fn kept_inputs_for_logs_do_no_harm() {
    let inputs = corpus::inputs(include_str!("../../../fuzz/corpus/kept.txt"));
    assert!(inputs.len() > 10, "{}", inputs.len());
    for input in inputs.into_iter().chain(kept::saved()) {
        eprintln!("with {}", corpus::line(&input)); // shown if it fails
        kept::kept(&input);
    }
}
