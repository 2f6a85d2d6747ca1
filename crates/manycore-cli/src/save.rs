//! Files that are written as a whole or not at all.
//!
//! The new content goes to a temporary file next to the target. When the file is complete and on
//! disk, it takes the target's name. tempfile does the naming and the cleaning up. If the target is
//! not a regular file (a device, a pipe), it cannot be replaced, and is written to directly.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// Writes the whole file.
///
/// # Errors
/// If any step fails. The target is then unchanged.
pub fn whole(path: &Path, content: &[u8]) -> Result<(), Failure> {
    write(path, content).map_err(|error| Failure::file(path, &error))
}

/// Checks early whether the file can be written, before minutes are spent on its content.
///
/// # Errors
/// If it cannot.
pub fn check(path: &Path) -> Result<(), Failure> {
    let target = Target::of(path).map_err(|error| Failure::file(path, &error))?;
    let tried = match &target {
        Target::Special(path) => File::options().write(true).open(path).map(drop),
        Target::Regular(path) => temporary(path).map(drop),
    };
    tried.map_err(|error| Failure::file(path, &error))
}

enum Target {
    /// Something that cannot be replaced by a file.
    Special(PathBuf),
    /// A file, there or not yet, with symbolic links followed.
    Regular(PathBuf),
}

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(data) if data.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(data) if data.is_file() => Ok(Target::Regular(fs::canonicalize(path)?)),
            Ok(_) => Ok(Target::Special(path.to_owned())),
            Err(_) => Ok(Target::Regular(path.to_owned())),
        }
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    match Target::of(path)? {
        Target::Special(path) => File::options().write(true).open(path)?.write_all(content),
        Target::Regular(path) => {
            let mut file = temporary(&path)?;
            file.write_all(content)?;
            // Some file systems report a full disk only here.
            file.as_file().sync_all()?;
            file.persist(path)?;
            Ok(())
        }
    }
}

fn temporary(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    builder.prefix(".manycore-").suffix(".tmp");
    #[cfg(unix)]
    {
        // Like any new file, with the umask applied.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder.unwrap_or(Path::new("."))).map_err(plain)
}

/// Returns the system's own error. The builder's error names the temporary file, which means
/// nothing to a user.
fn plain(error: io::Error) -> io::Error {
    let inner = error.get_ref().and_then(|inner| inner.source());
    let code = inner.and_then(|inner| inner.downcast_ref::<io::Error>()?.raw_os_error());
    code.map_or(error, io::Error::from_raw_os_error)
}
