//! The commands of the text protocol: `get`, `set` and so on.

use super::words::{Words, number, signed, strict, strict_short, strict_signed};
use super::{
    Admin, Arith, BAD_CHUNK, BAD_FORMAT, Data, ERROR, Gets, KEY_MAX, Mode, Named, Operator, Parser,
    Request, Step, Store, length_of, step,
};
use memchr::{memchr_iter, memchr2};
use std::iter::once;

const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
const HUGE_LIMIT: &str = "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes";
/// The largest limit of memory, in megabytes.
const LIMIT_MAX: u32 = 1_000_000_000;

/// A command without a value, or the error reply.
type Plain<'a> = Result<Request<'a>, &'static str>;

/// Returns the only key of a line.
fn key<'a>(words: &mut Words<'a>) -> Result<&'a [u8], &'static str> {
    words.next().filter(|key| key.len() <= KEY_MAX).ok_or(BAD_FORMAT)
}

impl Parser {
    pub(super) fn classic<'a>(
        &mut self,
        command: &[u8],
        words: Words<'a>,
        used: usize,
        input: &'a [u8],
    ) -> Step<'a> {
        match command {
            b"get" => self.get(words, used, input, false, false),
            b"gets" => self.get(words, used, input, true, false),
            b"gat" => self.get(words, used, input, false, true),
            b"gats" => self.get(words, used, input, true, true),
            b"set" => self.store(Mode::Set, words, used, input),
            b"add" => self.store(Mode::Add, words, used, input),
            b"replace" => self.store(Mode::Replace, words, used, input),
            b"append" => self.store(Mode::Append, words, used, input),
            b"prepend" => self.store(Mode::Prepend, words, used, input),
            b"cas" => self.store(Mode::Cas(0), words, used, input),
            _ => plain(command, words, used),
        }
    }

    /// Begins a get. Checks all keys before it returns the first, because a get with a wrong key
    /// gets nothing.
    fn get<'a>(
        &mut self,
        mut words: Words<'a>,
        used: usize,
        input: &'a [u8],
        cas: bool,
        has_time: bool,
    ) -> Step<'a> {
        let mut touch = None;
        if has_time {
            let time = words.next();
            if words.is_empty() {
                return step(used, Request::Error(BAD_FORMAT), false);
            }
            let Some(time) = time.and_then(strict_signed) else {
                return step(used, Request::Error(BAD_EXPTIME), false);
            };
            touch = Some(i64::from(time));
        } else if words.is_empty() {
            return step(used, Request::Error(BAD_FORMAT), false);
        }
        if has_long_word(words.rest()) {
            return step(used, Request::Error(BAD_FORMAT), false);
        }
        // The bytes up to the first key are consumed; the keys follow one by one.
        let rest = words.rest().as_ptr() as usize - input.as_ptr() as usize;
        let gets = Gets { cas, touch };
        self.gets = Some(gets);
        match self.next_key(gets, &input[rest..]) {
            Step::Request { used, request, quiet } => step(rest + used, request, quiet),
            more @ Step::More(_) => more,
        }
    }

    fn store<'a>(
        &mut self,
        mode: Mode,
        mut words: Words<'a>,
        used: usize,
        input: &'a [u8],
    ) -> Step<'a> {
        let Some(length) = words.into_iter().nth(3).and_then(length_of) else {
            return self.distrust(used);
        };
        let quiet = words.is_quiet();
        let Ok(mut store) = header(mode, &mut words) else {
            return self.refuse(used, length, Request::Error(BAD_FORMAT), quiet);
        };
        if store.key.len() + length + super::meta::ITEM_HEADER > self.value_max {
            let request = Request::TooLarge(Named::plain(store.key), mode == Mode::Set);
            return self.refuse(used, length, request, quiet);
        }
        match self.data(input, used, length) {
            Data::More => Step::More(0),
            Data::Bad(used) => step(used, Request::Error(BAD_CHUNK), quiet),
            Data::Whole(data, used) => {
                store.data = data;
                step(used, Request::Store(store), quiet)
            }
        }
    }
}

/// Returns true if a word of the line is longer than a key may be.
fn has_long_word(line: &[u8]) -> bool {
    let mut from = 0;
    memchr_iter(b' ', line).chain(once(line.len())).any(|at| {
        let length = at - from;
        from = at + 1;
        length > KEY_MAX
    })
}

/// Parses a plain and whole `set` in one pass. Returns the command and its bytes, or `None` for
/// anything unusual or wrong.
#[inline]
pub(super) fn plain_set(input: &[u8], value_max: usize) -> Option<(Store<'_>, usize)> {
    let rest = input.strip_prefix(b"set ")?;
    let end = memchr2(b' ', b'\n', &rest[..rest.len().min(KEY_MAX + 1)])?;
    let (key, mut rest) = rest.split_at(end);
    let (flags, exptime) = (short_number(&mut rest)?, short_number(&mut rest)?);
    let length = short_number(&mut rest)? as usize;
    let rest = rest.strip_prefix(b"\r\n")?;
    let is_plain = !key.is_empty() && key.len() + length + super::meta::ITEM_HEADER <= value_max;
    let (data, rest) = rest.split_at_checked(length).filter(|_| is_plain)?;
    let rest = rest.strip_prefix(b"\r\n")?;
    let store = Store { key, flags, exptime: i64::from(exptime), mode: Mode::Set, data };
    Some((store, input.len() - rest.len()))
}

/// Takes a space and a number of one to nine digits from the beginning.
#[inline]
fn short_number(rest: &mut &[u8]) -> Option<u32> {
    let [b' ', first @ b'0'..=b'9', digits @ ..] = *rest else { return None };
    let (mut number, mut digits) = (u32::from(first - b'0'), digits);
    for _ in 1..9 {
        let [digit @ b'0'..=b'9', more @ ..] = digits else { break };
        number = number * 10 + u32::from(digit - b'0');
        digits = more;
    }
    *rest = digits;
    Some(number)
}

/// Parses the line of a storage command, except the length and the data.
fn header<'a>(mode: Mode, words: &mut Words<'a>) -> Result<Store<'a>, &'static str> {
    let key = key(words)?;
    let mut next = || words.next().ok_or(BAD_FORMAT);
    let flags = number(next()?).and_then(|flags| u32::try_from(flags).ok()).ok_or(BAD_FORMAT)?;
    let exptime = signed(next()?).ok_or(BAD_FORMAT)?;
    next()?;
    let mode = match mode {
        Mode::Cas(_) => Mode::Cas(strict(next()?).ok_or(BAD_FORMAT)?),
        mode => mode,
    };
    Ok(Store { key, flags, exptime, mode, data: &[] })
}

/// Returns the least number of words behind a command with a key. A line with fewer words is an
/// error, even if it ends in `noreply`.
fn least(command: &[u8]) -> usize {
    match command {
        b"incr" | b"decr" | b"touch" => 2,
        _ => 0,
    }
}

fn plain<'a>(command: &[u8], words: Words<'a>, used: usize) -> Step<'a> {
    if words.left() < least(command) {
        return step(used, Request::Error(BAD_FORMAT), false);
    }
    let mut quiet = words.is_quiet();
    let request = match command {
        b"incr" => arith(Arith::Incr, words),
        b"decr" => arith(Arith::Decr, words),
        b"touch" => touch(words),
        b"delete" => delete(words),
        b"version" | b"stats" | b"quit" => {
            quiet = false;
            Ok(match command {
                b"version" => Request::Admin(Admin::Version),
                b"stats" => Request::Admin(Admin::Stats(words)),
                _ => Request::Quit,
            })
        }
        _ => return rare(command, words, used),
    };
    step(used, request.unwrap_or_else(Request::Error), quiet)
}

/// Parses the commands that may have spaces before them, and unknown commands.
pub(super) fn rare<'a>(command: &[u8], words: Words<'a>, used: usize) -> Step<'a> {
    let count = words.left();
    let request = match command {
        b"flush_all" => flush(words),
        // This command is not memcached's. Without `-D` it is unknown, whatever follows.
        b"flush_prefix" if count == 1 || count == 2 && words.is_quiet() => {
            let prefix = first(words);
            let request = Request::Admin(Admin::FlushPrefix(prefix, count == 2));
            let is_key = prefix.len() <= KEY_MAX;
            return step(used, if is_key { request } else { Request::Error(ERROR) }, false);
        }
        b"verbosity" => verbosity(words),
        b"cache_memlimit" => memlimit(words),
        b"refresh_certs" => Ok(Request::Admin(Admin::RefreshCerts)),
        b"shutdown" => shutdown(words),
        b"lru_crawler" => Ok(Request::Admin(Admin::Operator(Operator::LruCrawler, words))),
        b"watch" => Ok(Request::Admin(Admin::Operator(Operator::Watch, words))),
        b"slabs" => Ok(Request::Admin(Admin::Operator(Operator::Slabs, words))),
        b"lru" => Ok(Request::Admin(Admin::Operator(Operator::Lru, words))),
        b"debugtime" if cfg!(debug_assertions) => {
            Ok(Request::Admin(Admin::Operator(Operator::DebugTime, words)))
        }
        _ if words.last().is_some_and(|word| word.starts_with(b"HTTP/")) => {
            return step(used, Request::Close(""), false);
        }
        b"noreply" if count == 0 => return step(used, Request::Error(ERROR), true),
        _ => Err(ERROR),
    };
    step(used, request.unwrap_or_else(Request::Error), words.is_quiet())
}

fn first(mut words: Words<'_>) -> &[u8] {
    words.next().unwrap_or_default()
}

fn arith(arith: Arith, mut words: Words<'_>) -> Plain<'_> {
    let key = key(&mut words)?;
    let delta = words.next().and_then(strict).ok_or(BAD_DELTA)?;
    Ok(Request::Arith(key, arith, delta))
}

fn touch(mut words: Words<'_>) -> Plain<'_> {
    let key = key(&mut words)?;
    let exptime = words.next().and_then(strict_signed).ok_or(BAD_EXPTIME)?;
    Ok(Request::Touch(key, exptime.into()))
}

/// Parses `delete`. Anything may stand behind the key.
fn delete(mut words: Words<'_>) -> Plain<'_> {
    key(&mut words).map(Request::Delete)
}

fn flush(mut words: Words<'_>) -> Plain<'_> {
    let is_plain = words.left() == usize::from(words.is_quiet());
    let delay = match words.next() {
        Some(word) if !is_plain => strict_signed(word).ok_or(BAD_EXPTIME)?,
        _ => 0,
    };
    Ok(Request::Admin(Admin::FlushAll(delay.into())))
}

fn verbosity(mut words: Words<'_>) -> Plain<'_> {
    let level = words.next().and_then(strict_short);
    level.map(|level| Request::Admin(Admin::Verbosity(level.into()))).ok_or(BAD_FORMAT)
}

fn memlimit(mut words: Words<'_>) -> Plain<'_> {
    match words.next().and_then(strict_short).ok_or(ERROR)? {
        limit if limit > LIMIT_MAX => Err(HUGE_LIMIT),
        limit => Ok(Request::Admin(Admin::Memlimit(limit.into()))),
    }
}

fn shutdown(mut words: Words<'_>) -> Plain<'_> {
    let graceful = match (words.next(), words.next()) {
        (None, _) => Some(false),
        (Some(b"graceful"), None) => Some(true),
        _ => None,
    };
    Ok(Request::Admin(Admin::Shutdown { graceful }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_set_is_what_the_whole_parser_makes_of_it() {
        let texts = [
            ("set k 1 2 3\r\nabc\r\nget", true),
            ("set k 999999999 0 0\r\n\r\n", true),
            ("set k 4294967295 0 0\r\n\r\n", false),
            ("set k 1 -1 3\r\nabc\r\n", false),
            ("set k 1 2 3 noreply\r\nabc\r\n", false),
            ("set k 1 2 3\nabc\r\n", false),
            ("set k 1 2 3\r\nabcd\r\n", false),
            ("set k 1 2 3\r\nabc\r", false),
            ("set  1 2 3\r\nabc\r\n", false),
            ("set k 1 2\r\nabc\r\n", false),
            ("set k\n1 2 3\r\nabc\r\n", false),
            ("set k 1 2 99\r\nabc\r\n", false),
        ];
        for (text, is_plain) in texts {
            let found = plain_set(text.as_bytes(), 100);
            assert_eq!(found.is_some(), is_plain, "{text:?}");
            // Before two spaces nothing is plain.
            let longer = text.replacen(' ', "  ", 1);
            let slow = Parser::new(100).next(longer.as_bytes());
            if let Some((store, bytes)) = found {
                let (used, request) = (bytes + 1, Request::Store(store));
                assert_eq!(slow, Step::Request { used, request, quiet: false }, "{text:?}");
            }
        }
        assert_eq!(plain_set(b"set k 0 0 99\r\n", 100), None);
        for (length, is_plain) in [(KEY_MAX, true), (KEY_MAX + 1, false)] {
            let text = format!("set {} 0 0 1\r\nx\r\n", "k".repeat(length));
            assert_eq!(plain_set(text.as_bytes(), 1000).is_some(), is_plain, "{length}");
        }
        // Key, value and header are 100 bytes.
        let text = format!("set kk 0 0 48\r\n{}\r\n", "x".repeat(48));
        let is_plain = |value_max| plain_set(text.as_bytes(), value_max).is_some();
        assert_eq!((is_plain(99), is_plain(100)), (false, true));
    }

    #[test]
    fn commands_without_a_value_are_what_their_words_say() {
        let words = |text: &'static str| Words::new(text.as_bytes());
        let operator = |operator| Request::Admin(Admin::Operator(operator, words(" a b")));
        let (error, format) = (Request::Error(ERROR), Request::Error(BAD_FORMAT));
        let shutdown = |graceful| Request::Admin(Admin::Shutdown { graceful });
        let prefix = |quiet| Request::Admin(Admin::FlushPrefix(b"a", quiet));
        let cases = [
            ("version", Request::Admin(Admin::Version), false),
            ("version noreply", Request::Admin(Admin::Version), false),
            ("stats a", Request::Admin(Admin::Stats(words(" a"))), false),
            ("quit noreply", Request::Quit, false),
            ("refresh_certs", Request::Admin(Admin::RefreshCerts), false),
            ("lru_crawler a b", operator(Operator::LruCrawler), false),
            ("watch a b", operator(Operator::Watch), false),
            ("slabs a b", operator(Operator::Slabs), false),
            ("lru a b", operator(Operator::Lru), false),
            ("shutdown", shutdown(Some(false)), false),
            ("shutdown graceful", shutdown(Some(true)), false),
            ("shutdown graceful x", shutdown(None), false),
            ("shutdown x", shutdown(None), false),
            ("cache_memlimit 1000000000", Request::Admin(Admin::Memlimit(1_000_000_000)), false),
            ("cache_memlimit 1000000001", Request::Error(HUGE_LIMIT), false),
            ("flush_prefix a", prefix(false), false),
            ("flush_prefix a noreply", prefix(true), false),
            ("flush_prefix a b", error, false),
            ("flush_prefix a b noreply", error, true),
            ("flush_prefix", error, false),
            ("noreply", error, true),
            ("noreply a", error, false),
            ("a noreply", error, true),
            ("delete", format, false),
            ("delete a noreply", Request::Delete(b"a"), true),
            ("incr noreply", format, false),
            ("incr a noreply", Request::Error(BAD_DELTA), true),
        ];
        for (text, request, quiet) in cases {
            let line = format!("{text}\r\n");
            let expected = Step::Request { used: line.len(), request, quiet };
            assert_eq!(Parser::new(100).next(line.as_bytes()), expected, "{text:?}");
        }
        // Only in builds for tests: it moves the clock.
        let debug = operator(Operator::DebugTime);
        let request = if cfg!(debug_assertions) { debug } else { error };
        let expected = Step::Request { used: 15, request, quiet: false };
        assert_eq!(Parser::new(100).next(b"debugtime a b\r\n"), expected);
    }
}
