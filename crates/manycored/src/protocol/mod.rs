//! The text and meta protocols, without sockets: bytes in, requests out. [`binary`] has the binary
//! protocol.
//!
//! Owns: parsing, and memcached's error replies to malformed lines. Does not own: buffers, items,
//! replies to well-formed requests.
//!
//! Laws:
//! - protocol.P1 The requests of a stream do not depend on how the stream is cut into pieces.
//!   [`Parser::next`] either asks for more, and consumes and changes nothing, or consumes the bytes
//!   that it returns.
//! - protocol.P2 The parser allocates nothing. It compares a length field with the limit and with
//!   the input, and never reserves memory for it.
//! - protocol.P3 A request borrows from the input. Its numbers are checked, and its key has 1 to
//!   250 bytes.
//! - protocol.P4 The keys of a get are returned one by one, so that the caller can stop after any
//!   key.
//! - protocol.P5 If a line is refused, its value is never read as requests. The parser skips the
//!   value by the length in the line. If the length can't be read, the connection is closed.
//!
//! Source: memcached's `doc/protocol.txt`; error replies as memcached 1.6 sends them.

pub mod binary;
mod classic;
mod meta;
mod refusal;
mod words;

pub use meta::{Arith, Flags, KeyRoom, Named};
pub(crate) use words::strict_short;
pub use words::{Words, number};

use memchr::{memchr, memchr2};

/// The longest key.
pub const KEY_MAX: usize = 250;
/// The longest line, except for gets.
pub const LINE_MAX: usize = 2048;
/// The longest line of a get, unless the parser has another limit.
pub const GET_LINE_MAX: usize = 1 << 20;

/// The reply to a longer line of a get; the connection is closed. (Other lines that are too long
/// close it without a reply, as in memcached.)
pub const GET_LINE_TOO_LONG: &str = "CLIENT_ERROR line too long: get_line_max limits a get";

/// The reply to an unknown command.
pub const ERROR: &str = "ERROR";
/// The reply to a malformed word.
pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
/// The reply to a value without its line end.
pub const BAD_CHUNK: &str = "CLIENT_ERROR bad data chunk";
/// The reply to an item above the size limit.
pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
/// The shortest line, its end included.
const LINE_MIN: usize = 4;

/// The mode of a storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In any case.
    Set,
    /// Only if there is no item.
    Add,
    /// Only if there is an item.
    Replace,
    /// Behind the value of the item.
    Append,
    /// Before the value of the item.
    Prepend,
    /// Only if the item has this version.
    Cas(u64),
}

/// What a `get`, `gets`, `gat` or `gats` requests besides the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gets {
    /// The item's version.
    pub cas: bool,
    /// A new TTL.
    pub touch: Option<i64>,
}

/// A storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// Its key.
    pub key: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Its TTL, by the rules of memcached.
    pub exptime: i64,
    /// The condition, or the place of the new value.
    pub mode: Mode,
    /// The value.
    pub data: &'a [u8],
}

/// A command for the server's operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `lru_crawler`: searches for expired items, and lists of keys.
    LruCrawler,
    /// `watch`: events of requests.
    Watch,
    /// `slabs`: slab classes, which do not exist here.
    Slabs,
    /// `lru`: the LRU list, which does not exist here.
    Lru,
    /// `debugtime`: moves the clock, in builds for tests.
    DebugTime,
}

/// A request for the server itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admin<'a> {
    /// Invalidates all items, now or after this many seconds.
    FlushAll(i64),
    /// Invalidates the keys with this prefix. The flag is true if the client wants no reply.
    FlushPrefix(&'a [u8], bool),
    /// The version of the server.
    Version,
    /// The verbosity of the log.
    Verbosity(u64),
    /// An operator's command, with the words that follow.
    Operator(Operator, Words<'a>),
    /// Statistics, with the words that follow.
    Stats(Words<'a>),
    /// A new memory limit, in megabytes.
    Memlimit(u64),
    /// Reloads the certificates.
    RefreshCerts,
    /// Shuts the server down.
    Shutdown {
        /// Whether its items are to be saved; `None` if the line names an unknown mode.
        graceful: Option<bool>,
    },
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// A key of a get.
    Get(&'a [u8], Gets),
    /// The end of a get.
    GetEnd,
    /// A `get` of this key, whole.
    GetOne(&'a [u8]),
    /// A storage command.
    Store(Store<'a>),
    /// Deletes a key.
    Delete(&'a [u8]),
    /// Increments or decrements a number.
    Arith(&'a [u8], Arith, u64),
    /// A new TTL.
    Touch(&'a [u8], i64),
    /// A request that concerns the server.
    Admin(Admin<'a>),
    /// `mg`.
    MetaGet(Named<'a>, Flags<'a>),
    /// `ms`.
    MetaStore(Named<'a>, Mode, Flags<'a>, &'a [u8]),
    /// `md`.
    MetaDelete(Named<'a>, Flags<'a>),
    /// `ma`.
    MetaArith(Named<'a>, Arith, Flags<'a>),
    /// `mf`: invalidates the keys with this prefix; or the error reply.
    MetaFlush(Result<(Named<'a>, Flags<'a>), &'static str>),
    /// `me`.
    MetaDebug(Named<'a>),
    /// `mn`.
    MetaNoop,
    /// Reply with this error.
    Error(&'static str),
    /// Reply that the item is too large, and delete the item of the key if the flag is set.
    TooLarge(Named<'a>, bool),
    /// Reply with this error, unless it is empty, and close.
    Close(&'static str),
    /// Close at the client's request.
    Quit,
}

/// A step of the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// No whole request was received. This many bytes can be dropped nevertheless.
    More(usize),
    /// A request, and the bytes that it took.
    Request {
        /// Bytes of the input that it took.
        used: usize,
        /// The request.
        request: Request<'a>,
        /// Whether the client requests no reply.
        quiet: bool,
    },
}

impl<'a> Request<'a> {
    /// Asserts what callers rely on in a request of `used` bytes: its position in the input
    /// (protocol.P1), and the length of its key (protocol.P3).
    #[inline(always)]
    pub(crate) fn check(&self, used: usize, input: &[u8]) {
        debug_assert!(
            (1..=input.len()).contains(&used),
            "protocol.P1: a request has {used} bytes of {}",
            input.len()
        );
        debug_assert!(
            self.plain_key().is_none_or(|key| (1..=KEY_MAX).contains(&key.len())),
            "protocol.P3: a key has no byte, or more than {KEY_MAX}"
        );
        debug_assert!(
            self.plain_key().is_none_or(|key| input[..used].as_ptr_range().contains(&key.as_ptr())),
            "protocol.P3: a key is not borrowed from its request"
        );
    }

    /// Returns the key, if the request has one and the client sent it as it is.
    fn plain_key(&self) -> Option<&'a [u8]> {
        match *self {
            Self::Get(key, _)
            | Self::GetOne(key)
            | Self::Delete(key)
            | Self::Arith(key, ..)
            | Self::Touch(key, _)
            | Self::Store(Store { key, .. }) => Some(key),
            _ => None,
        }
    }
}

/// The parser of a stream: its state between two requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parser {
    /// Bytes of a refused value that are still to be received and dropped, or [`UNKNOWN`].
    to_drop: u64,
    /// The get whose keys are being returned.
    gets: Option<Gets>,
    /// The largest value.
    value_max: usize,
    /// The longest line of a get.
    get_line_max: usize,
}

/// A marker in `to_drop`: a value of unknown length may follow.
const UNKNOWN: u64 = u64::MAX;

/// A line and where it ends.
enum Line<'a> {
    More,
    TooLong,
    /// The line without its end, and the bytes with its end.
    Whole(&'a [u8], usize),
}

impl Parser {
    /// Makes the parser of a new stream, for values of at most `value_max` bytes.
    #[must_use]
    pub fn new(value_max: usize) -> Self {
        let value_max = value_max.min(i32::MAX as usize - 2);
        Self { to_drop: 0, gets: None, value_max, get_line_max: GET_LINE_MAX }
    }

    /// Sets the longest line of a get, but not below [`LINE_MAX`].
    #[must_use]
    pub fn with_get_line_max(self, bytes: usize) -> Self {
        Self { get_line_max: bytes.max(LINE_MAX), ..self }
    }

    /// Returns true if the stream may end here without cutting off a request.
    #[must_use]
    pub fn is_between(&self) -> bool {
        matches!(self.to_drop, 0 | UNKNOWN) && self.gets.is_none()
    }

    /// Returns true if the next byte certainly begins a request, and not a possible value.
    pub(crate) fn begins_request(&self) -> bool {
        self.to_drop == 0 && self.gets.is_none()
    }

    /// Returns the next request. The input begins where the last step's bytes ended.
    // Always inlined into the loop over requests, although the log of requests calls it, too.
    #[inline(always)]
    pub fn next<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        if self.to_drop > 0 {
            if self.to_drop == UNKNOWN {
                return self.next_distrusted(input);
            }
            let gone = self.to_drop.min(input.len() as u64);
            self.to_drop -= gone;
            return Step::More(gone as usize);
        }
        if let Some(gets) = self.gets {
            return self.next_key(gets, input);
        }
        if let Some((key, used)) = single(input) {
            return step(used, Request::GetOne(key), false);
        }
        if let Some((store, used)) = classic::plain_set(input, self.value_max) {
            return step(used, Request::Store(store), false);
        }
        match line_of(input, self.get_line_max) {
            Line::More => Step::More(0),
            Line::TooLong => {
                let reply = if asks_for_keys(input) { GET_LINE_TOO_LONG } else { "" };
                step(input.len(), Request::Close(reply), false)
            }
            Line::Whole(line, used) => self.line(line, used, input),
        }
    }

    fn line<'a>(&mut self, line: &'a [u8], used: usize, input: &'a [u8]) -> Step<'a> {
        if used < LINE_MIN {
            return step(used, Request::Error(BAD_FORMAT), false);
        }
        let mut words = Words::new(line);
        let command = words.next().unwrap_or_default();
        if line.starts_with(b" ") {
            return classic::rare(command, words, used);
        }
        match command {
            [b'm', letter] => self.meta(*letter, words, used, input),
            _ => self.classic(command, words, used, input),
        }
    }

    /// Returns the next key of a get. Its line was received whole.
    fn next_key<'a>(&mut self, gets: Gets, input: &'a [u8]) -> Step<'a> {
        // protocol.P4: one key a call.
        let spaces = input.iter().take_while(|byte| **byte == b' ').count();
        let rest = &input[spaces..];
        let Some(end) = memchr2(b' ', b'\n', rest) else {
            return Step::More(0);
        };
        let is_last = rest[end] == b'\n';
        let key = match &rest[..end] {
            [key @ .., b'\r'] if is_last => key,
            key => key,
        };
        if key.is_empty() {
            self.gets = None;
            return step(spaces + end + 1, Request::GetEnd, false);
        }
        // The end of the line stays, so that the end of the get is a request of its own.
        step(spaces + key.len(), Request::Get(key, gets), false)
    }

    /// Returns the data of a value, behind its line.
    fn data<'a>(&mut self, input: &'a [u8], used: usize, length: usize) -> Data<'a> {
        // protocol.P2: the length is compared with what was received; nothing is reserved for it.
        debug_assert!(used <= input.len(), "protocol.P1: a line ends behind the input");
        let whole = used + length + 2;
        match input.get(used..whole) {
            None => Data::More,
            Some(found) if found.ends_with(b"\r\n") => Data::Whole(&found[..length], whole),
            Some(_) => Data::Bad(whole),
        }
    }

    /// Refuses a value after its line was consumed. The bytes that follow are not a request.
    fn refuse<'a>(
        &mut self,
        used: usize,
        length: usize,
        request: Request<'a>,
        quiet: bool,
    ) -> Step<'a> {
        // protocol.P5: by its length, or not at all.
        debug_assert!(self.is_between(), "protocol.P5: a value is refused within another request");
        self.to_drop = length as u64 + 2;
        step(used, request, quiet)
    }
}

enum Data<'a> {
    More,
    Whole(&'a [u8], usize),
    Bad(usize),
}

/// Returns the length of a value, if memcached accepts it.
fn length_of(word: &[u8]) -> Option<usize> {
    let length = words::strict_signed(word).and_then(|length| usize::try_from(length).ok());
    length.filter(|length| *length < i32::MAX as usize - 1)
}

fn step(used: usize, request: Request<'_>, quiet: bool) -> Step<'_> {
    Step::Request { used, request, quiet }
}

/// Returns true if this is the beginning of a get.
fn asks_for_keys(start: &[u8]) -> bool {
    let start = start.trim_ascii_start();
    [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|word| start.starts_with(word))
}

/// Parses a plain `get` of one key, the commonest request, in one pass. Returns its key and its
/// bytes, or `None` for anything else.
#[inline]
fn single(input: &[u8]) -> Option<(&[u8], usize)> {
    let rest = input.strip_prefix(b"get ")?;
    let end = memchr2(b' ', b'\n', &rest[..rest.len().min(KEY_MAX + 2)])?;
    let key = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    let is_plain = rest[end] == b'\n' && (1..=KEY_MAX).contains(&key.len());
    is_plain.then_some((key, b"get ".len() + end + 1))
}

#[inline]
fn line_of(input: &[u8], get_line_max: usize) -> Line<'_> {
    let Some(end) = memchr(b'\n', input) else {
        // Only the place of the line's end decides (protocol.P1).
        let most = if asks_for_keys(input) { get_line_max } else { LINE_MAX };
        return if input.len() > most { Line::TooLong } else { Line::More };
    };
    if end > LINE_MAX && (end > get_line_max || !asks_for_keys(input)) {
        return Line::TooLong;
    }
    let line = match &input[..end] {
        [line @ .., b'\r'] => line,
        line => line,
    };
    Line::Whole(line, end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const NO_KEYS: Gets = Gets { cas: false, touch: None };

    fn request<'a>(parser: &mut Parser, input: &'a [u8]) -> (usize, Request<'a>) {
        match parser.next(input) {
            Step::Request { used, request, .. } => (used, request),
            more @ Step::More(_) => panic!("{more:?}"),
        }
    }

    #[test]
    fn a_request_that_breaks_a_law_is_caught() {
        let input = b"a key of a request";
        let store =
            |key| Request::Store(Store { key, flags: 0, exptime: 0, mode: Mode::Set, data: b"" });
        let requests: [fn(&[u8]) -> Request<'_>; 5] = [
            |key| Request::Get(key, NO_KEYS),
            |key| Request::GetOne(key),
            |key| Request::Delete(key),
            |key| Request::Arith(key, Arith::Incr, 1),
            |key| Request::Touch(key, 0),
        ];
        let is_caught = |request: Request<'_>, used, input: &[u8]| {
            catch_unwind(AssertUnwindSafe(|| request.check(used, input))).is_err()
        };
        for used in [0, input.len() + 1] {
            assert!(is_caught(Request::Quit, used, input));
        }
        assert!(!is_caught(Request::Quit, input.len(), input));
        let too_long = [b'k'; KEY_MAX + 1];
        for key in [&b""[..], b"elsewhere", &input[2..], &too_long] {
            // Only the last bytes of the key are not used.
            for request in requests.map(|request| request(key)).into_iter().chain([store(key)]) {
                assert!(is_caught(request, 2, input), "{request:?}");
            }
        }
        for request in requests.map(|request| request(&input[2..5])) {
            assert!(!is_caught(request, 5, input), "{request:?}");
        }
        assert!(is_caught(Request::GetOne(&too_long), KEY_MAX + 1, &too_long));
        assert!(is_caught(Request::GetOne(&input[..0]), 5, input));
    }

    #[test]
    fn a_stream_may_not_end_among_the_keys_of_a_get_or_within_a_refused_value() {
        let state = |parser: &Parser| (parser.is_between(), parser.begins_request());
        let mut parser = Parser::new(100);
        assert_eq!(state(&parser), (true, true));
        let input = b"get a b\r\n";
        let (used, _) = request(&mut parser, input);
        assert_eq!(state(&parser), (false, false));
        let (more, _) = request(&mut parser, &input[used..]);
        assert_eq!(state(&parser), (false, false));
        assert_eq!(request(&mut parser, &input[used + more..]), (2, Request::GetEnd));
        assert_eq!(state(&parser), (true, true));
        request(&mut parser, b"set k 0 0 1000\r\n");
        assert_eq!(state(&parser), (false, false));
        assert_eq!(parser.next(&[b'x'; 1002]), Step::More(1002));
        assert_eq!(state(&parser), (true, true));
        // A value of unknown length may be over, or may not.
        request(&mut parser, b"set k 0 0 x\r\n");
        assert_eq!(state(&parser), (true, false));
    }

    #[test]
    fn a_carriage_return_is_a_part_of_a_key_except_at_the_end_of_the_line() {
        let mut parser = Parser::new(100);
        let mut input = &b"get a\r b\r\n"[..];
        for key in [&b"a\r"[..], b"b"] {
            let (used, found) = request(&mut parser, input);
            assert_eq!(found, Request::Get(key, NO_KEYS));
            input = &input[used..];
        }
        assert_eq!(request(&mut parser, input), (2, Request::GetEnd));
    }

    #[test]
    fn lines_are_too_long_by_the_place_of_their_end_alone() {
        let limited = |most| Parser::new(100).with_get_line_max(most);
        let closes = |input: &[u8], most| match limited(most).next(input) {
            Step::Request { request: Request::Close(reply), .. } => {
                assert_eq!(reply.is_empty(), input.starts_with(b"x"));
                true
            }
            Step::Request { .. } => false,
            more => more != Step::More(0),
        };
        let limits = [("x", 2_048), ("get ", 1_048_576), (" gats 1 ", 1_048_576), ("get ", 5_000)];
        for (start, most) in limits {
            for length in [most - 1, most, most + 1, most + 2] {
                // Of many keys, for a key has its own limit.
                let mut line = [start.as_bytes(), &b"k ".repeat(length / 2)].concat();
                line.truncate(length);
                assert_eq!(closes(&line, most), length > most, "{start:?}, {length}");
                line.push(b'\n');
                assert_eq!(closes(&line, most), length > most, "{start:?}, {length}");
            }
        }
    }

    #[test]
    fn an_item_of_just_the_limit_is_taken_in_every_command() {
        // Key, value and header are 100 bytes.
        let lines =
            ["set kk 0 0 48\r\n", "set  kk 0 0 48\r\n", "add kk 0 0 48\r\n", "ms kk 48\r\n"];
        for line in lines {
            let input = [line.as_bytes(), &[b'x'; 48], b"\r\n"].concat();
            assert_eq!(request(&mut Parser::new(100), &input).0, input.len(), "{line:?}");
            let (used, refused) = request(&mut Parser::new(99), &input);
            assert_eq!(used, line.len(), "{line:?}");
            assert!(matches!(refused, Request::TooLarge(..)), "{line:?}");
        }
    }

    #[test]
    fn only_a_plain_get_of_one_key_is_single() {
        let longest = [b'k'; KEY_MAX];
        let get = |key: &[u8], end: &[u8]| [&b"get "[..], key, end].concat();
        for end in [&b"\n"[..], b"\r\n"] {
            for key in [&b"k"[..], &longest] {
                let mut text = get(key, end);
                assert_eq!(single(&text), Some((key, text.len())));
                text.extend_from_slice(b"get other\r\n");
                assert_eq!(single(&text), Some((key, 4 + key.len() + end.len())));
            }
            let too_long = get(&[b'k'; KEY_MAX + 1], end);
            for text in [&too_long[..], &get(b"", end), &get(b" k", end), &get(b"k ", end)] {
                assert_eq!(single(text), None);
            }
        }
        for text in [&b"get k"[..], b"get k\r", b"get", b"gets k\r\n", b"get\tk\r\n", b""] {
            assert_eq!(single(text), None);
        }
    }
}
