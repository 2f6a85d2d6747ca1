//! Values that have not come whole, and for which there is no memory.

use super::{Line, Parser, Request, Step, line_of};

impl Parser {
    /// Refuses the value of the request that begins here and has not come whole: the step is a
    /// [`Request::TooLarge`], and the value is dropped as it comes. `None`, and nothing is changed,
    /// if no value is awaited here.
    pub fn refuse_value<'a>(&mut self, input: &'a [u8]) -> Option<Step<'a>> {
        // A value is awaited behind a whole line. (`next` has one caller, and is a part of its loop
        // as long as it stays so.)
        let Line::Whole(line, used) = line_of(input) else { return None };
        if !self.is_between() {
            return None;
        }
        let mut refusing = Self { value_max: 0, ..*self };
        match refusing.line(line, used, input) {
            step @ Step::Request { request: Request::TooLarge(..), .. } => {
                self.swallow = refusing.swallow;
                Some(step)
            }
            _ => None,
        }
    }

    /// Bytes of the whole request that begins here and has not come whole, if its line tells.
    #[must_use]
    pub fn whole_length(mut self, input: &[u8]) -> Option<usize> {
        match self.refuse_value(input)? {
            Step::Request { used, .. } => usize::try_from(used as u64 + self.swallow).ok(),
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
}
