//! Checks whether this compiler can instrument, and has the flags for it.
//!
//! LLVM's names of passes and options are not a stable interface. So this module compiles a few
//! lines with the flags, and checks that the object makes the expected calls.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::failure::Failure;

/// The only target that has a runtime.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// LLVM's passes that insert the callbacks, as in [`FLAGS`].
pub(super) const PASSES: &str = "forceattrs,sancov-module,tsan-module,function(tsan)";

/// The flags for LLVM's ThreadSanitizer pass, with calls at the beginning of each block.
///
/// `forceattrs` marks every function, also at optimization level 0. `prune-blocks=0` also keeps the
/// calls of blocks that always run with another block, because each block has its own cost.
pub(super) const FLAGS: &[&str] = &[
    "-Cpasses=forceattrs,sancov-module,tsan-module,tsan",
    "-Cllvm-args=-force-attribute=sanitize_thread",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-trace-pc",
    "-Cllvm-args=-sanitizer-coverage-prune-blocks=0",
];

/// A program with a load, a store, an atomic operation and a loop that cannot be optimized away.
const PROBE: &str = "use std::sync::atomic::{AtomicU64, Ordering};\n\
    #[inline(never)]\n\
    pub fn probe(from: &[u64], to: &mut [u64], word: &AtomicU64) {\n\
        for (a, b) in from.iter().zip(to) { *b = word.fetch_add(*a, Ordering::Relaxed); }\n\
    }\n";

/// The calls that the probe's object must make.
const CALLS: &[&str] = &[
    "__tsan_read8",
    "__tsan_write8",
    "__tsan_atomic64_fetch_add",
    "__tsan_func_entry",
    "__sanitizer_cov_trace_pc",
];

/// The flags of the project's own configuration, for the compiler and for rustdoc.
pub(crate) struct OwnFlags {
    pub(crate) compiler: Vec<String>,
    pub(crate) rustdoc: Vec<String>,
}

/// A compiler that was found able to instrument.
pub(crate) struct Tools {
    rustc: String,
    cargo: String,
    /// The first line of `rustc --version`.
    pub(crate) version: String,
}

impl Tools {
    /// Finds the compiler and tries it out.
    pub(crate) fn check() -> Result<Self, Failure> {
        host()?;
        let from_environment = |name: &str, usual: &str| {
            std::env::var(name).ok().filter(|value| !value.is_empty()).unwrap_or(usual.to_owned())
        };
        let rustc = from_environment("RUSTC", "rustc");
        let output = Command::new(&rustc).arg("-vV").output();
        let text = match output {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).into_owned()
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(Failure::run(format_args!("{rustc} -vV failed: {}", first(&said))));
            }
            Err(error) => return Err(Failure::run(format_args!("cannot run {rustc}: {error}"))),
        };
        let version = first(&text).to_owned();
        if !text.lines().any(|line| line == format!("host: {TARGET}")) {
            return Err(Failure::run(format_args!(
                "{version} does not build for {TARGET}, the one platform that can be simulated"
            )));
        }
        let cargo = from_environment("CARGO", "cargo");
        let tools = Self { rustc, cargo, version };
        tools.probe()?;
        Ok(tools)
    }

    fn probe(&self) -> Result<(), Failure> {
        let cannot = |error: std::io::Error| {
            Failure::run(format_args!("cannot try out the compiler: {error}"))
        };
        let folder = tempfile::tempdir().map_err(cannot)?;
        let (source, object) = (folder.path().join("probe.rs"), folder.path().join("probe.o"));
        std::fs::write(&source, PROBE).map_err(cannot)?;
        let output = Command::new(&self.rustc)
            .args(["--crate-type=lib", "--emit=obj", "-O", "-o"])
            .args([&object, &source])
            .args(FLAGS)
            .output()
            .map_err(cannot)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Failure::run(format_args!(
                "{} does not take the flags that instrument code: {}",
                self.version,
                first(&said)
            )));
        }
        let object = std::fs::read(&object).map_err(cannot)?;
        let missing = missing(&object);
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::run(format_args!(
            "{} takes the flags that instrument code, but its code does not call {}: the \
             names of LLVM's passes have changed, and this version of the command does not know \
             the new ones",
            self.version,
            missing.join(", ")
        )))
    }

    /// Returns a command for cargo with this compiler, without inherited variables that would
    /// change the flags.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = Command::new(&self.cargo);
        command.env("RUSTC", &self.rustc);
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            command.env_remove(name);
        }
        command
    }

    /// Returns what the compiler prints for these arguments.
    pub(super) fn print(&self, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(&self.rustc).args(arguments).output();
        let output = output.map_err(|error| format!("cannot run {}: {error}", self.rustc))?;
        if !output.status.success() {
            return Err(first(&String::from_utf8_lossy(&output.stderr)).to_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Returns a command for cargo that instruments everything and links `library`, with the
    /// standard library of `sysroot`, if there is one.
    pub(crate) fn instrumenting_cargo(
        &self,
        library: &Path,
        sysroot: Option<&Path>,
        profile: Option<&str>,
        own: &OwnFlags,
    ) -> Command {
        let mut command = self.cargo();
        let ours = flags(library, sysroot);
        let all = |own: &[String]| own.iter().chain(&ours).cloned().collect::<Vec<_>>();
        let flags = all(&own.compiler);
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        // For documentation tests. rustdoc takes no `-l`; the crates bring theirs.
        let mut of_rustdoc = all(&own.rustdoc);
        of_rustdoc.retain(|flag| !flag.starts_with("-l"));
        command.env("CARGO_ENCODED_RUSTDOCFLAGS", of_rustdoc.join("\x1f"));
        command.env_remove("RUSTDOCFLAGS");
        if let Some(name) = profile {
            for (key, value) in [("lto", "off"), ("debug", "line-tables-only"), ("strip", "none")] {
                command.arg("--config").arg(format!("profile.{name}.{key}=\"{value}\""));
            }
        }
        for profile in ["RELEASE", "BENCH", "TEST", "DEV"] {
            // Link-time optimization would run the passes again, and instrument twice.
            command.env(format!("CARGO_PROFILE_{profile}_LTO"), "off");
            command.env(format!("CARGO_PROFILE_{profile}_DEBUG"), "line-tables-only");
            command.env(format!("CARGO_PROFILE_{profile}_STRIP"), "none");
        }
        command
    }
}

/// Returns the flags that follow the user's own flags.
fn flags(library: &Path, sysroot: Option<&Path>) -> Vec<String> {
    let mut flags = Vec::new();
    if let Some(sysroot) = sysroot {
        flags.push(format!("--sysroot={}", sysroot.display()));
    }
    // This leaves out checks of debug builds that use lines which threads share.
    flags.extend(["--cfg".to_owned(), "manycore_sim".to_owned()]);
    flags.extend(FLAGS.iter().map(|flag| (*flag).to_owned()));
    let folder = library.parent().unwrap_or(Path::new(".")).display();
    flags.push(format!("-Lnative={folder}"));
    // With `-l`, the library precedes libc in the search order for symbols.
    flags.push("-ldylib=manycore_sim_rt".to_owned());
    flags.push(format!("-Clink-arg=-Wl,-rpath,{folder}"));
    flags
}

/// Returns the expected calls that an object does not name.
pub(super) fn missing(object: &[u8]) -> Vec<&'static str> {
    let names = |name: &&&str| !object.windows(name.len()).any(|window| window == name.as_bytes());
    CALLS.iter().filter(names).copied().collect()
}

/// Says why this machine cannot run a simulation, if it cannot.
fn host() -> Result<(), Failure> {
    if cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")) {
        return Ok(());
    }
    Err(Failure::run(format_args!(
        "this is {} on {}: programs are simulated on x86-64 Linux with glibc only, because the \
         runtime changes threads with that processor's instructions and stands before that libc",
        std::env::consts::OS,
        std::env::consts::ARCH
    )))
}

/// Returns the first line that is not empty.
fn first(text: &str) -> &str {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.next().unwrap_or("no message")
}

/// Returns the folder for the simulator's builds below `target`.
pub(crate) fn folder(target: &Path) -> PathBuf {
    target.join("sim")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_without_a_call_is_found_wanting() {
        assert_eq!(missing(CALLS.join("\0").as_bytes()), Vec::<&str>::new());
        assert_eq!(missing(CALLS[1..].join("\0").as_bytes()), [CALLS[0]]);
    }

    #[test]
    fn runtime_comes_with_its_folder() {
        let library = Path::new("/lib/libmanycore_sim_rt.so");
        let flags = flags(library, Some(Path::new("/std")));
        assert!(flags.contains(&"--sysroot=/std".to_owned()), "{flags:?}");
        assert!(flags.contains(&"-Lnative=/lib".to_owned()), "{flags:?}");
        assert!(flags.contains(&"-Clink-arg=-Wl,-rpath,/lib".to_owned()), "{flags:?}");
    }
}
