//! The inputs that the fuzzer keeps (`ci/fuzz.sh`), under its demands.

#[path = "../../../../fuzz/src/lib.rs"]
#[allow(dead_code)]
mod fuzz;

/// Each input of a corpus; of a panic it is known which it was.
fn replay(corpus: &str, demand: fn(&[u8])) {
    let inputs = fuzz::corpus::inputs(corpus);
    assert!(inputs.len() > 40, "{}", inputs.len());
    for input in inputs {
        assert_eq!(fuzz::corpus::inputs(&fuzz::corpus::line(&input)), [&input[..]]);
        if let Err(panic) = std::panic::catch_unwind(|| demand(&input)) {
            eprintln!("with {}", fuzz::corpus::line(&input));
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn kept_inputs_of_the_text_protocol_do_no_harm() {
    replay(include_str!("../../../../fuzz/corpus/text.txt"), fuzz::text);
}

#[test]
fn kept_inputs_of_the_meta_protocol_do_no_harm() {
    replay(include_str!("../../../../fuzz/corpus/meta.txt"), fuzz::text);
}

#[test]
fn kept_inputs_of_the_binary_protocol_do_no_harm() {
    replay(include_str!("../../../../fuzz/corpus/binary.txt"), fuzz::binary);
}

#[test]
fn kept_inputs_of_the_memory_file_do_no_harm() {
    replay(include_str!("../../../../fuzz/corpus/file.txt"), fuzz::file::file);
}
