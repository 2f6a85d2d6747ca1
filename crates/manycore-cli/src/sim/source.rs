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

/// A program or library of this project that a command builds.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// Its package in the workspace.
    pub package: &'static str,
    /// The program in the package, or the library.
    pub name: &'static str,
    /// Where there is no workspace, it is a project of its own, in this folder.
    pub folder: &'static str,
    /// The package that the project consists of.
    pub depends_on: &'static str,
    /// True if it is a library and not a program.
    pub is_library: bool,
    /// The project's only source file.
    pub text: &'static str,
}

/// The library that a simulated program is linked with.
pub(crate) const RUNTIME: Part = Part {
    package: "manycore-sim-rt",
    name: "manycore_sim_rt",
    folder: "manycore-runtime",
    depends_on: "manycore-sim-rt",
    is_library: true,
    text: "pub use dependency::*;\n",
};

/// A package that cargo can build, and the name of its program or library.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) manifest: PathBuf,
    pub(crate) package: &'static str,
    pub(crate) name: &'static str,
    /// The folder of the build, if it is not the workspace's own folder.
    pub(crate) target: Option<PathBuf>,
}

/// Returns the source of `part` in the workspace that this command was built in, if it still
/// exists.
pub(crate) fn in_workspace(part: &Part) -> Option<Source> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let Part { package, name, .. } = *part;
    let manifest = workspace.join(package).join("Cargo.toml");
    // A registry's packages lie beside each other, too, but not in a workspace.
    let there = manifest.is_file() && workspace.join("../Cargo.lock").is_file();
    there.then_some(Source { manifest, package, name, target: None })
}

/// Returns the source of `part`: in the workspace, or as a project that this function writes.
///
/// # Errors
/// There is no cache folder, or it can't be written.
pub(crate) fn of(part: &Part) -> Result<Source, Failure> {
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
fn write_project(part: &Part, folder: &Path) -> Result<Source, Failure> {
    let Part { name, folder: package, depends_on, is_library, text, .. } = *part;
    let file = if is_library { "lib.rs" } else { "main.rs" };
    let root = folder.join(package);
    let kind = if is_library {
        format!("[lib]\nname = \"{name}\"\ncrate-type = [\"cdylib\"]\n")
    } else {
        format!("[[bin]]\nname = \"{name}\"\npath = \"src/{file}\"\n")
    };
    // The library has the name of the package that it consists of, so the dependency gets another
    // name.
    let key = if is_library { "dependency" } else { depends_on };
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

    const PROGRAM: Part = Part {
        package: "manycore-cli",
        name: "manycore",
        folder: "manycore-command",
        depends_on: "manycore-cli",
        is_library: false,
        text: "fn main() -> std::process::ExitCode {\n    manycore_cli::main()\n}\n",
    };

    #[test]
    fn parts_are_members_of_this_workspace() {
        for part in [PROGRAM, RUNTIME] {
            let source = of(&part).unwrap();
            assert_eq!((source.package, source.name), (part.package, part.name));
            assert_eq!(Some(source), in_workspace(&part));
        }
    }

    /// Cargo can't resolve the projects here, where the packages are not published;
    /// `ci/packages.sh` builds them.
    #[test]
    fn projects_depend_on_the_packages_of_this_version_and_are_written_once() {
        let folder = tempfile::tempdir().unwrap();
        for part in [PROGRAM, RUNTIME] {
            let source = write_project(&part, folder.path()).unwrap();
            let manifest = fs::read_to_string(&source.manifest).unwrap();
            assert!(manifest.contains(&format!("version = \"={VERSION}\"")), "{manifest}");
            assert!(manifest.contains(part.depends_on), "{manifest}");
            let before = fs::metadata(&source.manifest).unwrap().modified().unwrap();
            assert_eq!(write_project(&part, folder.path()).unwrap(), source);
            assert_eq!(fs::metadata(&source.manifest).unwrap().modified().unwrap(), before);
        }
    }
}
