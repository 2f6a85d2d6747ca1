//! With the feature `c-rivals`, builds the adapters to the rivals written in C.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
