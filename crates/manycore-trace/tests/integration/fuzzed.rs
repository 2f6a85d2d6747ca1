//! The inputs that the fuzzer keeps (`ci/fuzz.sh`), under its demands.

#[path = "../../../../fuzz/src/trace.rs"]
mod check;

/// The bytes of an escaped line.
fn unescaped(line: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), line.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next().expect("a letter follows") {
                b'r' => b'\r',
                b'n' => b'\n',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next(), rest.next()].map(|digit| digit.expect("two digits"));
                    let digits = std::str::from_utf8(&digits).expect("digits");
                    u8::from_str_radix(digits, 16).expect("hexadecimal digits")
                }
                letter => letter,
            },
            byte => byte,
        });
    }
    bytes
}

#[test]
fn kept_inputs_of_the_reader_do_no_harm() {
    let corpus = include_str!("../../../../fuzz/corpus/trace.txt");
    let mut records = 0;
    for line in corpus.lines().filter(|line| !line.starts_with('#')) {
        let input = unescaped(line);
        check::trace(&input);
        if let Ok(mut trace) = manycore_trace::Trace::from_bytes(input) {
            records += trace.account().merged;
        }
    }
    assert!(records > 0, "no input has a record");
}
