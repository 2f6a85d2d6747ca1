//! The lists that a new kind of log, collection or command belongs to (`docs/adding.md`): what the
//! code has, each of them names.

use std::collections::{BTreeSet, HashSet};

use crate::walk;

/// Where each kind of log is named: the documents, and the tests that run every kind.
const OF_KINDS: &[&str] = &[
    "docs/guide/choosing.md",
    "crates/manycore/src/oplog/log.rs",
    "crates/manycore/src/oplog/shuttle_tests.rs",
    "crates/manycore/tests/integration/oplog_tree.rs",
    "crates/manycore/tests/integration/properties.rs",
    "crates/manycore/tests/linearizability.rs",
    "crates/manycore/tests/stress.rs",
];

/// Where each collection is named.
const OF_COLLECTIONS: &[&str] =
    &["ARCHITECTURE.md", "docs/guide/choosing.md", "crates/manycore/src/lib.rs"];

/// Words that a fuzzer puts together.
const OF_COMMANDS: &str = "fuzz/dictionaries/text.dict";

fn text(path: &str) -> String {
    std::fs::read_to_string(walk::top().join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A source in which each `pub use` is one line.
fn with_uses_in_lines(source: &str) -> String {
    source.replace("{\n    ", "{").replace(",\n    ", ", ").replace(",\n};", "};")
}

/// Whether the text has the word, and not only as a part of another.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}

/// The names that a text lacks.
fn missing<'a>(path: &str, text: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let absent = names.filter(|name| !has_word(text, name));
    absent.map(|name| format!("{path} does not name {name}")).collect()
}

/// The first type that each module exports with `pub use`; for a module that exports one with the
/// module's own name, that one.
fn exported(source: &str) -> Vec<&str> {
    let uses = source.lines().filter_map(|line| line.strip_prefix("pub use ")?.split_once("::"));
    uses.filter_map(|(module, names)| {
        let names = names.trim_end_matches(';').trim_matches(['{', '}']);
        let camel = |name: &&str| name.to_lowercase() == module.replace('_', "");
        let mut all = names.split(", ");
        all.clone().find(camel).or_else(|| all.next())
    })
    .collect()
}

/// The types that a table links: `| ... | [Type] |`. (Without code marks: a browser breaks code in
/// a narrow column between any two letters.)
fn in_table(source: &str) -> BTreeSet<&str> {
    let rows = source.lines().filter(|line| line.starts_with("//! | "));
    let links = rows.flat_map(|row| row.split('[').skip(1)).filter_map(|rest| rest.split_once(']'));
    links.map(|(name, _)| name.trim_matches('`')).collect()
}

/// The words of a parser's arms: `b"word" | b"other" => `.
fn commands(source: &str) -> BTreeSet<&str> {
    let arm = |line: &&str| line.trim_start().starts_with("b\"") && line.contains(" => ");
    let patterns = source.lines().filter(arm).filter_map(|line| line.split_once(" => "));
    let words = patterns.flat_map(|(pattern, _)| {
        let pattern = pattern.split_once(" if ").map_or(pattern, |(pattern, _)| pattern);
        pattern.split('|').map(|word| word.trim().trim_start_matches('b').trim_matches('"'))
    });
    words.filter(|word| *word != "noreply").collect()
}

#[test]
fn every_kind_of_log_is_in_every_list() {
    let source = text("crates/manycore/src/oplog/kinds/mod.rs");
    let kinds = exported(&source);
    assert!(kinds.len() >= 5, "kinds were not found: {kinds:?}");
    let mut findings = Vec::new();
    for path in OF_KINDS {
        findings.extend(missing(path, &text(path), kinds.iter().copied()));
    }
    let table = in_table(&source);
    findings.extend(
        kinds
            .iter()
            .filter(|kind| !table.contains(*kind))
            .map(|kind| format!("the table of kinds has no row for {kind}")),
    );
    assert_eq!(findings, [""; 0]);
}

#[test]
fn every_collection_is_in_every_list() {
    let source = with_uses_in_lines(&text("crates/manycore/src/collections/mod.rs"));
    let table = in_table(&source);
    let collections = exported(&source);
    assert!(collections.len() >= 14, "collections were not found: {collections:?}");
    let mut findings = Vec::new();
    for path in OF_COLLECTIONS {
        findings.extend(missing(path, &text(path), collections.iter().copied()));
    }
    findings.extend(
        collections
            .iter()
            .filter(|name| !table.contains(*name))
            .map(|name| format!("the table of collections has no row for {name}")),
    );
    assert_eq!(findings, [""; 0]);
}

#[test]
fn every_text_command_is_known_to_the_fuzzer() {
    let source = text("crates/manycored/src/protocol/classic.rs");
    let commands = commands(&source);
    assert!(commands.len() > 20, "commands were not found: {commands:?}");
    let findings = missing(OF_COMMANDS, &text(OF_COMMANDS), commands.into_iter());
    assert_eq!(findings, [""; 0]);
}

/// The files that a page names in backquotes and that are not there, below the top or a crate.
/// Capitals stand for a name.
fn files_that_are_not_there(page: &str, files: &[walk::File]) -> Vec<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    let ends = [".rs", ".sh", ".py", ".toml", ".txt", ".md"];
    let is_path = |word: &&str| {
        let stands_for_a_name = ["NAME", "FILE", "WORKLOAD"].iter().any(|it| word.contains(it));
        ends.iter().any(|end| word.ends_with(end)) && !word.contains(' ') && !stands_for_a_name
    };
    let is_there = |word: &str| {
        let end = format!("/{word}");
        files.iter().any(|file| file.path == word || file.path.ends_with(&end))
    };
    quoted.filter(is_path).filter(|word| !is_there(word)).map(str::to_owned).collect()
}

#[test]
fn recipes_name_files_that_there_are() {
    let (page, files) = (text("docs/adding.md"), walk::files());
    assert_eq!(files_that_are_not_there(&page, &files), [""; 0]);
    let page = "`src/no_such.rs`, `src/NAME.rs`, `src/lib.rs`, `Cargo.toml` and `a word`";
    assert_eq!(files_that_are_not_there(page, &files), ["src/no_such.rs"]);
}

#[test]
fn names_that_a_list_lacks_are_caught() {
    let source = "pub use a_b::{Zero, AB};\npub use c::{Count, Error};\npub use d::D;\n\
        use std::e::E;\n//! | a list | [`AB`], [`D`] |\n/// [`Count`]\n";
    assert_eq!(exported(source), ["AB", "Count", "D"]);
    assert_eq!(in_table(source), BTreeSet::from(["AB", "D"]));
    let arms = "  b\"get\" | b\"gets\" => 1,\n  b\"lru\" if x => 2,\n  b\"noreply\" => 3,\n";
    assert_eq!(commands(arms), BTreeSet::from(["get", "gets", "lru"]));
    let found = missing("a.md", "`AB`, Counter and D.", ["AB", "Count", "D"].into_iter());
    assert_eq!(found, ["a.md does not name Count"]);
}

/// Names in the documents that are the system's, or another program's.
const FOREIGN: &[&str] = &[
    "MSG_ZEROCOPY",
    "cds_lfht",
    "cds_wfcq",
    "ck_fifo",
    "ck_ht",
    "ck_ring",
    "hazard_pointer",
    "sched_setattr",
];

/// Every name with an underscore in the code marks of `page` that is not among `names`.
fn stale_names(page: &str, names: &HashSet<&str>) -> Vec<String> {
    let mut found = Vec::new();
    for line in page.lines().filter(|line| !line.starts_with("    ")) {
        for code in line.split('`').skip(1).step_by(2) {
            let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '*');
            let words = code.split(|c: char| !is_part(c)).filter(|word| word.contains('_'));
            // `slab_*` and `loom_NAME` stand for many names.
            let whole = words.filter(|word| !word.contains('*') && !word.ends_with('_'));
            let unknown = whole.filter(|word| !names.contains(word) && !FOREIGN.contains(word));
            found.extend(unknown.map(str::to_owned));
        }
    }
    found
}

#[test]
fn names_in_the_documents_are_in_the_tree() {
    let files = walk::files();
    let (pages, others): (Vec<_>, Vec<_>) =
        files.iter().partition(|file| file.path.ends_with(".md"));
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let texts = others.iter().flat_map(|file| [&*file.text, &*file.path]);
    let words = texts.flat_map(|text| text.split(move |c: char| !is_part(c)));
    let names: HashSet<&str> = words.filter(|word| word.contains('_')).collect();
    // This page has the names of other libraries in its first columns.
    for page in pages.iter().filter(|page| !page.path.ends_with("coming-from.md")) {
        assert_eq!(stale_names(&page.text, &names), Vec::<String>::new(), "{}", page.path);
    }
    let page = "`a_b`, `Slab::gone_by`, a_c, `all_*`, `loom_`, `sched_setattr`\n    `code_d`\n";
    assert_eq!(stale_names(page, &HashSet::from(["a_b"])), ["gone_by"]);
}
