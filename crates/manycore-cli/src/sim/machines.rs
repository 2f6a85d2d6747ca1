//! `--machine help`: the models there are.

use std::fmt::Write;

use manycore_sim::Machine;

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
