//! Puts the git revision and Cargo's profile into the binary, so that every result says which code
//! it measured; and with the feature `c-rivals` builds the adapters to the rivals written in C.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=MANYCORE_REVISION");
    let revision = std::env::var("MANYCORE_REVISION").ok().or_else(git_revision);
    println!("cargo:rustc-env=MANYCORE_REVISION={}", revision.as_deref().unwrap_or("unknown"));
    println!("cargo:rustc-env=MANYCORE_PROFILE={}", profile());
    #[cfg(feature = "c-rivals")]
    if let Err(message) = c_rivals::build() {
        println!("cargo::error={message}");
    }
}

#[cfg(feature = "c-rivals")]
mod c_rivals {
    use std::path::PathBuf;

    const FLAVOURS: [&str; 4] = ["memb", "mb", "qsbr", "bp"];

    /// Compiles the folder `c` against what the system has.
    pub fn build() -> Result<(), String> {
        println!("cargo::rerun-if-changed=c");
        let mut includes = Vec::new();
        for flavour in FLAVOURS {
            includes = find(&format!("liburcu-{flavour}"))?;
            compile(&format!("urcu_{flavour}"), "c/urcu.c", &includes, |build| {
                build
                    .define("FLAVOUR", flavour)
                    .define("FLAVOUR_HEADER", &*format!("<urcu/urcu-{flavour}.h>"));
            })?;
        }
        includes.extend(find("ck")?);
        compile("ck_schemes", "c/ck.c", &includes, |_| ())?;
        let own = [PathBuf::from("../manycore-capi/include")];
        println!("cargo::rerun-if-changed={}", own[0].display());
        compile("manycore_c", "c/manycore.c", &own, |_| ())?;
        compile("manycore_c_objects", "c/objects.c", &own, |_| ())
    }

    /// Links a library and says where its headers are.
    fn find(name: &str) -> Result<Vec<PathBuf>, String> {
        match pkg_config::Config::new().cargo_metadata(true).probe(name) {
            Ok(library) => Ok(library.include_paths),
            Err(_) => Err(format!(
                "the feature c-rivals needs liburcu and Concurrency Kit, and pkg-config does not \
                 find '{name}'; on Debian: apt-get install pkg-config liburcu-dev libck-dev"
            )),
        }
    }

    fn compile(
        name: &str,
        source: &str,
        includes: &[PathBuf],
        define: impl FnOnce(&mut cc::Build),
    ) -> Result<(), String> {
        let mut build = cc::Build::new();
        build.file(source).includes(includes).opt_level(3).warnings(true).extra_warnings(true);
        build.flag("-Wno-unused-parameter");
        define(&mut build);
        build.try_compile(name).map_err(|error| format!("cannot compile {source}: {error}"))
    }
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
