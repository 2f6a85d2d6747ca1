//! The addresses of `-l`, and their prefixes.

use crate::server_state::Language;
use crate::tls::Demand;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// The longest name of a listener.
const TAG_MAX: usize = 8;

/// An address to listen on, and its demands on clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// The address.
    pub address: SocketAddr,
    /// With `-Z`: whether its connections are encrypted, and what clients must show.
    pub demand: Demand,
    /// The protocol on it. By default it is the protocol of `-B`.
    pub language: Option<Language>,
}

impl Listener {
    /// Makes a listener without special demands.
    #[must_use]
    pub fn plain(address: SocketAddr) -> Self {
        Self { address, demand: Demand::AsConfigured, language: None }
    }

    /// Returns true if it requires a certificate of its clients.
    pub(super) fn demands_certificate(&self) -> bool {
        self.demand == Demand::Certificate
    }
}

/// Reads one of the addresses of `-l`:
/// `[notls|btls|mtls:][proto[NAME]:][tag[NAME]:]ADDRESS[:PORT]`.
pub(super) fn read(text: &str, port: u16, has_tls: bool) -> Result<Vec<Listener>, String> {
    let mut rest = text;
    let mut demand = Demand::AsConfigured;
    for (name, wanted) in [
        ("notls:", Demand::NoTls),
        ("btls:", Demand::NoCertificate),
        ("mtls:", Demand::Certificate),
    ] {
        if let Some(more) = rest.strip_prefix(name) {
            if !has_tls {
                return Err(format!("-l {text}: '{name}' means something with -Z only; add it"));
            }
            (rest, demand) = (more, wanted);
            break;
        }
    }
    let mut language = None;
    if let Some((name, more)) = named("proto", rest, text)? {
        rest = more;
        language = Some(match name {
            "ascii" => Language::Text,
            "binary" => Language::Binary,
            "negotiating" => Language::Any,
            "proxy" => return Err(format!("-l {text}: a proxy is not built; run memcached's own")),
            name => {
                let names = "ascii, binary or negotiating";
                return Err(format!("-l {text}: the protocol '{name}' is not {names}"));
            }
        });
    }
    if let Some((name, more)) = named("tag", rest, text)? {
        if !(1..=TAG_MAX).contains(&name.len()) {
            return Err(format!("-l {text}: a tag has 1 to {TAG_MAX} characters"));
        }
        rest = more;
    }
    let found = resolve(rest, port).ok_or_else(|| {
        format!("-l {text}: no such address '{rest}'; name one of this machine's, or * for all")
    })?;
    Ok(found.into_iter().map(|address| Listener { address, demand, language }).collect())
}

/// Returns the text between brackets or underscores behind this word, and the text behind the
/// colon.
fn named<'t>(word: &str, rest: &'t str, text: &str) -> Result<Option<(&'t str, &'t str)>, String> {
    let Some(more) = rest.strip_prefix(word) else { return Ok(None) };
    let end = match more.as_bytes().first() {
        Some(b'[') => ']',
        Some(b'_') if word == "tag" => '_',
        _ => return Ok(None),
    };
    let split = more[1..].split_once(end).map(|(name, rest)| (name, rest.strip_prefix(':')));
    match split {
        Some((name, Some(rest))) => Ok(Some((name, rest))),
        _ => Err(format!("-l {text}: '{word}' is written {word}[NAME]:ADDRESS")),
    }
}

/// Resolves an address or a name, with or without a port. `*` is all addresses of this machine.
fn resolve(text: &str, port: u16) -> Option<Vec<SocketAddr>> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let every = |port| {
        let all = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        all.map(|ip| SocketAddr::new(ip, port)).to_vec()
    };
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Some(vec![SocketAddr::new(ip, port)]);
    }
    let found = match text.strip_prefix('*') {
        Some("") => every(port),
        Some(rest) => every(rest.strip_prefix(':')?.parse().ok()?),
        None if text.contains(':') => text.to_socket_addrs().ok()?.collect(),
        None => (text, port).to_socket_addrs().ok()?.collect::<Vec<_>>(),
    };
    (!found.is_empty()).then_some(found)
}
