//! Sessions that log their requests and replies (verbosity 2). The laws are those of
//! [`crate::request_log`].

use super::{Protocol, Session};
use crate::auth::AuthStep;
use crate::context::{Context, Progress, SessionAction};
use crate::protocol::{Admin, Parser, Request, Step};
use crate::reply::OUT_MAX;
use crate::request_log::{Next, Replies, line, packets, text_replies};
use memchr::memchr;

impl Session {
    /// Answers the requests in the input, up to `budget` keys.
    #[inline]
    pub fn feed(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        budget: usize,
    ) -> Progress {
        // request_log.Y1: this is the one check.
        let progress = if context.server.verbosity() > 1 {
            self.feed_logged(context, input, out, budget)
        } else {
            self.feed_all(context, input, out, budget)
        };
        debug_assert!(
            progress.used <= input.len(),
            "session.Q2: {} bytes are consumed of {}",
            progress.used,
            input.len()
        );
        debug_assert!(context.batch.is_empty(), "session.Q3: pending requests are left over");
        progress
    }

    /// As [`feed`](Self::feed), but logs each request and its replies.
    #[cold]
    #[inline(never)]
    fn feed_logged(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
        mut budget: usize,
    ) -> Progress {
        let (mut used, mut lines) = (0, Vec::new());
        loop {
            if out.len() >= OUT_MAX || budget == 0 || self.action != SessionAction::Continue {
                return Progress { used, is_paused: true };
            }
            let (rest, from) = (&input[used..], out.len());
            lines.clear();
            let next = self.next_logged(context, rest, &mut lines);
            debug_assert!(
                next.length <= rest.len(),
                "request_log.Y2: a request ends behind the input"
            );
            let progress = self.feed_all(context, &rest[..next.length], out, usize::MAX);
            match next.replies {
                Replies::None => {}
                Replies::Lines => text_replies(&mut lines, self.client, &out[from..]),
                Replies::Packets => packets(&mut lines, self.client, &out[from..]),
            }
            if !lines.is_empty() {
                context.server.log.append(&lines);
            }
            used += progress.used;
            budget = budget.saturating_sub(next.keys);
            let is_short = progress.used < next.length || self.task.is_some();
            if is_short || used == input.len() {
                return Progress { used, ..progress };
            }
        }
    }

    /// Returns the next step. Appends the log lines of its request, if a request begins there.
    fn next_logged(&mut self, context: &Context<'_>, rest: &[u8], lines: &mut Vec<u8>) -> Next {
        // request_log.Y2: only whole requests are logged, and only the length of a value.
        if let Some(task) = &self.task {
            return Next::silent(if task.is_watch() { rest.len() } else { task.line() });
        }
        self.choose(context, rest);
        if let Protocol::Binary(binary) = &self.protocol {
            return binary.next_logged(rest, self.client, lines);
        }
        if let Some(auth) = context.server.auth.as_ref().filter(|_| !self.is_known) {
            let length = match auth.next_step(rest) {
                AuthStep::Credentials(used, _) | AuthStep::Refused(used, _) => used,
                AuthStep::Incomplete | AuthStep::Invalid => rest.len(),
            };
            return Next { replies: Replies::Lines, ..Next::silent(length) };
        }
        let (begins, mut parser) = (self.parser.begins_request(), self.parser);
        let (next, is_whole) = next_of_text(&mut parser, rest);
        if begins && is_whole {
            line(lines, '<', self.client, &rest[..memchr(b'\n', rest).unwrap_or(rest.len())]);
        }
        next
    }
}

/// Returns the next request in a text, and true if a request begins there.
fn next_of_text(parser: &mut Parser, rest: &[u8]) -> (Next, bool) {
    let (mut length, mut keys) = (0, 0);
    loop {
        match parser.next(&rest[length..]) {
            Step::More(0) => return (Next::silent(rest.len()), false),
            Step::More(gone) => return (Next::silent(gone), false),
            Step::Request { used, request: Request::Get(..), .. } => {
                length += used;
                keys += 1;
            }
            Step::Request { used, request, .. } => {
                let (length, keys) = (length + used, keys.max(1));
                return (Next { length, keys, replies: replies_of(&request) }, true);
            }
        }
    }
}

/// Returns which part of the replies to this request memcached logs. For some commands it logs
/// none.
fn replies_of(request: &Request<'_>) -> Replies {
    match request {
        Request::Delete(..)
        | Request::Arith(..)
        | Request::Touch(..)
        | Request::MetaGet(..)
        | Request::MetaStore(..)
        | Request::MetaDelete(..)
        | Request::MetaArith(..)
        | Request::MetaFlush(..)
        | Request::MetaDebug(..)
        | Request::Admin(Admin::Stats(..)) => Replies::None,
        _ => Replies::Lines,
    }
}
