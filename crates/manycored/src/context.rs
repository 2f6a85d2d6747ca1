//! The state that the sessions of one worker share, and the results of a session's step.

use crate::reply::OUT_MAX;
use crate::server_state::ServerState;
use crate::session::batch::Batch;
use crate::store::Handle;

/// The state that a worker's sessions share.
pub struct Context<'s> {
    /// The items.
    pub handle: Handle<'s>,
    /// The state of the server.
    pub server: &'s ServerState,
    /// Requests that are answered together. It is empty between two calls of a session.
    pub(crate) batch: Batch,
}

impl<'s> Context<'s> {
    /// Makes the context of one worker.
    pub fn new(handle: Handle<'s>, server: &'s ServerState) -> Self {
        Self { handle, server, batch: Batch::new() }
    }

    /// Returns true if the replies are so long that they must be sent before more requests are
    /// answered.
    #[inline]
    pub(crate) fn is_full(&self, out: &[u8]) -> bool {
        out.len() + self.handle.pinned.bytes() >= OUT_MAX
    }
}

/// What the session needs from its connection once its replies are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAction {
    /// Continue.
    Continue,
    /// Close the connection.
    Close,
    /// Shut the server down.
    Shutdown,
}

/// The progress of a call to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Consumed bytes of the input.
    pub used: usize,
    /// Whether the session stopped although a request may be left, because it reached the bound on
    /// replies or the budget.
    pub is_paused: bool,
}
