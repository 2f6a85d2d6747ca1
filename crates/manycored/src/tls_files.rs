//! The options of TLS: its files, and its demands on clients.

use std::path::PathBuf;

/// Whether clients must show a certificate of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Certificates are not requested.
    #[default]
    No,
    /// If a client shows a certificate, it must be valid.
    IfShown,
    /// Each client must show a valid certificate.
    Always,
}

/// What a listener demands of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Demand {
    /// What the options demand of all clients.
    #[default]
    AsConfigured,
    /// No TLS.
    NoTls,
    /// TLS, and no certificate is requested.
    NoCertificate,
    /// TLS, and a certificate is required.
    Certificate,
}

/// The files, in PEM format.
#[derive(Debug, Clone)]
pub struct Files {
    /// The server's certificate, and the intermediate certificates up to one that clients trust.
    pub chain: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority for clients' certificates.
    pub clients: Option<PathBuf>,
    /// Whether clients' certificates are requested.
    pub verify: Verify,
    /// Whether TLS 1.2 is too old.
    pub newest_only: bool,
    /// Whether clients may resume their sessions.
    pub session_cache: bool,
    /// The size of the write buffer, in bytes: reported, without effect.
    pub write_buffer: u64,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            chain: PathBuf::new(),
            key: PathBuf::new(),
            clients: None,
            verify: Verify::No,
            newest_only: false,
            session_cache: false,
            write_buffer: 16 << 10,
        }
    }
}

impl Files {
    /// Returns true if certificates are requested.
    pub(crate) fn asks_clients(&self) -> bool {
        self.verify != Verify::No
    }

    /// Takes memcached's option `ssl_NAME`, and adds warnings for the user.
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
            ("verify_mode", _) => return Err("-o ssl_verify_mode: 0, 1, 2 or 3 is expected".into()),
            ("min_version", "0" | "1") => {
                warnings.push("-o ssl_min_version: TLS 1.2 is the oldest that is spoken".into());
            }
            ("min_version", "2") => self.newest_only = false,
            ("min_version", "3") => self.newest_only = true,
            ("min_version", _) => return Err("-o ssl_min_version: 0, 1, 2 or 3 is expected".into()),
            ("keyformat", format) if format == "1" || format.eq_ignore_ascii_case("pem") => {}
            ("keyformat", _) => {
                return Err("-o ssl_keyformat: only PEM (1) is built; convert the key with \
                            'openssl pkey -inform DER'"
                    .into());
            }
            ("ciphers", _) => {
                return Err(
                    "-o ssl_ciphers: OpenSSL's language of ciphers is not built; leave it \
                            out for those of TLS 1.2 and 1.3 that are held to be secure"
                        .into(),
                );
            }
            ("session_cache", _) => self.session_cache = true,
            ("wbuf_size", size) => {
                let size: u32 =
                    size.parse().map_err(|_| "-o ssl_wbuf_size: kilobytes are expected")?;
                self.write_buffer = u64::from(size) << 10;
                warnings.push("-o ssl_wbuf_size has no effect".into());
            }
            ("kernel_tls", _) => warnings.push("-o ssl_kernel_tls has no effect".into()),
            _ => return Err(format!("-o ssl_{name}: there is no such option")),
        }
        Ok(())
    }
}
