//! The inputs that the fuzzer keeps (`ci/fuzz.sh`), under its demands.

#[path = "../../../../fuzz/src/trace.rs"]
mod check;
#[path = "../../../../fuzz/src/corpus.rs"]
mod corpus;

#[test]
fn kept_inputs_of_the_reader_do_no_harm() {
    let mut records = 0;
    for input in corpus::inputs(include_str!("../../../../fuzz/corpus/trace.txt")) {
        eprintln!("with {}", corpus::line(&input)); // shown if it fails
        check::trace(&input);
        if let Ok(mut trace) = manycore_trace::Trace::from_bytes(input) {
            records += trace.account().merged;
        }
    }
    assert!(records > 0, "no input has a record");
}
