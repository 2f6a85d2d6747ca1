//! Administrative requests, which concern the server itself.

use super::{Context, Progress};
use super::{Session, SessionAction};
use crate::operator;
use crate::protocol::Admin;
use crate::reply::{TOO_MANY_PREFIXES, write_reply};
use crate::server_state::VERSION;
use crate::stats_command;
use crate::store::{Handle, MEMLIMIT_MIN};
use crate::tls::Tls;

impl Session {
    /// Continues the task that replaces the reading of requests. When the task is done, returns the
    /// bytes of its line.
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
        let server = context.server;
        match admin {
            Admin::FlushAll(_) if !server.settings.flush_enabled => {
                context.handle.counters.cmd_flush.inc();
                write_reply(out, "CLIENT_ERROR flush_all not allowed");
            }
            Admin::FlushAll(delay) => {
                context.handle.flush(delay);
                write_reply(out, "OK");
            }
            Admin::FlushPrefix(prefix, quiet) => {
                let can = context.handle.store().limits().delimiter.is_some();
                if !can || !server.settings.flush_enabled {
                    write_reply(out, no_flush_of_prefixes(&context.handle));
                } else if !context.handle.flush_prefix(prefix) {
                    write_reply(out, TOO_MANY_PREFIXES);
                } else if !quiet {
                    write_reply(out, "OK");
                }
            }
            Admin::Version => {
                out.extend_from_slice(b"VERSION ");
                write_reply(out, VERSION);
            }
            Admin::Verbosity(level) => {
                server.set_verbosity(level.min(2) as u8);
                write_reply(out, "OK");
            }
            Admin::Operator(command, words) => {
                let can = self.client != 0;
                self.task = operator::answer(context, can, command, words, out).map(Box::new);
            }
            Admin::Memlimit(megabytes) if megabytes < MEMLIMIT_MIN => {
                write_reply(out, "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m");
            }
            Admin::Memlimit(megabytes) => {
                context.handle.store().set_memory(megabytes << 20);
                write_reply(out, "OK");
            }
            Admin::RefreshCerts => match server.tls.as_ref().map(Tls::reload) {
                // As in a memcached that was built without TLS.
                None => write_reply(out, crate::protocol::ERROR),
                Some(Ok(())) => write_reply(out, "OK"),
                Some(Err(error)) => write_reply(out, &format!("SERVER_ERROR {error}")),
            },
            Admin::Stats(words) => stats_command::stats(&context.handle, server, words, out),
            Admin::Shutdown { .. } if !server.settings.shutdown_enabled => {
                write_reply(out, "SERVER_ERROR: shutdown not enabled");
            }
            Admin::Shutdown { graceful: Some(is_graceful) } => {
                if is_graceful {
                    server.end_gracefully();
                }
                self.action = SessionAction::Shutdown;
            }
            Admin::Shutdown { .. } => write_reply(out, "CLIENT_ERROR invalid shutdown mode"),
        }
    }
}

/// Returns the error for a refused flush of prefixes: the command is not allowed, or does not
/// exist.
pub(super) fn no_flush_of_prefixes(handle: &Handle<'_>) -> &'static str {
    let is_known = handle.store().limits().delimiter.is_some();
    if is_known { "CLIENT_ERROR flush_prefix not allowed" } else { crate::protocol::ERROR }
}
