//! Checks that each function has the same type in the headers and here.
//!
//! The test derives a prototype from the Rust signature. A C compiler refuses two declarations that
//! differ, so it compares the prototype with the header's. `const` is left out: in C it is a
//! promise to the caller about the handle, in Rust it only says that nothing is written through
//! this pointer.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The C names of the types in signatures. The test fails for a type that is not here.
const TYPES: [(&str, &str); 44] = [
    ("c_char", "char"),
    ("c_int", "int"),
    ("c_void", "void"),
    ("f64", "double"),
    ("i64", "int64_t"),
    ("isize", "ptrdiff_t"),
    ("u32", "uint32_t"),
    ("u64", "uint64_t"),
    ("usize", "size_t"),
    ("!", "void"),
    ("Backlog", "struct mc_backlog"),
    ("Cache", "mc_cache"),
    ("CacheOptions", "struct mc_cache_options"),
    ("CacheStats", "struct mc_cache_stats"),
    ("Counter", "struct mc_counter"),
    ("Deferred", "mc_deferred"),
    ("DeferredOptions", "struct mc_deferred_options"),
    ("Domain", "mc_domain"),
    ("Event", "struct mc_event"),
    ("Head", "struct mc_head"),
    ("Histogram", "mc_histogram"),
    ("HistogramSnapshot", "mc_snapshot"),
    ("Ids", "mc_ids"),
    ("Loading", "mc_loading"),
    ("Map", "mc_map"),
    ("MappedPage", "struct mc_mapping"),
    ("Mappings", "mc_mappings"),
    ("MappingsOptions", "struct mc_mappings_options"),
    ("Operations", "struct mc_map_operations"),
    ("Options", "struct mc_domain_options"),
    ("PagePool", "mc_page_pool"),
    ("PagePoolOptions", "struct mc_page_pool_options"),
    ("Queue", "mc_queue"),
    ("QueueOptions", "struct mc_queue_options"),
    ("Record", "struct mc_thread_record_"),
    ("Recording", "mc_recording"),
    ("RecordingOptions", "struct mc_recording_options"),
    ("Stalled", "struct mc_stalled"),
    ("Value", "union mc_value"),
    ("Option<Callback>", "mc_callback"),
    ("Option<FreeNode>", "mc_free_node"),
    ("Option<Load>", "mc_load_bytes"),
    ("Option<Update>", "mc_update"),
    ("Option<Visit>", "mc_visit_bytes"),
];

/// Returns the C name of a Rust type. A function pointer gets a name, which `typedefs` defines.
fn c_type(rust: &str, typedefs: &mut Vec<String>) -> String {
    let rust = rust.trim();
    if let Some(target) = rust.strip_prefix("*mut ").or_else(|| rust.strip_prefix("*const ")) {
        return format!("{} *", c_type(target, typedefs));
    }
    let function = rust.strip_prefix("Option<").and_then(|inner| inner.strip_suffix('>'));
    if let Some((_, signature)) = function.and_then(|inner| inner.split_once(" fn")) {
        let (arguments, result) = c_signature(signature, typedefs);
        let name = format!("function_{}", typedefs.len());
        typedefs.push(format!("typedef {result} (*{name})({arguments});"));
        return name;
    }
    let known = TYPES.iter().find(|(name, _)| *name == rust);
    known.unwrap_or_else(|| panic!("the type `{rust}` has no name in C here")).1.to_owned()
}

/// Splits at the commas outside brackets.
fn parts(list: &str) -> Vec<&str> {
    let mut depth = 0;
    let is_end = |c: char| {
        depth += i32::from("(<".contains(c)) - i32::from(")>".contains(c));
        depth == 0 && c == ','
    };
    list.split(is_end).map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// Replaces Rust's arrow, which contains a bracket.
const ARROW: &str = "=";

/// Returns the arguments and the result of `(name: type, ...) = type` in C notation.
fn c_signature(signature: &str, typedefs: &mut Vec<String>) -> (String, String) {
    let end = closing(signature);
    let (arguments, result) = (&signature[1..end], signature[end + 1..].trim());
    let mut types = Vec::new();
    for argument in parts(arguments) {
        let named = argument.split_once(": ").filter(|(name, _)| !name.contains(' '));
        types.push(c_type(named.map_or(argument, |(_, kind)| kind), typedefs));
    }
    let types = if types.is_empty() { "void".to_owned() } else { types.join(", ") };
    (types, result.strip_prefix(ARROW).map_or("void".to_owned(), |kind| c_type(kind, typedefs)))
}

/// Returns where the bracket closes with which the text begins.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    let found = text.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '(') - i32::from(*c == ')');
        depth == 0
    });
    found.expect("a closing bracket").0
}

fn here(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// Returns a C program with the headers and with prototypes from the sources, and the number of
/// prototypes.
fn program() -> (String, usize) {
    let files = |folder| std::fs::read_dir(here(folder)).unwrap().map(|file| file.unwrap().path());
    let mut text = String::new();
    for header in
        files("include/manycore").filter(|path| path.extension().is_some_and(|e| e == "h"))
    {
        let name = header.file_name().unwrap().to_str().unwrap();
        if name != "urcu.h" {
            text += &format!("#include <manycore/{name}>\n");
        }
    }
    let (mut typedefs, mut prototypes) = (Vec::new(), Vec::new());
    for source in files("src") {
        let source = std::fs::read_to_string(source).unwrap();
        for item in source.split("#[unsafe(no_mangle)]").skip(1) {
            let signature = item.split_once(" fn ").unwrap().1.split_once('{').unwrap().0;
            let signature = signature.split_whitespace().collect::<Vec<_>>().join(" ");
            let signature = signature.replace("->", ARROW);
            let (name, rest) = signature.split_at(signature.find('(').unwrap());
            let (arguments, result) = c_signature(rest, &mut typedefs);
            prototypes.push(format!("{result} {name}({arguments});"));
        }
    }
    text += &(typedefs.join("\n") + "\n" + &prototypes.join("\n") + "\n");
    (text, prototypes.len())
}

/// Returns whether a C compiler accepts the program, and its messages. `None` without a compiler.
fn compiles(name: &str, program: &str) -> Option<Result<(), String>> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&source, program).unwrap();
    let compiled = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-Dconst="])
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg(&source)
        .output();
    let Ok(output) = compiled else {
        println!("SKIPPED: no C compiler");
        return None;
    };
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    Some(if output.status.success() { Ok(()) } else { Err(said()) })
}

#[test]
fn each_function_has_the_same_type_in_c() {
    let (program, count) = program();
    assert!(count > 100, "{count} functions");
    let Some(compiled) = compiles("prototypes.c", &program) else { return };
    compiled.unwrap_or_else(|said| panic!("{said}"));
    // The test sees a difference.
    for (right, wrong) in [
        ("int mc_born_(mc_domain *,", "int mc_born_(mc_map *,"),
        ("size_t mc_map_length(", "int mc_map_length("),
    ] {
        assert!(program.contains(right), "{program}");
        let other = compiles("prototypes_wrong.c", &program.replace(right, wrong)).unwrap();
        assert!(other.is_err_and(|said| said.contains("conflicting types")), "{wrong}");
    }
}
