//! The meta commands `mg`, `ms`, `md`, `ma`, `me`, `mn`, and their flags.

use super::words::{Words, strict, strict_short, strict_signed};
use super::{
    BAD_CHUNK, BAD_FORMAT, Data, ERROR, KEY_MAX, Mode, Parser, Request, Step, length_of, step,
};
use base64::{Engine, engine::general_purpose::STANDARD};

/// The most words of a line, the command included.
const WORDS_MAX: usize = 20;
/// The longest opaque token, its letter included.
const OPAQUE_MAX: usize = 32;
/// Bytes that count towards an item's size limit besides its key and its value.
pub(super) const ITEM_HEADER: usize = 50;

const TOO_MANY: &str = "CLIENT_ERROR options flags are too long";
const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
const UNKNOWN: &str = "CLIENT_ERROR invalid flag";
const EITHER: &str = "CLIENT_ERROR invalid or duplicate flag";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
const BAD_STORE_MODE: &str = "CLIENT_ERROR invalid mode for ms M token";
const BAD_ARITH_MODE: &str = "CLIENT_ERROR invalid mode for ma M token";
const LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long";

/// Flags as a set of their letters.
const fn set_of(letters: &[u8]) -> u128 {
    let (mut set, mut at) = (0, 0);
    while at < letters.len() {
        set |= 1 << letters[at];
        at += 1;
    }
    set
}

/// The flags of each command. All commands take `P` and `L`, which are for proxies and are ignored.
const GET: u128 = set_of(b"bcCEfhklNOqRstTuvPL");
const STORE: u128 = set_of(b"bcCEFIkMNOqsTPL");
const DELETE: u128 = set_of(b"bCEFIkOqTxPL");
const ARITH: u128 = set_of(b"bcCDEJkMNOqtTvPL");
const FLUSH: u128 = set_of(b"bkOqPL");
const DEBUG: u128 = set_of(b"bPL");

/// The operation on a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arith {
    /// Increment, with wrap-around.
    Incr,
    /// Decrement, down to zero.
    Decr,
}

/// A key as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<'a> {
    /// As it was sent, for the reply.
    pub sent: &'a [u8],
    /// Whether it was sent in base64.
    pub is_binary: bool,
}

/// Room for a key that is sent in base64.
pub type KeyRoom = [u8; KEY_MAX];

impl<'a> Named<'a> {
    /// Returns a key that is sent as it is.
    #[must_use]
    pub fn plain(sent: &'a [u8]) -> Self {
        Self { sent, is_binary: false }
    }

    /// Returns the key itself, decoded into `room` if necessary. The parser has checked that
    /// decoding succeeds.
    #[must_use]
    pub fn key<'k>(&self, room: &'k mut KeyRoom) -> &'k [u8]
    where
        'a: 'k,
    {
        if !self.is_binary {
            return self.sent;
        }
        let length = STANDARD.decode_slice(self.sent, room).unwrap_or(0);
        &room[..length]
    }
}

/// The flags of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags<'a> {
    /// All flags, in order. Replies keep the order.
    pub words: Words<'a>,
    /// `v`: the value.
    pub value: bool,
    /// `q`: no reply to the usual outcome.
    pub quiet: bool,
    /// `I`: mark as stale.
    pub invalidate: bool,
    /// `x`: the value is removed, and the item stays.
    pub empty: bool,
    /// `T`: time to live.
    pub ttl: Option<i64>,
    /// `N`: vivify: on a miss, create an item with this TTL.
    pub vivify: Option<i64>,
    /// `R`: recache: below this TTL a client should refresh the value.
    pub recache: Option<i64>,
    /// `u`: the access does not count: neither for eviction nor in `h` and `l`.
    pub no_bump: bool,
    /// `C`: only this version; in `mg`, no value if it has this version.
    pub cas: Option<u64>,
    /// `E`: the new version.
    pub new_cas: Option<u64>,
    /// `F`: the client's flags.
    pub client: u32,
    /// `D`: the difference.
    pub delta: u64,
    /// `J`: the initial number.
    pub initial: u64,
    /// `M`: the mode.
    mode: Option<u8>,
}

impl<'a> Flags<'a> {
    /// Returns flags that are all unset, whatever the words say.
    pub(crate) fn none(words: Words<'a>) -> Self {
        Self {
            words,
            value: false,
            quiet: false,
            invalidate: false,
            empty: false,
            ttl: None,
            vivify: None,
            recache: None,
            no_bump: false,
            cas: None,
            new_cas: None,
            client: 0,
            delta: 1,
            initial: 0,
            mode: None,
        }
    }

    /// Parses the flags of a line with this key. Also returns whether the key is in base64. `taken`
    /// are the command's flags. Errors are in memcached's order: an invalid flag first, then the
    /// last wrong token, and a wrong `F` only if no other token is wrong.
    fn parse(sent: &[u8], words: Words<'a>, taken: u128) -> Result<(Self, bool), &'static str> {
        let mut flags = Self::none(words);
        let (mut seen, mut wrong, mut is_binary) = (0_u128, None, false);
        for word in words {
            let letter = word[0];
            let bit = 1_u128.checked_shl(letter.into()).unwrap_or(0);
            if seen & bit != 0 {
                return Err(DUPLICATE);
            }
            if taken & bit == 0 {
                return Err(UNKNOWN);
            }
            seen |= bit;
            if letter == b'b' {
                is_binary = true;
                wrong = if can_be_decoded(sent) { wrong } else { Some(BAD_KEY) };
            }
            match flags.set(letter, &word[1..]) {
                Ok(()) => {}
                Err(BAD_FORMAT) => wrong = wrong.or(Some(BAD_FORMAT)),
                Err(error) => wrong = Some(error),
            }
        }
        wrong.map_or(Ok((flags, is_binary)), Err)
    }

    /// Notes a flag. Flags that only affect the reply stay in `words`.
    fn set(&mut self, letter: u8, token: &[u8]) -> Result<(), &'static str> {
        let seconds = || strict_signed(token).map(i64::from).ok_or(BAD_TOKEN);
        let counted = || strict(token).ok_or(BAD_TOKEN);
        match letter {
            b'v' => self.value = true,
            b'q' => self.quiet = true,
            b'I' => self.invalidate = true,
            b'x' => self.empty = true,
            b'u' => self.no_bump = true,
            b'T' => self.ttl = Some(seconds()?),
            b'N' => self.vivify = Some(seconds()?),
            b'R' => self.recache = Some(seconds()?),
            b'C' => self.cas = Some(counted()?),
            b'E' => self.new_cas = Some(counted()?),
            b'D' => self.delta = counted()?,
            b'J' => self.initial = counted()?,
            b'F' => self.client = strict_short(token).ok_or(BAD_FORMAT)?,
            b'M' => self.mode = Some(token.first().copied().unwrap_or_default()),
            _ => {}
        }
        Ok(())
    }

    /// Returns the TTL of a vivified item: the last TTL in the line.
    #[must_use]
    pub fn made_ttl(&self) -> Option<i64> {
        self.vivify?;
        let last = self.words.filter(|word| matches!(word[0], b'N' | b'T')).last();
        if last.is_some_and(|word| word[0] == b'T') { self.ttl } else { self.vivify }
    }

    /// Checks the length of the opaque token. The caller checks everything else first.
    fn is_opaque_short(&self) -> Result<(), &'static str> {
        let is_long = |word: &[u8]| word[0] == b'O' && word.len() > OPAQUE_MAX;
        if self.words.into_iter().any(is_long) { Err(LONG_OPAQUE) } else { Ok(()) }
    }

    /// Returns the mode of `ms`.
    fn store_mode(&self) -> Result<Mode, &'static str> {
        match self.mode {
            None | Some(b'S') => Ok(Mode::Set),
            Some(b'E') => Ok(Mode::Add),
            Some(b'A') => Ok(Mode::Append),
            Some(b'P') => Ok(Mode::Prepend),
            Some(b'R') => Ok(Mode::Replace),
            Some(_) => Err(BAD_STORE_MODE),
        }
    }

    /// Returns the operation of `ma`.
    fn arith_mode(&self) -> Result<Arith, &'static str> {
        match self.mode {
            None | Some(b'I' | b'+') => Ok(Arith::Incr),
            Some(b'D' | b'-') => Ok(Arith::Decr),
            Some(_) => Err(BAD_ARITH_MODE),
        }
    }
}

/// The key and the flags of a line, or the error reply.
type Read<'a> = Result<(Named<'a>, Flags<'a>), &'static str>;

/// Returns true if a word can be a flag, of this server or of another.
fn is_flag(word: &[u8]) -> bool {
    matches!(word[0], b'0'..=b'9' | b'A'..=b'z')
}

/// Reads a key and its flags, in a line with `words_before` words before the flags.
fn read<'a>(sent: &'a [u8], words: Words<'a>, words_before: usize, taken: u128) -> Read<'a> {
    let mut count = words_before;
    let can_be_read = words.into_iter().all(|word| {
        count += 1;
        is_flag(word)
    });
    if !can_be_read || sent.len() > KEY_MAX {
        return Err(BAD_FORMAT);
    }
    if count > WORDS_MAX {
        return Err(TOO_MANY);
    }
    let (flags, is_binary) = Flags::parse(sent, words, taken)?;
    Ok((Named { sent, is_binary }, flags))
}

/// Returns true if this is a key in base64.
fn can_be_decoded(sent: &[u8]) -> bool {
    STANDARD.decode_slice(sent, &mut [0; KEY_MAX]).is_ok()
}

/// Reads a whole line of a command without a value.
fn line(mut words: Words<'_>, taken: u128) -> Read<'_> {
    let sent = words.next().ok_or(BAD_FORMAT)?;
    let (named, flags) = read(sent, words, 2, taken)?;
    flags.is_opaque_short().map(|()| (named, flags))
}

/// Reads a line of `ma`, which has the same error for all wrong flags.
fn arith_line(mut words: Words<'_>) -> Result<(Named<'_>, Arith, Flags<'_>), &'static str> {
    let sent = words.next().ok_or(BAD_FORMAT)?;
    let can_be_read = words.into_iter().all(is_flag);
    let told = |error| if can_be_read { EITHER } else { error };
    let (named, flags) = read(sent, words, 2, ARITH).map_err(told)?;
    let mode = flags.arith_mode()?;
    flags.is_opaque_short().map(|()| (named, mode, flags))
}

impl Parser {
    pub(super) fn meta<'a>(
        &mut self,
        command: u8,
        words: Words<'a>,
        used: usize,
        input: &'a [u8],
    ) -> Step<'a> {
        let request = match command {
            b's' => return self.meta_store(words, used, input),
            b'g' => line(words, GET).map(|(named, flags)| Request::MetaGet(named, flags)),
            b'd' => line(words, DELETE).map(|(named, flags)| Request::MetaDelete(named, flags)),
            b'a' => {
                arith_line(words).map(|(named, mode, flags)| Request::MetaArith(named, mode, flags))
            }
            b'f' => Ok(Request::MetaFlush(line(words, FLUSH))),
            b'e' => line(words, DEBUG)
                .map(|(named, _)| Request::MetaDebug(named))
                .map_err(|error| if error == BAD_KEY { BAD_FORMAT } else { error }),
            b'n' => Ok(Request::MetaNoop),
            _ => return step(used, Request::Error(ERROR), words.is_quiet()),
        };
        step(used, request.unwrap_or_else(Request::Error), false)
    }

    fn meta_store<'a>(&mut self, mut words: Words<'a>, used: usize, input: &'a [u8]) -> Step<'a> {
        let behind = words.rest().len();
        let sent = words.next().unwrap_or_default();
        if behind == 1 + sent.len() {
            // The whole line is "ms KEY", so no value follows.
            return step(used, Request::Error(BAD_FORMAT), false);
        }
        let Some(length) = words.next().and_then(length_of) else {
            return self.distrust(used);
        };
        let read = read(sent, words, 3, STORE).and_then(|(named, flags)| {
            let mode = flags.store_mode()?;
            flags.is_opaque_short().map(|()| (named, flags, mode))
        });
        let (named, flags, mode) = match read {
            Ok(read) => read,
            Err(words) => return self.refuse(used, length, Request::Error(words), false),
        };
        if sent.len() + length + ITEM_HEADER > self.value_max {
            return self.refuse(used, length, Request::TooLarge(named, true), false);
        }
        match self.data(input, used, length) {
            Data::More => Step::More(0),
            Data::Bad(used) => step(used, Request::Error(BAD_CHUNK), false),
            Data::Whole(data, used) => {
                step(used, Request::MetaStore(named, mode, flags, data), false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_meta_commands_have_at_most_250_bytes() {
        for (length, is_key) in [(KEY_MAX, true), (KEY_MAX + 1, false)] {
            let line = format!("mg {} v\r\n", "k".repeat(length));
            let Step::Request { used, request, .. } = Parser::new(100).next(line.as_bytes()) else {
                panic!("{length}");
            };
            assert_eq!(used, line.len());
            assert_eq!(matches!(request, Request::MetaGet(..)), is_key, "{request:?}");
            assert_eq!(request == Request::Error(BAD_FORMAT), !is_key, "{request:?}");
        }
    }

    #[test]
    fn no_value_is_expected_behind_a_store_of_a_key_alone() {
        for line in [&b"ms key\r\n"[..], b"ms k\r\n"] {
            let mut parser = Parser::new(100);
            let refused = Step::Request {
                used: line.len(),
                request: Request::Error(BAD_FORMAT),
                quiet: false,
            };
            assert_eq!(parser.next(line), refused);
            // protocol.P5 does not apply: the next line is a request.
            let next = Step::Request { used: 4, request: Request::MetaNoop, quiet: false };
            assert_eq!(parser.next(b"mn\r\n"), next);
        }
    }
}
