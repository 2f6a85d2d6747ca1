//! The fields of `stats` and its subcommands, in memcached's order.

use super::{count, line};
use crate::protocol::{Words, number};
use crate::server_state::{Language, SERVER, ServerState, Settings, VERSION};
use crate::store::Store;
use crate::system;
use manycore_cache::Cursor;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a page, memcached's unit of memory.
const PAGE: u64 = 1 << 20;
/// Bytes that an item without a tail counts.
const CHUNK: u64 = 88;
/// The table's part of these bytes.
const TABLE_PART: u64 = 24;
/// Buckets that are sampled for the ages of items.
const SAMPLED: usize = 256;
/// Keys and bytes that `stats cachedump` lists at most.
const CACHEDUMP_MAX: usize = 2 << 20;
/// The most time that `stats sizes` takes.
const SIZES_TIME: Duration = Duration::from_millis(50);

/// The fields of memcached's LRU lists, unless these are turned off.
const LRU_FIELDS: &[&str] =
    &["moves_to_cold", "moves_to_warm", "moves_within_lru", "direct_reclaims", "lru_bumps_dropped"];

fn flag(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn zeros(out: &mut Vec<u8>, names: &[&str]) {
    names.iter().for_each(|name| line(out, name, 0));
}

pub(super) fn general(store: &Store, server: &ServerState, out: &mut Vec<u8>) {
    let mut put = |name: &str, value: &dyn Display| line(out, name, value);
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (usage, settings) = (system::usage(), &server.settings);
    let totals = store.totals();
    put("pid", &std::process::id());
    put("uptime", &store.clock().uptime().as_secs());
    put("time", &today.as_secs());
    put("version", &VERSION);
    put("libevent", &"none");
    put("pointer_size", &usize::BITS);
    put("rusage_user", &format_args!("{:.6}", usage.user));
    put("rusage_system", &format_args!("{:.6}", usage.system));
    put("max_connections", &settings.connections_max);
    put("curr_connections", &count(&server.connections));
    put("total_connections", &count(&server.accepted));
    put("rejected_connections", &count(&server.rejected));
    put("connection_structures", &count(&server.connections));
    zeros(out, &["response_obj_oom", "response_obj_count", "response_obj_bytes", "read_buf_count"]);
    line(out, "read_buf_bytes", server.buffers.reserved());
    line(out, "read_buf_bytes_free", 0);
    line(out, "read_buf_oom", server.buffers.closed());
    line(out, "reserved_fds", 0);
    let behind = ["total_items", "conn_yields"];
    let now = totals.each().filter(|(name, _)| !behind.contains(name));
    now.for_each(|(name, value)| line(out, name, value));
    let mut put = |name: &str, value: &dyn Display| line(out, name, value);
    if settings.idle_timeout > 0 {
        put("idle_kicks", &count(&server.idle_kicks));
    }
    put("limit_maxbytes", &store.memory());
    put("accepting_conns", &1);
    put("listen_disabled_num", &count(&server.pauses));
    put("time_in_listen_disabled_us", &count(&server.paused_us));
    inner(store, settings, out);
    kept(store, settings, out);
    tls_counts(server, out);
    // Only where there are some: clients may count the fields.
    if let lines @ 1.. = count(&server.long_lines) {
        line(out, "long_lines", lines);
    }
}

/// Writes the fields about threads, the table and background work.
fn inner(store: &Store, settings: &Settings, out: &mut Vec<u8>) {
    let (totals, sweeps, told) = (store.totals(), store.sweeps(), store.events().counts());
    let mut put = |name: &str, value: &dyn Display| line(out, name, value);
    put("threads", &settings.threads);
    put("conn_yields", &totals.conn_yields);
    put("hash_power_level", &hash_power(store.table_room()));
    put("hash_bytes", &store.table_bytes());
    put("hash_is_expanding", &0);
    zeros(
        out,
        &[
            "slab_reassign_rescues",
            "slab_reassign_chunk_rescues",
            "slab_reassign_inline_reclaim",
            "slab_reassign_busy_items",
            "slab_reassign_busy_deletes",
            "slab_reassign_busy_nomem",
        ],
    );
    let mut put = |name: &str, value: &dyn Display| line(out, name, value);
    put("slab_reassign_last_busy_status", &"none");
    put("slab_reassign_running", &0);
    put("slabs_moved", &0);
    if settings.crawls || store.crawls() {
        put("lru_crawler_running", &u8::from(sweeps.is_running));
        put("lru_crawler_starts", &sweeps.started);
    }
    if settings.has_lru_fields {
        put("lru_maintainer_juggles", &0);
    }
    put("malloc_fails", &0);
    put("log_worker_dropped", &0);
    put("log_worker_written", &(told.sent + told.dropped));
    put("log_watcher_skipped", &told.dropped);
    put("log_watcher_sent", &told.sent);
    put("log_watchers", &told.watchers);
    put("unexpected_napi_ids", &0);
    put("round_robin_fallback", &0);
}

/// Writes the fields about stored, evicted and expired items.
fn kept(store: &Store, settings: &Settings, out: &mut Vec<u8>) {
    let (totals, gone, sweeps) = (store.totals(), store.departures(), store.sweeps());
    let mut put = |name: &str, value: &dyn Display| line(out, name, value);
    put("bytes", &store.bytes());
    put("curr_items", &store.len());
    put("total_items", &totals.total_items);
    put("slab_global_page_pool", &0);
    put("expired_unfetched", &gone.expired_unfetched);
    put("evicted_unfetched", &gone.evicted_unfetched);
    if settings.has_lru_fields {
        put("evicted_active", &gone.evicted_active);
    }
    put("evictions", &gone.evicted);
    put("reclaimed", &gone.expired.saturating_sub(sweeps.expired));
    put("crawler_reclaimed", &(sweeps.expired + sweeps.flushed));
    put("crawler_items_checked", &sweeps.checked);
    zeros(out, &["lrutail_reflocked"]);
    if settings.has_lru_fields {
        zeros(out, LRU_FIELDS);
    }
}

fn tls_counts(server: &ServerState, out: &mut Vec<u8>) {
    if let Some(tls) = &server.tls {
        let counts = tls.counts();
        line(out, "ssl_proto_errors", counts.protocol_errors);
        line(out, "ssl_handshake_errors", counts.handshake_errors);
        if server.settings.tls.session_cache {
            line(out, "ssl_new_sessions", counts.new_sessions);
        }
        line(out, "time_since_server_cert_refresh", counts.seconds_since_reload);
    }
}

/// Returns the power of two of a memcached hash table with room for so many items. The power begins
/// at 16, and the table doubles at one and a half items a bucket.
fn hash_power(items: u64) -> u32 {
    (items * 2 / 3).max(1).next_power_of_two().ilog2().max(16)
}

/// Answers `stats memory`, which memcached does not have: where the memory is.
pub(super) fn memory(store: &Store, out: &mut Vec<u8>) {
    let usage = store.usage();
    line(out, "limit_maxbytes", store.memory());
    line(out, "bytes", store.bytes());
    line(out, "resident_bytes", system::usage().resident);
    line(out, "table_bytes", store.table_bytes());
    line(out, "item_bytes_mapped", usage.mapped);
    line(out, "item_bytes_free", usage.free);
    line(out, "regions_vacated", usage.vacated);
}

pub(super) fn settings(store: &Store, server: &ServerState, out: &mut Vec<u8>) {
    let settings = &server.settings;
    let mut put = |name: &str, value: &dyn Display| line(out, name, value);
    put("maxbytes", &store.memory());
    put("maxconns", &settings.connections_max);
    put("tcpport", &settings.port);
    put("udpport", &settings.udp_port);
    put("inter", &if settings.listen.is_empty() { "NULL" } else { &settings.listen });
    put("verbosity", &server.verbosity());
    put("oldest", &0);
    put("evictions", &if store.limits().evicts { "on" } else { "off" });
    put("domain_socket", &settings.socket.as_deref().unwrap_or("NULL"));
    put("umask", &format_args!("{:o}", settings.socket_mask));
    put("shutdown_command", &flag(settings.shutdown_enabled));
    put("growth_factor", &"1.25");
    put("chunk_size", &48);
    put("num_threads", &settings.threads);
    put("num_threads_per_udp", &settings.threads);
    put("stat_key_prefix", &char::from(store.events().delimiter()));
    put("detail_enabled", &flag(store.events().has_detail()));
    put("reqs_per_event", &settings.requests);
    put("cas_enabled", &flag(store.limits().has_versions));
    put("tcp_backlog", &settings.backlog);
    put("binding_protocol", &settings.language.name());
    let asks = |without| flag(server.auth.is_some() && settings.language != without);
    put("auth_enabled_sasl", &asks(Language::Text));
    put("auth_enabled_ascii", &asks(Language::Binary));
    put("item_size_max", &store.limits().item);
    put("maxconns_fast", &"yes");
    put("hashpower_init", &0);
    put("slab_reassign", &"no");
    put("slab_automove", &0);
    put("slab_automove_ratio", &"0.80");
    put("slab_automove_window", &10);
    put("slab_chunk_max", &store.limits().item);
    put("lru_crawler", &flag(store.crawls()));
    put("lru_crawler_sleep", &0);
    put("lru_crawler_tocrawl", &0);
    put("tail_repair_time", &0);
    put("flush_enabled", &flag(settings.flush_enabled));
    put("dump_enabled", &flag(settings.dump_enabled));
    put("hash_algorithm", &"foldhash");
    put("lru_maintainer_thread", &"no");
    put("lru_segmented", &"no");
    put("hot_lru_pct", &0);
    put("warm_lru_pct", &0);
    put("hot_max_factor", &"0.00");
    put("warm_max_factor", &"0.00");
    put("temp_lru", &"no");
    put("temporary_ttl", &0);
    put("idle_timeout", &settings.idle_timeout);
    put("watcher_logbuf_size", &settings.watcher_buffer);
    put("worker_logbuf_size", &0);
    put("read_buf_mem_limit", &server.buffers.limit());
    put("track_sizes", &flag(settings.tracks_sizes));
    put("inline_ascii_response", &"no");
    tls(settings, out);
    line(out, "num_napi_ids", 0);
    line(out, "memory_file", settings.memory_file.as_deref().unwrap_or("(null)"));
    line(out, "client_flags_size", 4);
    line(out, "get_line_max", settings.get_line_max);
    line(out, "server", SERVER);
}

fn tls(settings: &Settings, out: &mut Vec<u8>) {
    let files = &settings.tls;
    let path = |path: &std::path::Path, none: &str| match path.as_os_str().is_empty() {
        true => none.to_owned(),
        false => std::path::absolute(path).unwrap_or(path.into()).display().to_string(),
    };
    line(out, "ssl_enabled", flag(settings.has_tls));
    line(out, "ssl_chain_cert", path(&files.chain, "(null)"));
    line(out, "ssl_key", path(&files.key, "(null)"));
    line(out, "ssl_verify_mode", files.verify as u8);
    line(out, "ssl_keyformat", 1);
    line(out, "ssl_ciphers", "NULL");
    line(out, "ssl_ca_cert", path(files.clients.as_deref().unwrap_or("".as_ref()), "NULL"));
    line(out, "ssl_wbuf_size", files.write_buffer);
    line(out, "ssl_session_cache", flag(files.session_cache));
    line(out, "ssl_kernel_tls", "no");
    line(out, "ssl_min_version", if files.newest_only { "tlsv1.3" } else { "tlsv1.2" });
}

/// Returns the seconds since the last use of the least recently used item in a sample.
fn age(store: &Store) -> u32 {
    let (mut oldest, now) = (u32::MAX, store.clock().second());
    store.scan(Cursor::default(), SAMPLED, |item| oldest = oldest.min(item.used()));
    if oldest == u32::MAX { 0 } else { now.saturating_sub(oldest) }
}

pub(super) fn items(store: &Store, out: &mut Vec<u8>) {
    let items = store.len() as u64;
    let (gone, sweeps, totals) = (store.departures(), store.sweeps(), store.totals());
    if items == 0 && gone.evicted == 0 && sweeps.expired + sweeps.flushed == 0 {
        return;
    }
    let age = age(store);
    let own = store.bytes().saturating_sub(items * TABLE_PART);
    let lines: [(&str, u64); 28] = [
        ("number", items),
        ("number_hot", 0),
        ("number_warm", 0),
        ("number_cold", items),
        ("age_hot", 0),
        ("age_warm", 0),
        ("age", age.into()),
        ("mem_requested", own),
        ("evicted", gone.evicted),
        ("evicted_nonzero", gone.evicted_nonzero),
        ("evicted_time", gone.evicted_time),
        ("outofmemory", totals.store_no_memory),
        ("tailrepairs", 0),
        ("reclaimed", gone.expired.saturating_sub(sweeps.expired)),
        ("expired_unfetched", gone.expired_unfetched),
        ("evicted_unfetched", gone.evicted_unfetched),
        ("evicted_active", gone.evicted_active),
        ("crawler_reclaimed", sweeps.expired + sweeps.flushed),
        ("crawler_items_checked", sweeps.checked),
        ("lrutail_reflocked", 0),
        ("moves_to_cold", 0),
        ("moves_to_warm", 0),
        ("moves_within_lru", 0),
        ("direct_reclaims", 0),
        ("hits_to_hot", 0),
        ("hits_to_warm", 0),
        ("hits_to_cold", totals.get_hits),
        ("hits_to_temp", 0),
    ];
    for (name, value) in lines {
        line(out, &format!("items:1:{name}"), value);
    }
}

/// Answers `stats slabs`: one class, in which each item is a chunk.
pub(super) fn slabs(store: &Store, out: &mut Vec<u8>) {
    let (items, totals) = (store.len() as u64, store.totals());
    let memory = store.usage().mapped as u64;
    let pages = memory.div_ceil(PAGE);
    let all = (pages * (PAGE / CHUNK)).max(items);
    let lines: [(&str, u64); 15] = [
        ("chunk_size", CHUNK),
        ("chunks_per_page", PAGE / CHUNK),
        ("total_pages", pages),
        ("total_chunks", all),
        ("used_chunks", items),
        ("free_chunks", all - items),
        ("free_chunks_end", 0),
        ("get_hits", totals.get_hits),
        ("cmd_set", totals.cmd_set),
        ("delete_hits", totals.delete_hits),
        ("incr_hits", totals.incr_hits),
        ("decr_hits", totals.decr_hits),
        ("cas_hits", totals.cas_hits),
        ("cas_badval", totals.cas_badval),
        ("touch_hits", totals.touch_hits),
    ];
    if pages > 0 {
        for (name, value) in lines {
            line(out, &format!("1:{name}"), value);
        }
    }
    line(out, "active_slabs", u8::from(pages > 0));
    line(out, "total_malloced", memory);
}

/// Answers `stats sizes`: counts of items by size, in steps of 32 bytes. It looks at as many items
/// as a short time allows.
pub(super) fn sizes(store: &Store, settings: &Settings, out: &mut Vec<u8>) {
    if !settings.tracks_sizes {
        return line(out, "sizes_status", "disabled");
    }
    let (mut sizes, started) = (BTreeMap::new(), std::time::Instant::now());
    let mut next = Some(Cursor::default());
    while let Some(cursor) = next.filter(|_| started.elapsed() < SIZES_TIME) {
        next = store.scan(cursor, SAMPLED, |item| {
            *sizes.entry(item.weight().next_multiple_of(32)).or_insert(0_u64) += 1;
        });
    }
    sizes.iter().for_each(|(size, items)| line(out, &size.to_string(), items));
}

/// Answers `stats cachedump CLASS LIMIT`: keys with their sizes and deadlines.
pub(super) fn cachedump(
    store: &Store,
    server: &ServerState,
    mut words: Words<'_>,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    if !server.settings.dump_enabled {
        return Err("CLIENT_ERROR stats cachedump not allowed");
    }
    let (Some(class), Some(limit)) = (words.next(), words.next()) else {
        return Err("CLIENT_ERROR bad command line");
    };
    let number = |word| number(word).filter(|number| *number <= u64::from(u32::MAX));
    let (Some(class), Some(limit)) = (number(class), number(limit)) else {
        return Err("CLIENT_ERROR bad command line format");
    };
    if class >= 64 {
        return Err("CLIENT_ERROR Illegal slab id");
    }
    let most = if limit == 0 { u64::MAX } else { limit };
    let (mut listed, from) = (0, out.len());
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut next = (class == 1).then(Cursor::default);
    while let Some(cursor) = next.filter(|_| listed < most && out.len() - from < CACHEDUMP_MAX) {
        next = store.scan(cursor, 1, |item| {
            if listed < most && !item.is_binary() {
                listed += 1;
                let left = store.clock().seconds_left(item.deadline());
                let end = u64::try_from(left).map_or(0, |left| today + left);
                out.extend_from_slice(b"ITEM ");
                out.extend_from_slice(item.key());
                // Writing to a vector does not fail.
                let _ = write!(out, " [{} b; {end} s]\r\n", item.value().len());
            }
        });
    }
    Ok(())
}
