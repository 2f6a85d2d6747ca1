//! `manycore sim test`: `cargo test`, instrumented, in virtual time.
//!
//! Each test program is simulated as a whole, its harness too. Tests that use
//! `manycore_sim::assert_conflict_free!` need it; others run as they do anywhere, but on virtual
//! cores and always in the same order.

use std::path::PathBuf;

use manycore_sim::Machine;

use super::{
    launch::{simulated, write_map},
    runtime,
    standard::Standard,
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
    let mut cargo =
        tools.instrumenting_cargo(&library, Standard::prepare(&tools, &folder).sysroot());
    cargo.args(["test", "--target", toolchain::TARGET]).arg("--target-dir").arg(&folder);
    cargo.args(arguments);
    // cargo and the compiler are not instrumented, so they hand the variable on to the tests.
    let cannot = |error: std::io::Error| Failure::run(format_args!("cannot run cargo: {error}"));
    let map = tempfile::tempdir().map_err(cannot)?;
    write_map(map.path(), machine, cores).map_err(cannot)?;
    let run = (cores, args.seed, 0);
    simulated(&mut cargo, machine, run, ("/dev/null".as_ref(), map.path()));
    let status = cargo.status().map_err(cannot)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::run("the tests failed, see above"))
}
