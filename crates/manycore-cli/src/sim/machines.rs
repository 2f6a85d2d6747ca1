//! `--machine help` lists the models. `sim calibrate` makes a model of this machine.

use std::{fmt::Write, path::Path};

use manycore_sim::{Machine, calibrate::Calibration};

use crate::{args::CALIBRATED, failure::Failure, save};

/// Measures this machine and writes its model.
pub(crate) fn calibrate(out: &Path) -> Result<(), Failure> {
    save::check(out)?;
    let say = |part: &str| eprintln!("manycore sim calibrate: {part}");
    let found = Calibration::measure(say).map_err(Failure::run)?;
    save::whole(out, found.to_toml().as_bytes())?;
    eprintln!("manycore sim calibrate: {}; use it with --machine", out.display());
    Ok(())
}

/// Returns the model of this machine: the calibrated model, if the current folder has the file,
/// else a model that is measured now.
pub(crate) fn this_host() -> Result<Machine, Failure> {
    let file = Path::new(CALIBRATED);
    if !file.exists() {
        return Ok(Machine::this_host());
    }
    eprintln!("manycore sim: this-host is as {CALIBRATED} has it");
    super::from_file(CALIBRATED)
}

/// Returns a line for each model: its name, its number of virtual cores, its number of guesses, the
/// parts that it lacks, and the machine that it stands for.
pub(crate) fn list() -> String {
    let mut text = String::from("name         cores  guesses  stores  caches    stands for\n");
    for machine in Machine::shipped() {
        let guesses = machine.guesses();
        let stores = if machine.store_buffer == 0 { "waited" } else { "buffer" };
        let caches = if machine.l2_kib == 0 { "no limit" } else { "limited" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<12} {:>5}  {guesses:>7}  {stores}  {caches:<8}  {}",
            machine.name,
            machine.cores(),
            machine.about
        );
    }
    text += "this-host                                      the machine that this runs on: as \
        this-host.toml in the current\n\
        \x20                                              folder has it, which `manycore sim \
        calibrate` writes, or else measured now\n\
        FILE.toml                                      a file, as `manycore sim calibrate` writes \
        it\n\
        \n\
        The papers' machines do without a store buffer (a core waits for each of its stores) and \
        without a limit of\n\
        caches, as opteron-8x6 did when it was calibrated with OpLog Figure 4; reports say so.\n\
        Reports in JSON and HTML have each value's source. `--set NAME=VALUE` changes one.\n";
    text
}

#[cfg(test)]
#[test]
fn every_model_has_a_line_of_its_own() {
    let text = list();
    for machine in Machine::shipped() {
        let of = |line: &&str| line.starts_with(&machine.name);
        let line = text.lines().find(of).expect("a line of its own");
        assert_eq!(line.contains("waited  no limit"), machine.store_buffer == 0, "{line}");
    }
}
