//! Administrative requests, which concern the server itself.

use super::{Context, Progress};
use super::{Session, Wish};
use crate::operator;
use crate::protocol::Admin;
use crate::reply::{TOO_MANY_PREFIXES, say};
use crate::report;
use crate::store::{Handle, MEMLIMIT_MIN};
use crate::tls::Tls;

impl Session {
    /// Continues the task that replaces the reading of requests. Returns the bytes of its line once
    /// it is done.
    pub(super) fn go_on(
        &mut self,
        context: &mut Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, Progress> {
        context.handle.client = self.client;
        let Some(task) = &mut self.task else { return Ok(0) };
        if let Some(progress) = task.go_on(&context.handle, input, out) {
            return Err(progress);
        }
        let line = task.line();
        self.task = None;
        Ok(line)
    }

    pub(super) fn admin(&mut self, context: &mut Context<'_>, admin: Admin<'_>, out: &mut Vec<u8>) {
        let facts = context.facts;
        match admin {
            Admin::FlushAll(_) if !facts.settings.flush_enabled => {
                context.handle.counters.cmd_flush.inc();
                say(out, "CLIENT_ERROR flush_all not allowed");
            }
            Admin::FlushAll(delay) => {
                context.handle.flush(delay);
                say(out, "OK");
            }
            Admin::FlushPrefix(prefix, quiet) => {
                let can = context.handle.store().limits().delimiter.is_some();
                if !can || !facts.settings.flush_enabled {
                    say(out, no_flush_of_prefixes(&context.handle));
                } else if !context.handle.flush_prefix(prefix) {
                    say(out, TOO_MANY_PREFIXES);
                } else if !quiet {
                    say(out, "OK");
                }
            }
            Admin::Version => {
                out.extend_from_slice(b"VERSION ");
                say(out, report::VERSION);
            }
            Admin::Verbosity(level) => {
                facts.set_verbosity(level.min(2) as u8);
                say(out, "OK");
            }
            Admin::Operator(command, words) => {
                let can = self.client != 0;
                self.task = operator::answer(context, can, command, words, out).map(Box::new);
            }
            Admin::Memlimit(megabytes) if megabytes < MEMLIMIT_MIN => {
                say(out, "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m");
            }
            Admin::Memlimit(megabytes) => {
                context.handle.store().set_memory(megabytes << 20);
                say(out, "OK");
            }
            Admin::RefreshCerts => match facts.tls.as_ref().map(Tls::reload) {
                // As memcached does if it was built without TLS.
                None => say(out, crate::protocol::ERROR),
                Some(Ok(())) => say(out, "OK"),
                Some(Err(error)) => say(out, &format!("SERVER_ERROR {error}")),
            },
            Admin::Stats(words) => report::stats(&context.handle, facts, words, out),
            Admin::Shutdown { .. } if !facts.settings.shutdown_enabled => {
                say(out, "SERVER_ERROR: shutdown not enabled");
            }
            Admin::Shutdown { graceful: Some(is_graceful) } => {
                if is_graceful {
                    facts.end_gracefully();
                }
                self.wish = Wish::Shutdown;
            }
            Admin::Shutdown { .. } => say(out, "CLIENT_ERROR invalid shutdown mode"),
        }
    }
}

/// The error if no prefix was flushed: the command is not allowed, or does not exist.
pub(super) fn no_flush_of_prefixes(handle: &Handle<'_>) -> &'static str {
    let is_known = handle.store().limits().delimiter.is_some();
    if is_known { "CLIENT_ERROR flush_prefix not allowed" } else { crate::protocol::ERROR }
}
