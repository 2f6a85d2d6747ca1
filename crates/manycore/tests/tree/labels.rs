//! Labels of laws, like `module.X1`: each is defined once in a module header, and cited somewhere.

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
