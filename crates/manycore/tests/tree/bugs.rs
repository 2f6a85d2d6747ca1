//! Planted bugs: each must be explained beside the law that it breaks, and caught by a test.

use crate::walk;
use std::collections::{BTreeMap, BTreeSet};

/// The text that plants a bug. In two halves, so that this file does not plant one.
const PLANTS: &str = concat!("seeded_", "bug!(\"");
/// The calls that demand that a bug is caught; the bug's name is the first argument.
const DEMANDS: &[&str] = &["catches(", "catches_in_full(", "must_catch(", "must_catch_in_full("];
const DEMANDS_OF_HISTORIES: &[&str] = &["must_reject(", "\"MANYCORE_SEEDED_BUG\","];
/// How many lines above a bug its comment may begin.
const COMMENT_LINES: usize = 5;

/// Returns the text with each run of white space made one space, or nothing after a bracket.
fn folded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("( ", "(")
}

/// Returns the string literals that follow `marker`.
fn named_after<'a>(text: &'a str, marker: &str) -> Vec<&'a str> {
    let behind = text.match_indices(marker).map(|(at, _)| text[at + marker.len()..].trim_start());
    let literals = behind.filter_map(|rest| rest.strip_prefix('"')?.split('"').next());
    literals.filter(|name| !name.contains(' ')).collect()
}

/// Returns whether tests in this file demand that bugs are caught.
fn is_test(path: &str) -> bool {
    path.contains("tests") || path.contains("/seeded")
}

fn check(files: &[(&str, &str)]) -> Vec<String> {
    let mut planted: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    let mut caught = BTreeSet::new();
    let mut findings = Vec::new();
    for (path, text) in files {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(PLANTS)) {
            let above = &lines[at.saturating_sub(COMMENT_LINES)..at];
            let has_words = above.iter().any(|line| line.trim_start().starts_with("// BUG: "));
            for name in line.split(PLANTS).skip(1).filter_map(|rest| rest.split('"').next()) {
                let place = (format!("{path}:{}", at + 1), has_words);
                planted.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    for (path, text) in files.iter().filter(|(path, _)| is_test(path)) {
        let text = folded(text);
        for marker in DEMANDS.iter().chain(DEMANDS_OF_HISTORIES) {
            for name in named_after(&text, marker) {
                if planted.contains_key(name) {
                    caught.insert(name.to_owned());
                } else {
                    findings.push(format!("{path}: there is no bug {name}"));
                }
            }
        }
    }
    for (name, places) in &planted {
        let (place, _) = &places[0];
        if !places.iter().any(|(_, has_words)| *has_words) {
            findings.push(format!("{place}: {name} has no comment `// BUG: ...`"));
        }
        if !caught.contains(name) {
            findings.push(format!("{place}: {name} has no test that must catch it"));
        }
    }
    findings
}

#[test]
fn each_planted_bug_is_explained_and_caught() {
    let files = walk::rust_files();
    let texts: Vec<(&str, &str)> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let planted = texts.iter().filter(|(_, text)| text.contains(PLANTS)).count();
    assert!(planted > 20, "bugs are planted in {planted} files only");
    let findings = check(&texts);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn bugs_without_words_or_tests_are_found() {
    let bug = format!("// BUG: no lock.\nif {PLANTS}no-lock\") {{}}\n");
    let test = "catches(\n    \"no-lock\", &[])";
    let of = |source: &str, test: &str| check(&[("a.rs", source), ("loom_tests.rs", test)]);
    assert_eq!(of(&bug, test), Vec::<String>::new());
    assert_eq!(of(&bug, ""), ["a.rs:2: no-lock has no test that must catch it"]);
    let mute = bug.replace("// BUG: ", "// ");
    assert_eq!(of(&mute, test), ["a.rs:2: no-lock has no comment `// BUG: ...`"]);
    assert_eq!(of("", test), ["loom_tests.rs: there is no bug no-lock"]);
}
