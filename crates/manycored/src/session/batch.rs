//! The batch of requests that are answered together: gets, plain sets, and `mg`s that change
//! nothing (session.Q3).

use super::classic::{END, set, value_line};
use crate::meta;
use crate::protocol::{Gets, Mode, Parser, Request, Store as Put};
use crate::reply::OUT_MAX;
use crate::store::{Handle, Turn};

/// Keys that are looked up in one batch.
const KEYS_MAX: usize = 64;

/// A parsed but unanswered request, or a key of such a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    /// The offset of the key in the input.
    from: u32,
    length: u8,
    kind: Kind,
    /// The parser's state before this request, and the bytes consumed by then.
    before: Parser,
    used: u32,
}

/// The kind of a pending request.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A key of a get. `ends` is true for the last key, after which the reply ends.
    Get { with_cas: bool, ends: bool },
    /// The end of a get.
    End,
    /// A plain `mg`.
    Meta(meta::Plain),
    /// A plain set, and the range of its value in the input.
    Set { flags: u32, exptime: i64, data: (u32, u32), quiet: bool },
}

/// The pending requests of the session that is being served, in their order.
#[derive(Debug)]
pub(crate) struct Batch {
    pending: Vec<Pending>,
}

impl Batch {
    pub(crate) fn new() -> Self {
        Self { pending: Vec::with_capacity(2 * KEYS_MAX) }
    }

    /// Returns true if no request is pending.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds a request. Returns true if the batch is full.
    #[inline]
    pub(super) fn push(&mut self, pending: Pending) -> bool {
        debug_assert!(self.pending.len() < KEYS_MAX, "session.Q3: a full batch was not answered");
        debug_assert!(
            self.pending.last().is_none_or(|last| last.used <= pending.used),
            "session.Q1: a request is before the previous one"
        );
        self.pending.push(pending);
        self.pending.len() >= KEYS_MAX
    }

    /// Answers the pending requests. If the replies reach their bound, returns the first unanswered
    /// request (session.Q2).
    pub(super) fn answer(
        &mut self,
        handle: &mut Handle<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Pending> {
        // session.Q3: in the order of the requests.
        let pending = &self.pending[..];
        if pending.is_empty() {
            return None;
        }
        let mut keys = pending.iter().filter(|p| p.has_key()).map(|p| p.key(input));
        let mut answered = 0;
        let ends = |out: &mut Vec<u8>, answered: &mut usize| {
            while pending.get(*answered).is_some_and(|p| !p.has_key()) && out.len() < OUT_MAX {
                out.extend_from_slice(END);
                *answered += 1;
            }
        };
        ends(out, &mut answered);
        handle.each_of(&mut keys, |handle, turn| {
            if out.len() + handle.pinned.bytes() >= OUT_MAX {
                return;
            }
            pending[answered].answer(handle, turn, input, out);
            answered += 1;
            ends(out, &mut answered);
        });
        debug_assert!(answered <= pending.len(), "session.Q1: more replies than requests");
        debug_assert!(
            answered == pending.len() || out.len() + handle.pinned.bytes() >= OUT_MAX,
            "session.Q2: the batch stopped at {answered} requests although there is room"
        );
        let stopped = pending.get(answered).copied();
        self.pending.clear();
        stopped
    }
}

impl Pending {
    /// Returns the request as a pending request, if it can be batched.
    #[inline]
    pub(super) fn new(
        input: &[u8],
        request: &Request<'_>,
        quiet: bool,
        before: Parser,
        used: usize,
    ) -> Option<Self> {
        let offset = |part: &[u8]| {
            let at = part.as_ptr() as usize - input.as_ptr() as usize;
            debug_assert!(
                at + part.len() <= input.len(),
                "protocol.P3: a part of a request is outside of the input"
            );
            u32::try_from(at).ok()
        };
        let used = u32::try_from(used).ok()?;
        let (key, kind) = match *request {
            Request::GetOne(key) => (key, Kind::Get { with_cas: false, ends: true }),
            Request::Get(key, Gets { cas, touch: None }) => {
                (key, Kind::Get { with_cas: cas, ends: false })
            }
            Request::GetEnd => {
                return Some(Self { from: 0, length: 0, kind: Kind::End, before, used });
            }
            Request::Store(Put { key, flags, exptime, mode: Mode::Set, data }) => {
                let data = (offset(data)?, u32::try_from(data.len()).ok()?);
                (key, Kind::Set { flags, exptime, data, quiet })
            }
            Request::MetaGet(named, ref flags) => {
                (named.sent, Kind::Meta(meta::Plain::new(input, named, flags)?))
            }
            _ => return None,
        };
        Some(Self { from: offset(key)?, length: key.len() as u8, kind, before, used })
    }

    /// Returns the parser's state and the bytes consumed before this request.
    pub(super) fn start(self) -> (Parser, usize) {
        (self.before, self.used as usize)
    }

    fn key(self, input: &[u8]) -> &[u8] {
        &input[self.from as usize..][..usize::from(self.length)]
    }

    #[inline]
    pub(super) fn has_key(self) -> bool {
        !matches!(self.kind, Kind::End)
    }

    /// Answers this pending request, which has a key.
    #[inline]
    fn answer(self, handle: &mut Handle<'_>, turn: Turn<'_>, input: &[u8], out: &mut Vec<u8>) {
        match self.kind {
            Kind::Get { with_cas, ends } => {
                if let Some(item) = handle.get(turn) {
                    let view = item.view();
                    value_line(out, &view, with_cas.then(|| handle.cas(item)));
                    if view.has_tail() {
                        handle.write_value(turn, item, out);
                    } else {
                        view.write_value(out);
                    }
                    out.extend_from_slice(b"\r\n");
                }
                if ends {
                    out.extend_from_slice(END);
                }
            }
            Kind::Set { flags, exptime, data: (from, length), quiet } => {
                let data = &input[from as usize..][..length as usize];
                let reply = set(handle, turn, (self.key(input), data), flags, exptime);
                if !quiet {
                    out.extend_from_slice(reply);
                }
            }
            Kind::Meta(plain) => plain.answer(handle, turn, (self.key(input), input), out),
            Kind::End => {}
        }
    }
}
