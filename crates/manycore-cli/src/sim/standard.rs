//! The instrumented standard library.
//!
//! Rust ships its standard library compiled. So code in it that is neither generic nor inlined
//! makes no callbacks: the slow paths of `Mutex`, `park`, `Once`, the growth of a vector. But the
//! library's objects carry the bitcode that they were made of, and the toolchain has a linker that
//! runs LLVM's passes. So the instrumented library is made once for each toolchain. It lies in a
//! folder like the toolchain's own (a "sysroot"), where the compiler looks for it.
//!
//! Owns: that folder. Laws:
//!
//! - ST1: names and metadata stay unchanged; only code is exchanged. So the compiler accepts it as
//!   the library that it knows.
//! - ST2: the folder is complete or missing, because it is made under another name and then
//!   renamed.
//! - ST3: if it cannot be made, programs are built with the library as it comes, and the report
//!   gives the reason.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufWriter},
    path::{Path, PathBuf},
    process::Command,
};

use ar_archive_writer::{
    ArchiveKind, DEFAULT_OBJECT_READER, NewArchiveMember, ObjectReader, write_archive_to_stream,
};
use object::{Object, ObjectSection, read::archive::ArchiveFile};

use super::toolchain::{FLAGS, PASSES, TARGET, Tools, missing};

/// The crates that are instrumented. Programs rarely or never call the other crates.
const CRATES: &[&str] = &["core", "alloc", "std"];

/// The section of an object that has its bitcode.
const SECTION: &str = ".llvmbc";

static READER: ObjectReader = DEFAULT_OBJECT_READER;

/// The standard library with which programs are built for virtual cores.
pub(crate) enum Standard {
    /// The instrumented library. The folder is the value of `--sysroot`.
    Instrumented(PathBuf),
    /// The compiler's own library, and the reason for taking it.
    Precompiled(String),
}

impl Standard {
    /// Finds the instrumented library below `folder`, or makes it, which takes some seconds.
    pub(crate) fn prepare(tools: &Tools, folder: &Path) -> Self {
        match sysroot(tools, folder) {
            Ok(path) => Self::Instrumented(path),
            Err(reason) => Self::Precompiled(reason),
        }
    }

    /// Returns the value of `--sysroot`, if the library is instrumented.
    pub(crate) fn sysroot(&self) -> Option<&Path> {
        match self {
            Self::Instrumented(path) => Some(path),
            Self::Precompiled(_) => None,
        }
    }

    /// Returns the report's note about the library.
    pub(crate) fn note(&self) -> String {
        match self {
            Self::Instrumented(_) => "The standard library is instrumented as the program is, but \
                for unwinding and backtraces."
                .to_owned(),
            Self::Precompiled(reason) => format!(
                "The standard library's precompiled parts are charged as system calls only \
                 ({reason}); what is generic or inlined in it counts as the program's own."
            ),
        }
    }
}

fn sysroot(tools: &Tools, folder: &Path) -> Result<PathBuf, String> {
    let libraries = PathBuf::from(tools.print(&["--print=target-libdir", "--target", TARGET])?);
    let bin = libraries.with_file_name("bin");
    let linker = bin.join("rust-lld");
    if !linker.is_file() {
        return Err("the toolchain has no rust-lld".to_owned());
    }
    let mut hasher = DefaultHasher::new();
    (tools.print(&["-vV"])?, &libraries, FLAGS, PASSES, CRATES).hash(&mut hasher);
    let place = folder.join(format!("std-{:016x}", hasher.finish()));
    if place.is_dir() {
        return absolute(&place);
    }
    eprintln!("manycore sim: instrumenting the standard library");
    fs::create_dir_all(folder).map_err(said)?;
    let scratch = tempfile::tempdir_in(folder).map_err(said)?;
    let root = scratch.path().join("root");
    let own = root.join("lib/rustlib").join(TARGET);
    fs::create_dir_all(own.join("lib")).map_err(said)?;
    link(&bin, &own.join("bin")).map_err(said)?;
    for entry in fs::read_dir(&libraries).map_err(said)? {
        let entry = entry.map_err(said)?;
        let (from, name) = (entry.path(), entry.file_name());
        let to = own.join("lib").join(&name);
        match crate_of(&name.to_string_lossy()) {
            Some(name) => instrument(name, &from, &to, &linker, scratch.path())?,
            None => link(&from, &to).map_err(said)?,
        }
    }
    match fs::rename(&root, &place) {
        Err(_) if place.is_dir() => {} // another process was faster
        renamed => renamed.map_err(said)?,
    }
    absolute(&place)
}

/// Returns which of [`CRATES`] the library with that file name is.
fn crate_of(file: &str) -> Option<&'static str> {
    let stem = file.strip_prefix("lib")?.strip_suffix(".rlib")?;
    let (name, _) = stem.rsplit_once('-')?;
    CRATES.iter().copied().find(|known| *known == name)
}

/// Writes the library `from` with instrumented code to `to`.
fn instrument(
    name: &str,
    from: &Path,
    to: &Path,
    linker: &Path,
    scratch: &Path,
) -> Result<(), String> {
    let bytes = fs::read(from).map_err(said)?;
    let archive = ArchiveFile::parse(&*bytes).map_err(said)?;
    let mut members = Vec::new();
    let mut calls = false;
    for (number, member) in archive.members().enumerate() {
        let member = member.map_err(said)?;
        let data = member.data(&*bytes).map_err(said)?;
        let mut code = data.to_vec();
        if let Some(bitcode) = bitcode(data) {
            let (input, output) = (scratch.join("in.bc"), scratch.join(format!("{number}.o")));
            fs::write(&input, bitcode).map_err(said)?;
            run_passes(linker, &input, &output)?;
            code = fs::read(&output).map_err(said)?;
            calls |= name != "std" || missing(&code).is_empty();
        }
        let member = String::from_utf8_lossy(member.name()).into_owned();
        members.push(NewArchiveMember::new(code, &READER, member));
    }
    if !calls {
        return Err(format!("{name} comes without bitcode that could be instrumented"));
    }
    let mut file = BufWriter::new(fs::File::create(to).map_err(said)?);
    write_archive_to_stream(&mut file, &members, ArchiveKind::Gnu, false, None).map_err(said)
}

/// Returns the bitcode that an object carries. `None` for other files, and for objects without
/// bitcode.
fn bitcode(object: &[u8]) -> Option<&[u8]> {
    let object = object::File::parse(object).ok()?;
    let data = object.section_by_name(SECTION)?.data().ok()?;
    (!data.is_empty()).then_some(data)
}

/// Makes an instrumented object from bitcode. The linker that comes with the compiler has the same
/// LLVM.
fn run_passes(linker: &Path, input: &Path, output: &Path) -> Result<(), String> {
    let mut command = Command::new(linker);
    command.args(["-flavor", "gnu", "-r", "-O2", &format!("--lto-newpm-passes={PASSES}")]);
    for argument in FLAGS.iter().filter_map(|flag| flag.strip_prefix("-Cllvm-args=")) {
        command.args(["-mllvm", argument]);
    }
    let ended = command.arg("-o").args([output, input]).output().map_err(said)?;
    if ended.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&ended.stderr);
    Err(format!("its linker says: {}", text.lines().next().unwrap_or("nothing")))
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(said)
}

fn said(error: impl ToString) -> String {
    error.to_string()
}

#[cfg(unix)]
fn link(to: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

/// Never used, because programs are simulated on Linux only.
#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_known_by_their_files() {
        assert_eq!(crate_of("libstd-d1237ef7159db0a2.rlib"), Some("std"));
        assert_eq!(crate_of("libcore-1.rlib"), Some("core"));
        let others = ["libstd-1.so", "libstd-1.rmeta", "libstd_detect-1.rlib", "librustc-1.a"];
        assert_eq!(others.map(crate_of), [None; 4]);
    }

    #[test]
    fn what_is_no_object_has_no_bitcode() {
        assert_eq!(bitcode(b"rust metadata"), None);
        assert_eq!(bitcode(b""), None);
    }

    #[test]
    fn report_says_why_the_library_is_as_it_comes() {
        let note = Standard::Precompiled("the toolchain has no rust-lld".to_owned()).note();
        assert!(note.contains("precompiled") && note.contains("no rust-lld"), "{note}");
        assert!(!Standard::Instrumented(PathBuf::new()).note().contains("precompiled"));
    }

    /// With the toolchain at hand, once; a second time finds the same folder.
    #[test]
    fn instrumented_library_is_made_once_or_there_is_a_reason() {
        let Ok(tools) = Tools::check() else {
            println!("skipped: this compiler cannot instrument");
            return;
        };
        let folder = tempfile::tempdir().expect("a folder");
        match Standard::prepare(&tools, folder.path()) {
            Standard::Precompiled(reason) => println!("skipped: {reason}"),
            Standard::Instrumented(path) => {
                let again = sysroot(&tools, folder.path());
                assert_eq!(again.as_deref(), Ok(&*path));
                let left = fs::read_dir(folder.path()).expect("it is there").count();
                assert_eq!(left, 1, "scratch files stay behind");
            }
        }
    }
}
