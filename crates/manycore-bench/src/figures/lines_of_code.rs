//! Checks that the examples stay as short as the paper says OpLog makes them (Figures 7, 8 and 13).

use std::path::Path;

/// Name of the markers, file, the most lines, and whether the file also shows by hand what a
/// program writes without the library.
const EXAMPLES: &[(&str, &str, usize, bool)] = &[
    ("rmap", "rmap.rs", 45, false),
    ("counter", "counter_log.rs", 30, false),
    ("notify", "notify.rs", 11, true),
    ("open_files", "open_files.rs", 8, true),
];

/// The lines between `// begin: NAME` and `// end: NAME` that are neither blank nor comments, if
/// each marker is there once.
fn lines_of_code(source: &str, name: &str) -> Option<usize> {
    let [begin, end] = ["begin", "end"].map(|word| format!("// {word}: {name}"));
    let mut lines = source.lines().map(str::trim).skip_while(|line| *line != begin).skip(1);
    let code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    let between = lines.by_ref().take_while(|line| *line != end).filter(code).count();
    let is_marker = |line: &&str| *line == begin || *line == end;
    (source.lines().map(str::trim).filter(is_marker).count() == 2).then_some(between)
}

#[test]
fn examples_take_no_more_lines_than_the_paper_and_by_hand_several_times_as_many() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manycore/examples");
    for &(name, file, limit, by_hand) in EXAMPLES {
        let source = std::fs::read_to_string(folder.join(file)).expect(file);
        let lines = lines_of_code(&source, name).expect(name);
        assert!((1..=limit).contains(&lines), "{name}: {lines} lines, at most {limit}");
        if by_hand {
            let lines = lines_of_code(&source, &format!("{name} by hand")).expect(name);
            assert!(lines > 2 * limit, "{name} by hand: {lines} lines only");
        }
    }
}

#[test]
fn only_code_between_markers_counts() {
    let source = "a\n// begin: x\nlet a;\n\n// note\n/// doc\nlet b; // note\n// end: x\nlet c;\n";
    assert_eq!(lines_of_code(source, "x"), Some(2));
    assert_eq!(lines_of_code("// end: x\n", "x"), None);
    assert_eq!(lines_of_code("// begin: x\n// begin: x\na\n// end: x\n", "x"), None);
}
