//! Finds every path that a source text names, and makes it absolute: `crate::oplog::Log`,
//! `std::sync::Arc`.

use crate::lexer::{Token, lex, tokens};

/// A path as an absolute list of names. The first is `crate` or the name of another crate.
#[derive(Clone, Debug, PartialEq)]
pub struct Named {
    /// The names; a glob ends in `*`.
    pub parts: Vec<String>,
    /// Whether a `use` brings it into scope (then a prefix of a banned path is banned as well).
    pub imported: bool,
    /// Counted from 1.
    pub line: usize,
}

impl Named {
    /// The path as written in Rust.
    pub fn text(&self) -> String {
        self.parts.join("::")
    }
}

/// Returns the module in a file of a crate's `src` folder: for `oplog/merge.rs`, `[oplog, merge]`.
pub fn module_of(path_in_src: &str) -> Vec<String> {
    let stem = path_in_src.trim_end_matches(".rs");
    let mut parts: Vec<String> = stem.split('/').map(str::to_string).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// Returns the paths that `source`, the text of `module`, names. Only paths that start at `crate`,
/// `super`, `self` or one of `roots` (names of other crates).
pub fn named(source: &str, module: &[String], roots: &[&str]) -> Vec<Named> {
    let tokens = tokens(&lex(source).code);
    let mut reader = Reader { tokens: &tokens, at: 0, found: Vec::new(), imported: false };
    // Modules written inside the file, each with the depth of braces it was opened at.
    let mut inner: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    while let Some(token) = tokens.get(reader.at) {
        match token.text.as_str() {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inner.retain(|(_, opened)| *opened <= depth);
            }
            ";" => reader.imported = false,
            "use" => reader.imported = true,
            "mod" if reader.text(2) == "{" => inner.push((reader.text(1).to_string(), depth + 1)),
            "crate" | "super" | "self" if !reader.continues_path() => {
                let mut here = module.to_vec();
                here.extend(inner.iter().map(|(name, _)| name.clone()));
                reader.relative(&here);
                continue;
            }
            root if roots.contains(&root) && !reader.continues_path() => {
                let base = vec![root.to_string()];
                reader.at += 1;
                reader.tree(base);
                continue;
            }
            _ => {}
        }
        reader.at += 1;
    }
    reader.found
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    found: Vec<Named>,
    imported: bool,
}

impl Reader<'_> {
    fn text(&self, ahead: usize) -> &str {
        self.tokens.get(self.at + ahead).map_or("", |t| t.text.as_str())
    }

    /// Whether the current word is a later part of a path that something else starts.
    fn continues_path(&self) -> bool {
        let before = |n: usize| self.at.checked_sub(n).map(|i| &self.tokens[i]);
        before(1).is_some_and(|t| t.text == "::")
            && before(2).is_some_and(|t| t.text == ">" || (t.is_word() && t.text != "use"))
    }

    /// A path that starts at `crate`, `self` or any number of `super`s.
    fn relative(&mut self, here: &[String]) {
        let mut base = here.to_vec();
        loop {
            match self.text(0) {
                "crate" => base.clear(),
                "super" => drop(base.pop()),
                _ => {}
            }
            self.at += 1;
            if !(self.text(0) == "::" && self.text(1) == "super") {
                break;
            }
            self.at += 1;
        }
        base.insert(0, "crate".to_string());
        if self.text(0) == "::" {
            self.tree(base);
        }
    }

    /// Reads the part after `base`: `::name`, `::{a, b::c}`, `::*`, and records each path at its
    /// end.
    fn tree(&mut self, mut base: Vec<String>) {
        let line = self.tokens[self.at - 1].line;
        while self.text(0) == "::" {
            match self.text(1) {
                "{" => return self.group(&base),
                "<" => break,
                "self" => self.at += 2,
                name => {
                    base.push(name.to_string());
                    self.at += 2;
                }
            }
        }
        self.found.push(Named { parts: base, imported: self.imported, line });
    }

    /// The items of a braced group, each below `base`.
    fn group(&mut self, base: &[String]) {
        self.at += 2;
        while !matches!(self.text(0), "}" | "") {
            match self.text(0) {
                "," => self.at += 1,
                "as" => self.at += 2,
                "self" => {
                    self.at += 1;
                    self.tree(base.to_vec());
                }
                name => {
                    let mut item = base.to_vec();
                    item.push(name.to_string());
                    self.at += 1;
                    self.tree(item);
                }
            }
        }
        self.at += 1;
    }
}

#[cfg(test)]
fn texts(source: &str, module: &[&str]) -> Vec<String> {
    let module: Vec<String> = module.iter().map(|s| (*s).to_string()).collect();
    named(source, &module, &["std", "loom"]).iter().map(Named::text).collect()
}

#[test]
fn modules_come_from_file_names() {
    assert_eq!(module_of("lib.rs"), Vec::<String>::new());
    assert_eq!(module_of("sync.rs"), ["sync"]);
    assert_eq!(module_of("oplog/mod.rs"), ["oplog"]);
    assert_eq!(module_of("oplog/merge.rs"), ["oplog", "merge"]);
}

#[test]
fn plain_grouped_and_renamed_imports_are_found() {
    let source =
        "use crate::{clock::{self, Stamp as S}, percpu::*};\nlet x = crate::sync::fence(y);";
    let expected =
        ["crate::clock", "crate::clock::Stamp", "crate::percpu::*", "crate::sync::fence"];
    assert_eq!(texts(source, &["oplog"]), expected);
}

#[test]
fn super_is_counted_through_inline_modules() {
    let source = "use super::log::Log; mod tests { use super::super::super::clock::Clock; \
                  fn f() { super::g() } } use super::super::percpu;";
    let expected = [
        "crate::oplog::log::Log",
        "crate::clock::Clock",
        "crate::oplog::merge::g",
        "crate::percpu",
    ];
    assert_eq!(texts(source, &["oplog", "merge"]), expected);
}

#[test]
fn other_crates_start_paths_only_at_the_front() {
    let source = "use ::std::sync::{Arc, atomic::AtomicU64}; a::std::b(); std::thread::spawn(f); \
                  use loom as l; x.std; Vec::<u8>::std();";
    let found = named(source, &[], &["std", "loom"]);
    let texts: Vec<String> = found.iter().map(Named::text).collect();
    let expected =
        ["std::sync::Arc", "std::sync::atomic::AtomicU64", "std::thread::spawn", "loom", "std"];
    assert_eq!(texts, expected);
    let imported: Vec<bool> = found.iter().map(|n| n.imported).collect();
    assert_eq!(imported, [true, true, false, true, false]);
}

#[test]
fn visibility_is_no_import_and_text_is_no_code() {
    let source = "pub(crate) fn f(self) {} // crate::collections\nlet s = \"crate::collections\";";
    assert!(texts(source, &["sync"]).is_empty());
}
