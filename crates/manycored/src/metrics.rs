//! The server's counts in Prometheus's text format, version 0.0.4.
//!
//! The names are those of the usual exporter for memcached, so that its dashboards and alarms keep
//! working.

use crate::latency::Latency;
use crate::server_state::{SERVER, ServerState, VERSION};
use crate::store::{Store, Totals};
use crate::system;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering};

/// The content type of the page.
pub const FORM: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page that is being written.
struct Page(String);

impl Page {
    /// Writes the help and the type of a metric. Its samples follow.
    fn about(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail, here and below.
        let _ = write!(self.0, "# HELP memcached_{name} {help}\n# TYPE memcached_{name} {kind}\n");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.about(name, "gauge", help);
        let _ = writeln!(self.0, "memcached_{name} {value}");
    }

    fn count(&mut self, name: &str, help: &str, value: impl Display) {
        self.about(name, "counter", help);
        let _ = writeln!(self.0, "memcached_{name} {value}");
    }

    fn latency(&mut self, latency: &Latency) {
        let help = "From the read to the replies' write, of one turn in 16.";
        self.about("turn_duration_seconds", "histogram", help);
        let name = "memcached_turn_duration_seconds";
        let mut all = 0;
        for (end, count) in latency.buckets() {
            let end = end.map_or("+Inf".into(), |end| end.to_string());
            let _ = writeln!(self.0, "{name}_bucket{{le=\"{end}\"}} {count}");
            all = count;
        }
        let _ = writeln!(self.0, "{name}_sum {:.9}\n{name}_count {all}", latency.seconds());
    }

    fn commands(&mut self, totals: &Totals) {
        self.about("commands_total", "counter", "Requests by command and outcome.");
        for (command, status, value) in [
            ("get", "hit", totals.get_hits),
            ("get", "miss", totals.get_misses),
            ("set", "hit", totals.cmd_set),
            ("delete", "hit", totals.delete_hits),
            ("delete", "miss", totals.delete_misses),
            ("incr", "hit", totals.incr_hits),
            ("incr", "miss", totals.incr_misses),
            ("decr", "hit", totals.decr_hits),
            ("decr", "miss", totals.decr_misses),
            ("cas", "hit", totals.cas_hits),
            ("cas", "miss", totals.cas_misses),
            ("cas", "badval", totals.cas_badval),
            ("touch", "hit", totals.touch_hits),
            ("touch", "miss", totals.touch_misses),
            ("flush", "hit", totals.cmd_flush),
        ] {
            let labels = format!("command=\"{command}\",status=\"{status}\"");
            let _ = writeln!(self.0, "memcached_commands_total{{{labels}}} {value}");
        }
    }
}

fn read(count: &AtomicU64) -> u64 {
    // ORDER: Relaxed; a count.
    count.load(Ordering::Relaxed)
}

/// Returns a page with all counts at this moment.
///
/// ```
/// use manycored::{metrics, server_state::ServerState, store::{Limits, Store}};
///
/// let page = metrics::page(&Store::new(Limits::default(), 1), &ServerState::default());
/// assert!(page.contains("\nmemcached_current_items 0\n"));
/// ```
#[must_use]
pub fn page(store: &Store, server: &ServerState) -> String {
    let (totals, cache) = (store.totals(), store.cache_stats());
    let mut page = Page(String::with_capacity(4096));
    page.gauge("up", "Whether the server answers.", 1);
    page.about("version", "gauge", "The version, as a label.");
    let _ = writeln!(page.0, "memcached_version{{version=\"{VERSION}\",server=\"{SERVER}\"}} 1");
    page.count("uptime_seconds", "Since the start.", store.clock().uptime().as_secs());
    page.gauge("current_connections", "Connections open now.", read(&server.connections));
    page.gauge("max_connections", "Connections at once.", server.settings.connections_max);
    page.count("connections_total", "Connections accepted.", read(&server.accepted));
    page.count("connections_rejected_total", "Connections refused.", read(&server.rejected));
    let pauses = read(&server.pauses);
    page.count("connections_listener_disabled_total", "Pauses of accepting.", pauses);
    page.count("idle_kicks_total", "Connections that said nothing.", read(&server.idle_kicks));
    page.count("long_lines_total", "Lines of keys above the limit.", read(&server.long_lines));
    page.count("read_bytes_total", "Bytes that came.", totals.bytes_read);
    page.count("written_bytes_total", "Bytes that went.", totals.bytes_written);
    page.gauge("current_bytes", "Bytes of all items.", store.bytes());
    page.gauge("limit_bytes", "The limit of these.", store.memory());
    page.gauge("current_items", "Items now.", store.len());
    page.count("items_total", "Items stored.", totals.total_items);
    page.count("items_evicted_total", "Items that went for others.", cache.evictions);
    page.count("items_expired_total", "Items whose time was over.", cache.expirations);
    page.count("items_too_large_total", "Items refused: too large.", totals.store_too_large);
    page.count("items_no_memory_total", "Items refused: no memory.", totals.store_no_memory);
    page.gauge("threads", "Workers.", server.settings.threads);
    page.count("auth_commands_total", "Attempts to log in.", totals.auth_cmds);
    page.count("auth_errors_total", "Those of them that failed.", totals.auth_errors);
    page.count("connection_yields_total", "Turns given to others.", totals.conn_yields);
    memory(&mut page, store);
    if let Some(tls) = &server.tls {
        let counts = tls.counts();
        let (handshakes, protocol) = (counts.handshake_errors, counts.protocol_errors);
        page.count("tls_handshake_errors_total", "Failed handshakes.", handshakes);
        page.count("tls_protocol_errors_total", "Failed connections after these.", protocol);
    }
    page.latency(&server.latency);
    page.commands(&totals);
    page.0
}

/// Writes where the memory is, and what the process uses.
fn memory(page: &mut Page, store: &Store) {
    let (gone, told, items) = (store.departures(), store.events().counts(), store.usage());
    page.gauge("table_bytes", "Bytes of the tables.", store.table_bytes());
    page.gauge("item_memory_bytes", "Bytes from the system for items.", items.mapped);
    page.gauge("item_memory_free_bytes", "Those of them that no item has.", items.free);
    page.count("items_evicted_unfetched_total", "Evicted, never read.", gone.evicted_unfetched);
    page.count("items_evicted_nonzero_total", "Evicted before their time.", gone.evicted_nonzero);
    page.count("items_expired_unfetched_total", "Expired, never read.", gone.expired_unfetched);
    page.gauge("watchers", "Clients that are told of events.", told.watchers);
    page.count("watcher_lines_total", "Events told to them.", told.sent);
    page.count("watcher_lines_dropped_total", "Events that they did not take.", told.dropped);
    let usage = system::usage();
    let seconds = usage.user + usage.system;
    for (name, kind, help, value) in [
        ("cpu_seconds_total", "counter", "Processor time.", format!("{seconds:.6}")),
        ("resident_memory_bytes", "gauge", "Resident memory.", usage.resident.to_string()),
        ("open_fds", "gauge", "Open files and sockets.", usage.files.to_string()),
        ("max_fds", "gauge", "The limit of these.", usage.files_max.to_string()),
    ] {
        // Every exporter has these names, so they have no prefix of this server.
        let _ = write!(page.0, "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\n");
        let _ = writeln!(page.0, "process_{name} {value}");
    }
}

/// Returns the HTTP response to this request line, which has no line end. `None` if the line is not
/// HTTP.
#[must_use]
pub fn answer(request: &str, store: &Store, server: &ServerState) -> Option<String> {
    let mut words = request.lines().next()?.split(' ');
    let (method, path, version) = (words.next()?, words.next()?, words.next()?);
    if !version.starts_with("HTTP/") || words.next().is_some() {
        return None;
    }
    let path = path.split('?').next().unwrap_or(path);
    let (status, form, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => ("200 OK", FORM, page(store, server)),
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {form}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    Some(if method == "HEAD" { head } else { head + &body })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Limits;

    fn ask(request: &str) -> Option<String> {
        answer(request, &Store::new(Limits::default(), 1), &ServerState::default())
    }

    #[test]
    fn every_sample_has_a_type_and_a_number() {
        let page = page(&Store::new(Limits::default(), 1), &ServerState::default());
        let mut typed = String::new();
        for line in page.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(words) => typed = words.split(' ').next().unwrap().to_owned(),
                None if line.starts_with('#') => {}
                None => {
                    let (name, value) = line.rsplit_once(' ').unwrap();
                    let name = name.split('{').next().unwrap();
                    let parts = ["_bucket", "_sum", "_count"];
                    let whole = parts.iter().find_map(|part| name.strip_suffix(part));
                    assert!(name == typed || whole == Some(typed.as_str()), "{name}");
                    value.parse::<f64>().unwrap();
                }
            }
        }
    }

    #[test]
    fn dashboard_asks_for_what_there_is() {
        let page = page(&Store::new(Limits::default(), 1), &ServerState::default());
        let board = include_str!("../dist/grafana.json");
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = board.split(|c: char| !is_name(c));
        let asked: Vec<_> = words.filter(|word| word.starts_with("memcached_")).collect();
        assert!(asked.len() > 10);
        for name in asked {
            // Those of TLS are there with TLS only.
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            let is_there = page.contains(&format!("# TYPE {name} ")) || name.contains("_tls_");
            assert!(is_there, "{name}");
        }
    }

    #[test]
    fn only_gets_of_the_page_are_served() {
        let found = ask("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let (head, body) = found.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
        assert!(ask("GET /metrics?x=1 HTTP/1.0").unwrap().starts_with("HTTP/1.1 200"));
        assert!(ask("GET / HTTP/1.1").unwrap().starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1").unwrap().starts_with("HTTP/1.1 405"));
        assert!(ask("HEAD /metrics HTTP/1.1").unwrap().ends_with("\r\n\r\n"));
        for text in ["", "get a", "GET /metrics", "GET  /metrics HTTP/1.1", "GET /metrics FTP/1.1"]
        {
            assert_eq!(ask(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_request_panics(request in ".*") {
            let _ = ask(&request);
        }
    }
}
