//! Every public type, trait and free function of the libraries must show its use. Its documentation
//! has an example that runs, or one line "See [...]" that links to an item with an example.

use crate::walk;
use std::collections::HashMap;

/// The crates whose documentation users read.
const LIBRARIES: &[&str] = &[
    "crates/manycore/src/",
    "crates/manycore-cache/src/",
    "crates/manycore-trace/src/",
    "crates/manycore-vm/src/",
];
/// The words that begin an item, or a method, that may be public.
const KINDS: &[&str] = &["struct", "enum", "trait", "union", "type", "fn"];

/// Attributes of items that users do not see.
const HIDES: &[&str] = &["#[doc(hidden)]", "#[cfg(test)]", "#[cfg(manycore_loom)]"];

/// An item with a name, or a method.
struct Item<'a> {
    path: &'a str,
    line: usize,
    /// For a method, what stands between `impl` and its brace.
    of: Option<String>,
    name: &'a str,
    docs: Vec<&'a str>,
    is_hidden: bool,
}

/// Returns the words of a line of code.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the name of the item that a line like `pub fn name(...` begins.
fn name(line: &str) -> Option<&str> {
    let mut words = words(line.trim_start().strip_prefix("pub ")?);
    words
        .by_ref()
        .find(|word| !matches!(*word, "const" | "unsafe"))
        .filter(|k| KINDS.contains(k))?;
    words.next()
}

/// Returns the documentation above a line, and whether an attribute there hides the item.
fn above<'a>(lines: &[&'a str], at: usize) -> (Vec<&'a str>, bool) {
    let ends =
        |line: &str| line.is_empty() || ["}", ";", "{"].iter().any(|end| line.ends_with(end));
    let (mut docs, mut is_hidden) = (Vec::new(), false);
    for line in lines[..at].iter().rev().map(|line| line.trim_start()) {
        match line.strip_prefix("///") {
            Some(text) => docs.push(text.trim_start()),
            None if ends(line) => break,
            None => is_hidden |= HIDES.iter().any(|attribute| line.starts_with(attribute)),
        }
    }
    docs.reverse();
    (docs, is_hidden)
}

/// Returns the items and the methods of a file.
fn items<'a>(path: &'a str, text: &'a str) -> Vec<Item<'a>> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut found, mut of) = (Vec::new(), None);
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        if indent == 0 && line.starts_with("impl") {
            let header = lines[at..].iter().take_while(|line| !line.starts_with('}'));
            let header: String = header.flat_map(|line| [*line, " "]).collect();
            of = header.split('{').next().map(str::to_owned);
        }
        if line.starts_with("impl") && line.ends_with('}') || *line == "}" {
            of = None;
        }
        let Some(name) = name(line).filter(|_| indent == 0 || of.is_some()) else { continue };
        let (docs, is_hidden) = above(&lines, at);
        found.push(Item { path, line: at + 1, of: of.clone(), name, docs, is_hidden });
    }
    found
}

/// Returns whether documentation has an example that is compiled and run.
fn runs(docs: &[&str]) -> bool {
    let fences = docs.iter().filter_map(|line| line.trim().strip_prefix("```"));
    let opening = fences.step_by(2);
    opening.into_iter().any(|info| matches!(info, "" | "rust" | "should_panic"))
}

/// Returns the modules that lead to a file, the crate's folder first.
fn modules(path: &str) -> Vec<&str> {
    let (folder, inside) = path.split_once("/src/").unwrap_or(("", path));
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    let parts = inside.split('/').filter(|part| *part != "lib");
    [folder].into_iter().chain(parts).collect()
}

/// The library: its files by module, and what each `pub use` exports.
struct Library<'a> {
    files: HashMap<Vec<&'a str>, (&'a str, &'a str)>,
    /// A module, and the name that is public from there or from below.
    exports: Vec<(Vec<&'a str>, &'a str)>,
    items: Vec<Item<'a>>,
}

impl<'a> Library<'a> {
    fn new(files: &[(&'a str, &'a str)]) -> Self {
        let (mut exports, mut all) = (Vec::new(), Vec::new());
        for (path, text) in files {
            all.extend(items(path, text));
            for statement in text.split("pub use ").skip(1) {
                let statement = statement.split(';').next().unwrap_or_default();
                let (from, names) = match statement.split_once('{') {
                    Some((from, names)) => (from, names),
                    None => statement.rsplit_once("::").unwrap_or(("", statement)),
                };
                let mut base = modules(path);
                for part in words(from) {
                    match part {
                        "crate" => base.truncate(1),
                        "super" => drop(base.pop()),
                        "self" => {}
                        part => base.push(part),
                    }
                }
                exports.extend(words(names).map(|name| (base.clone(), name)));
            }
        }
        let files = files.iter().map(|(path, text)| (modules(path), (*path, *text))).collect();
        Self { files, exports, items: all }
    }

    /// Whether users can name the item.
    fn is_public(&self, item: &Item<'_>) -> bool {
        let path = modules(item.path);
        let is_open = |depth: usize| {
            let parent = self.files.get(&path[..depth]);
            let opens = format!("pub mod {};", path[depth]);
            parent.is_some_and(|(_, text)| text.lines().any(|line| line == opens))
        };
        let mut exports = self.exports.iter().filter(|(_, name)| *name == item.name);
        (1..path.len()).all(is_open) || exports.any(|(base, _)| path.starts_with(base))
    }

    /// Whether a line "See [`X::y`]" leads to an example.
    fn leads_to_example(&self, item: &Item<'_>, line: &str) -> bool {
        let Some((target, rest)) = line.strip_prefix("See [").and_then(|l| l.split_once(']'))
        else {
            return false;
        };
        let mut home = modules(item.path);
        let module = rest.strip_prefix('(').and_then(|rest| rest.split(')').next());
        if target == "the module" {
            let ups =
                module.unwrap_or_default().split("::").filter(|part| *part == "super").count();
            home.truncate(home.len() - ups);
            let Some((_, text)) = self.files.get(&home) else { return false };
            let header = text.lines().filter_map(|line| line.strip_prefix("//!"));
            return runs(&header.collect::<Vec<_>>());
        }
        let mut parts = words(target).collect::<Vec<_>>();
        let name = parts.pop().unwrap_or_default();
        let fits = |other: &&Item<'_>| match (parts.last(), &other.of) {
            (Some(of), Some(header)) => words(header).any(|word| word == *of),
            (None, of) => of.is_none(),
            _ => false,
        };
        let found = self.items.iter().filter(|other| other.name == name).filter(fits);
        // Several modules have a `Builder`: the one that is meant is in the same part of the crate.
        let near = |other: &&Item<'_>| {
            let (its, own) = (modules(other.path), modules(item.path));
            its.iter().zip(&own).take_while(|(its, own)| its == own).count()
        };
        let found: Vec<&Item<'_>> = found.collect();
        let nearest = found.iter().map(near).max().unwrap_or_default();
        let mut meant = found.iter().filter(|other| near(other) == nearest && nearest > 0);
        meant.any(|other| runs(&other.docs))
    }

    fn check(&self) -> Vec<String> {
        let types = self.items.iter().filter(|item| item.of.is_none() && !item.is_hidden);
        let lacking = types.filter(|item| self.is_public(item)).filter(|item| {
            !runs(&item.docs) && !item.docs.iter().any(|line| self.leads_to_example(item, line))
        });
        lacking.map(|i| format!("{}:{}: {} has no example", i.path, i.line, i.name)).collect()
    }
}

#[test]
fn every_public_item_shows_its_use() {
    let files = walk::rust_files();
    let is_source = |path: &str| {
        LIBRARIES.iter().any(|library| path.starts_with(library)) && !path.contains("tests")
    };
    let sources: Vec<(&str, &str)> = files
        .iter()
        .filter(|file| is_source(&file.path))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let library = Library::new(&sources);
    let public = library.items.iter().filter(|item| item.of.is_none() && library.is_public(item));
    assert!(public.count() > 200, "the public interface was not found");
    let findings = library.check();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn items_without_an_example_are_found() {
    let top =
        "//! ```\n//! use it();\n//! ```\npub mod open;\nmod closed;\npub use closed::{Out, Row};";
    let open = "
/// Does it.
///
/// ```no_run
/// bare();
/// ```
pub fn bare() {}
/// ```
/// assert!(shown());
/// ```
pub fn shown() -> bool {
    true
}
/// ```text
/// | a drawing |
/// ```
pub struct Drawn;
/// See [`shown`] for an example.
pub struct Linked;
/// See [`bare`] for an example.
pub struct Misled;
/// See [the module](super) for an example.
pub struct Told;
/// See [the module](self) for an example.
pub struct Untold;
impl Show for Untold {}
/// See [`told`] for an example.
pub struct ToldLater;
/// ```
/// told();
/// ```
pub fn told() {}
/// Is for macros.
#[doc(hidden)]
pub struct Hidden;
";
    let closed = "
/// See [`Out::get`] for an example.
pub struct Out;
impl Out {
    /// ```
    /// Out.get();
    /// ```
    pub fn get(&self) {}
    /// Nothing to see.
    pub fn set(&self) {}
}
/// See [`Out::set`] for an example.
pub enum Row {}
/// Not exported.
pub struct Inner;
";
    let files = [
        ("crates/a/src/lib.rs", top),
        ("crates/a/src/open.rs", open),
        ("crates/a/src/closed.rs", closed),
    ];
    let expected = [
        "crates/a/src/open.rs:7: bare has no example",
        "crates/a/src/open.rs:17: Drawn has no example",
        "crates/a/src/open.rs:21: Misled has no example",
        "crates/a/src/open.rs:25: Untold has no example",
        "crates/a/src/closed.rs:13: Row has no example",
    ];
    assert_eq!(Library::new(&files).check(), expected);
}
