//! The inputs that the fuzzer keeps (`ci/fuzz.sh`) of what the command reads, under its demands.

#[path = "../../../fuzz/src/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/src/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/src/machine.rs"]
mod machine;
#[path = "../../../fuzz/src/table.rs"]
mod table;

use manycore_bench::compare;

#[global_allocator]
static ALLOCATOR: bounds::Counting = bounds::Counting;

/// Each input of a corpus; of a panic it is known which it was.
fn replay(corpus: &str, demand: fn(&[u8])) {
    let inputs = corpus::inputs(corpus);
    assert!(inputs.len() > 10, "{}", inputs.len());
    for input in inputs {
        eprintln!("with {}", corpus::line(&input)); // shown if it fails
        demand(&input);
    }
}

#[test]
fn kept_inputs_for_machines_do_no_harm() {
    replay(include_str!("../../../fuzz/corpus/machine.txt"), machine::machine);
}

#[test]
fn kept_inputs_for_tables_do_no_harm() {
    replay(include_str!("../../../fuzz/corpus/table.txt"), table::table);
}

/// What a file of some hundred bytes may not cost.
#[test]
fn short_texts_that_claim_much_are_bounded() {
    machine::machine(
        &[&[2][..], "0-65535,".repeat(100_000).trim_end_matches(',').as_bytes()].concat(),
    );
    machine::machine(
        format!("\0name = 'x'\n[parameters]\nhit = {}", "[".repeat(60_000)).as_bytes(),
    );
    machine::machine(format!("\0name = 'x'\n{}", "a = {}\n".repeat(8_000)).as_bytes());
    table::table(",".repeat(1_000_000).as_bytes());
    table::table(",a,,1,kind=ours,m,,1\n,b,,1,,m,,1\n".repeat(10_000).as_bytes());
}
