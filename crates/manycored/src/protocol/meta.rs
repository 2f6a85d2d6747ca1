//! The commands of two letters: `mg`, `ms`, `md`, `ma`, `me`, `mn`, and their flags.

use super::words::{Words, number, signed};
use super::{BAD_CHUNK, BAD_FORMAT, Data, ERROR, KEY_MAX, Mode, Parser, Request, Step, step};
use base64::{Engine, engine::general_purpose::STANDARD};

/// Words of a line, its command and its key included.
const WORDS_MAX: usize = 19;
/// The longest opaque token, its letter included.
const OPAQUE_MAX: usize = 32;
/// What an item takes besides its key and its value, for the limit of its size.
pub(super) const ITEM_HEADER: usize = 50;

const TOO_MANY: &str = "CLIENT_ERROR options flags are too long";
const DUPLICATE: &str = "CLIENT_ERROR duplicate flag";
const UNKNOWN: &str = "CLIENT_ERROR invalid flag";
const EITHER: &str = "CLIENT_ERROR invalid or duplicate flag";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_KEY: &str = "CLIENT_ERROR error decoding key";
const BAD_MODE_LENGTH: &str = "CLIENT_ERROR incorrect length for M token";
const BAD_STORE_MODE: &str = "CLIENT_ERROR invalid mode for ms M token";
const BAD_ARITH_MODE: &str = "CLIENT_ERROR invalid mode for ma M token";
const LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long";

/// What is done to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arith {
    /// It is added to, and begins anew past the end.
    Incr,
    /// It is taken from, and stays at zero.
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

/// Room for a key that comes in base64.
pub type KeyRoom = [u8; KEY_MAX];

impl<'a> Named<'a> {
    /// A key that is sent as it is.
    #[must_use]
    pub fn plain(sent: &'a [u8]) -> Self {
        Self { sent, is_binary: false }
    }

    /// The key itself; decoded into `room` if need be. The parser has seen that this succeeds.
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
    /// All of them, in order: replies keep it.
    pub words: Words<'a>,
    /// `v`: the value, too.
    pub value: bool,
    /// `q`: no reply to what is usual.
    pub quiet: bool,
    /// `I`: mark as stale.
    pub invalidate: bool,
    /// `x`: only the value goes.
    pub empty: bool,
    /// `T`: time to live.
    pub ttl: Option<i64>,
    /// `N`: make an item for who misses, with this time to live.
    pub vivify: Option<i64>,
    /// `R`: below this time to live somebody should make the value anew.
    pub recache: Option<i64>,
    /// `C`: only this version; 0 is any but for `ms`.
    pub cas: Option<u64>,
    /// `E`: the version to be.
    pub new_cas: Option<u64>,
    /// `F`: the client's own number.
    pub client: u32,
    /// `D`: the difference.
    pub delta: u64,
    /// `J`: the number to begin with.
    pub initial: u64,
    /// `M`: how.
    mode: Option<u8>,
}

impl<'a> Flags<'a> {
    /// As if there were none, whatever the words say.
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
            cas: None,
            new_cas: None,
            client: 0,
            delta: 1,
            initial: 0,
            mode: None,
        }
    }

    /// Flags of a line of this key, and whether that is in base64. In memcached's order: a wrong
    /// flag is told first, and of wrong tokens the last, but `F` only if it is alone.
    fn parse(sent: &[u8], words: Words<'a>) -> Result<(Self, bool), &'static str> {
        let mut flags = Self::none(words);
        let (mut seen, mut wrong, mut is_binary) = (0_u128, None, false);
        for word in words {
            let letter = word[0];
            if letter >= 127 || seen & 1 << letter != 0 {
                return Err(DUPLICATE);
            }
            seen |= 1 << letter;
            if letter == b'b' {
                is_binary = true;
                wrong = if can_be_decoded(sent) { wrong } else { Some(BAD_KEY) };
            }
            match flags.set(letter, &word[1..]) {
                Ok(true) => {}
                Ok(false) => return Err(UNKNOWN),
                Err(BAD_FORMAT) => wrong = wrong.or(Some(BAD_FORMAT)),
                Err(error) => wrong = Some(error),
            }
        }
        wrong.map_or(Ok((flags, is_binary)), Err)
    }

    /// False if there is no such flag.
    fn set(&mut self, letter: u8, token: &[u8]) -> Result<bool, &'static str> {
        let seconds = || signed(token).ok_or(BAD_TOKEN);
        let counted = || number(token).ok_or(BAD_TOKEN);
        match letter {
            b'v' => self.value = true,
            b'q' => self.quiet = true,
            b'I' => self.invalidate = true,
            b'x' => self.empty = true,
            b'T' => self.ttl = Some(seconds()?),
            b'N' => self.vivify = Some(seconds()?),
            b'R' => self.recache = Some(seconds()?),
            b'C' => self.cas = Some(counted()?),
            b'E' => self.new_cas = Some(counted()?),
            b'D' => self.delta = counted()?,
            b'J' => self.initial = counted()?,
            b'F' => {
                let client = number(token).and_then(|flags| u32::try_from(flags).ok());
                self.client = client.ok_or(BAD_FORMAT)?;
            }
            b'M' if token.len() != 1 => return Err(BAD_MODE_LENGTH),
            b'M' => self.mode = Some(token[0]),
            b'O' | b'b' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' | b'u' => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The time to live of an item that is made for who misses: the last one named.
    #[must_use]
    pub fn made_ttl(&self) -> Option<i64> {
        self.vivify?;
        let last = self.words.filter(|word| matches!(word[0], b'N' | b'T')).last();
        if last.is_some_and(|word| word[0] == b'T') { self.ttl } else { self.vivify }
    }

    /// Whether the opaque token is short enough: looked at when nothing else is wrong.
    fn is_opaque_short(&self) -> Result<(), &'static str> {
        let is_long = |word: &[u8]| word[0] == b'O' && word.len() > OPAQUE_MAX;
        if self.words.into_iter().any(is_long) { Err(LONG_OPAQUE) } else { Ok(()) }
    }

    /// What `ms` does.
    fn store_mode(&self) -> Result<Mode, &'static str> {
        match self.mode {
            None | Some(b'S' | b's') => Ok(Mode::Set),
            Some(b'E' | b'e') => Ok(Mode::Add),
            Some(b'A' | b'a') => Ok(Mode::Append),
            Some(b'P' | b'p') => Ok(Mode::Prepend),
            Some(b'R' | b'r') => Ok(Mode::Replace),
            Some(_) => Err(BAD_STORE_MODE),
        }
    }

    /// What `ma` does.
    fn arith_mode(&self) -> Result<Arith, &'static str> {
        match self.mode {
            None | Some(b'I' | b'i' | b'+') => Ok(Arith::Incr),
            Some(b'D' | b'd' | b'-') => Ok(Arith::Decr),
            Some(_) => Err(BAD_ARITH_MODE),
        }
    }
}

/// A line that was read: its key and its flags.
type Read<'a> = Result<(Named<'a>, Flags<'a>), &'static str>;

/// The key, if it can be one.
fn named(sent: Option<&[u8]>) -> Result<&[u8], &'static str> {
    let sent = sent.ok_or(ERROR)?;
    if sent.len() > KEY_MAX { Err(BAD_FORMAT) } else { Ok(sent) }
}

fn read<'a>(sent: &'a [u8], words: Words<'a>) -> Read<'a> {
    if words.left() + 2 > WORDS_MAX {
        return Err(TOO_MANY);
    }
    let (flags, is_binary) = Flags::parse(sent, words)?;
    Ok((Named { sent, is_binary }, flags))
}

/// Whether this is a key in base64.
fn can_be_decoded(sent: &[u8]) -> bool {
    STANDARD.decode_slice(sent, &mut [0; KEY_MAX]).is_ok_and(|length| length > 0)
}

/// A whole line; what is said of wrong flags is `told` so.
fn line<'a>(mut words: Words<'a>, told: fn(&'static str) -> &'static str) -> Read<'a> {
    let sent = named(words.next())?;
    read(sent, words).map_err(told)
}

/// `md` and `ma` have one word for both.
fn either(error: &'static str) -> &'static str {
    match error {
        DUPLICATE | UNKNOWN | BAD_TOKEN | BAD_KEY | BAD_MODE_LENGTH | BAD_FORMAT => EITHER,
        error => error,
    }
}

impl Parser {
    pub(super) fn meta<'a>(
        &mut self,
        command: u8,
        mut words: Words<'a>,
        used: usize,
        input: &'a [u8],
    ) -> Step<'a> {
        let request = match command {
            b's' => return self.meta_store(words, used, input),
            b'g' => line(words, |error| error).and_then(|(named, flags)| {
                flags.is_opaque_short().map(|()| Request::MetaGet(named, flags))
            }),
            b'd' => line(words, either).and_then(|(named, flags)| {
                flags.is_opaque_short().map(|()| Request::MetaDelete(named, flags))
            }),
            b'a' => line(words, either).and_then(|(named, flags)| {
                let mode = flags.arith_mode()?;
                flags.is_opaque_short().map(|()| Request::MetaArith(named, mode, flags))
            }),
            b'f' => Ok(Request::MetaFlush(
                line(words, either)
                    .and_then(|(named, flags)| flags.is_opaque_short().map(|()| (named, flags))),
            )),
            b'e' => debug(&mut words).ok_or(BAD_FORMAT),
            b'n' => Ok(Request::MetaNoop),
            _ => Err(ERROR),
        };
        step(used, request.unwrap_or_else(Request::Error), false)
    }

    fn meta_store<'a>(&mut self, mut words: Words<'a>, used: usize, input: &'a [u8]) -> Step<'a> {
        let error = |error| step(used, Request::Error(error), false);
        let sent = match named(words.next()) {
            Ok(sent) => sent,
            Err(words) => return error(words),
        };
        let length = words.next().and_then(number).and_then(|length| usize::try_from(length).ok());
        let Some(length) = length.filter(|length| *length < i32::MAX as usize - 1) else {
            return error(BAD_FORMAT);
        };
        let read = read(sent, words);
        let read = read.and_then(|(named, flags)| {
            let mode = flags.store_mode()?;
            flags.is_opaque_short().map(|()| (named, flags, mode))
        });
        let (named, flags, mode) = match read {
            Ok(read) => read,
            Err(words) => return self.refuse(used, length, Request::Error(words), false),
        };
        if sent.len() + length + ITEM_HEADER > self.value_max {
            return self.refuse(used, length, Request::TooLarge(named, mode == Mode::Set), false);
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

/// `me` knows one flag.
fn debug<'a>(words: &mut Words<'a>) -> Option<Request<'a>> {
    let sent = words.next().filter(|sent| sent.len() <= KEY_MAX)?;
    let is_binary = words.any(|word| word == b"b");
    let named = Named { sent, is_binary };
    let is_right = !is_binary || can_be_decoded(sent);
    is_right.then_some(Request::MetaDebug(named))
}
