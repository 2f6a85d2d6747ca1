//! Source locations for the addresses of a process.
//!
//! A report should show the program's own line, not the line of the standard library below it. So
//! the functions inlined at an address and their callers make one list, and the report shows the
//! first frame of the program's own code.

use std::collections::BTreeMap;

use addr2line::Loader;

/// One mapping of a file in a process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The first address.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// The file.
    pub path: String,
}

impl Module {
    /// Parses the mappings in a list of the form of `/proc/self/maps`.
    pub fn parse(maps: &str) -> Vec<Module> {
        let mapping = |line: &str| {
            let path = &line[line.find('/')?..];
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some(Module { start: number(start)?, end: number(end)?, path: path.to_owned() })
        };
        maps.lines().filter_map(mapping).collect()
    }
}

/// Turns addresses into source locations, and keeps the debug information it has read.
///
/// Cost: reading a file's debug information takes some milliseconds, once.
#[derive(Default)]
pub struct Symbols {
    /// `None` for a file without usable debug information.
    files: BTreeMap<String, Option<Loader>>,
    frames: BTreeMap<(String, u64), Vec<Frame>>,
}

/// One function at one line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    function: String,
    file: String,
    line: u32,
}

impl Symbols {
    /// Creates a cache that has read no file yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the program's own location for an instruction and its callers, such as
    /// `src/main.rs:8 (serve)`.
    ///
    /// If the innermost frame is in a foreign crate, its location follows.
    pub fn place(&mut self, modules: &[Module], addresses: &[u64]) -> String {
        let mut frames = Vec::new();
        for &address in addresses {
            frames.extend(self.frames_at(modules, address));
        }
        shown(&frames)
    }

    /// Returns the frames inlined at an address, innermost first.
    fn frames_at(&mut self, modules: &[Module], address: u64) -> Vec<Frame> {
        // A return address points after the call, so step back into the call.
        let address = address.saturating_sub(1);
        let here = modules.iter().find(|module| (module.start..module.end).contains(&address));
        let Some(here) = here else { return Vec::new() };
        let same = modules.iter().filter(|module| module.path == here.path);
        let base = same.map(|module| module.start).min().unwrap_or(0);
        let key = (here.path.clone(), address - base);
        if let Some(known) = self.frames.get(&key) {
            return known.clone();
        }
        let loader =
            self.files.entry(here.path.clone()).or_insert_with(|| Loader::new(&here.path).ok());
        let frames = loader.as_ref().map(|loader| frames(loader, key.1)).unwrap_or_default();
        self.frames.insert(key, frames.clone());
        frames
    }
}

fn frames(loader: &Loader, address: u64) -> Vec<Frame> {
    let mut found = Vec::new();
    let Ok(mut frames) = loader.find_frames(address) else { return found };
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.and_then(|name| name.demangle().map(|n| n.into_owned()).ok());
        let Some(location) = frame.location else { continue };
        found.push(Frame {
            function: function.map_or_else(String::new, |name| short_function(&name)),
            file: location.file.unwrap_or_default().to_owned(),
            line: location.line.unwrap_or(0),
        });
    }
    found
}

/// Returns the readable name of a variable from its linker symbol.
///
/// ```
/// use manycore_sim::symbols::variable;
///
/// assert_eq!(variable("_ZN3app5SLOTS17h0123456789abcdefE"), "app::SLOTS");
/// ```
pub fn variable(symbol: &str) -> String {
    let name = addr2line::demangle_auto(symbol.into(), None);
    // Parts that macros such as `thread_local!` add do not belong to the program's name.
    let is_own = |part: &&str| {
        !part.starts_with('{') && !part.starts_with("__") && *part != "VAL" && !is_hash(part)
    };
    let parts: Vec<&str> = name.split("::").filter(is_own).collect();
    parts.join("::")
}

/// Returns the name without its crate's hash and without type arguments.
fn short_function(name: &str) -> String {
    let mut depth = 0_usize;
    let mut short = String::new();
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' if depth > 0 => depth -= 1,
            _ if depth == 0 => short.push(letter),
            _ => {}
        }
    }
    let parts: Vec<&str> =
        short.split("::").filter(|part| !part.is_empty() && !is_hash(part)).collect();
    parts[parts.len().saturating_sub(2)..].join("::")
}

fn is_hash(part: &str) -> bool {
    part.len() == 17 && part.starts_with('h') && part[1..].bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns true if the file belongs to the standard library.
fn is_std(file: &str) -> bool {
    file.is_empty()
        || file.starts_with("/rustc/")
        || file.contains("/lib/rustlib/src/rust/library/")
}

/// Returns true if the file belongs to the simulator, which a program may call to be measured.
fn is_ours(file: &str) -> bool {
    let is_ours = |name: &str| {
        let version = name.strip_prefix("manycore-sim").map(|rest| rest.trim_start_matches("-rt"));
        version.is_some_and(|v| v.is_empty() || v.starts_with("-0.") || v.starts_with("-1."))
    };
    file.split('/').any(is_ours)
}

/// Returns true if the file belongs to a crate from a registry.
fn is_foreign(file: &str) -> bool {
    file.contains("/registry/src/")
}

fn shown(frames: &[Frame]) -> String {
    let crates = || frames.iter().filter(|frame| !is_std(&frame.file) && !is_ours(&frame.file));
    let Some(first) = crates().next() else {
        return match frames.iter().find(|frame| !is_ours(&frame.file)) {
            Some(frame) => text(frame),
            None if frames.is_empty() => "an unknown place".to_owned(),
            None => "outside of the program: a thread's start or end".to_owned(),
        };
    };
    if !is_foreign(&first.file) {
        return text(first);
    }
    match crates().find(|frame| !is_foreign(&frame.file)) {
        Some(own) => format!("{}, in {}", text(own), text(first)),
        None => text(first),
    }
}

fn text(frame: &Frame) -> String {
    let file = short_file(&frame.file);
    if frame.function.is_empty() {
        return format!("{file}:{}", frame.line);
    }
    format!("{file}:{} ({})", frame.line, frame.function)
}

/// Returns the path below the crate's folder, or below the current folder.
fn short_file(file: &str) -> String {
    if let Some((_, rest)) = file.split_once("/registry/src/") {
        return rest.split_once('/').map_or(rest, |(_, path)| path).to_owned();
    }
    if is_std(file) && !file.is_empty() {
        return file.split_once("/library/").map_or(file, |(_, path)| path).to_owned();
    }
    let here = std::env::current_dir().unwrap_or_default();
    file.strip_prefix(&format!("{}/", here.display())).unwrap_or(file).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str, line: u32) -> Frame {
        Frame { function: "f".into(), file: file.into(), line }
    }

    #[test]
    fn standard_library_is_passed_over() {
        let frames = [frame("/rustc/123/library/core/src/sync/atomic.rs", 9), frame("src/a.rs", 4)];
        assert_eq!(shown(&frames), "src/a.rs:4 (f)");
        assert_eq!(shown(&frames[..1]), "core/src/sync/atomic.rs:9 (f)");
        assert_eq!(shown(&[]), "an unknown place");
    }

    #[test]
    fn caller_is_shown_before_the_foreign_crate() {
        let frames = [frame("/c/registry/src/x-1/bag-2.0/src/lib.rs", 7), frame("src/a.rs", 4)];
        assert_eq!(shown(&frames), "src/a.rs:4 (f), in bag-2.0/src/lib.rs:7 (f)");
    }

    #[test]
    fn simulator_s_own_frames_are_passed_over() {
        let own = [
            "/x/crates/manycore-sim/src/program.rs",
            "/c/registry/src/i/manycore-sim-0.1.0/src/program.rs",
        ];
        for file in own {
            assert_eq!(shown(&[frame(file, 9), frame("src/a.rs", 4)]), "src/a.rs:4 (f)");
        }
        let start = [frame("crates/manycore-sim-rt/src/threads.rs", 83)];
        assert!(shown(&start).starts_with("outside of the program"));
        assert!(!is_ours("crates/manycore-sim-tests/src/bin/sim-tour.rs"));
    }

    #[test]
    fn variable_is_named_without_what_macros_add() {
        let own = "_ZN3app5COUNT29_$u7b$$u7b$constant$u7d$$u7d$28_$u7b$$u7b$closure$u7d$$u7d$3VAL\
            17h0123456789abcdefE";
        assert_eq!(variable(own), "app::COUNT");
        assert_eq!(variable("environ"), "environ");
    }

    #[test]
    fn function_names_lose_arguments_and_hashes() {
        let name = "alloc::vec::Vec<T,A>::push::h0123456789abcdef";
        assert_eq!(short_function(name), "Vec::push");
        assert_eq!(short_function("main::serve::{{closure}}"), "serve::{{closure}}");
    }
}
