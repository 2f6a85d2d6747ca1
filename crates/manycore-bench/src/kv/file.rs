//! Requests from a file: a recorded trace.
//!
//! Owns: the format. Text, a request a line, in the order in which they were made:
//!
//! ```text
//! # a comment; empty lines are skipped, too
//! get user:1017
//! set user:1017 512
//! set page:/index.html
//! ```
//!
//! A key is any bytes but white space, at most 250. What follows it in a `set` is the value's size
//! in bytes; it may be left out. It is checked, and not used: values have 32 bytes here, and
//! capacities count entries. A get that misses is followed by a set, as in the other orders.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    sync::Arc,
};

use foldhash::fast::RandomState;

use super::trace::{SET, Trace};

/// Bytes of a key, at most, as in memcached.
const KEY_MAX: usize = 250;
/// Bytes of a line, at most, with its end: a comment may be longer than a request.
const LINE_MAX: usize = 64 << 10;

/// The requests of a file.
#[derive(Debug)]
pub struct FileTrace {
    /// Keys as numbers, by first appearance.
    pub(super) trace: Arc<Trace>,
    /// How many different keys there are.
    pub(super) keys: usize,
    /// The share of sets, in percent.
    pub(super) set: u8,
}

/// Why a file is no trace.
#[derive(Debug)]
pub enum TraceError {
    /// It cannot be read.
    Io(io::Error),
    /// A line, counted from 1, is no request.
    Line(usize, String),
    /// There is no request in it.
    Empty,
    /// There are more keys than numbers for them.
    TooManyKeys,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Line(line, what) => write!(f, "line {line}: {what}"),
            Self::Empty => f.write_str("there is no request in it"),
            Self::TooManyKeys => f.write_str("more than 2,147,483,648 different keys"),
        }
    }
}

impl std::error::Error for TraceError {}

/// Whether the line is a set, and its key; `None` if it is empty or a comment.
fn request(line: &[u8]) -> Result<Option<(bool, &[u8])>, String> {
    let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned();
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let Some(verb) = words.next().filter(|verb| verb[0] != b'#') else { return Ok(None) };
    let is_set = match verb {
        b"get" => false,
        b"set" => true,
        _ => return Err(format!("'{}' is no request; get or set is needed", shown(verb))),
    };
    let key = words.next().ok_or("the key is missing")?;
    if key.len() > KEY_MAX {
        return Err(format!("a key of {} bytes; at most {KEY_MAX} are right", key.len()));
    }
    if let Some(size) = words.next() {
        if !is_set {
            return Err(format!("'{}' after the key of a get", shown(size)));
        }
        if size.len() > 18 || !size.iter().all(u8::is_ascii_digit) {
            return Err(format!("'{}' is no size in bytes", shown(size)));
        }
    }
    match words.next() {
        Some(more) => Err(format!("'{}' after the size", shown(more))),
        None => Ok(Some((is_set, key))),
    }
}

impl FileTrace {
    /// Reads a file. Its requests stay in memory to the end of the process, four bytes each; while
    /// it is read, its different keys as well, with up to 64 bytes more for each.
    ///
    /// # Errors
    /// If it cannot be read, or a line is no request, or has 64 KiB.
    pub fn read(path: &Path) -> Result<&'static Self, TraceError> {
        let file = File::open(path).map_err(TraceError::Io)?;
        Ok(Box::leak(Box::new(Self::parse(BufReader::new(file))?)))
    }

    fn parse(mut text: impl BufRead) -> Result<Self, TraceError> {
        let mut numbers: HashMap<Box<[u8]>, u32, RandomState> = HashMap::default();
        let (mut requests, mut sets, mut at) = (Vec::new(), 0, 0);
        let mut line = Vec::new();
        loop {
            line.clear();
            at += 1;
            let length = (&mut text).take(LINE_MAX as u64).read_until(b'\n', &mut line);
            match length.map_err(TraceError::Io)? {
                0 => break,
                LINE_MAX if line.last() != Some(&b'\n') => {
                    let what = format!("more than {} bytes", LINE_MAX - 1);
                    return Err(TraceError::Line(at, what));
                }
                _ => {}
            }
            let found = request(&line).map_err(|what| TraceError::Line(at, what))?;
            let Some((is_set, key)) = found else { continue };
            let next = numbers.len() as u32;
            let number = match numbers.get(key) {
                Some(number) => *number,
                None if next == SET => return Err(TraceError::TooManyKeys),
                None => *numbers.entry(key.into()).or_insert(next),
            };
            requests.push(number | if is_set { SET } else { 0 });
            sets += usize::from(is_set);
        }
        if requests.is_empty() {
            return Err(TraceError::Empty);
        }
        let set = (100 * sets / requests.len()) as u8;
        Ok(Self { trace: Arc::new(Trace { requests }), keys: numbers.len(), set })
    }
}

#[cfg(test)]
mod tests {
    use super::{FileTrace, SET};

    #[test]
    fn requests_come_in_order_with_a_number_for_each_key() {
        let text = b"# two\n\nget a\r\nset b 12\n  get\ta \nset \xff\xfe\n  # end\nget b";
        let file = FileTrace::parse(&text[..]).unwrap();
        assert_eq!(file.trace.requests, [0, 1 | SET, 0, 2 | SET, 1]);
        assert_eq!((file.keys, file.set), (3, 40));
    }

    /// A sparse file of 40 GiB would be one line.
    #[test]
    fn lines_without_an_end_are_refused() {
        let endless = std::io::BufReader::new(std::io::repeat(0));
        let error = FileTrace::parse(endless).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "line 1: more than 65535 bytes");
        let comment = format!("#{}\nget a\n", "x".repeat(60_000));
        assert_eq!(FileTrace::parse(comment.as_bytes()).unwrap().keys, 1);
    }

    #[test]
    fn bad_lines_are_told_with_their_numbers() {
        let long = format!("get a\n\nget {}\n", "k".repeat(251));
        for (text, expected) in [
            ("get a\nput b\n", "line 2: 'put' is no request; get or set is needed"),
            ("get\n", "line 1: the key is missing"),
            ("# c\nset\n", "line 2: the key is missing"),
            (&long, "line 3: a key of 251 bytes; at most 250 are right"),
            ("set a big\n", "line 1: 'big' is no size in bytes"),
            ("set a -1\n", "line 1: '-1' is no size in bytes"),
            ("set a 1234567890123456789\n", "line 1: '1234567890123456789' is no size in bytes"),
            ("get a 5\n", "line 1: '5' after the key of a get"),
            ("set a 5 6\n", "line 1: '6' after the size"),
            ("# only\n\n", "there is no request in it"),
            ("", "there is no request in it"),
        ] {
            let error = FileTrace::parse(text.as_bytes()).map(|_| ()).unwrap_err();
            assert_eq!(error.to_string(), expected, "{text:?}");
        }
    }
}
