//! Puts the git revision and Cargo's profile into the binary, so that every result says which code
//! it is of.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=MANYCORE_REVISION");
    let revision = std::env::var("MANYCORE_REVISION").ok().or_else(git_revision);
    println!("cargo:rustc-env=MANYCORE_REVISION={}", revision.as_deref().unwrap_or("unknown"));
    println!("cargo:rustc-env=MANYCORE_PROFILE={}", profile());
}

/// The name of Cargo's profile, which it tells a build script by the output folder alone:
/// `PROFILE` says "release" of everything that inherits from that.
fn profile() -> String {
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let folder = out.ancestors().nth(3).and_then(|folder| folder.file_name());
    folder.and_then(|name| name.to_str()).unwrap_or("unknown").to_owned()
}

/// The short revision, and watches on the files that change when it does.
fn git_revision() -> Option<String> {
    let git_dir = git(&["rev-parse", "--git-common-dir"])?;
    let head = git(&["rev-parse", "--git-path", "HEAD"])?;
    println!("cargo:rerun-if-changed={head}");
    if let Some(branch) = git(&["symbolic-ref", "-q", "HEAD"]) {
        // A watch on a missing file would rebuild every time: the branch may live in packed-refs.
        for file in [format!("{git_dir}/{branch}"), format!("{git_dir}/packed-refs")] {
            if std::path::Path::new(&file).exists() {
                println!("cargo:rerun-if-changed={file}");
            }
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
