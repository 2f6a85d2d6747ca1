//! In the place of `tls` where the feature of that name is off: there is nothing to seal with.

use std::io::{self, Write};
use std::path::PathBuf;

/// Whether clients must show a certificate of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// They are not asked.
    #[default]
    No,
    /// One that is shown must be right.
    IfShown,
    /// There is no way in without.
    Always,
}

/// The files, in the form PEM.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// The server's certificate.
    pub chain: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who may sign clients' certificates.
    pub clients: Option<PathBuf>,
    /// Whether these are asked for.
    pub verify: Verify,
}

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
