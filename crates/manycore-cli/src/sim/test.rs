//! `manycore sim test`: `cargo test`, instrumented, in virtual time.
//!
//! Each test program is simulated as a whole, including its harness. Tests that use
//! `manycore_sim::assert_conflict_free!` need this. Other tests run as usual, but on virtual cores
//! and always in the same order.

use std::path::PathBuf;

use manycore_sim::Machine;

use super::{
    configuration::Configuration, launch::simulated, map, native, runtime, standard::Standard,
    toolchain,
};
use crate::{args::SimArgs, failure::Failure};

/// Runs `cargo test` with `arguments`.
pub(crate) fn run(args: &SimArgs, machine: &Machine, arguments: &[String]) -> Result<(), Failure> {
    let tools = toolchain::Tools::check()?;
    let library = runtime::find(&tools)?;
    let cores = args.cores().into_iter().max().unwrap_or(1);
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let folder = toolchain::folder(&target);
    let standard = Standard::prepare(&tools, &folder);
    let own = Configuration::read(&tools)?.all_flags()?;
    let profile = profile(arguments);
    let mut cargo = tools.instrumenting_cargo(&library, standard.sysroot(), profile, &own);
    if !args.plain_c {
        // If this fails, the runtime counts C code where it runs.
        let _ = native::instrument(&mut cargo);
    }
    cargo.args(["test", "--target", toolchain::TARGET]).arg("--target-dir").arg(&folder);
    cargo.args(arguments);
    // cargo and the compiler are not instrumented, so they pass the variable on to the tests.
    let cannot = |error: std::io::Error| Failure::run(format_args!("cannot run cargo: {error}"));
    let folder = tempfile::tempdir().map_err(cannot)?;
    map::write(folder.path(), machine, cores).map_err(cannot)?;
    let run = (cores, args.seed, 0, args.day());
    simulated(&mut cargo, machine, run, ("/dev/null".as_ref(), folder.path()));
    let status = cargo.status().map_err(cannot)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::run("the tests failed, see above"))
}

/// Returns the profile that the arguments of cargo test name.
fn profile(arguments: &[String]) -> Option<&str> {
    let mut own = arguments.iter().map(String::as_str).take_while(|argument| *argument != "--");
    while let Some(argument) = own.next() {
        match argument.strip_prefix("--profile") {
            Some("") => return own.next(),
            Some(rest) => return rest.strip_prefix('='),
            None => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::profile;

    #[test]
    fn profile_is_found_in_both_forms_and_not_among_the_tests_arguments() {
        let of = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            profile(&words).map(str::to_owned)
        };
        assert_eq!(of("-p x --profile fast --lib").as_deref(), Some("fast"));
        assert_eq!(of("--profile=fast").as_deref(), Some("fast"));
        assert_eq!(of("-p x -- --profile fast"), None);
    }
}
