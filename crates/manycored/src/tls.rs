//! TLS (`-Z`): the certificates, and the layer between a connection's socket and its session.
//!
//! The implementation is rustls with ring, for TLS 1.2 and 1.3. It needs no installed OpenSSL, and
//! no C code parses clients' bytes.
//!
//! Laws:
//! - tls.T1 A connection keeps the configuration that it began with. Reloaded files apply to
//!   later connections.
//! - tls.T2 Unsent records are bounded (by rustls: 64 KB). So are received bytes that are not
//!   decrypted yet: they are one incomplete record.

pub use crate::tls_files::{Demand, Files, Verify};

use crate::system;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier,
};
use rustls::version::{TLS12, TLS13};
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme,
};
use std::fmt;
use std::io::{self, BufRead, ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Sessions that clients may resume, at most.
const SESSIONS: usize = 1 << 14;
/// Bytes of a file of certificates or keys, at most.
const PEM_MAX: u64 = 16 << 20;

/// The TLS configuration of the server.
pub struct Tls {
    files: Files,
    state: Mutex<State>,
    counts: Arc<Counts>,
}

/// The content of the files when they were last read.
struct State {
    configs: Configs,
    since: Instant,
}

/// The configurations of new connections, one for each demand of a listener.
#[derive(Clone)]
struct Configs {
    usual: Arc<ServerConfig>,
    no_certificate: Arc<ServerConfig>,
    certificate: Arc<ServerConfig>,
}

/// Counts of connections and of sessions that may be resumed.
#[derive(Debug, Default)]
struct Counts {
    handshake_errors: AtomicU64,
    protocol_errors: AtomicU64,
    new_sessions: AtomicU64,
}

/// The counts at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TlsCounts {
    pub(crate) handshake_errors: u64,
    pub(crate) protocol_errors: u64,
    pub(crate) new_sessions: u64,
    pub(crate) seconds_since_reload: u64,
}

/// Sessions that clients may resume. Counts new sessions.
#[derive(Debug)]
struct Sessions {
    cache: Arc<ServerSessionMemoryCache>,
    counts: Arc<Counts>,
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        // ORDER: Relaxed; a count.
        self.counts.new_sessions.fetch_add(1, Ordering::Relaxed);
        self.cache.put(key, value)
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.get(key)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.cache.take(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
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
    let bytes = system::file(path, PEM_MAX).map_err(wrong(what, path))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(wrong(what, path))?;
    if found.is_empty() {
        return Err(wrong(what, path)("there is no certificate in it"));
    }
    Ok(found)
}

fn read(files: &Files, counts: &Arc<Counts>) -> Result<Configs, String> {
    let sessions: Arc<dyn StoresServerSessions> = if files.session_cache {
        let cache = ServerSessionMemoryCache::new(SESSIONS);
        Arc::new(Sessions { cache, counts: counts.clone() })
    } else {
        Arc::new(NoServerSessionStorage {})
    };
    let with = |verify| config(files, verify, &sessions).map(Arc::new);
    let usual = with(files.verify)?;
    let no_certificate = if files.asks_clients() { with(Verify::No)? } else { usual.clone() };
    let certificate =
        if files.verify == Verify::Always { usual.clone() } else { with(Verify::Always)? };
    Ok(Configs { usual, no_certificate, certificate })
}

fn config(
    files: &Files,
    verify: Verify,
    sessions: &Arc<dyn StoresServerSessions>,
) -> Result<ServerConfig, String> {
    let chain = certificates("ssl_chain_cert", &files.chain)?;
    let key = system::file(&files.key, PEM_MAX).map_err(wrong("ssl_key", &files.key))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(wrong("ssl_key", &files.key))?;
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] = if files.newest_only { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|error| error.to_string())?;
    let builder = match &files.clients {
        Some(path) if verify != Verify::No => {
            let is_optional = verify == Verify::IfShown;
            builder.with_client_cert_verifier(verifier(path, is_optional, provider)?)
        }
        None if verify == Verify::Always => {
            builder.with_client_cert_verifier(Arc::new(NoneIsRight(provider)))
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(wrong("ssl_key", &files.key))?;
    config.session_storage = sessions.clone();
    if !files.session_cache {
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn verifier(
    path: &Path,
    is_optional: bool,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ssl_ca_cert", path)? {
        roots.add(certificate).map_err(wrong("ssl_ca_cert", path))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
    let builder = if is_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(wrong("ssl_ca_cert", path))
}

/// A verifier that rejects all certificates, for listeners that demand certificates without a file
/// of authorities.
#[derive(Debug)]
struct NoneIsRight(Arc<CryptoProvider>);

impl ClientCertVerifier for NoneIsRight {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Err(rustls::CertificateError::UnknownIssuer.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl Tls {
    /// Reads the configuration from these files.
    ///
    /// # Errors
    /// A message that says what is wrong with the files.
    pub fn read(files: Files) -> Result<Self, String> {
        if [&files.chain, &files.key].iter().any(|path| path.as_os_str().is_empty()) {
            return Err("-Z needs -o ssl_chain_cert=FILE,ssl_key=FILE".into());
        }
        let counts = Arc::default();
        let configs = read(&files, &counts)?;
        let state = Mutex::new(State { configs, since: Instant::now() });
        Ok(Self { files, state, counts })
    }

    /// Rereads the files, for later connections (tls.T1). On an error, the old configuration stays.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn reload(&self) -> Result<(), String> {
        let configs = read(&self.files, &self.counts)?;
        *self.state() = State { configs, since: Instant::now() };
        Ok(())
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> TlsCounts {
        // ORDER: Relaxed; counts.
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TlsCounts {
            handshake_errors: read(&self.counts.handshake_errors),
            protocol_errors: read(&self.counts.protocol_errors),
            new_sessions: read(&self.counts.new_sessions),
            seconds_since_reload: self.state().since.elapsed().as_secs(),
        }
    }

    /// Begins a session. Returns `None` if the configuration makes every session impossible.
    pub(crate) fn begin(&self, demand: Demand) -> Option<TlsSession> {
        let config = {
            let configs = &self.state().configs;
            match demand {
                Demand::NoCertificate => configs.no_certificate.clone(),
                Demand::Certificate => configs.certificate.clone(),
                Demand::AsConfigured | Demand::NoTls => configs.usual.clone(),
            }
        };
        let connection = ServerConnection::new(config).ok()?;
        Some(TlsSession { connection: Box::new(connection), counts: self.counts.clone() })
    }
}

/// The TLS session of a connection. It decrypts received bytes and encrypts replies.
pub(crate) struct TlsSession {
    connection: Box<ServerConnection>,
    counts: Arc<Counts>,
}

impl TlsSession {
    /// Decrypts received records and appends their content, which may be empty.
    pub(crate) fn decrypt(&mut self, records: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
        let is_new = self.connection.is_handshaking();
        let opened = self.decrypt_records(records, into);
        if opened.is_err() {
            let counts = &self.counts;
            let count = if is_new { &counts.handshake_errors } else { &counts.protocol_errors };
            // ORDER: Relaxed; a count.
            count.fetch_add(1, Ordering::Relaxed);
        }
        opened
    }

    fn decrypt_records(&mut self, mut records: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
        while !records.is_empty() {
            // Behind the client's closing alert nothing is read.
            if self.connection.read_tls(&mut records)? == 0 {
                break;
            }
            self.connection.process_new_packets().map_err(io::Error::other)?;
            let mut reader = self.connection.reader();
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

    /// Encrypts some of these bytes for sending. Returns how many.
    pub(crate) fn encrypt(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // tls.T2: no more is encrypted than the limit on unsent records allows.
        self.connection.writer().write(bytes)
    }

    /// Returns true if records wait to be sent.
    pub(crate) fn waits(&self) -> bool {
        self.connection.wants_write()
    }

    /// Sends waiting records. Returns false if some still wait.
    pub(crate) fn send(&mut self, to: &mut dyn Write) -> io::Result<bool> {
        while self.waits() {
            match self.connection.write_tls(to) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends the closing alert, so that the client knows that nothing was cut off.
    pub(crate) fn end(&mut self, to: &mut dyn Write) {
        self.connection.send_close_notify();
        // If the client does not accept it, the client is gone or slow.
        let _ = self.send(to);
    }
}
