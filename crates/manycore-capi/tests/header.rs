//! Checks the headers against this crate: the same functions, and the same layout of each struct
//! for C and for Rust.

use manycore_capi as capi;
use std::mem::offset_of;
use std::process::Command;

const HEADER: &str = include_str!("../include/manycore/manycore.h");
/// The C headers. Each declares functions of the library.
const HEADERS: [(&str, &str); 10] = [
    ("manycore.h", HEADER),
    ("cache.h", include_str!("../include/manycore/cache.h")),
    ("counter.h", include_str!("../include/manycore/counter.h")),
    ("deferred.h", include_str!("../include/manycore/deferred.h")),
    ("ids.h", include_str!("../include/manycore/ids.h")),
    ("map.h", include_str!("../include/manycore/map.h")),
    ("mappings.h", include_str!("../include/manycore/mappings.h")),
    ("pages.h", include_str!("../include/manycore/pages.h")),
    ("queue.h", include_str!("../include/manycore/queue.h")),
    ("trace.h", include_str!("../include/manycore/trace.h")),
];
const MAP: &str = include_str!("../manycore.map");

/// Returns the words of `text` that begin with `mc_`, if `keep` accepts the text around them.
fn names(text: &str, keep: impl Fn(&str, &str) -> bool) -> Vec<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("mc_") {
        let before = &rest[..at];
        let end = rest[at..].find(|c| !is_part(c)).map_or(rest.len(), |len| at + len);
        if !before.ends_with(is_part) && keep(before, &rest[end..]) {
            found.push(&rest[at..end]);
        }
        rest = &rest[end..];
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns a header without its comments.
fn code_of(header: &str) -> String {
    let mut code = String::new();
    for (number, part) in header.split("/*").enumerate() {
        code += if number == 0 { part } else { part.split_once("*/").map_or("", |(_, code)| code) };
    }
    code
}

/// Returns the headers without comments and without the bodies of inline functions.
fn declarations() -> String {
    let code: String = HEADERS.iter().map(|(_, header)| code_of(header)).collect();
    let lines = code.lines().scan(false, |inline, line| {
        *inline |= line.starts_with("static inline");
        let kept = if *inline { "" } else { line };
        *inline &= line != "}";
        Some(kept)
    });
    lines.filter(|line| !line.starts_with(['#', '\t'])).collect::<Vec<_>>().join("\n")
}

/// Returns the texts of the files in a folder of this crate.
fn texts_in(folder: &str) -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let name = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    files.map(|path| (name(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// Returns the names that this crate exports, from its sources.
fn exported() -> Vec<String> {
    let mut found = vec!["mc_thread_".to_owned()];
    for (_, text) in texts_in("src") {
        for item in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = item.split_once("fn ").and_then(|(_, rest)| rest.split_once('('));
            found.push(name.expect("a function").0.to_owned());
        }
    }
    found.sort();
    found
}

#[test]
fn header_map_and_crate_have_the_same_functions() {
    let exported = exported();
    assert!(exported.len() > 15, "{exported:?}");
    assert_eq!(names(MAP, |_, after| after.starts_with(';')), exported);
    // A name before a parenthesis, but not a type's.
    let declared = declarations();
    let mut declared =
        names(&declared, |before, after| after.starts_with('(') && !before.ends_with("(*"));
    declared.push("mc_thread_");
    declared.sort_unstable();
    assert_eq!(declared, exported);
}

#[test]
fn each_function_is_in_an_example() {
    // Also inline functions and macros, but no names that end with `_`, which are private to the
    // headers.
    let examples = texts_in("examples");
    let code: String = HEADERS.iter().map(|(_, header)| code_of(header)).collect();
    let is_declaration = |line: &&str| !line.starts_with(['\t', ' ']);
    let declared = code.lines().filter(is_declaration).collect::<Vec<_>>().join("\n");
    let mut functions = names(&declared, |_, after| after.starts_with('('));
    functions.retain(|name| !name.ends_with('_'));
    assert!(functions.len() > 70, "{}: {functions:?}", functions.len());
    functions.retain(|name| {
        let call = format!("{name}(");
        !examples.iter().any(|(_, text)| text.contains(&call))
    });
    assert!(functions.is_empty(), "in no example: {functions:?}");
}

#[test]
fn each_header_is_looked_at() {
    let mut headers = texts_in("include/manycore");
    headers.retain(|(name, _)| name.ends_with(".h") && name != "urcu.h");
    assert_eq!(headers.len(), HEADERS.len());
    assert!(headers.iter().all(|(name, text)| HEADERS.contains(&(name, text))));
}

#[test]
fn version_is_the_crates() {
    let version: Vec<&str> = env!("CARGO_PKG_VERSION").split('.').collect();
    for (name, value) in ["MAJOR", "MINOR", "PATCH"].iter().zip(version) {
        assert!(HEADER.contains(&format!("#define MC_VERSION_{name} {value}\n")), "{name}");
    }
    assert!(HEADER.contains(&format!("#define MC_STALLED_NAME {}\n", capi::STALLED_NAME)));
    let offset = manycore::section::OpenSection::PENDING_OFFSET;
    assert!(HEADER.contains(&format!("#define MC_PENDING_OFFSET_ {offset}\n")), "{offset}");
    let offset = manycore::section::OpenSection::RAISED_OFFSET;
    assert!(HEADER.contains(&format!("#define MC_RAISED_OFFSET_ {offset}\n")), "{offset}");
}

/// A struct: its name in C, its size here, and its fields with their offsets here.
type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

macro_rules! layout {
    ($c:literal, $rust:ty, $($field:literal $($own:ident)?),*) => {
        ($c, size_of::<$rust>(), vec![$($((concat!($field), offset_of!($rust, $own)),)?)*])
    };
}

fn layouts() -> Vec<Layout> {
    vec![
        layout!("mc_backlog", capi::Backlog,
            "size" size, "nodes" nodes, "bytes" bytes, "stalled" stalled),
        layout!("mc_stalled", capi::Stalled,
            "os_id" os_id, "at_least_ns" at_least_ns, "slot" slot, "name" name),
        layout!("mc_domain_options", capi::Options,
            "size" size, "flags" flags, "batch_nodes" batch_nodes, "batch_bytes" batch_bytes,
            "bound" bound, "budget" budget, "backpressure_us" backpressure_us,
            "on_over_budget" on_over_budget, "argument" argument),
        layout!("mc_thread_record_", capi::Record,
            "domain" domain, "announced" announced, "slot" slot, "running" running),
        ("mc_counter", capi::COUNTER_BYTES, vec![("words_", 0)]),
        layout!("mc_queue_options", capi::QueueOptions, "size" size, "max_events" max_events),
        layout!("mc_map_operations", capi::Operations,
            "size" size, "hash" hash, "equal" equal, "free_entry" free_entry, "argument" argument),
        layout!("mc_deferred_options", capi::DeferredOptions,
            "size" size, "flags" flags, "max_entries" max_entries),
        layout!("mc_cache_options", capi::CacheOptions,
            "size" size, "flags" flags, "bytes" bytes, "live_ms" live_ms, "idle_ms" idle_ms),
        layout!("mc_cache_stats", capi::CacheStats,
            "size" size, "entries" entries, "bytes" bytes, "capacity" capacity, "hits" hits,
            "misses" misses, "insertions" insertions, "evictions" evictions,
            "expirations" expirations),
        layout!("mc_page_pool_options", capi::PagePoolOptions,
            "size" size, "flags" flags, "keep" keep, "node" node),
        layout!("mc_mappings_options", capi::MappingsOptions,
            "size" size, "flags" flags, "tick_us" tick_us),
        layout!("mc_mapping", capi::MappedPage, "frame" frame, "rights" rights),
        layout!("mc_recording_options", capi::RecordingOptions,
            "size" size, "flags" flags, "path" path, "classes" classes, "ring_bytes" ring_bytes,
            "policy" policy),
        layout!("mc_field", capi::Field, "name" name, "type" kind),
        layout!("mc_event", capi::Event,
            "name" name, "class_name" class_name, "file" file, "line" line,
            "class_number" class_number, "kind" kind, "field_count" field_count, "fields" fields,
            "site_" site),
        ("mc_head", size_of::<capi::Head>(), capi::Head::OFFSETS.to_vec()),
        ("mc_map_front_", 8, capi::Map::FRONT.to_vec()),
        ("mc_domain_front_", 8, capi::Domain::FRONT.to_vec()),
    ]
}

/// Returns a C program that prints all layouts as C sees them.
fn program(layouts: &[Layout]) -> String {
    let mut text =
        HEADERS.iter().map(|(name, _)| format!("#include <manycore/{name}>\n")).collect::<String>();
    text += "#include <stdio.h>\nint main(void)\n{\n";
    for (name, _, fields) in layouts {
        text += &format!("\tprintf(\"{name} %zu\\n\", sizeof(struct {name}));\n");
        for (field, _) in fields {
            text += &format!(
                "\tprintf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));\n"
            );
        }
    }
    text + "\treturn 0;\n}\n"
}

#[test]
fn structs_have_the_same_layout_in_c() {
    let layouts = layouts();
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program(&layouts)).unwrap();
    let compiled = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-DMC_NO_INLINE"])
        .args(["-O1", concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"), "-c", "-o"])
        .args([&folder.join("layout.o"), &source])
        .status();
    let Ok(status) = compiled else {
        println!("SKIPPED: no C compiler");
        return;
    };
    assert!(status.success());
    // The inline functions use the library's names. `-O1` removes them, so the program links
    // without it.
    let linked = Command::new("cc").arg("-o").args([&binary, &folder.join("layout.o")]).status();
    assert!(linked.is_ok_and(|status| status.success()));
    let printed = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
    let mut expected = String::new();
    for (name, size, fields) in &layouts {
        expected += &format!("{name} {size}\n");
        for (field, offset) in fields {
            expected += &format!("{name}.{field} {offset}\n");
        }
    }
    assert_eq!(printed, expected);
}

/// Returns the rows of the table below "FORK" in the header, in the words of the Rust
/// documentation.
fn fork_rows_of_the_header(header: &str) -> Vec<(String, String)> {
    let begin = header.find(" * FORK.").expect("the header speaks of forks");
    let section = &header[begin..header[begin..].find(" * DLCLOSE.").expect("and goes on") + begin];
    let rows = section.lines().filter_map(|line| line.strip_prefix(" *     "));
    let words = |cell: &str| {
        let cell = cell.trim().replace("call-back", "destructor").replace("called", "freed");
        cell.split(" (").next().unwrap_or_default().to_owned()
    };
    rows.map(|row| row.split_at(42)).map(|(at, then)| (words(at), words(then))).collect()
}

/// Returns the rows of the table below "Fork" in the documentation of the crate `manycore`.
fn fork_rows_of_the_crate(documentation: &str) -> Vec<(String, String)> {
    let begin = documentation.find("//! # Fork\n").expect("the crate speaks of forks");
    let rows = documentation[begin..].lines().skip_while(|line| !line.starts_with("//! |"));
    let rows = rows.take_while(|line| line.starts_with("//! |"));
    let rows = rows.filter_map(|line| line.strip_prefix("//! | ")?.strip_suffix(" |"));
    let cells = rows.filter_map(|row| row.split_once(" | "));
    let words = |cell: &str| cell.split(" (").next().unwrap_or_default().to_owned();
    cells.map(|(at, then)| (words(at), words(then))).collect()
}

/// Rows that only one of the two has. For C the library closes other threads' sections. `mc_call`
/// and `mc_domain_free` have no counterpart in Rust, and `Swappable` and the profile none in C.
#[test]
fn forks_are_described_alike_for_c_and_for_rust() {
    let header = fork_rows_of_the_header(HEADER);
    let at = concat!(env!("CARGO_MANIFEST_DIR"), "/../manycore/src/lib.rs");
    let documentation = fork_rows_of_the_crate(&std::fs::read_to_string(at).unwrap());
    let in_both: Vec<_> = header
        .iter()
        .filter_map(|(row, c)| Some((row, c, &documentation.iter().find(|rust| rust.0 == *row)?.1)))
        .collect();
    let differ: Vec<_> =
        in_both.iter().filter(|(_, c, rust)| c != rust).map(|(row, ..)| *row).collect();
    assert_eq!(differ, ["a section of another thread"]);
    assert_eq!((header.len(), in_both.len()), (16, 14), "{header:#?}\n{documentation:#?}");
}
