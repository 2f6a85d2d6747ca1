//! The words of prose: the field's terms, and sentences whose subjects are things of the program.
//!
//! A reader searches for the term that he knows, so each thing has that name and no private one.
//! Looks at documents (all but code) and at the comments of Rust files (all but code in marks).

use crate::{lexer::lex, walk};
use std::collections::HashMap;

/// What is not written, and what stands there instead. A pattern is a row of whole words.
const PATTERNS: &[(&str, &str)] = &[
    ("nobody", "no thread, no reader, no caller"),
    ("somebody", "a thread, a caller, a user"),
    ("anybody", "any thread, a reader"),
    ("everybody", "all threads, all readers"),
    ("whoever", "the thread that, the caller that"),
    ("who", "the thread that, the lock holder, the caller"),
    ("whom", "the thread that, the waiter that"),
    ("meanwhile", "while it waits, in between, concurrently"),
    ("dear", "expensive"),
    ("dearer", "more expensive"),
    ("dearest", "most expensive"),
    ("puts off", "defers"),
    ("put off", "deferred"),
    ("puts down", "appends"),
    ("put down", "appended"),
    ("swings", "stores, swaps, compare-exchanges"),
    ("live shortly", "are short-lived"),
    ("lives shortly", "is short-lived"),
    ("of no account", "ignored"),
    ("left to itself", "in `Auto` mode, by default"),
    ("whatever becomes of it", "even if it is replaced or removed"),
    ("fit for use", "the poison flag is cleared"),
    ("falls idle", "goes idle"),
    ("falls asleep", "blocks, parks, stalls"),
    ("builder says nothing", "by default"),
    ("unless said", "by default"),
    ("nothing is said", "by default"),
    ("memory nodes", "NUMA nodes"),
    ("heat", "frequency, contention"),
    ("to and fro", "back and forth"),
    ("mend", "fix, repair"),
    ("mends", "fixes, repairs"),
    ("mended", "fixed, repaired"),
];

/// Identifiers that code does not use, and the field's word.
const NAMES: &[(&str, &str)] = &[
    ("Circle", "Deadlock"),
    ("would_wait_in_a_circle", "would_deadlock"),
    ("is_logged", "is_hot"),
    ("PerCore", "PerThread: a thread's slot is no core"),
    ("Spread", "Distribution"),
    ("is_spread", "is_distributed"),
    ("SpreadReason", "DistributionReason"),
    ("Spot", "BatchKey, Lookup"),
    ("heat", "frequency, contention"),
    ("ColdHold", "ColdGuard"),
    ("hold_logged", "acquire_hot"),
    ("append_managed", "append_to_logs"),
    ("pin_if_there", "pin_if_cached"),
    ("settle_raw", "dequeue_raw"),
    ("Place", "what lies there: EntrySlot, CallPath, SearchResult"),
    ("Resident", "Evictable"),
    ("residents", "hot_objects"),
    ("blind_panics", "update_panics"),
    ("lean", "without_metadata"),
    ("Wish", "Request"),
];

/// Of the patterns, those that literals (messages, help) do not have either.
const IN_LITERALS: &[&str] =
    &["nobody", "somebody", "anybody", "everybody", "whoever", "meanwhile", "puts off", "put off"];

/// Folders and files that are not clean yet. The list only shrinks: one that is clean leaves it.
const NOT_YET: &[&str] = &[];

/// A word of prose in small letters, without `'s`, and its line.
type Word = (String, usize);

/// Every private name that the code of `text` uses, as findings.
fn check_names(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in lex(text).code.lines().enumerate() {
        for word in line.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if let Some((name, instead)) = NAMES.iter().find(|(name, _)| *name == word) {
                findings.push(format!("{path}:{}: `{name}`: {instead}", index + 1));
            }
        }
    }
    findings
}

/// The contents of literals in `text`, everything else replaced by spaces.
fn literals(text: &str) -> String {
    let lexed = lex(text);
    let rest = lexed.code.chars().zip(lexed.comments.chars());
    let chars = text.chars().zip(rest);
    chars.map(|(c, rest)| if rest == (' ', ' ') || c == '\n' { c } else { ' ' }).collect()
}

/// The prose of a document, or of comments: what is not in a fenced block of code.
fn without_fences(text: &str) -> String {
    let mut fenced = false;
    let mut out = String::new();
    for line in text.lines() {
        let bare = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        let is_fence = bare.starts_with("```");
        fenced ^= is_fence;
        if !fenced && !is_fence {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

/// The words of `prose`, without what stands in code marks.
fn words(prose: &str) -> Vec<Word> {
    let mut found = Vec::new();
    for (index, line) in prose.lines().enumerate() {
        // A mark without its pair belongs to code of several lines; that line is all prose.
        let parts: Vec<&str> = line.split('`').collect();
        let paired = parts.len() % 2 == 1;
        let plain = parts.iter().enumerate().filter(|(at, _)| !paired || at % 2 == 0);
        for part in plain.map(|(_, part)| part) {
            let split = part.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
            let bare = split.map(|word| word.trim_matches('\'').trim_end_matches("'s"));
            found.extend(bare.filter(|w| !w.is_empty()).map(|w| (w.to_lowercase(), index + 1)));
        }
    }
    found
}

/// Every pattern that stands in `text`, as findings.
fn check(path: &str, text: &str) -> Vec<String> {
    if !walk::is_rust(path) {
        return find(path, &words(&without_fences(text)), |_| true);
    }
    let mut findings = find(path, &words(&without_fences(&lex(text).comments)), |_| true);
    let is_held_out = |pattern: &str| IN_LITERALS.contains(&pattern);
    findings.extend(find(path, &words(&literals(text)), is_held_out));
    findings
}

/// Those of the patterns `of` that are among `words`.
fn find(path: &str, words: &[Word], of: impl Fn(&str) -> bool) -> Vec<String> {
    let mut by_first: HashMap<&str, Vec<(Vec<&str>, &str)>> = HashMap::new();
    for (pattern, instead) in PATTERNS.iter().filter(|(pattern, _)| of(pattern)) {
        let pattern: Vec<&str> = pattern.split(' ').collect();
        by_first.entry(pattern[0]).or_default().push((pattern, instead));
    }
    let mut findings = Vec::new();
    for (at, (word, line)) in words.iter().enumerate() {
        for (pattern, instead) in by_first.get(word.as_str()).into_iter().flatten() {
            let here = words[at..].iter().take(pattern.len()).map(|(word, _)| word);
            if here.eq(pattern.iter()) {
                findings.push(format!("{path}:{line}: \"{}\": {instead}", pattern.join(" ")));
            }
        }
    }
    findings
}

fn is_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[test]
fn documents_and_comments_speak_the_field_s_language() {
    let mut unclean: Vec<(&str, bool)> = NOT_YET.iter().map(|place| (*place, false)).collect();
    let mut findings = Vec::new();
    let own = |path: &str| path.ends_with("tree/dialect.rs");
    let files = walk::files();
    let prose = |path: &str| path.ends_with(".md") || (walk::is_rust(path) && !own(path));
    for file in files.iter().filter(|file| prose(&file.path)) {
        match unclean.iter_mut().find(|(place, _)| is_below(&file.path, place)) {
            Some((_, seen)) => *seen = *seen || !check(&file.path, &file.text).is_empty(),
            None => findings.extend(check(&file.path, &file.text)),
        }
    }
    let clean = unclean.iter().filter(|(_, seen)| !seen);
    findings.extend(clean.map(|(place, _)| format!("NOT_YET: {place} is clean, take it out")));
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn code_uses_the_field_s_names() {
    let files = walk::files();
    let rust = files.iter().filter(|file| walk::is_rust(&file.path));
    let findings: Vec<_> = rust.flat_map(|file| check_names(&file.path, &file.text)).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn names_are_found_in_code_and_not_elsewhere() {
    for (name, _) in NAMES {
        assert_eq!(check_names("a.rs", &format!("let a = {name}::{name}();")).len(), 2, "{name}");
        let other = format!("let un{name}s = \"{name}\"; // {name}");
        assert_eq!(check_names("a.rs", &other), Vec::<String>::new());
    }
}

#[test]
fn patterns_are_found_in_prose_and_not_in_code() {
    for (pattern, _) in PATTERNS {
        let [big, small] = [pattern.to_uppercase(), pattern.to_lowercase()];
        for text in [format!("If {big}, so."), format!("{small}'s")] {
            assert_eq!(check("a.md", &text).len(), 1, "{text}");
            assert_eq!(check("a.rs", &format!("f(); // {text}")).len(), 1, "{text}");
        }
        let code = format!("let a = \"{small}\";");
        let found = usize::from(IN_LITERALS.contains(pattern));
        assert_eq!(check("a.rs", &code).len(), found, "{code}");
        assert_eq!(check("a.md", &format!("```rust\n{code}\n```\nx")), Vec::<String>::new());
        assert_eq!(check("a.rs", &format!("/// ```\n/// {code}\n/// ```")), Vec::<String>::new());
        assert_eq!(check("a.md", &format!("see `{code}`")), Vec::<String>::new());
        assert_eq!(check("a.md", &format!("un{small}s, {small}_x")), Vec::<String>::new());
    }
    let found = check("a.rs", "x;\n/// It puts\n/// off the call.\n");
    assert_eq!(found, ["a.rs:2: \"puts off\": defers"]);
}

#[test]
fn places_are_whole_names() {
    assert!(is_below("crates/a/src/b.rs", "crates/a") && is_below("a.rs", "a.rs"));
    assert!(!is_below("crates/ab/src/b.rs", "crates/a"));
}
