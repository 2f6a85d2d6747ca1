//! Requests from a file: a recorded trace.
//!
//! Owns: the formats. Text, a line at a time, in the order in which the requests were made:
//!
//! ```text
//! # a comment; empty lines are skipped, too
//! get user:1017
//! set user:1017 512
//! set page:/index.html
//! 4711                    a get, as in the traces of LIRS, whose lines of `*` are skipped
//! 33 4 0 17               gets of 33, 34, 35 and 36, as in those of ARC
//! ```
//!
//! A key is any bytes but white space, at most 250. In a `set` the value's size in bytes follows
//! the key; it may be left out. The size is checked but not used: values have 32 bytes here, and
//! capacities count entries. A get that misses is followed by a set, as in the other orders.
//!
//! A file with `oracleGeneral` in its name has libCacheSim's binary form, not compressed. Its
//! records have 24 bytes, little-endian: a time (4), a key (8), a size (4) and the next use (8).
//! All are gets.

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

/// Bytes of a record of libCacheSim's, and where its key is.
const RECORD: usize = 24;
const RECORD_KEY: std::ops::Range<usize> = 4..12;
/// Keys of a line of ARC's, at most.
const RANGE_MAX: u64 = 1 << 20;

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
    /// The last record is not whole.
    Record,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Line(line, what) => write!(f, "line {line}: {what}"),
            Self::Empty => f.write_str("there is no request in it"),
            Self::Record => write!(f, "its length is no multiple of {RECORD} bytes"),
            Self::TooManyKeys => f.write_str("more than 2,147,483,648 different keys"),
        }
    }
}

impl std::error::Error for TraceError {}

/// What a line asks for.
#[derive(Debug)]
enum Request<'l> {
    Get(&'l [u8]),
    Set(&'l [u8]),
    /// Gets of so many keys from this one on.
    Range(u64, u64),
}

/// The request of a line of numbers, if it is one.
fn numbers(line: &[u8]) -> Option<Result<Request<'_>, String>> {
    let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse::<u64>().ok();
    let all: Vec<u64> = words.clone().take(5).map(number).collect::<Option<_>>()?;
    match all[..] {
        [_] => Some(Ok(Request::Get(words.clone().next()?))),
        [first, keys @ 1..=RANGE_MAX, _, _] => Some(Ok(Request::Range(first, keys))),
        _ => Some(Err(String::from("numbers are one key, or first key, keys and two others"))),
    }
}

/// The request of a line; `None` if it is empty or a comment.
fn request(line: &[u8]) -> Result<Option<Request<'_>>, String> {
    let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned();
    let words = line.split(u8::is_ascii_whitespace);
    let mut words = words.filter(|word| !word.is_empty());
    let Some(verb) = words.next().filter(|verb| verb[0] != b'#' && *verb != b"*") else {
        return Ok(None);
    };
    if let Some(request) = verb[0].is_ascii_digit().then(|| numbers(line)).flatten() {
        return request.map(Some);
    }
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
        None => Ok(Some(if is_set { Request::Set(key) } else { Request::Get(key) })),
    }
}

impl FileTrace {
    /// Reads a file. Its requests stay in memory to the end of the process, four bytes each; while
    /// it is read, its different keys as well, with up to 64 bytes more for each.
    ///
    /// # Errors
    /// If it cannot be read, or a line is no request, or has 64 KiB.
    pub fn read(path: &Path) -> Result<&'static Self, TraceError> {
        let file = BufReader::new(File::open(path).map_err(TraceError::Io)?);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_binary = name.contains("oracleGeneral");
        let read = if is_binary { Self::records(file) } else { Self::parse(file) };
        Ok(Box::leak(Box::new(read?)))
    }

    fn records(mut file: impl Read) -> Result<Self, TraceError> {
        let (mut requests, mut record) = (Requests::default(), [0; RECORD]);
        loop {
            let mut length = 0;
            while length < RECORD {
                match file.read(&mut record[length..]).map_err(TraceError::Io)? {
                    0 if length == 0 => return requests.done(),
                    0 => return Err(TraceError::Record),
                    more => length += more,
                }
            }
            requests.add(&record[RECORD_KEY], false)?;
        }
    }

    fn parse(mut text: impl BufRead) -> Result<Self, TraceError> {
        let (mut requests, mut at) = (Requests::default(), 0);
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
            match found {
                None => {}
                Some(Request::Get(key)) => requests.add(key, false)?,
                Some(Request::Set(key)) => requests.add(key, true)?,
                Some(Request::Range(first, keys)) => {
                    for key in first..first.saturating_add(keys) {
                        requests.add(key.to_string().as_bytes(), false)?;
                    }
                }
            }
        }
        requests.done()
    }
}

/// The requests so far.
#[derive(Default)]
struct Requests {
    numbers: HashMap<Box<[u8]>, u32, RandomState>,
    requests: Vec<u32>,
    sets: usize,
}

impl Requests {
    fn add(&mut self, key: &[u8], is_set: bool) -> Result<(), TraceError> {
        let next = self.numbers.len() as u32;
        let number = match self.numbers.get(key) {
            Some(number) => *number,
            None if next == SET => return Err(TraceError::TooManyKeys),
            None => *self.numbers.entry(key.into()).or_insert(next),
        };
        self.requests.push(number | if is_set { SET } else { 0 });
        self.sets += usize::from(is_set);
        Ok(())
    }

    fn done(self) -> Result<FileTrace, TraceError> {
        let Self { numbers, requests, sets } = self;
        if requests.is_empty() {
            return Err(TraceError::Empty);
        }
        let set = (100 * sets / requests.len()) as u8;
        Ok(FileTrace { trace: Arc::new(Trace { requests }), keys: numbers.len(), set })
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

    #[test]
    fn numbers_are_the_traces_of_lirs_and_of_arc() {
        let file = FileTrace::parse(&b"7\n*\n 8 \n7\n"[..]).unwrap();
        assert_eq!((&file.trace.requests[..], file.keys), (&[0, 1, 0][..], 2));
        let file = FileTrace::parse(&b"33 3 0 1\n35 2 0 2\n34\n"[..]).unwrap();
        assert_eq!((&file.trace.requests[..], file.keys), (&[0, 1, 2, 2, 3, 1][..], 4));
    }

    #[test]
    fn records_of_24_bytes_are_those_of_libcachesim() {
        let record = |key: u64| {
            let parts = [&1_u32.to_le_bytes()[..], &key.to_le_bytes(), &[9; 4], &[0xff; 8]];
            parts.concat()
        };
        let bytes = [record(5), record(1 << 40), record(5)].concat();
        let file = FileTrace::records(&bytes[..]).unwrap();
        assert_eq!((&file.trace.requests[..], file.keys), (&[0, 1, 0][..], 2));
        let error = FileTrace::records(&bytes[..71]).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "its length is no multiple of 24 bytes");
        assert!(FileTrace::records(&b""[..]).is_err());
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
            ("1 2\n", "line 1: numbers are one key, or first key, keys and two others"),
            ("1 0 0 0\n", "line 1: numbers are one key, or first key, keys and two others"),
            ("# only\n\n", "there is no request in it"),
            ("", "there is no request in it"),
        ] {
            let error = FileTrace::parse(text.as_bytes()).map(|_| ()).unwrap_err();
            assert_eq!(error.to_string(), expected, "{text:?}");
        }
    }
}
