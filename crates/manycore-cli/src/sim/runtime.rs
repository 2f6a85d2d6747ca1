//! The library that a simulated program is linked with: `libmanycore_sim_rt.so`.
//!
//! The command takes the first of these that it finds:
//! 1. the file that the environment variable `MANYCORE_SIM_RUNTIME` names;
//! 2. the workspace that this command was built in, if it is still there: cargo builds it, which
//!    takes a moment the first time;
//! 3. the folder of the command, or `lib/manycore` beside that folder, where a system's package
//!    installs it;
//! 4. the registry that the command came from: cargo builds it in the user's cache folder.

use std::path::{Path, PathBuf};

use super::{
    source::{self, RUNTIME, Source},
    toolchain::{Tools, folder},
};
use crate::failure::Failure;

/// The file's name.
const FILE: &str = "libmanycore_sim_rt.so";
/// The variable that overrules the search.
const VARIABLE: &str = "MANYCORE_SIM_RUNTIME";

/// Finds the library, and builds it if necessary.
pub(crate) fn find(tools: &Tools) -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let there = path.is_file() && path.file_name().is_some_and(|name| name == FILE);
        return if there {
            absolute(&path)
        } else {
            Err(Failure::run(format_args!("{VARIABLE} names no {FILE}: {}", path.display())))
        };
    }
    if let Some(source) = source::in_workspace(&RUNTIME) {
        return build(tools, &source);
    }
    let installed = std::env::current_exe().ok().and_then(|command| {
        let folder = command.parent()?.to_owned();
        let places = [folder.join(FILE), folder.join("../lib/manycore").join(FILE)];
        places.into_iter().find(|place| place.is_file())
    });
    match installed {
        Some(path) => absolute(&path),
        None => build(tools, &source::of(&RUNTIME)?),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    path.canonicalize().map_err(|error| Failure::file(path, &error))
}

fn build(tools: &Tools, source: &Source) -> Result<PathBuf, Failure> {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = source.target.clone().or(chosen);
    let target = target.unwrap_or_else(|| source.manifest.with_file_name("../../target"));
    let target = folder(&target).join("runtime");
    let target = std::path::absolute(&target).map_err(|error| Failure::file(&target, &error))?;
    // A folder in which the project's configuration does not apply.
    let here = source.manifest.parent().unwrap_or(std::path::Path::new("."));
    let status = tools
        .cargo()
        .current_dir(here)
        // Link-time optimization gains little here, and takes most of the time of a build.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .args(["build", "--release", "--quiet", "--package", source.package, "--manifest-path"])
        .arg(&source.manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()
        .map_err(|error| Failure::run(format_args!("cannot run cargo: {error}")))?;
    if !status.success() {
        return Err(Failure::run("the simulator's runtime does not build, see above"));
    }
    absolute(&target.join("release").join(FILE))
}
