//! TLS, with a client that is rustls's own.
#![cfg(all(target_os = "linux", feature = "tls"))]

use crate::common::running::{LONG, Running, ask, program, wait_for};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS12;
use rustls::{
    ALL_VERSIONS, ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// An authority, and a folder with what it signed.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate, and its key.
type Pair = (CertificateDer<'static>, KeyPair);
type Sealed = StreamOwned<ClientConnection, TcpStream>;

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        let authority = Self { issuer, folder };
        authority.renew("localhost");
        authority
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sign(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        (signed.der().clone(), key)
    }

    /// A new certificate for the server, by this name.
    fn renew(&self, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.file("chain.pem"), signed.pem()).unwrap();
        fs::write(self.file("key.pem"), key.serialize_pem()).unwrap();
    }

    fn options(&self) -> String {
        let (chain, key) = (self.file("chain.pem"), self.file("key.pem"));
        format!("-Z -o ssl_chain_cert={},ssl_key={}", chain.display(), key.display())
    }

    /// A client that trusts this authority and looks for this name.
    fn connect(&self, server: &Running, name: &'static str, own: Option<Pair>) -> Sealed {
        self.connect_by(server, name, own, ALL_VERSIONS)
    }

    /// One that speaks these versions.
    fn connect_by(
        &self,
        server: &Running,
        name: &'static str,
        own: Option<Pair>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Sealed {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            Some((certificate, key)) => {
                let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from(name).unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(client, server.connect())
    }
}

const NOOP: &[u8] = b"mn\r\n";

fn is_served(stream: &mut Sealed) -> bool {
    let mut reply = [0; 4];
    stream.write_all(NOOP).is_ok() && stream.read_exact(&mut reply).is_ok() && reply == *b"MN\r\n"
}

#[test]
fn requests_large_and_small_are_answered_under_a_seal() {
    let authority = Authority::new();
    let server = Running::start(&format!("-t 2 -m 64 {}", authority.options()));
    thread::scope(|scope| {
        for client in 0..3 {
            let (authority, server) = (&authority, &server);
            scope.spawn(move || {
                let mut stream = authority.connect(server, "localhost", None);
                let value = format!("value of {client};").repeat(60_000 / (client + 1));
                let key = format!("large{client}");
                let set = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
                ask(&mut stream, set.as_bytes(), b"STORED\r\n");
                // More than a seal keeps, and than a socket takes at once.
                let reply = format!("VALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
                let get = format!("get {key}\r\n").repeat(5);
                ask(&mut stream, get.as_bytes(), reply.repeat(5).as_bytes());
                for _ in 0..100 {
                    ask(&mut stream, b"mn\r\nget none\r\n", b"MN\r\nEND\r\n");
                }
            });
        }
    });
    let mut stream = authority.connect(&server, "localhost", None);
    stream.write_all(b"stats settings\r\nquit\r\n").unwrap();
    let mut reply = String::new();
    // It ends with a good-bye, or this would be an error.
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("STAT ssl_enabled yes\r\n"), "{reply}");
}

#[test]
fn who_speaks_without_a_seal_gets_nothing_and_harms_nobody() {
    let authority = Authority::new();
    let server = Running::start(&format!("-t 1 {}", authority.options()));
    let mut good = authority.connect(&server, "localhost", None);
    assert!(is_served(&mut good));
    for noise in [&b"get a\r\n"[..], b"\x16\x03\x01\xff\xff", b"", &[0x80; 100]] {
        let mut stream = server.connect();
        stream.write_all(noise).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        assert!(!reply.windows(3).any(|part| part == b"END"), "{reply:?}");
    }
    // A client stops in the middle of the handshake, and stays.
    let mut half = server.connect();
    half.write_all(b"\x16\x03\x01\x01\x00").unwrap();
    assert!(is_served(&mut good));
    // A stranger's certificate is not believed by a client.
    let mut other = Authority::new().connect(&server, "localhost", None);
    assert!(!is_served(&mut other));
    assert!(is_served(&mut good));
}

#[test]
fn a_hang_up_brings_the_new_certificate_and_a_bad_one_changes_nothing() {
    let authority = Authority::new();
    let server = Running::start(&format!("-t 1 {}", authority.options()));
    let has_name = |name| is_served(&mut authority.connect(&server, name, None));
    let mut old = authority.connect(&server, "localhost", None);
    assert!(is_served(&mut old) && !has_name("new.example"));
    authority.renew("new.example");
    assert!(!has_name("new.example"), "no client asked for it");
    server.signal("-HUP");
    wait_for("the new certificate", || has_name("new.example").then_some(()));
    assert!(is_served(&mut old) && !has_name("localhost"));
    fs::write(authority.file("key.pem"), "nothing").unwrap();
    server.signal("-HUP");
    for _ in 0..20 {
        assert!(has_name("new.example"));
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_client_may_have_the_certificates_read_again() {
    let authority = Authority::new();
    let server = Running::start(&format!("-t 2 {}", authority.options()));
    let mut client = authority.connect(&server, "localhost", None);
    authority.renew("new.example");
    ask(&mut client, b"refresh_certs\r\n", b"OK\r\n");
    assert!(is_served(&mut authority.connect(&server, "new.example", None)));
    fs::write(authority.file("key.pem"), "nothing").unwrap();
    ask(&mut client, b"refresh_certs noreply\r\nmn\r\n", b"MN\r\n");
    client.write_all(b"refresh_certs\r\n").unwrap();
    let mut reply = [0; 13];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"SERVER_ERROR ");
    assert!(is_served(&mut authority.connect(&server, "new.example", None)));
}

#[test]
fn a_version_that_is_too_old_for_the_server_is_refused() {
    let authority = Authority::new();
    for (option, is_enough) in [("0", true), ("2", true), ("3", false)] {
        let options = format!("-t 1 {},ssl_min_version={option}", authority.options());
        let server = Running::start(&options);
        let mut stream = authority.connect_by(&server, "localhost", None, &[&TLS12]);
        assert_eq!(is_served(&mut stream), is_enough, "{option}");
        assert!(is_served(&mut authority.connect(&server, "localhost", None)));
    }
}

#[test]
fn clients_show_certificates_where_they_must() {
    let authority = Authority::new();
    let who = |mode: u8| {
        let ca = authority.file("ca.pem");
        format!("{},ssl_ca_cert={},ssl_verify_mode={mode}", authority.options(), ca.display())
    };
    let server = Running::start(&format!("-t 1 {}", who(2)));
    let connect = |own| authority.connect(&server, "localhost", own);
    assert!(!is_served(&mut connect(None)));
    assert!(!is_served(&mut connect(Some(Authority::new().sign("stranger")))));
    assert!(is_served(&mut connect(Some(authority.sign("friend")))));
    let server = Running::start(&format!("-t 1 {}", who(1)));
    assert!(is_served(&mut authority.connect(&server, "localhost", None)));
}

#[test]
fn a_drain_answers_what_came_and_files_that_are_wrong_end_it_at_once() {
    let authority = Authority::new();
    let mut server = Running::start(&format!("-t 2 {}", authority.options()));
    let mut stream = authority.connect(&server, "localhost", None);
    stream.get_ref().set_read_timeout(Some(LONG)).unwrap();
    assert!(is_served(&mut stream));
    stream.write_all(&b"set a 0 0 1\r\nx\r\n".repeat(2_000)).unwrap();
    server.signal("-TERM");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    assert_eq!(reply, b"STORED\r\n".repeat(2_000));
    assert_eq!(server.end(), Some(0));
    fs::remove_file(authority.file("key.pem")).unwrap();
    let options = authority.options();
    let code = program().args(options.split(' ')).stdout(Stdio::null()).status().unwrap().code();
    assert_eq!(code, Some(64));
}
