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
    /// Whether TLS 1.2 is too old.
    pub newest_only: bool,
}

impl Files {
    /// Takes the option `ssl_NAME` of memcached's, and adds to what the user should know.
    pub(crate) fn take(
        &mut self,
        name: &str,
        value: &str,
        warnings: &mut Vec<String>,
    ) -> Result<(), String> {
        match (name, value) {
            ("chain_cert", _) => self.chain = value.into(),
            ("key", _) => self.key = value.into(),
            ("ca_cert", _) => self.clients = Some(value.into()),
            ("verify_mode", "0") => self.verify = Verify::No,
            ("verify_mode", "1") => self.verify = Verify::IfShown,
            ("verify_mode", "2" | "3") => self.verify = Verify::Always,
            ("verify_mode", _) => return Err("-o ssl_verify_mode: 0, 1, 2 or 3 is wanted".into()),
            ("min_version", "0" | "1") => {
                warnings.push("-o ssl_min_version: TLS 1.2 is the oldest that is spoken".into());
            }
            ("min_version", "2") => self.newest_only = false,
            ("min_version", "3") => self.newest_only = true,
            ("min_version", _) => return Err("-o ssl_min_version: 0, 1, 2 or 3 is wanted".into()),
            ("keyformat", format) if format.eq_ignore_ascii_case("pem") => {}
            ("keyformat", _) => return Err("-o ssl_keyformat: only PEM is built".into()),
            ("session_cache" | "wbuf_size", _) => {
                warnings.push(format!("-o ssl_{name} has no effect"));
            }
            _ => return Err(format!("-o ssl_{name}: this is not built")),
        }
        Ok(())
    }
}
