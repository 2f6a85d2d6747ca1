//! Incomplete values for which there is no memory.

use super::{BAD_FORMAT, Line, Parser, Request, Step, UNKNOWN, line_of, step};

impl Parser {
    /// Refuses a line that announces a value of unreadable length.
    pub(super) fn distrust<'a>(&mut self, used: usize) -> Step<'a> {
        self.to_drop = UNKNOWN;
        step(used, Request::Error(BAD_FORMAT), false)
    }

    /// Parses the bytes behind such a line. They may be its value, so they are not executed.
    /// Another such line is refused, too, and changes nothing; anything else closes the connection.
    #[cold]
    pub(super) fn next_distrusted<'a>(&self, input: &'a [u8]) -> Step<'a> {
        let (line, used) = match line_of(input, self.get_line_max) {
            Line::More => return Step::More(0),
            Line::TooLong => return step(input.len(), Request::Close(""), false),
            Line::Whole(line, used) => (line, used),
        };
        let mut other = Self { to_drop: 0, ..*self };
        match other.line(line, used, input) {
            refused @ Step::Request { .. } if other.to_drop == UNKNOWN => refused,
            _ => step(used, Request::Close(""), false),
        }
    }

    /// Refuses the value of the incomplete request that begins here. The step is a
    /// [`Request::TooLarge`], and the value is dropped as it is received. Returns `None` and
    /// changes nothing if no value is awaited here.
    pub fn refuse_value<'a>(&mut self, input: &'a [u8]) -> Option<Step<'a>> {
        // A value is awaited behind a whole line. (`next` is a part of its caller's loop.)
        let Line::Whole(line, used) = line_of(input, self.get_line_max) else { return None };
        if !self.is_between() {
            return None;
        }
        let mut refusing = Self { value_max: 0, ..*self };
        match refusing.line(line, used, input) {
            step @ Step::Request { request: Request::TooLarge(..), .. } => {
                self.to_drop = refusing.to_drop;
                Some(step)
            }
            _ => None,
        }
    }

    /// Returns the total length of the incomplete request that begins here, if its line has the
    /// length.
    #[must_use]
    pub fn whole_length(mut self, input: &[u8]) -> Option<usize> {
        match self.refuse_value(input)? {
            Step::Request { used, .. } => usize::try_from(used as u64 + self.to_drop).ok(),
            Step::More(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_awaited_has_a_length_and_can_be_refused() {
        for (line, value) in [("set k 0 0 5\r\n", "abcde\r\n"), ("ms k 5 T0\r\n", "abcde\r\n")] {
            let mut parser = Parser::new(100);
            let text = format!("{line}ab");
            assert_eq!(parser.next(text.as_bytes()), Step::More(0));
            assert_eq!(parser.whole_length(text.as_bytes()), Some(line.len() + value.len()));
            let step = parser.refuse_value(text.as_bytes());
            assert!(matches!(step, Some(Step::Request { used, .. }) if used == line.len()));
            assert_eq!(parser.next(b"ab"), Step::More(2));
            assert_eq!(parser.next(b"cde\r\nmn\r\n"), Step::More(5));
            assert!(parser.is_between());
        }
        for text in ["set k 0 0 5", "get a", "", "mg k v"] {
            let mut parser = Parser::new(100);
            assert_eq!(parser.refuse_value(text.as_bytes()), None);
            assert_eq!(parser, Parser::new(100));
        }
    }

    #[test]
    fn nothing_is_done_behind_a_value_of_unknown_length() {
        for first in ["set a 0 0 x\r\n", "set a 0 0 -1\r\n", "cas a 0 0\r\n", "ms a x\r\n"] {
            for next in ["flush_all\r\n", "get a\r\n", "set b 0 0 1\r\nx\r\n", "mn\r\n", "\r\n"] {
                let text = format!("{first}set c 0 0 4294967295\r\n{next}");
                let (mut parser, mut input) = (Parser::new(100), text.as_bytes());
                for refused in 0..2 {
                    let Step::Request { used, request, .. } = parser.next(input) else {
                        panic!("{text:?}, {refused}");
                    };
                    assert_eq!(request, Request::Error(BAD_FORMAT), "{text:?}, {refused}");
                    input = &input[used..];
                }
                let closed = parser.next(input);
                let is_closed =
                    |step| matches!(step, Step::Request { request: Request::Close(""), .. });
                assert!(is_closed(closed), "{text:?}: {closed:?}");
            }
        }
    }
}
