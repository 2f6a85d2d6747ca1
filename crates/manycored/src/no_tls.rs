//! Replaces the module `tls` if the feature `tls` is off. No connection is encrypted.

pub use crate::tls_files::{Demand, Files, Verify};

use std::io::{self, Write};

/// Counts of connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TlsCounts {
    pub(crate) handshake_errors: u64,
    pub(crate) protocol_errors: u64,
    pub(crate) new_sessions: u64,
    pub(crate) seconds_since_reload: u64,
}

/// The TLS configuration, which cannot exist.
#[derive(Debug)]
pub enum Tls {}

impl Tls {
    /// Returns an error.
    ///
    /// # Errors
    /// Always.
    pub fn read(_: Files) -> Result<Self, String> {
        Err("-Z: TLS is not built; build with the feature tls".into())
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn reload(&self) -> Result<(), String> {
        match *self {}
    }

    pub(crate) fn counts(&self) -> TlsCounts {
        match *self {}
    }

    pub(crate) fn begin(&self, _: Demand) -> Option<TlsSession> {
        match *self {}
    }
}

/// The TLS session of a connection, which cannot exist.
pub(crate) enum TlsSession {}

impl TlsSession {
    pub(crate) fn decrypt(&mut self, _: &[u8], _: &mut Vec<u8>) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn encrypt(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn waits(&self) -> bool {
        match *self {}
    }

    pub(crate) fn send(&mut self, _: &mut dyn Write) -> io::Result<bool> {
        match *self {}
    }

    pub(crate) fn end(&mut self, _: &mut dyn Write) {
        match *self {}
    }
}
