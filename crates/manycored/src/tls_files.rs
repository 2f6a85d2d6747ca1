//! What the command line says of TLS: which files, and what is asked of clients.

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
    /// The server's certificate, and those between it and one that clients trust.
    pub chain: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who may sign clients' certificates.
    pub clients: Option<PathBuf>,
    /// Whether these are asked for.
    pub verify: Verify,
}
