//! The programs of this project itself that the command builds for virtual cores, and the runtime.
//!
//! Owns: where their source is. If the command was built in a checkout that still exists, they are
//! members of that workspace. If the command was installed from packages, it writes a small project
//! for each program into the user's cache folder. The project depends on the packages of the
//! command's own version, and cargo fetches them as it fetched the command.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// The version of all packages of this project.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The parts that can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// This command.
    Command,
    /// The small program of the tour.
    Tour,
    /// The library that a simulated program is linked with.
    Runtime,
}

/// A package that cargo can build, and the name of its program or library.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) manifest: PathBuf,
    pub(crate) package: &'static str,
    pub(crate) name: &'static str,
    /// The folder of the build, if it is not the workspace's own folder.
    pub(crate) target: Option<PathBuf>,
}

/// A part as a project of its own: the package that it consists of, and its only file.
struct Project {
    folder: &'static str,
    depends_on: &'static str,
    library: bool,
    file: &'static str,
    text: &'static str,
}

impl Part {
    /// Returns the package in the workspace, and the program in it.
    fn in_workspace(self) -> (&'static str, &'static str) {
        match self {
            Part::Command => ("manycore-cli", "manycore"),
            Part::Tour => ("manycore-sim-tests", "sim-tour"),
            Part::Runtime => ("manycore-sim-rt", "manycore_sim_rt"),
        }
    }

    fn project(self) -> Project {
        match self {
            Part::Command => Project {
                folder: "manycore-command",
                depends_on: "manycore-cli",
                library: false,
                file: "main.rs",
                text: "fn main() -> std::process::ExitCode {\n    manycore_cli::main()\n}\n",
            },
            Part::Tour => Project {
                folder: "manycore-tour",
                depends_on: "manycore",
                library: false,
                file: "main.rs",
                text: include_str!("../../programs/sim-tour.rs"),
            },
            Part::Runtime => Project {
                folder: "manycore-runtime",
                depends_on: "manycore-sim-rt",
                library: true,
                file: "lib.rs",
                text: "pub use dependency::*;\n",
            },
        }
    }
}

/// Returns the source of `part` in the workspace that this command was built in, if it still
/// exists.
pub(crate) fn in_workspace(part: Part) -> Option<Source> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (package, name) = part.in_workspace();
    let manifest = workspace.join(package).join("Cargo.toml");
    // A registry's packages lie beside each other, too, but not in a workspace.
    let there = manifest.is_file() && workspace.join("../Cargo.lock").is_file();
    there.then_some(Source { manifest, package, name, target: None })
}

/// Returns the source of `part`: in the workspace, or as a project that this function writes.
///
/// # Errors
/// There is no cache folder, or it can't be written.
pub(crate) fn of(part: Part) -> Result<Source, Failure> {
    if let Some(source) = in_workspace(part) {
        return Ok(source);
    }
    let cache = cache_folder().ok_or_else(|| {
        Failure::run("neither XDG_CACHE_HOME nor HOME says where this command can build")
    })?;
    write_project(part, &cache.join("manycore").join(VERSION))
}

/// Returns the user's cache folder.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))
}

/// Writes the part's project into `folder`.
fn write_project(part: Part, folder: &Path) -> Result<Source, Failure> {
    let Project { folder: package, depends_on, library, file, text } = part.project();
    let (_, name) = part.in_workspace();
    let root = folder.join(package);
    let kind = if library {
        format!("[lib]\nname = \"{name}\"\ncrate-type = [\"cdylib\"]\n")
    } else {
        format!("[[bin]]\nname = \"{name}\"\npath = \"src/{file}\"\n")
    };
    // The library has the name of the package that it consists of, so the dependency gets another
    // name.
    let key = if library { "dependency" } else { depends_on };
    let manifest = format!(
        "# Written by the manycore command, version {VERSION}.\n\
         [package]\nname = \"{package}\"\nversion = \"{VERSION}\"\nedition = \"2024\"\n\
         publish = false\n\n{kind}\n\
         [dependencies]\n{key} = {{ package = \"{depends_on}\", version = \"={VERSION}\" }}\n\n\
         [profile.release]\nlto = \"thin\"\ncodegen-units = 1\n\n[workspace]\n"
    );
    write(&root.join("Cargo.toml"), &manifest)?;
    write(&root.join("src").join(file), text)?;
    Ok(Source {
        manifest: root.join("Cargo.toml"),
        package,
        name,
        target: Some(folder.join("target")),
    })
}

/// Writes a file unless it already has this text, so that cargo does not rebuild unchanged files.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| Failure::file(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [Part; 3] = [Part::Command, Part::Tour, Part::Runtime];

    #[test]
    fn parts_are_members_of_this_workspace() {
        for part in PARTS {
            let source = of(part).unwrap();
            assert_eq!((source.package, source.name), part.in_workspace());
            assert_eq!(Some(source), in_workspace(part));
        }
    }

    /// Cargo can't resolve the projects here, where the packages are not published;
    /// `ci/packages.sh` builds them.
    #[test]
    fn projects_depend_on_the_packages_of_this_version_and_are_written_once() {
        let folder = tempfile::tempdir().unwrap();
        for part in PARTS {
            let source = write_project(part, folder.path()).unwrap();
            let manifest = fs::read_to_string(&source.manifest).unwrap();
            assert!(manifest.contains(&format!("version = \"={VERSION}\"")), "{manifest}");
            assert!(manifest.contains(part.project().depends_on), "{manifest}");
            let before = fs::metadata(&source.manifest).unwrap().modified().unwrap();
            assert_eq!(write_project(part, folder.path()).unwrap(), source);
            assert_eq!(fs::metadata(&source.manifest).unwrap().modified().unwrap(), before);
        }
    }
}
