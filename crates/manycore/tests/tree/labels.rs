//! Labels of laws: `file.X1`, named after the file whose header defines them; each is defined once,
//! and cited somewhere. `docs/laws.md` says where each family is: `MANYCORE_ACCEPT=1 cargo test -p
//! manycore --test tree laws` writes it anew.

use crate::{lexer::lex, walk};
use std::collections::{BTreeMap, BTreeSet};

/// Words that look like a bare label and are none.
const WORDS: &[&str] = &["K42", "S3", "D12", "C11", "A64", "X86"];
/// The folders whose laws have labels.
const FOLDERS: &[&str] =
    &["crates/manycore/", "crates/manycore-cache/", "crates/manycore-sim-rt/", "crates/manycored/"];
/// This folder: its texts are about labels, so it is skipped.
const OWN: &str = "crates/manycore/tests/tree/";

/// Returns the words of a text that look like a label, bare (`X1`) or with a module (`name.X1`).
fn labels(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches('.'));
    words.filter(|word| is_bare(word.rsplit('.').next().unwrap_or_default())).collect()
}

/// Returns whether the word is a capital letter and a number of one or two digits.
fn is_bare(word: &str) -> bool {
    let mut chars = word.chars();
    chars.next().is_some_and(|c| c.is_ascii_uppercase())
        && (2..=3).contains(&word.len())
        && chars.all(|c| c.is_ascii_digit())
}

/// Returns the label that a line of a module header defines.
fn defined(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//!")?;
    let item = text.trim_start().strip_prefix("- ").map(|item| item.trim_start_matches('*'));
    let law = || {
        text.split("Law ").nth(1).filter(|law| {
            labels(law).first().is_some_and(|label| {
                law.trim_start_matches('*').strip_prefix(label).is_some_and(|rest| {
                    rest.trim_start_matches('*').starts_with(':') || rest.starts_with("** ")
                })
            })
        })
    };
    let text = item.or_else(law)?.trim_start_matches('*');
    let label = *labels(text).first()?;
    (text.starts_with(label) && label.contains('.')).then_some(label)
}

fn check(files: &[(&str, &str)]) -> Vec<String> {
    let mut definitions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut cited: BTreeMap<&str, String> = BTreeMap::new();
    let mut findings = Vec::new();
    for (path, text) in files {
        let comments = lex(text).comments;
        for (at, (line, comment)) in text.lines().zip(comments.lines()).enumerate() {
            let place = format!("{path}:{}", at + 1);
            let own = defined(line);
            if let Some(label) = own {
                definitions.entry(label).or_default().push(place.clone());
            }
            for label in labels(line) {
                if label.contains('.') && !label.starts_with('.') {
                    if own != Some(label) && is_module(label) {
                        cited.entry(label).or_insert_with(|| place.clone());
                    }
                } else if labels(comment).contains(&label) && !WORDS.contains(&label) {
                    findings.push(format!("{place}: {label} does not say of which module it is"));
                }
            }
        }
    }
    for (label, places) in definitions.iter().filter(|(_, places)| places.len() > 1) {
        findings.push(format!("{label} is defined in {}", places.join(" and ")));
    }
    for (label, place) in cited.iter().filter(|(label, _)| !definitions.contains_key(*label)) {
        findings.push(format!("{place}: there is no law {label}"));
    }
    let idle = definitions.iter().filter(|(label, _)| !cited.contains_key(*label));
    findings.extend(idle.map(|(label, places)| format!("{}: {label} is not cited", places[0])));
    findings
}

/// The names that laws of a file may have: its own, or that with its folder's before it, where
/// another file has the same. A `mod.rs` or `lib.rs` has its folder's or crate's.
fn names(path: &str) -> [String; 2] {
    let parts: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    let crate_name = parts[1].trim_start_matches("manycore-").replace('-', "_");
    let name = |at: usize| match parts[at] {
        "src" => crate_name.clone(),
        name => name.to_owned(),
    };
    let last = parts.len() - 1;
    let last = if matches!(parts[last], "mod" | "lib" | "main") { last - 1 } else { last };
    [name(last), format!("{}_{}", name(last - 1), name(last))]
}

/// The laws that each file defines, as rows of the index: a family and its numbers.
fn index(files: &[walk::File]) -> (String, Vec<String>) {
    let mut rows = BTreeSet::new();
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !file.path.starts_with(OWN)) {
        let mut families: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for label in file.text.lines().filter_map(defined) {
            let (name, law) = label.split_once('.').unwrap_or_default();
            if !names(&file.path).iter().any(|own| own == name) {
                findings.push(format!("{}: {label} is not named after the file", file.path));
            }
            let number = law[1..].parse().expect("a number");
            families.entry(format!("{name}.{}", &law[..1])).or_default().insert(number);
        }
        for (family, numbers) in families {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            let (shown, path) = (numbers.join(", "), &file.path);
            let short = path.trim_start_matches("crates/").replace("/src/", "/");
            rows.insert(format!("| `{family}` | {shown} | [{short}](../{path}) |\n"));
        }
    }
    (rows.into_iter().collect(), findings)
}

const INDEX: &str = "# Laws

A label such as `hot_state.C1` names a law: the file `hot_state.rs` defines it in its header, and
comments, assertions and planted bugs cite it. A test generates this page.

| Family | Laws | Where |
|---|---|---|
";

#[test]
fn laws_are_named_after_their_files_and_have_an_index() {
    let (rows, findings) = index(&walk::rust_files());
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    let (path, page) = (walk::top().join("docs/laws.md"), format!("{INDEX}{rows}"));
    if std::env::var_os("MANYCORE_ACCEPT").is_some() {
        std::fs::write(&path, &page).expect("the page is writable");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == page, "docs/laws.md is not up to date: see the head of labels.rs");

    let file = |path: &str, text: &str| walk::File { path: path.into(), text: text.into() };
    let a = file("crates/manycore/src/lock/br.rs", "//! - br.R2 A.\n//! - br.R1 B.\n");
    let (rows, findings) =
        index(&[a, file("crates/manycore-cache/src/lib.rs", "//! - cache.A1 C.\n")]);
    assert_eq!(findings, [""; 0]);
    assert!(rows.contains("| `br.R` | 1, 2 | [manycore/lock/br.rs](") && rows.contains("cache.A"));
    let (_, findings) = index(&[file("crates/manycore/src/lock/br.rs", "//! - lock.R2 A.\n")]);
    assert_eq!(findings, ["crates/manycore/src/lock/br.rs: lock.R2 is not named after the file"]);
}

/// Returns whether the text before the last dot is a module's name.
fn is_module(label: &str) -> bool {
    let name = label.rsplit_once('.').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

#[test]
fn each_law_is_defined_once_and_cited() {
    let files = walk::rust_files();
    let texts: Vec<(&str, &str)> = files
        .iter()
        .filter(|file| FOLDERS.iter().any(|folder| file.path.starts_with(folder)))
        .filter(|file| !file.path.starts_with(OWN))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let modules: BTreeSet<&str> = texts
        .iter()
        .flat_map(|(_, text)| text.lines().filter_map(defined))
        .filter_map(|label| label.split('.').next())
        .collect();
    assert!(modules.len() > 30, "laws of {} modules only", modules.len());
    let findings = check(&texts);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn bare_unknown_double_and_idle_labels_are_found() {
    let law = "//! - slab.B1 Blocks go home.\n";
    assert_eq!(check(&[("a.rs", law), ("b.rs", "// See slab.B1.")]), Vec::<String>::new());
    assert_eq!(check(&[("a.rs", law)]), ["a.rs:1: slab.B1 is not cited"]);
    assert_eq!(check(&[("a.rs", "f(); // slab.B2")]), ["a.rs:1: there is no law slab.B2"]);
    assert_eq!(
        check(&[("a.rs", "// By B1, as in K42.")]),
        ["a.rs:1: B1 does not say of which module it is"]
    );
    let twice = check(&[("a.rs", law), ("b.rs", law), ("c.rs", "// slab.B1")]);
    assert_eq!(twice, ["slab.B1 is defined in a.rs:1 and b.rs:1"]);
    let both = "//! Law tree.T1: sorted.\n//! - **tree.T2** Full.\n// tree.T1, \"tree.T2\"\n";
    assert_eq!(check(&[("a.rs", both)]), Vec::<String>::new());
}
