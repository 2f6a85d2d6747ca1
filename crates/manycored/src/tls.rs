//! TLS (`-Z`): the certificate, and what lies between a connection's socket and its session.
//!
//! By rustls with ring: no OpenSSL that has to be there, and no bytes of C that parse what clients
//! send. Versions 1.2 and 1.3.
//!
//! Laws:
//! - T1 A connection keeps what it began with: files that are read again count for later ones.
//! - T2 What waits to be sent is bounded (rustls: 64 KB of records), as is what was not opened: a
//!   record that has not come whole.

pub use crate::tls_files::{Files, Verify};

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::fmt;
use std::io::{self, BufRead, ErrorKind, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// What connections begin with.
pub struct Tls {
    files: Files,
    config: Mutex<Arc<ServerConfig>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

fn wrong<E: fmt::Display>(what: &'static str, path: &Path) -> impl FnOnce(E) -> String {
    let path = path.display().to_string();
    move |error| format!("-o {what}={path}: {error}")
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(wrong(what, path))?;
    if found.is_empty() {
        return Err(wrong(what, path)("there is no certificate in it"));
    }
    Ok(found)
}

fn read(files: &Files) -> Result<ServerConfig, String> {
    let chain = certificates("ssl_chain_cert", &files.chain)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(wrong("ssl_key", &files.key))?;
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] = if files.newest_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?;
    let builder = match &files.clients {
        Some(path) if files.verify != Verify::No => {
            let is_optional = files.verify == Verify::IfShown;
            builder.with_client_cert_verifier(verifier(path, is_optional, provider)?)
        }
        _ => builder.with_no_client_auth(),
    };
    builder.with_single_cert(chain, key).map_err(wrong("ssl_key", &files.key))
}

fn verifier(
    path: &Path,
    is_optional: bool,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ssl_ca_cert", path)? {
        roots.add(certificate).map_err(wrong("ssl_ca_cert", path))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(wrong("ssl_ca_cert", path))
}

impl Tls {
    /// What these files say.
    ///
    /// # Errors
    /// What is wrong with them, as a sentence.
    pub fn read(files: Files) -> Result<Self, String> {
        if [&files.chain, &files.key].iter().any(|path| path.as_os_str().is_empty()) {
            return Err("-Z needs -o ssl_chain_cert=FILE,ssl_key=FILE".into());
        }
        let config = Mutex::new(Arc::new(read(&files)?));
        Ok(Self { files, config })
    }

    /// Reads the files again, for later connections (T1). If something is wrong with them, it stays
    /// as it was.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn reload(&self) -> Result<(), String> {
        let config = Arc::new(read(&self.files)?);
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The beginning of a connection. `None` if that is impossible, whatever the client says.
    pub(crate) fn begin(&self) -> Option<Seal> {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ServerConnection::new(config).ok().map(|connection| Seal(Box::new(connection)))
    }
}

/// One connection's seal: its bytes are opened as they come, and sealed as they go.
pub(crate) struct Seal(Box<ServerConnection>);

impl Seal {
    /// Opens what came. What was in it is added to the vector: perhaps nothing.
    pub(crate) fn open(&mut self, mut sealed: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
        while !sealed.is_empty() {
            // Nothing more is read behind the client's good-bye.
            if self.0.read_tls(&mut sealed)? == 0 {
                break;
            }
            self.0.process_new_packets().map_err(io::Error::other)?;
            let mut reader = self.0.reader();
            loop {
                match reader.fill_buf() {
                    Ok([]) => break,
                    Ok(opened) => {
                        let length = opened.len();
                        into.extend_from_slice(opened);
                        reader.consume(length);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Takes some of these bytes to be sent, and says how many.
    pub(crate) fn seal(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.writer().write(bytes)
    }

    /// Whether something waits to be sent.
    pub(crate) fn waits(&self) -> bool {
        self.0.wants_write()
    }

    /// Sends what waits; false if something still does.
    pub(crate) fn send(&mut self, to: &mut dyn Write) -> io::Result<bool> {
        while self.waits() {
            match self.0.write_tls(to) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Says good-bye, so that the client knows that nothing was cut off.
    pub(crate) fn end(&mut self, to: &mut dyn Write) {
        self.0.send_close_notify();
        // Who does not take it has gone, or is slow.
        let _ = self.send(to);
    }
}
