//! Each file of a crate's integration tests is in its program: one that `main.rs` does not name is
//! never compiled, and nothing else says so.

use crate::walk::{self, File};

const FOLDER: &str = "/tests/integration/";

/// The files of a folder of integration tests that its `main.rs` does not name.
fn left_out(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for main in files.iter().filter(|file| file.path.ends_with("/tests/integration/main.rs")) {
        let folder = main.path.trim_end_matches("main.rs");
        for file in files {
            let Some(name) = file.path.strip_prefix(folder) else { continue };
            let module = match name.strip_suffix("/mod.rs").or(name.strip_suffix(".rs")) {
                Some(module) if !module.contains('/') && module != "main" => module,
                _ => continue,
            };
            if !main.text.lines().any(|line| line == format!("mod {module};")) {
                found.push(format!("{}: not a module of {}", file.path, main.path));
            }
        }
    }
    found
}

#[test]
fn every_file_of_integration_tests_is_compiled() {
    let files = walk::files();
    assert!(files.iter().filter(|file| file.path.contains(FOLDER)).count() > 50);
    assert_eq!(left_out(&files), Vec::<String>::new());
}

#[test]
fn file_that_no_program_names_is_caught() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let files = [
        file("crates/a/tests/integration/main.rs", "mod here;\nmod folder;\n"),
        file("crates/a/tests/integration/here.rs", ""),
        file("crates/a/tests/integration/folder/mod.rs", ""),
        file("crates/a/tests/integration/folder/part.rs", ""),
        file("crates/a/tests/integration/away.rs", ""),
        file("crates/b/tests/other.rs", ""),
    ];
    let found = left_out(&files);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("crates/a/tests/integration/away.rs: "));
}
