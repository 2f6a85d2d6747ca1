//! Refusals of incomplete requests for which there is no memory.

use super::classic::NO_MEMORY;
use super::{Context, Protocol, Session, SessionAction};
use crate::protocol::{KeyRoom, Request, Step};
use crate::reply::write_reply;

/// The error reply to a request without a value. The rest of such a request cannot be skipped.
const NO_MEMORY_FOR_REQUEST: &str = "SERVER_ERROR out of memory reading request";

impl Session {
    /// Returns the total length of the incomplete request that begins here, if it is known.
    #[must_use]
    pub fn whole_length(&self, context: &Context<'_>, input: &[u8]) -> Option<usize> {
        match &self.protocol {
            Protocol::Binary(binary) => binary.whole_length(input),
            _ if context.server.auth.is_some() && !self.is_known => None,
            _ => self.parser.whole_length(input),
        }
    }

    /// Refuses the incomplete request that begins here, for lack of memory. The rest of its value
    /// is dropped as it is received. If the request has no value, the connection is closed. Returns
    /// the bytes used.
    pub fn refuse(&mut self, context: &mut Context<'_>, input: &[u8], out: &mut Vec<u8>) -> usize {
        if let Protocol::Binary(binary) = &mut self.protocol {
            let used = binary.refuse(context, input, out);
            self.action = binary.action();
            return used;
        }
        let can_go_on = context.server.auth.is_none() || self.is_known;
        let step = if can_go_on { self.parser.refuse_value(input) } else { None };
        match step {
            Some(Step::Request { used, request: Request::TooLarge(named, forget), quiet }) => {
                debug_assert!(used <= input.len(), "protocol.P1: a refusal ends behind the input");
                context.handle.counters.store_no_memory.inc();
                if forget {
                    // The item in the store would be out of date.
                    context.handle.delete(named.key(&mut [0; size_of::<KeyRoom>()]), None);
                }
                if !quiet {
                    out.extend_from_slice(NO_MEMORY);
                }
                used
            }
            _ => {
                write_reply(out, NO_MEMORY_FOR_REQUEST);
                self.action = SessionAction::Close;
                input.len()
            }
        }
    }
}
