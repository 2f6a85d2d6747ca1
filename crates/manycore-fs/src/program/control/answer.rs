//! An answer: `ok N` or `error N WORDS`, and N lines.

use std::borrow::Cow;

/// What comes back for a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Why the request was refused, in words.
    pub refused: Option<String>,
    /// What was asked for, or more about the refusal.
    pub lines: Vec<String>,
}

impl Answer {
    pub fn ok(lines: Vec<String>) -> Answer {
        Answer { refused: None, lines }
    }

    pub fn refused(words: impl Into<String>) -> Answer {
        Answer { refused: Some(words.into()), lines: Vec::new() }
    }

    /// Appends the answer as it is read from the file.
    pub fn write(&self, out: &mut Vec<u8>) {
        let count = self.lines.len();
        let head = match &self.refused {
            None => format!("ok {count}\n"),
            Some(words) => format!("error {count} {}\n", escaped(words.as_bytes())),
        };
        out.extend_from_slice(head.as_bytes());
        for line in &self.lines {
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
    }

    /// Reads the first line of an answer, and how many lines follow it.
    pub fn parse_head(line: &str) -> Option<(Answer, usize)> {
        let (kind, rest) = line.split_once(' ')?;
        let (count, words) = rest.split_once(' ').unwrap_or((rest, ""));
        let refused = match kind {
            "ok" => None,
            "error" => Some(words.to_owned()),
            _ => return None,
        };
        Some((Answer { refused, lines: Vec::new() }, count.parse().ok()?))
    }
}

/// A path or words on one line: a line feed is `\n`, a backslash is `\\`, and what is not UTF-8 is
/// `\x` with two hexadecimal digits for each byte.
pub fn escaped(bytes: &[u8]) -> Cow<'_, str> {
    if let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| !text.contains(['\n', '\\']))
    {
        return text.into();
    }
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\\' => out.push_str("\\\\"),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_how_long_they_are() {
        let mut out = Vec::new();
        Answer::ok(vec!["main - 0".into(), "a main 1".into()]).write(&mut out);
        Answer::refused("two\nlines").write(&mut out);
        assert_eq!(out, b"ok 2\nmain - 0\na main 1\nerror 0 two\\nlines\n");
    }

    #[test]
    fn first_lines_are_read_as_they_are_written() {
        assert_eq!(Answer::parse_head("ok 17"), Some((Answer::ok(vec![]), 17)));
        let refused = Answer::refused("no such branch");
        assert_eq!(Answer::parse_head("error 0 no such branch"), Some((refused, 0)));
        for line in ["", "ok", "ok x", "fine 1"] {
            assert_eq!(Answer::parse_head(line), None, "{line}");
        }
    }

    #[test]
    fn names_that_are_no_text_stay_on_one_line() {
        assert_eq!(escaped(b"src/lib.rs"), "src/lib.rs");
        assert_eq!(escaped(b"a\nb\\c \xFFd\xC3"), "a\\nb\\\\c \\xffd\\xc3");
        assert_eq!(escaped("grün".as_bytes()), "grün");
    }
}
