//! The files of the working tree.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// One text file of the tree.
pub struct File {
    /// Relative to the top, with `/` between the parts.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// The top of the project.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("project folder")
}

/// Returns every text file of the project, sorted by path. Leaves out build folders and version
/// control.
pub fn files() -> Vec<File> {
    let top = top();
    let mut found = Vec::new();
    descend(&top, &top, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 10, "the tree was not found at {}", top.display());
    found
}

/// Returns every Rust file below `crates/`.
pub fn rust_files() -> Vec<File> {
    files().into_iter().filter(|f| f.path.starts_with("crates/") && is_rust(&f.path)).collect()
}

/// Returns whether the path names a Rust source file.
pub fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

fn descend(top: &Path, folder: &Path, found: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("readable folder") {
        let path = entry.expect("readable entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if path.is_symlink() || matches!(name, ".git" | "target" | "proptest-regressions") {
            continue;
        }
        if path.is_dir() {
            descend(top, &path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(top).expect("below the top");
            let path = relative.to_string_lossy().replace('\\', "/");
            found.push(File { path, text });
        }
    }
}
