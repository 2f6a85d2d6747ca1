//! Checks what users expect of every public type of the library: the standard traits that fit it,
//! room to grow, and a statement on unwinding. Each trait of the library needs an error message of
//! its own for types that lack it.

use crate::{lexer::lex, walk};

/// Types that lack a trait, or may not grow, each with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("Node", "Debug", "named by no public path"),
    ("Pointer", "on_unimplemented", "sealed"),
    ("PairDelta", "non_exhaustive", "a measurement that callers make up in their tests"),
    ("Progress", "non_exhaustive", "callers take it apart"),
    ("SendError", "non_exhaustive", "callers match all of it"),
    ("RecvError", "non_exhaustive", "callers match all of it"),
];

/// An `impl`, split into the text before its brace and the text inside.
struct Impl<'a> {
    header: String,
    body: &'a str,
}

/// Returns whether `text` has `word` as a whole word, not as a part of another.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

fn impls(code: &str) -> Vec<Impl<'_>> {
    let starts = code.match_indices("\nimpl").chain(code.match_indices("\nunsafe impl"));
    let read = starts.filter_map(|(at, _)| {
        let open = at + code[at..].find('{')?;
        let close = open + code[open..].find("\n}").unwrap_or(code.len() - open);
        let header = code[at..open].split_whitespace().collect::<Vec<_>>().join(" ");
        Some(Impl { header, body: &code[open..close] })
    });
    read.collect()
}

impl Impl<'_> {
    /// Returns whether this implements the wanted trait (or, if `None`, no trait) for this type.
    fn is_of(&self, wanted: Option<&str>, name: &str) -> bool {
        let ident = |text: &str| -> String {
            text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        let header = self.header.split(" where ").next().unwrap_or_default();
        match (wanted, header.rsplit_once(" for ")) {
            (Some(wanted), Some((before, target))) => {
                has_word(before, wanted) && ident(target.trim_start_matches('&')) == name
            }
            (None, None) => header.split([' ', '>']).any(|part| ident(part) == name),
            _ => false,
        }
    }
}

/// Returns the attributes above a line.
fn attributes(lines: &[&str], at: usize) -> String {
    let above = lines[..at].iter().rev();
    let own =
        above.take_while(|line| ["#[", "///", "    ", ")]"].iter().any(|s| line.starts_with(s)));
    own.filter(|line| !line.starts_with("///")).copied().collect()
}

fn check(files: &[(&str, &str)]) -> Vec<String> {
    let code: Vec<String> = files.iter().map(|(_, text)| format!("\n{}", lex(text).code)).collect();
    let impls: Vec<Impl<'_>> = code.iter().flat_map(|code| impls(code)).collect();
    let mut findings = Vec::new();
    for (path, text) in files {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let kind = match (words.next(), words.next()) {
                (Some("pub"), Some(kind @ ("struct" | "enum" | "trait"))) => kind,
                _ => continue,
            };
            let (name, attributes) = (words.next().unwrap_or_default(), attributes(&lines, at));
            let ends_here = line.ends_with([';', '}']);
            let mut body = lines[at..].iter().take_while(|line| !ends_here && **line != "}");
            let is_open = kind == "enum" || body.any(|line| line.starts_with("    pub "));
            let mut lacks = |what: &str, is_lacking: bool| {
                let excused = EXCEPTIONS.iter().any(|(n, w, _)| *n == name && *w == what);
                if is_lacking && !excused {
                    findings.push(format!("{path}:{}: {name} lacks {what}", at + 1));
                }
            };
            if kind == "trait" {
                lacks("on_unimplemented", !attributes.contains("on_unimplemented"));
                continue;
            }
            let has = |wanted: &str| {
                attributes.lines().any(|line| line.contains("derive") && has_word(line, wanted))
                    || impls.iter().any(|i| i.is_of(Some(wanted), name))
            };
            let makes = |arguments: &str| {
                let new = ["", "const "].map(|how| format!("pub {how}fn new({arguments}) ->"));
                let own = impls.iter().filter(|i| i.is_of(None, name));
                own.into_iter().any(|i| new.iter().any(|new| i.body.contains(new)))
            };
            lacks("Debug", !has("Debug"));
            lacks("Default", makes("") && !has("Default"));
            let from_value = ["value: T", "value: V", "structure: T"];
            let is_made = from_value.iter().any(|value| makes(value));
            lacks("From", is_made && !has("From"));
            lacks("FromIterator", has("Extend") && !has("FromIterator"));
            lacks("non_exhaustive", is_open && !attributes.contains("non_exhaustive"));
        }
    }
    findings
}

#[test]
fn every_public_type_has_the_traits_that_fit_it_and_room_to_grow() {
    let files = walk::rust_files();
    let is_library =
        |path: &str| path.starts_with("crates/manycore/src/") && !path.contains("tests");
    let sources: Vec<(&str, &str)> = files
        .iter()
        .filter(|file| is_library(&file.path))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    assert!(sources.len() > 100, "the library was not found");
    assert_eq!(check(&sources), [""; 0]);
}

#[test]
fn types_that_lack_something_are_found() {
    let text = "
pub struct Bare(u8);
impl Bare {
    pub fn new() -> Self {
        Self(0)
    }
}
#[derive(Debug)]
pub enum Open {
    One,
}
#[derive(Debug)]
pub struct Holder<T>(T);
impl<T> Holder<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}
impl<T> Extend<T> for Holder<T> {
}
pub trait Silent {}
/// In order.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Fine {
    pub field: u8,
}
";
    let found = check(&[("a.rs", text)]);
    let expected = [
        "a.rs:2: Bare lacks Debug",
        "a.rs:2: Bare lacks Default",
        "a.rs:9: Open lacks non_exhaustive",
        "a.rs:13: Holder lacks From",
        "a.rs:13: Holder lacks FromIterator",
        "a.rs:21: Silent lacks on_unimplemented",
    ];
    assert_eq!(found, expected);
}

/// Returns the names that a module exports by `pub use`, without its traits.
fn exports(module: &str) -> Vec<&str> {
    let uses = module.split("\npub use ").skip(1);
    let listed = uses.filter_map(|rest| rest.split(';').next()?.split("::").nth(1));
    let names = listed.flat_map(|names| names.split(|c: char| !c.is_alphanumeric()));
    names.filter(|name| !name.is_empty()).collect()
}

/// For each type of the collections it is decided whether a panic may cross it, and the compiler
/// checks the decision.
#[test]
fn every_collection_says_whether_it_may_cross_a_catch() {
    let files = walk::rust_files();
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.unwrap_or_else(|| panic!("{path} is not there")).text.as_str()
    };
    let decided = text("crates/manycore/tests/integration/liars/unwind.rs");
    let traits = ["Owner", "PageStore", "Plain"];
    // They hold numbers and nothing of the user's.
    let plain = ["Contention", "DHashBuilder", "DHashStats", "Distribution", "DistributionReason"];
    let exported = exports(text("crates/manycore/src/collections/mod.rs"));
    assert!(exported.len() > 50, "the collections were not found");
    let undecided = exported.into_iter().filter(|name| {
        let is_listed =
            decided.contains(&format!("<{name}")) || decided.contains(&format!("{name}>"));
        !is_listed && !traits.contains(name) && !plain.contains(name)
    });
    assert_eq!(undecided.collect::<Vec<_>>(), [""; 0]);
    assert_eq!(exports("mod a;\npub use a::{B, C};\npub use d::E;\n"), ["B", "C", "E"]);
}
