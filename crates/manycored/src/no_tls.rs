//! In the place of `tls` where the feature of that name is off: there is nothing to seal with.

pub use crate::tls_files::{Files, Verify};

use std::io::{self, Write};

/// What connections would begin with.
#[derive(Debug)]
pub enum Tls {}

impl Tls {
    /// There is none.
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

    pub(crate) fn begin(&self) -> Option<Seal> {
        match *self {}
    }
}

/// A connection's seal, of which there is none.
pub(crate) enum Seal {}

impl Seal {
    pub(crate) fn open(&mut self, _: &[u8], _: &mut Vec<u8>) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn seal(&mut self, _: &[u8]) -> io::Result<usize> {
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
