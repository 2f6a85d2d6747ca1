//! `--machine help`: the models there are. `sim calibrate`: one more, of this machine.

use std::{fmt::Write, path::Path};

use manycore_sim::{Machine, calibrate::Calibration};

use crate::{failure::Failure, save};

/// Measures this machine and writes its model.
pub(crate) fn calibrate(out: &Path) -> Result<(), Failure> {
    save::check(out)?;
    let say = |part: &str| eprintln!("manycore sim calibrate: {part}");
    let found = Calibration::measure(say).map_err(Failure::run)?;
    save::whole(out, found.to_toml().as_bytes())?;
    eprintln!("manycore sim calibrate: {}; use it with --machine", out.display());
    Ok(())
}

/// One line for each model: its name, how many virtual cores it has, how many values are guesses,
/// and what it stands for.
pub(crate) fn list() -> String {
    let mut text = String::from("name         cores  guesses  stands for\n");
    for machine in Machine::shipped() {
        let guesses = machine.guesses();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<12} {:>5}  {guesses:>7}  {}",
            machine.name,
            machine.cores(),
            machine.about
        );
    }
    text += "this-host                    the machine that this runs on, measured now\n\
        FILE.toml                    a file, as `manycore sim calibrate` writes it\n\
        \n\
        Reports in JSON and HTML have each value's source. `--set NAME=VALUE` changes one.\n";
    text
}

#[cfg(test)]
#[test]
fn every_model_has_a_line_of_its_own() {
    let text = list();
    for machine in Machine::shipped() {
        assert!(text.lines().any(|line| line.starts_with(&machine.name)), "{text}");
    }
}
