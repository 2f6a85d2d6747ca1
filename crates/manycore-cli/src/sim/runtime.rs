//! The library that a simulated program is linked with: `libmanycore_sim_rt.so`.
//!
//! Where it comes from, in this order:
//! 1. the file that the environment variable `MANYCORE_SIM_RUNTIME` names;
//! 2. the source next to this command's own, if it is still there: cargo builds it, which takes a
//!    moment the first time (a checkout, and `cargo install --path`);
//! 3. the folder of the command, or `lib/manycore` beside that folder: what a package installs.

use std::path::{Path, PathBuf};

use super::toolchain::{Tools, folder};
use crate::failure::Failure;

/// The file's name.
const FILE: &str = "libmanycore_sim_rt.so";
/// Overrules the search.
const VARIABLE: &str = "MANYCORE_SIM_RUNTIME";

/// The library, built if need be.
pub(crate) fn find(tools: &Tools) -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let there = path.is_file() && path.file_name().is_some_and(|name| name == FILE);
        return if there {
            absolute(&path)
        } else {
            Err(Failure::run(format_args!("{VARIABLE} names no {FILE}: {}", path.display())))
        };
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manycore-sim-rt/Cargo.toml");
    if source.is_file() {
        return build(tools, &source);
    }
    let installed = std::env::current_exe().ok().and_then(|command| {
        let folder = command.parent()?.to_owned();
        let places = [folder.join(FILE), folder.join("../lib/manycore").join(FILE)];
        places.into_iter().find(|place| place.is_file())
    });
    match installed {
        Some(path) => absolute(&path),
        None => Err(Failure::run(format_args!(
            "{FILE} is neither beside this command nor in ../lib/manycore; build it in a checkout \
             of this version (cargo build --release -p manycore-sim-rt) and let {VARIABLE} name it"
        ))),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure::file(path, &error))
}

fn build(tools: &Tools, manifest: &Path) -> Result<PathBuf, Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| manifest.with_file_name("../../target"));
    let target = folder(&target).join("runtime");
    let status = tools
        .cargo()
        // Little is won by it here, and it takes most of the time of a build.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .args(["build", "--release", "--quiet", "--package", "manycore-sim-rt", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()
        .map_err(|error| Failure::run(format_args!("cannot run cargo: {error}")))?;
    if !status.success() {
        return Err(Failure::run("the simulator's runtime does not build, see above"));
    }
    absolute(&target.join("release").join(FILE))
}
