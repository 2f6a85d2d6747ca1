//! A corpus: the inputs that a fuzzer keeps, one a line.

/// The inputs of a corpus: one a line, as [`line`] writes them; lines with a `#` say what for.
pub fn inputs(corpus: &str) -> Vec<Vec<u8>> {
    corpus.lines().filter(|line| !line.starts_with('#')).map(unescaped).collect()
}

/// An input as a line of a corpus: what is no letter escaped, as Rust has it.
pub fn line(input: &[u8]) -> String {
    input.escape_ascii().to_string()
}

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
