//! The examples stay as short as the paper says OpLog makes them (Figures 7, 8 and 13).

use crate::{lexer::lex, walk};

/// Marker name, file below `crates/manycore/examples`, and the most lines it may take.
const LIMITS: &[(&str, &str, usize)] = &[
    ("rmap", "rmap.rs", 45),
    ("counter", "counter_log.rs", 30),
    ("notify", "notify.rs", 11),
    ("open_files", "open_files.rs", 8),
];

/// The examples that also show what a program writes without the library.
const BY_HAND: &[&str] = &["notify", "open_files"];

/// The lines of code between `// begin: NAME` and `// end: NAME`: neither blank nor comment.
fn lines_of_code(source: &str, name: &str) -> Result<usize, String> {
    let marker = |word: &str| {
        let wanted = format!("// {word}: {name}");
        let mut found = source.lines().enumerate().filter(|(_, line)| line.trim() == wanted);
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Ok(at),
            (None, _) => Err(format!("no line `{wanted}`")),
            (Some(_), Some(_)) => Err(format!("more than one line `{wanted}`")),
        }
    };
    let (begin, end) = (marker("begin")?, marker("end")?);
    if end <= begin {
        return Err(format!("the end of {name} stands before its beginning"));
    }
    let code = lex(source).code;
    let between = code.lines().zip(source.lines()).skip(begin + 1).take(end - begin - 1);
    // A line inside a multi-line literal is blank as code, but it is no comment.
    let counted = between.filter(|(code, text)| {
        !code.trim().is_empty() || !(text.trim().is_empty() || text.trim().starts_with("//"))
    });
    match counted.count() {
        0 => Err(format!("nothing between the markers of {name}")),
        lines => Ok(lines),
    }
}

/// What `lines_of_code` says of an example.
fn lines_of_example(file: &str, name: &str) -> Result<usize, String> {
    let path = walk::top().join("crates/manycore/examples").join(file);
    std::fs::read_to_string(&path)
        .map_err(|error| error.to_string())
        .and_then(|source| lines_of_code(&source, name))
        .map_err(|error| format!("{file}: {error}"))
}

#[test]
fn examples_take_no_more_lines_than_the_paper() {
    let mut findings = Vec::new();
    for (name, file, limit) in LIMITS {
        match lines_of_example(file, name) {
            Ok(lines) if lines <= *limit => println!("{name}: {lines} lines of at most {limit}"),
            Ok(lines) => {
                findings.push(format!("{file}: {name} takes {lines} lines, limit {limit}"))
            }
            Err(error) => findings.push(error),
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn examples_by_hand_take_several_times_the_lines() {
    let mut findings = Vec::new();
    for (name, file, limit) in LIMITS.iter().filter(|(name, _, _)| BY_HAND.contains(name)) {
        match lines_of_example(file, &format!("{name} by hand")) {
            Ok(lines) if lines > 2 * limit => println!("{name} by hand: {lines} lines"),
            Ok(lines) => findings.push(format!("{file}: {name} by hand takes {lines} lines only")),
            Err(error) => findings.push(error),
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn only_code_between_the_markers_counts() {
    let source = "a\n// begin: x\nlet a;\n\n// note\n/// doc\nlet b; // note\n// end: x\nlet c;\n";
    assert_eq!(lines_of_code(source, "x"), Ok(2));
}

#[test]
fn missing_doubled_swapped_and_empty_markers_are_caught() {
    let wrong = [
        "let a;\n// end: x\n",
        "// begin: x\nlet a;\n",
        "// begin: x\n// begin: x\nlet a;\n// end: x\n",
        "// end: x\nlet a;\n// begin: x\n",
        "// begin: x\n// nothing\n// end: x\n",
    ];
    for source in wrong {
        assert!(lines_of_code(source, "x").is_err(), "{source}");
    }
}
