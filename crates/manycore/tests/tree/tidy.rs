//! House rules that a machine can check. CONTRIBUTING.md states them in words.

use crate::{
    lexer::{lex, tokens},
    walk,
};

/// Longest line of a Rust file, in characters.
const LINE_CHARS: usize = 100;
/// How many lines above an `unsafe` its reason may begin.
const REASON_LINES: usize = 6;
/// How a reason of an `unsafe` begins if it only points elsewhere.
const POINTERS: &[&str] = &["as above", "as below", "as in ", "as for ", "see ", "the caller's "];
/// Longest such reason, in words. A longer reason says something itself.
const POINTER_WORDS: usize = 5;

/// Marks of unfinished work. In two halves, so that this file does not contain them.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Macros of unfinished work.
const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];
/// Folders that exist on one machine only.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tm", "p/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/var/t", "mp"),
    concat!("/Us", "ers/"),
];

fn check_width(path: &str, text: &str) -> Vec<String> {
    // A row of a table in a documentation comment cannot be broken.
    let is_row = |line: &str| line.trim_start().trim_start_matches(['/', '!']).starts_with(" |");
    let wide = |line: &&str| line.chars().count() > LINE_CHARS && !is_row(line);
    let lines = text.lines().enumerate().filter(|(_, line)| wide(line));
    lines.map(|(i, _)| format!("{path}:{}: wider than {LINE_CHARS}", i + 1)).collect()
}

/// Returns a row of a table, outside of code, from its first bar on.
fn row(line: &str) -> Option<&str> {
    let text = line.trim_start_matches(' ').trim_start_matches(['/', '!']);
    let is_code = text.starts_with('|') && line.starts_with("    ");
    let text = text.strip_prefix(' ').unwrap_or(text).strip_prefix('|')?;
    (!is_code).then(|| text.trim_end())
}

/// Finds rows with another number of cells than the first row of their table. A row broken into two
/// lines counts as two rows.
fn check_tables(path: &str, text: &str) -> Vec<String> {
    let comments = walk::is_rust(path).then(|| lex(text).comments);
    let (mut fenced, mut cells) = (false, None);
    let mut findings = Vec::new();
    for (index, line) in comments.as_deref().unwrap_or(text).lines().enumerate() {
        fenced ^= line.trim_start().trim_start_matches(['/', '!', ' ']).starts_with("```");
        let Some(row) = row(line).filter(|_| !fenced) else {
            cells = None;
            continue;
        };
        let here = row.replace("\\|", "").matches('|').count();
        if *cells.get_or_insert(here) != here || !row.ends_with('|') {
            findings.push(format!("{path}:{}: a row of {here} cells", index + 1));
        }
    }
    findings
}

fn check_unsafe(path: &str, text: &str) -> Vec<String> {
    let lexed = lex(text);
    let comments: Vec<&str> = lexed.comments.lines().collect();
    let code = tokens(&lexed.code);
    code.windows(2)
        .filter(|pair| pair[0].text == "unsafe" && matches!(pair[1].text.as_str(), "{" | "impl"))
        .map(|pair| pair[0].line)
        .filter(|line| {
            let from = line.saturating_sub(REASON_LINES + 1);
            !comments[from..*line].iter().any(|comment| comment.contains("SAFETY"))
        })
        .map(|line| format!("{path}:{line}: no SAFETY comment within {REASON_LINES} lines above"))
        .collect()
}

/// Returns the reason that a SAFETY comment gives: the rest of its first line, and the lines that
/// continue it.
fn reason<'a>(mut comments: impl Iterator<Item = &'a str>) -> Option<String> {
    let (before, first) = comments.next()?.split_once("SAFETY:")?;
    let rest = comments
        .map_while(|line| line.trim().strip_prefix(before.trim()))
        .take_while(|line| !line.contains("SAFETY:"));
    Some(std::iter::once(first).chain(rest).map(str::trim).collect::<Vec<_>>().join(" "))
}

/// Returns whether a reason only points elsewhere. A reader must then look it up, and an author who
/// copies it does not look at all.
fn is_pointer(reason: &str) -> bool {
    let reason = reason.trim().trim_end_matches('.').to_lowercase() + " ";
    POINTERS.iter().any(|start| reason.starts_with(start))
        && reason.split_whitespace().count() <= POINTER_WORDS
        && !reason.contains([';', ':', '('])
}

fn check_pointers(path: &str, text: &str) -> Vec<String> {
    let comments = lex(text).comments;
    let lines: Vec<&str> = comments.lines().collect();
    (0..lines.len())
        .filter_map(|at| Some((at + 1, reason(lines[at..].iter().copied())?)))
        .filter(|(_, reason)| is_pointer(reason))
        .map(|(line, reason)| format!("{path}:{line}: only a pointer elsewhere: {}", reason.trim()))
        .collect()
}

fn check_marks(path: &str, text: &str) -> Vec<String> {
    let words = |line: &str, mark: &str| {
        line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == mark)
    };
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let marks = MARKS.iter().filter(|mark| words(line, mark));
        let paths = MACHINE_PATHS.iter().filter(|p| line.contains(**p));
        findings.extend(
            marks.chain(paths).map(|found| format!("{path}:{}: contains {found}", index + 1)),
        );
    }
    if walk::is_rust(path) {
        let code = tokens(&lex(text).code);
        findings.extend(
            code.windows(2)
                .filter(|pair| MACROS.contains(&pair[0].text.as_str()) && pair[1].text == "!")
                .map(|pair| format!("{path}:{}: calls {}!", pair[0].line, pair[0].text)),
        );
    }
    findings
}

/// Checks that tests which do not run by default are named where a reader finds the command that
/// runs them.
fn check_ignored(path: &str, text: &str, guide: &str) -> Vec<String> {
    let code = tokens(&lex(text).code);
    let mut findings = Vec::new();
    for (at, window) in code.windows(3).enumerate() {
        let texts: Vec<&str> = window.iter().map(|t| t.text.as_str()).collect();
        if texts != ["#", "[", "ignore"] {
            continue;
        }
        let name = code[at..].iter().skip_while(|t| t.text != "fn").nth(1).map(|t| t.text.as_str());
        if !name.is_some_and(|name| guide.contains(name)) {
            let (line, name) = (window[2].line, name.unwrap_or("?"));
            findings
                .push(format!("{path}:{line}: {name} is ignored, docs/testing.md has no command"));
        }
    }
    findings
}

/// Addresses of this repository, which a file's path follows.
const ADDRESSES: [&str; 3] = [
    "https://github.com/manycore-rs/manycore/blob/main/",
    "https://github.com/manycore-rs/manycore/tree/main/",
    "https://raw.githubusercontent.com/manycore-rs/manycore/main/",
];

/// Returns links of a Markdown file to files that do not exist. `exists` gets a relative target as
/// written, and an address of this repository as a path from its top that begins with a slash.
fn check_links(path: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // `[a](target)`, and `[a]: target` at the beginning of a line.
        let defined = line.starts_with('[').then(|| line.split_once("]: ")).flatten();
        for rest in line.split("](").skip(1).chain(defined.map(|(_, rest)| rest)) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
            let ours = ADDRESSES.iter().find_map(|address| target.strip_prefix(address));
            let is_there = match ours {
                Some(from_top) => exists(&format!("/{from_top}")),
                None => target.is_empty() || target.contains("://") || exists(target),
            };
            if !is_there {
                findings.push(format!("{path}:{}: no file {target}", index + 1));
            }
            // A registry shows it beside none of the other files.
            if path.ends_with("README.md") && !path.starts_with("docs/") && !target.contains("://")
            {
                findings.push(format!("{path}:{}: a relative link, {target}", index + 1));
            }
        }
    }
    findings
}

fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn rust_files_keep_the_house_rules() {
    let mut findings = Vec::new();
    let guide = std::fs::read_to_string(walk::top().join("docs/testing.md")).expect("the guide");
    for file in walk::rust_files() {
        let (path, text) = (&file.path, &file.text);
        findings.extend(check_width(path, text));
        findings.extend(check_unsafe(path, text));
        findings.extend(check_ignored(path, text, &guide));
    }
    assert_none(&findings);
}

#[test]
fn each_reason_of_unsafe_code_says_something_of_its_own() {
    let findings: Vec<String> =
        walk::rust_files().iter().flat_map(|f| check_pointers(&f.path, &f.text)).collect();
    assert_none(&findings);
}

#[test]
fn no_file_holds_marks_of_unfinished_work_or_machine_paths() {
    let findings: Vec<String> =
        walk::files().iter().flat_map(|f| check_marks(&f.path, &f.text)).collect();
    assert_none(&findings);
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    let mut findings = Vec::new();
    for file in walk::files().iter().filter(|f| f.path.ends_with(".md")) {
        let folder = walk::top().join(&file.path).parent().expect("a folder").to_path_buf();
        findings.extend(check_links(&file.path, &file.text, |to| match to.strip_prefix('/') {
            Some(from_top) => walk::top().join(from_top).exists(),
            None => folder.join(to).exists(),
        }));
    }
    assert_none(&findings);
}

#[test]
fn every_script_is_run_or_explained() {
    let files = walk::files();
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    let (run, guide) = (text(".ci/run"), text("docs/testing.md"));
    let missing: Vec<String> = files
        .iter()
        .map(|f| f.path.clone())
        .filter(|path| path.starts_with("ci/") && path.ends_with(".sh") && path != "ci/lib.sh")
        .filter(|path| !run.contains(path.as_str()) || !guide.contains(path.as_str()))
        .collect();
    assert_none(&missing);
}

/// Returns commands of the guide's table that say the wrong thing about `.ci/run`.
fn misplaced(guide: &str, run: &str) -> Vec<String> {
    let rows = guide.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let commands = rows.filter(|(command, _)| command.starts_with("ci/"));
    let is_out = |text: &str| text.contains("not in `.ci/run`") || text.contains("not a check");
    let is_run = |command: &str| {
        let steps = run.lines().filter_map(|line| line.trim().strip_prefix("step "));
        steps.into_iter().any(|step| step.split(" [").next().is_some_and(|step| step == command))
    };
    let script = |command: &str| command.split(' ').next().unwrap_or_default().to_owned();
    let in_short = |command: &str| {
        run.lines().any(|line| line.trim().starts_with(&format!("step {}", script(command))))
    };
    let wrong = commands.filter(|(command, text)| match is_out(text) {
        true => is_run(command),
        false => !in_short(command) && !text.contains("`.ci/run` runs its short form"),
    });
    wrong.map(|(command, text)| format!("{command}: {text}")).collect()
}

#[test]
fn guide_says_which_scripts_are_run() {
    let files = walk::files();
    let text = |path: &str| files.iter().find(|f| f.path == path).map_or("", |f| f.text.as_str());
    assert_none(&misplaced(text("docs/testing.md"), text(".ci/run")));
    let run = "    step ci/a.sh\n    step ci/b.sh --short\n";
    let (inside, out) = ("| `ci/a.sh` | x |\n| `ci/b.sh` | x |\n", " not in `.ci/run` |\n");
    assert_none(&misplaced(&format!("{inside}| `ci/a.sh all` |{out}| `ci/c.sh` |{out}"), run));
    assert_eq!(misplaced(&format!("| `ci/a.sh` |{out}| `ci/c.sh` | x |"), run).len(), 2);
}

#[test]
fn tables_have_as_many_cells_in_each_row() {
    let files = walk::files();
    let found = files.iter().filter(|f| f.path.ends_with(".md") || walk::is_rust(&f.path));
    let found: Vec<_> = found.flat_map(|file| check_tables(&file.path, &file.text)).collect();
    assert_none(&found);
    let table = "//! | a | b |\n//! |---|---|\n//! | c | [`d`] |\n";
    assert_none(&check_tables("a.rs", &format!("{table}//!\n//! ```\n//! |x| y\n//! ```\n")));
    assert_none(&check_tables("a.md", "| a |\n|---|\n| b \\| c |\n\n    | code\n"));
    let broken = table.replace("c | [", "c |\n//! [");
    assert_eq!(check_tables("a.rs", &broken), ["a.rs:3: a row of 1 cells"]);
    let broken = table.replace("[`d`] |", "[`d`]\n//! |");
    assert_eq!(check_tables("a.rs", &broken).len(), 2);
}

#[test]
fn long_lines_are_caught() {
    assert_eq!(check_width("a.rs", &"é".repeat(LINE_CHARS)), Vec::<String>::new());
    assert_eq!(check_width("a.rs", &"é".repeat(LINE_CHARS + 1)).len(), 1);
    let row = format!("//! | {} |", "é".repeat(LINE_CHARS));
    assert_eq!(check_width("a.rs", &row), Vec::<String>::new());
}

#[test]
fn unsafe_without_a_reason_is_caught() {
    let block = |lines| format!("// SAFETY: I1.\n{}{} {{ f() }}", "x;\n".repeat(lines), "unsafe");
    let (far, near) = (block(REASON_LINES), block(REASON_LINES - 1));
    assert_eq!(check_unsafe("a.rs", &far).len(), 1);
    assert_eq!(check_unsafe("a.rs", &near), Vec::<String>::new());
    assert_eq!(check_unsafe("a.rs", concat!("unsa", "fe impl Send for A {}")).len(), 1);
    assert_eq!(check_unsafe("a.rs", concat!("let s = \"SAFETY\"; unsa", "fe { f() }")).len(), 1);
    assert_eq!(check_unsafe("a.rs", "unsafe fn f(); // no block"), Vec::<String>::new());
}

#[test]
fn a_reason_that_only_points_elsewhere_is_caught() {
    let found = |comment: &str| check_pointers("a.rs", &format!("x;\n{comment}\ny;\n")).len();
    for pointer in ["as above.", "As below", "as for `read`.", "see above.", "the caller's duty."] {
        assert_eq!(found(&format!("    // SAFETY: {pointer}")), 1, "{pointer}");
        assert_eq!(found(&format!("    // SAFETY: list.L1 - {pointer}")), 0, "{pointer}");
        assert_eq!(found(&format!("// SAFETY: {pointer}\n// And the guard keeps it.")), 0);
        assert_eq!(found(&format!("let s = \"SAFETY: {pointer}\";")), 0, "{pointer}");
    }
    assert_eq!(found("// SAFETY: the caller's\n// duty, stated above."), 1);
    assert_eq!(found("// SAFETY: as above.\n// SAFETY: see above."), 2);
    assert_eq!(found("/// # // SAFETY: as above.\n/// # unsafe { f(a, b, c, d, e) }"), 1);
    assert_eq!(found("// SAFETY: as above; it has no links."), 0);
    assert_eq!(found("// SAFETY: the caller's section keeps the node."), 0);
    assert_eq!(found("// SAFETY: the lock is held."), 0);
}

#[test]
fn marks_macros_and_machine_paths_are_caught() {
    for mark in MARKS {
        assert_eq!(check_marks("a.md", &format!("later ({mark}: this)")).len(), 1, "{mark}");
        assert_eq!(check_marks("a.md", &format!("not{mark}s")), Vec::<String>::new());
    }
    for path in MACHINE_PATHS {
        assert_eq!(check_marks("a.sh", &format!("cd {path}x")).len(), 1, "{path}");
    }
    for name in MACROS {
        assert_eq!(check_marks("a.rs", &format!("{name}!(x)")).len(), 1, "{name}");
        assert_eq!(check_marks("a.rs", &format!("// {name}!(x)")), Vec::<String>::new());
    }
}

#[test]
fn ignored_tests_without_a_command_are_caught() {
    let source = format!("#[test]\n#[{} = \"long\"]\nfn soak() {{}}\n", "ignore");
    assert_eq!(check_ignored("a.rs", &source, "no word of it").len(), 1);
    assert_eq!(check_ignored("a.rs", &source, "run `soak` so"), Vec::<String>::new());
}

#[test]
fn dead_links_are_caught() {
    let text = "[a](there.md#part) ![b](img/gone.svg) [c](https://example.org/x) [d](#here)";
    let findings = check_links("a.md", text, |target| target == "there.md");
    assert_eq!(findings, ["a.md:1: no file img/gone.svg"]);
    let (there, gone) = (format!("{}there", ADDRESSES[0]), format!("{}gone", ADDRESSES[1]));
    let text = format!("[a]({there})\n[b]: {gone}\n[c](there.md)\n");
    let found = check_links("README.md", &text, |target| ["/there", "there.md"].contains(&target));
    assert_eq!(found.len(), 2, "{found:?}");
}
