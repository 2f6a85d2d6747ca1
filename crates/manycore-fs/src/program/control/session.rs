//! One opening of the control file: bytes of a request that is not yet whole, and the rest of the
//! answers that are not yet read.

use super::request::LONGEST;
use super::{Answer, Request};

/// While as many bytes of answers are unread, no further request is taken.
const UNREAD: usize = 64 << 10;

/// The state of a session.
#[derive(Default)]
pub struct Session {
    line: Vec<u8>,
    /// A line was too long: the rest of it is dropped.
    skipping: bool,
    answers: Vec<u8>,
    /// How many bytes of `answers` have been read.
    read: usize,
}

/// A session takes no more requests before its answers are read.
#[derive(PartialEq, Eq, Debug)]
pub struct Unread;

impl Session {
    /// Takes what a client has written. `answer` is called for each request that is whole, in their
    /// order. A request may come in several pieces.
    pub fn write(
        &mut self,
        mut bytes: &[u8],
        mut answer: impl FnMut(Request) -> Answer,
    ) -> Result<(), Unread> {
        if self.answers.len() - self.read > UNREAD {
            return Err(Unread);
        }
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.take(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let answer = if std::mem::take(&mut self.skipping) {
                Answer::refused(format!("a request has at most {LONGEST} bytes"))
            } else {
                match Request::parse(&self.line) {
                    Ok(request) => answer(request),
                    Err(words) => Answer::refused(words),
                }
            };
            self.line.clear();
            answer.write(&mut self.answers);
        }
        self.take(bytes);
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() >= LONGEST {
            self.skipping = true;
        }
        if !self.skipping {
            self.line.extend_from_slice(bytes);
        }
    }

    /// The next bytes of the answers, at most `size`; none after the last.
    pub fn read(&mut self, size: usize) -> Vec<u8> {
        let end = self.answers.len().min(self.read.saturating_add(size));
        let bytes = self.answers[self.read..end].to_vec();
        self.read = end;
        if self.read == self.answers.len() {
            self.answers = Vec::new();
            self.read = 0;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(request: Request) -> Answer {
        Answer::ok(vec![request.line().trim_end().to_owned()])
    }

    fn all(session: &mut Session) -> String {
        String::from_utf8(session.read(usize::MAX / 2)).unwrap()
    }

    #[test]
    fn request_may_come_in_pieces_and_several_at_once() {
        let mut session = Session::default();
        session.write(b"diff", echo).unwrap();
        assert_eq!(all(&mut session), "");
        session.write(b" a\nlist\nin", echo).unwrap();
        assert_eq!(session.read(3), b"ok ");
        assert_eq!(all(&mut session), "1\ndiff a\nok 1\nlist\n");
        session.write(b"fo\n", echo).unwrap();
        assert_eq!(all(&mut session), "ok 1\ninfo\n");
        assert_eq!(all(&mut session), "");
    }

    #[test]
    fn line_that_is_too_long_is_refused_once_and_the_next_is_taken() {
        let mut session = Session::default();
        for _ in 0..10 {
            session.write(&[b'x'; 1000], echo).unwrap();
        }
        assert!(session.line.len() <= LONGEST);
        session.write(b"\nlist\n", echo).unwrap();
        let text = all(&mut session);
        assert!(text.starts_with("error 0 a request has at most 1024 bytes\n"), "{text}");
        assert!(text.ends_with("ok 1\nlist\n"), "{text}");
    }

    #[test]
    fn longest_line_is_taken() {
        let mut session = Session::default();
        let name = "n".repeat(LONGEST - "diff \n".len());
        session.write(format!("diff {name}\n").as_bytes(), echo).unwrap();
        assert!(all(&mut session).starts_with("ok 1\n"));
        session.write(format!("diff {name}n\n").as_bytes(), echo).unwrap();
        assert!(all(&mut session).starts_with("error 0"));
    }

    #[test]
    fn answers_that_nobody_reads_end_the_taking_of_requests() {
        let mut session = Session::default();
        let long = |_| Answer::ok(vec!["x".repeat(1000); 100]);
        assert_eq!(session.write(b"list\n", long), Ok(()));
        assert_eq!(session.write(b"list\n", long), Err(Unread));
        assert!(all(&mut session).len() > 100_000);
        assert_eq!(session.write(b"list\n", long), Ok(()));
    }
}
