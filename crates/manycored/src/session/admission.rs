//! Authentication of clients of the text protocol, if it is required.

use super::Session;
use crate::auth::AuthStep;
use crate::context::{Context, Progress, SessionAction};
use crate::reply::{OUT_MAX, write_reply};

impl Session {
    /// Answers a client until it is authenticated. Returns the bytes of the input that this took,
    /// or `Err` if the client is still not authenticated.
    pub(super) fn admit(
        &mut self,
        context: &Context<'_>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<usize, Progress> {
        let (counters, server) = (context.handle.counters, context.server);
        let Some(auth) = server.auth.as_ref().filter(|_| !self.is_known) else { return Ok(0) };
        server.refresh_users();
        let mut used = 0;
        while !self.is_known && used < input.len() && out.len() < OUT_MAX {
            debug_assert!(used <= input.len(), "a message of authentication ends behind the input");
            match auth.next_step(&input[used..]) {
                AuthStep::Incomplete => break,
                AuthStep::Credentials(bytes, is_known) => {
                    used += bytes;
                    self.is_known = is_known;
                    counters.auth_cmds.inc();
                    if is_known {
                        write_reply(out, "STORED");
                    } else {
                        counters.auth_errors.inc();
                        server.log_refusal("no such user, or another password");
                        write_reply(out, "CLIENT_ERROR authentication failure");
                    }
                }
                AuthStep::Refused(bytes, error) => {
                    used += bytes;
                    server.log_refusal(error.trim_start_matches("CLIENT_ERROR "));
                    write_reply(out, error);
                }
                AuthStep::Invalid => {
                    server.log_refusal("no line of this protocol");
                    self.action = SessionAction::Close;
                    break;
                }
            }
        }
        if self.is_known {
            Ok(used)
        } else {
            Err(Progress { used, is_paused: out.len() >= OUT_MAX })
        }
    }
}
