//! The options behind `-o`.

use crate::buffers;
use crate::protocol::{GET_LINE_MAX, LINE_MAX};
use crate::tls::Files;
use std::str::FromStr;

/// The options behind `-o`.
#[derive(Debug)]
pub(super) struct Extended {
    pub(super) idle_timeout: u64,
    pub(super) buffers: buffers::Options,
    pub(super) udp_ratio: Option<usize>,
    pub(super) get_line_max: usize,
    pub(super) tls: Files,
    /// Whether the server sweeps for expired items.
    pub(super) crawls: bool,
    pub(super) tracks_sizes: bool,
    pub(super) has_lru_fields: bool,
    /// The most bytes that wait for a client of `watch`.
    pub(super) watcher_buffer: usize,
}

/// The possible values of an option that has no effect.
enum Value {
    /// Anything, or nothing.
    Any,
    /// A whole number between these.
    Number(u64, u64),
    /// A whole number between these, or nothing.
    MaybeNumber(u64, u64),
    /// A number above zero, and up to this.
    Ratio(f64),
    /// One of these.
    Word(&'static [&'static str]),
}

use Value::{Any, MaybeNumber, Number, Ratio, Word};

/// The largest number that memcached reads as 32 bits.
const MOST: u64 = u32::MAX as u64;

/// The most that a line of a `get` may be allowed: each part of it that arrives is looked through
/// from the line's start.
const GET_LINES_MAX: u64 = 16 << 20;

/// Names that only tune mechanisms which do not exist here, and their possible values.
const NO_EFFECT: &[(&str, Value)] = &[
    ("hash_algorithm", Word(&["jenkins", "murmur3", "xxh3"])),
    ("hashpower", Number(12, 32)),
    ("hot_lru_pct", Number(1, 79)),
    ("hot_max_factor", Ratio(f64::MAX)),
    ("inline_ascii_resp", Any),
    ("lru_crawler_sleep", Number(0, 1_000_000)),
    ("lru_crawler_tocrawl", Number(0, MOST)),
    ("lru_maintainer", Any),
    ("maxconns_fast", Any),
    ("modern", Any),
    ("no_chunked_items", Any),
    ("no_hashexpand", Any),
    ("no_inline_ascii_resp", Any),
    ("no_lru_maintainer", Any),
    ("no_slab_automove", Any),
    ("no_slab_reassign", Any),
    ("resp_obj_mem_limit", Any),
    ("slab_automove", MaybeNumber(0, 2)),
    ("slab_automove_freeratio", Ratio(1.0)),
    ("slab_automove_ratio", Ratio(1.0)),
    ("slab_automove_window", Number(3, 1800)),
    ("slab_chunk_max", Number(1, 1024)),
    ("slab_reassign", Any),
    ("slab_sizes", Any),
    ("tail_repair_time", Number(10, MOST)),
    ("temporary_ttl", Number(0, MOST)),
    ("warm_lru_pct", Number(1, 79)),
    ("warm_max_factor", Ratio(f64::MAX)),
    ("worker_logbuf_size", Number(0, MOST)),
];

/// Refused names, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    ("no_maxconns_fast", "connections above the limit (-c) are refused at once; leave it out"),
    ("sock_cookie_id", "sockets get no marks; leave it out, and filter by address or port"),
    ("proxy_", "a proxy is not built; run memcached's own, or mcrouter, before this server"),
    ("ext_", "items on disks (extstore) are not built; leave it out, and give more memory (-m)"),
];

fn number<T: FromStr>(name: &str, value: Option<&str>) -> Result<T, String> {
    let number = value.and_then(|value| value.parse().ok());
    number.ok_or_else(|| match value {
        Some(value) => format!("-o {name}={value}: a whole number is expected"),
        None => format!("-o {name}: a number is wanted: {name}=NUM"),
    })
}

impl Value {
    /// Checks a value. The error says what is wrong with it.
    fn check(&self, name: &str, value: Option<&str>) -> Result<(), String> {
        let shown = value.unwrap_or("");
        match self {
            Any | MaybeNumber(..) if value.is_none() => Ok(()),
            Any => Ok(()),
            Number(least, most) | MaybeNumber(least, most) => {
                let is_right = (*least..=*most).contains(&number(name, value)?);
                let wrong =
                    format!("-o {name}={shown}: a number from {least} to {most} is expected");
                is_right.then_some(()).ok_or(wrong)
            }
            Ratio(most) => {
                let ratio = shown.parse::<f64>().ok().filter(|ratio| *ratio > 0.0 && ratio <= most);
                let wrong = format!("-o {name}={shown}: a number above 0 is expected");
                ratio.map(drop).ok_or(wrong)
            }
            Word(words) if words.contains(&shown) => Ok(()),
            Word(words) => {
                Err(format!("-o {name}={shown}: one of {} is expected", words.join(", ")))
            }
        }
    }
}

impl Extended {
    /// Reads the options, and adds warnings for the user.
    pub(super) fn read(
        options: &[String],
        buffers: buffers::Options,
        warnings: &mut Vec<String>,
    ) -> Result<Self, String> {
        let mut read = Self {
            idle_timeout: 0,
            buffers,
            udp_ratio: None,
            get_line_max: GET_LINE_MAX,
            tls: Files::default(),
            crawls: true,
            tracks_sizes: false,
            has_lru_fields: true,
            watcher_buffer: 256 << 10,
        };
        for option in options.iter().filter(|option| !option.is_empty()) {
            read.take(option, warnings)?;
        }
        Ok(read)
    }

    fn take(&mut self, option: &str, warnings: &mut Vec<String>) -> Result<(), String> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match name {
            "idle_timeout" => self.idle_timeout = number(name, value)?,
            "watcher_logbuf_size" => {
                self.watcher_buffer = number::<u32>(name, value)? as usize * 1024;
            }
            "get_line_max" => {
                Number(LINE_MAX as u64, GET_LINES_MAX).check(name, value)?;
                self.get_line_max = number(name, value)?;
            }
            "udp_reply_ratio" => self.udp_ratio = Some(number(name, value)?),
            _ if self.buffers.take(name, value.unwrap_or(""), warnings)? => {}
            "track_sizes" => self.tracks_sizes = true,
            "lru_crawler" => self.crawls = true,
            "no_lru_crawler" => self.crawls = false,
            "no_modern" => {
                self.crawls = false;
                let why = "expired items are not looked for; it has no other effect";
                warnings.push(format!("-o no_modern: {why}"));
            }
            // memcached's own tests set it.
            "relaxed_privileges" | "no_drop_privileges" => {}
            "drop_privileges" => warnings.push(
                "-o drop_privileges has no effect: no filter of system calls is installed; have \
                 the service manager do it (systemd: SystemCallFilter=)"
                    .into(),
            ),
            "no_lru_maintainer" => {
                self.has_lru_fields = false;
                return no_effect(name, value, warnings);
            }
            _ if name.starts_with("ssl_") => {
                self.tls.take(&name[4..], value.unwrap_or(""), warnings)?;
            }
            _ => return no_effect(name, value, warnings),
        }
        Ok(())
    }
}

fn no_effect(name: &str, value: Option<&str>, warnings: &mut Vec<String>) -> Result<(), String> {
    if let Some((_, known)) = NO_EFFECT.iter().find(|(known, _)| *known == name) {
        known.check(name, value)?;
        warnings.push(format!("-o {name} has no effect"));
        return Ok(());
    }
    match REFUSED
        .iter()
        .find(|(known, _)| name == *known || known.ends_with('_') && name.starts_with(known))
    {
        Some((_, why)) => Err(format!("-o {name} is refused: {why}")),
        None => Err(format!("-o {name}: there is no such option; see manycored --help")),
    }
}
