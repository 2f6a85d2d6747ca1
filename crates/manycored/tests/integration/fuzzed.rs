//! The inputs that the fuzzer keeps (`ci/fuzz.sh`), under its demands.

#[path = "../../../../fuzz/src/lib.rs"]
#[allow(dead_code)]
mod fuzz;

#[global_allocator]
static ALLOCATOR: fuzz::bounds::Counting = fuzz::bounds::Counting;

/// Each input of a corpus; of a panic it is known which it was.
fn replay(corpus: &str, demand: fn(&[u8])) {
    let inputs = fuzz::corpus::inputs(corpus);
    assert!(inputs.len() > 20, "{}", inputs.len());
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

#[test]
fn kept_inputs_for_users_do_no_harm() {
    replay(include_str!("../../../../fuzz/corpus/users.txt"), fuzz::users::users);
}

#[test]
fn files_of_saslpasswd2_are_read_within_their_bounds() {
    fuzz::users::saved().iter().for_each(|input| fuzz::users::users(input));
}

/// Each line would be 250 users; and more users than there may be.
#[test]
fn lines_of_users_take_memory_for_their_bytes() {
    let colons = format!("u:{}\n", ":".repeat(250)).repeat(100);
    let pairs = "a:b\n".repeat(5_000);
    for (kind, text) in [(1, &colons), (1, &pairs), (0, &pairs)] {
        fuzz::users::users(&[&[kind], text.as_bytes()].concat());
    }
}
