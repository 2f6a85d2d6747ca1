//! Splits Rust text into code, comments and literals, and keeps the line structure.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A source text in the two forms that the rules need.
#[derive(Clone)]
pub struct Lexed {
    /// Comments and the contents of literals replaced by spaces: what the compiler sees as code.
    pub code: Arc<str>,
    /// Only the comments, everything else replaced by spaces.
    pub comments: Arc<str>,
}

/// The texts that were lexed before: each rule reads the whole tree.
static LEXED: LazyLock<Mutex<HashMap<String, Lexed>>> = LazyLock::new(Mutex::default);

/// The kind of text that the scanner is in.
#[derive(Clone, Copy, PartialEq)]
enum Within {
    Code,
    LineComment,
    BlockComment(u32),
    Text { hashes: u32, raw: bool },
}

/// Splits `source` into code and comments. Good enough for formatted, compiling Rust.
pub fn lex(source: &str) -> Lexed {
    let known = || LEXED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lexed) = known().get(source) {
        return lexed.clone();
    }
    let lexed = lex_anew(source);
    known().insert(source.to_owned(), lexed.clone());
    lexed
}

fn lex_anew(source: &str) -> Lexed {
    let chars: Vec<char> = source.chars().collect();
    let (mut in_code, mut in_comments) = (String::new(), String::new());
    let mut within = Within::Code;
    let mut at = 0;
    while at < chars.len() {
        let (taken, next) = step(&chars[at..], within, last_word_char(&in_code));
        for &c in &chars[at..at + taken] {
            let comment = matches!(within, Within::LineComment | Within::BlockComment(_))
                || matches!(next, Within::LineComment | Within::BlockComment(_));
            let code = within == Within::Code && next == Within::Code && taken == 1;
            in_comments.push(if comment || c == '\n' { c } else { ' ' });
            in_code.push(if code || c == '\n' { c } else { ' ' });
        }
        at += taken;
        within = next;
    }
    Lexed { code: in_code.into(), comments: in_comments.into() }
}

/// Returns whether the code so far ends inside a word, so that a following `r"` is not a raw
/// string.
fn last_word_char(code: &str) -> bool {
    code.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// Returns how many characters at the head of `rest` belong together, and the state after them.
fn step(rest: &[char], within: Within, after_word: bool) -> (usize, Within) {
    let second = rest.get(1).copied();
    match within {
        Within::Code => match (rest[0], second) {
            ('/', Some('/')) => (2, Within::LineComment),
            ('/', Some('*')) => (2, Within::BlockComment(1)),
            ('\'', _) => (quote_length(rest), Within::Code),
            _ => literal_start(rest, after_word).unwrap_or((1, Within::Code)),
        },
        Within::LineComment if rest[0] == '\n' => (1, Within::Code),
        Within::BlockComment(depth) => match (rest[0], second) {
            ('*', Some('/')) if depth == 1 => (2, Within::Code),
            ('*', Some('/')) => (2, Within::BlockComment(depth - 1)),
            ('/', Some('*')) => (2, Within::BlockComment(depth + 1)),
            _ => (1, within),
        },
        Within::Text { raw: false, .. } if rest[0] == '\\' && rest.len() > 1 => (2, within),
        Within::Text { hashes, .. } if rest[0] == '"' => {
            let closing = rest[1..].iter().take(hashes as usize).filter(|&&c| c == '#').count();
            if closing == hashes as usize { (1 + closing, Within::Code) } else { (1, within) }
        }
        Within::LineComment | Within::Text { .. } => (1, within),
    }
}

/// Returns the start of a string literal at the head of `rest`, with its prefix: `"`, `b"`, `r#"`,
/// `cr"`.
fn literal_start(rest: &[char], after_word: bool) -> Option<(usize, Within)> {
    let mut at = 0;
    let mut raw = false;
    if !after_word {
        if matches!(rest.first(), Some('b' | 'c')) {
            at += 1;
        }
        if rest.get(at) == Some(&'r') {
            raw = true;
            at += 1;
        }
    }
    let hashes = if raw { rest[at..].iter().take_while(|&&c| c == '#').count() } else { 0 };
    (rest.get(at + hashes) == Some(&'"'))
        .then(|| (at + hashes + 1, Within::Text { hashes: hashes as u32, raw }))
}

/// Returns the length of a character literal at the head of `rest`, or 1 for a lifetime's quote.
fn quote_length(rest: &[char]) -> usize {
    match rest.get(1) {
        Some('\\') => 3 + rest[3.min(rest.len())..].iter().take_while(|&&c| c != '\'').count() + 1,
        Some(_) if rest.get(2) == Some(&'\'') => 3,
        _ => 1,
    }
    .min(rest.len())
}

/// One token of code.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// A word, `::`, or one character of punctuation.
    pub text: String,
    /// Counted from 1.
    pub line: usize,
}

impl Token {
    /// Whether this is an identifier or keyword.
    pub fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// Returns the tokens of `code` (as [`lex`] gives it).
pub fn tokens(code: &str) -> Vec<Token> {
    let mut out = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = if word(first) {
                rest.find(|c| !word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            out.push(Token { text: rest[..length].to_string(), line: index + 1 });
            rest = rest[length..].trim_start();
        }
    }
    out
}

#[test]
fn comments_and_literals_leave_the_code() {
    let source = concat!(
        "let a = \"x // no \\\" comment\"; // real\n",
        "/* outer /* inner */ still */ let b = r#\"raw \" end\"#;\n",
        "let c = '\"'; let d = '\\''; fn f<'a>(x: &'a str) {} // it's\n",
        "let e = b\"bytes\"; let variable = br\"raw\"; hdr\"no\";\n",
    );
    let lexed = lex(source);
    for gone in ["real", "still", "raw", "bytes", "comment", "it's"] {
        assert!(!lexed.code.contains(gone), "{gone} should not be code:\n{}", lexed.code);
    }
    for kept in ["let a =", "let b =", "let d =", "fn f<'a>(x: &'a str) {}", "let variable ="] {
        assert!(lexed.code.contains(kept), "{kept} should be code:\n{}", lexed.code);
    }
    for comment in ["// real", "/* outer /* inner */ still */", "// it's"] {
        assert!(lexed.comments.contains(comment), "{comment} is a comment");
    }
    assert!(!lexed.comments.contains("no \\\" comment"));
    assert_eq!(lexed.code.lines().count(), source.lines().count());
    assert_eq!(lexed.comments.lines().count(), source.lines().count());
}

#[test]
fn tokens_know_their_lines() {
    let found = tokens("use crate::a_1;\nx");
    let texts: Vec<&str> = found.iter().map(|t| t.text.as_str()).collect();
    assert_eq!(texts, ["use", "crate", "::", "a_1", ";", "x"]);
    assert_eq!(found[5].line, 2);
    assert!(found[0].is_word() && !found[2].is_word());
}
