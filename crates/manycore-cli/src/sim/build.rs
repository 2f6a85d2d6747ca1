//! Builds the instrumented executable of a name. Cargo says what the name means, and builds it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{
    configuration::Configuration,
    native,
    source::{self, Part, Source},
    standard::Standard,
    toolchain::{TARGET, Tools, folder},
};
use crate::{args::SimArgs, failure::Failure};

/// Kinds of targets, in the order in which a name is looked for.
const KINDS: &[&str] = &["bin", "example", "bench", "test"];

/// A target that cargo builds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    package: String,
    kind: String,
    name: String,
}

/// What to build, and where.
pub(crate) struct Plan {
    target: Target,
    /// Options of `cargo build` that the user chose: features, and how C is built.
    options: Vec<String>,
    profile: Option<String>,
    plain_c: bool,
    folder: PathBuf,
    /// The workspace, if it is not the current folder's workspace.
    manifest: Option<PathBuf>,
}

impl Plan {
    /// Finds out what `name` means here.
    pub(crate) fn new(tools: &Tools, name: &str, args: &SimArgs) -> Result<Self, Failure> {
        let metadata = metadata(tools, None)?;
        let target = choose(&targets(&metadata), name, args.package.as_deref())?;
        Ok(Self {
            target,
            options: options(args),
            profile: args.profile.clone(),
            plain_c: args.plain_c,
            folder: target_folder(&metadata),
            manifest: None,
        })
    }

    /// Plans the build of a program of this project itself.
    ///
    /// # Errors
    /// Its source can't be had.
    pub(crate) fn of_own(tools: &Tools, part: &Part) -> Result<Self, Failure> {
        let Source { manifest, package, name, target } = source::of(part)?;
        let metadata = metadata(tools, Some(&manifest))?;
        let found = choose(&targets(&metadata), name, Some(package))?;
        let folder = target.map_or_else(|| target_folder(&metadata), |target| folder(&target));
        let (options, profile) = (Vec::new(), None);
        let manifest = Some(manifest);
        Ok(Self { target: found, options, profile, plain_c: false, folder, manifest })
    }

    /// Builds the program as usual, where cargo puts it, and returns its executable.
    pub(crate) fn build_plainly(&self, tools: &Tools) -> Result<PathBuf, Failure> {
        let mut cargo = tools.cargo();
        cargo.arg("build");
        self.build_with(cargo)
    }

    /// Prepares the standard library for the program.
    pub(crate) fn standard(&self, tools: &Tools) -> Standard {
        Standard::prepare(tools, &self.folder)
    }

    /// Builds the program for virtual cores and returns its executable.
    pub(crate) fn build(
        &self,
        tools: &Tools,
        library: &Path,
        standard: &Standard,
    ) -> Result<PathBuf, Failure> {
        let profile = self.profile.as_deref();
        let own = Configuration::read(tools)?.all_flags()?;
        let mut cargo = tools.instrumenting_cargo(library, standard.sysroot(), profile, &own);
        if !self.plain_c {
            // If this fails, the runtime counts C code where it runs.
            let _ = native::instrument(&mut cargo);
        }
        cargo.args(["build", "--target", TARGET]).arg("--target-dir").arg(&self.folder);
        let Target { package, kind, name } = &self.target;
        eprintln!("manycore sim: building {kind} {name} of {package}");
        self.build_with(cargo)
    }

    fn build_with(&self, mut cargo: Command) -> Result<PathBuf, Failure> {
        let Target { package, kind, name } = &self.target;
        cargo.args(["--profile", self.profile.as_deref().unwrap_or("release")]);
        cargo.args(["--message-format=json-render-diagnostics", "--quiet"]);
        cargo.args(["--package", package]).args([&format!("--{kind}"), name]);
        if let Some(manifest) = &self.manifest {
            cargo.arg("--manifest-path").arg(manifest);
        }
        cargo.args(&self.options);
        let output = cargo
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Failure::run(format_args!("cannot run cargo: {error}")))?;
        if !output.status.success() {
            return Err(Failure::run(format_args!("{name} does not build, see above")));
        }
        executable(&String::from_utf8_lossy(&output.stdout), &self.target)
            .ok_or_else(|| Failure::run(format_args!("cargo built no executable for {name}")))
    }
}

/// Returns cargo's options that the user chose.
fn options(args: &SimArgs) -> Vec<String> {
    let mut options = Vec::new();
    if let Some(features) = &args.features {
        options.extend(["--features".to_owned(), features.clone()]);
    }
    let flags = [
        (args.no_default_features, "--no-default-features"),
        (args.all_features, "--all-features"),
        (args.locked, "--locked"),
    ];
    options.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| (*name).to_owned()));
    options
}

/// Returns the folder for the builds.
fn target_folder(metadata: &Value) -> PathBuf {
    folder(Path::new(metadata["target_directory"].as_str().unwrap_or("target")))
}

fn metadata(tools: &Tools, manifest: Option<&Path>) -> Result<Value, Failure> {
    let mut cargo = tools.cargo();
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    if let Some(manifest) = manifest {
        cargo.arg("--manifest-path").arg(manifest);
    }
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::run(format_args!("cannot run cargo: {error}")))?;
    if !output.status.success() {
        return Err(Failure::run("no Cargo project found here, see above"));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Failure::run(format_args!("cargo's metadata make no sense: {error}")))
}

/// Returns everything in the workspace that can be run.
fn targets(metadata: &Value) -> Vec<Target> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            let kinds = list(&target["kind"]);
            let kind = KINDS.iter().find(|kind| kinds.iter().any(|k| k.as_str() == Some(kind)));
            if let (Some(kind), Some(package), Some(name)) =
                (kind, package["name"].as_str(), target["name"].as_str())
            {
                found.push(Target {
                    package: package.to_owned(),
                    kind: (*kind).to_owned(),
                    name: name.to_owned(),
                });
            }
        }
    }
    found
}

/// Returns the target of that name, or the only program of the package of that name.
fn choose(targets: &[Target], name: &str, package: Option<&str>) -> Result<Target, Failure> {
    let mine: Vec<&Target> =
        targets.iter().filter(|target| package.is_none_or(|p| p == target.package)).collect();
    for kind in KINDS {
        let fits = |target: &&&Target| target.name == name && target.kind == *kind;
        match mine.iter().filter(fits).collect::<Vec<_>>()[..] {
            [] => {}
            [only] => return Ok((*only).clone()),
            [first, second, ..] => {
                return Err(Failure::usage(format_args!(
                    "{kind} {name} is in {} and in {}: choose with --package",
                    first.package, second.package
                )));
            }
        }
    }
    let programs = mine.iter().filter(|target| target.package == name && target.kind == "bin");
    match programs.collect::<Vec<_>>()[..] {
        [only] => Ok((*only).clone()),
        [] => Err(Failure::usage(format_args!(
            "no program, example, benchmark or test of this workspace is called '{name}'"
        ))),
        _ => Err(Failure::usage(format_args!("package {name} has several programs: name one"))),
    }
}

/// Returns the executable's path from cargo's messages.
fn executable(messages: &str, wanted: &Target) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut paths = messages.filter_map(|message| {
        let target = &message["target"];
        let kind = target["kind"].as_array()?.iter().any(|k| k.as_str() == Some(&wanted.kind));
        let path = message["executable"].as_str()?;
        (kind && target["name"].as_str() == Some(&wanted.name)).then(|| PathBuf::from(path))
    });
    paths.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(package: &str, kind: &str, name: &str) -> Target {
        Target { package: package.into(), kind: kind.into(), name: name.into() }
    }

    #[test]
    fn name_is_a_target_before_it_is_a_package() {
        let targets = [
            target("tool", "bin", "serve"),
            target("other", "example", "tool"),
            target("x", "bin", "y"),
        ];
        assert_eq!(choose(&targets, "tool", None).unwrap(), targets[1]);
        assert_eq!(choose(&targets, "x", None).unwrap(), targets[2]);
        assert_eq!(choose(&targets, "tool", Some("tool")).unwrap(), targets[0]);
    }

    #[test]
    fn name_of_two_targets_or_of_none_is_refused() {
        let targets = [target("a", "bin", "run"), target("b", "bin", "run")];
        assert!(choose(&targets, "run", None).unwrap_err().message.contains("--package"));
        assert_eq!(choose(&targets, "run", Some("b")).unwrap(), targets[1]);
        assert_eq!(choose(&targets, "walk", None).unwrap_err().code, 2);
    }
}
