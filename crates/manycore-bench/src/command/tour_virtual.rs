//! The tour's last part: one small program on this machine, and on 48 virtual cores.
//!
//! Owns: what is built and run for it, and its table. The program is `sim-tour` of
//! `manycore-sim-tests`. It is small, so that the tour can build it for virtual cores; building the
//! benchmarks with all their rivals would take minutes. Only `manycore-bench tour` does this. A
//! bare
//! `manycore-bench`, the first thing that a newcomer runs, builds nothing.

use std::{fmt::Write, path::Path, process::Command};

use manycore_cli::{failure::Failure, prose::wrapped, save, sim::Own};
use manycore_sim::{Machine, report::CLAIM};

use crate::{command::simulated, limits, output::number};

/// The number of virtual cores: all cores of the machine.
const CORES: u32 = 48;

/// Microseconds of each run on virtual cores, and here.
const VIRTUAL_MICROS: u32 = 60;
const MICROS: u32 = 100_000;

/// The names of the program's lines, and their descriptions.
const STRUCTURES: [(&str, &str); 4] = [
    ("shared-counter", "a counter in one word, fetch_add"),
    ("our-counter", "Counter"),
    ("locked-set", "a BTreeSet behind std's Mutex"),
    ("our-set", "the same set behind Deferred"),
];

/// A structure's rates with one thread and with all cores.
type Rates = [f64; 2];

/// Returns this part as text: a table, or a sentence that says why there is none. Writes a
/// recording of the virtual threads' waits into the file `timeline`.
pub fn text(timeline: &Path) -> String {
    eprintln!("manycore-bench tour: building a small program for {CORES} virtual cores");
    match table(timeline) {
        Ok(table) => table,
        Err(failure) => {
            let why = failure.message;
            let text = format!("The same on {CORES} virtual cores is left out here: {why}");
            format!("\n{}", wrapped(&text))
        }
    }
}

fn table(timeline: &Path) -> Result<String, Failure> {
    let machine = Machine::named("opteron-8x6").expect("a model that is shipped");
    let machine = simulated::for_benchmarks(machine);
    let (own, plain) = Own::build_both(&simulated::TOUR)?;
    eprintln!("manycore-bench tour: running it here, then on {CORES} virtual cores");
    let output = Command::new(&plain)
        .arg(MICROS.to_string())
        .output()
        .map_err(|error| Failure::run(format_args!("cannot run {}: {error}", plain.display())))?;
    let here = rates(&String::from_utf8_lossy(&output.stdout))?;
    let (printed, waits) = own.run_recorded(&machine, CORES, &[VIRTUAL_MICROS.to_string()])?;
    let simulated = rates(&printed)?;
    save::whole(timeline, &waits)?;
    let cores = limits::cores();
    let mut text = format!(
        "\nThe same program on this machine and on {CORES} virtual cores ({}), operations a \
         microsecond\n",
        machine.name
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{:34} {:>9} {:>9} {:>7}   {:>9} {:>9} {:>7}",
        "",
        "1 thread",
        format!("{cores} cores"),
        "times",
        "1 virtual",
        format!("{CORES} cores"),
        "times"
    );
    for ((_, about), (here, simulated)) in STRUCTURES.iter().zip(here.iter().zip(&simulated)) {
        let _ = write!(text, "{about:34}");
        for [one, all] in [here, simulated] {
            let times = all / one.max(f64::MIN_POSITIVE);
            let _ = write!(text, " {:>9} {:>9} {:>7}  ", number(*one), number(*all), number(times));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    let more = "`manycore-bench report` compares with published figures.";
    text.push_str(&wrapped(&format!("{CLAIM} {more}")));
    // The file's name is on one line, so that a reader can copy it.
    let file = timeline.display();
    let _ = write!(text, "\nWhat each virtual thread waited for, for `manycore trace`: {file}");
    Ok(text)
}

/// Returns the rates of the structures, in their order.
fn rates(printed: &str) -> Result<Vec<Rates>, Failure> {
    let of = |name: &str| {
        let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        let (one, all) = line.split_once(' ')?;
        Some([one.parse().ok()?, all.parse().ok()?])
    };
    let rates: Option<Vec<Rates>> = STRUCTURES.iter().map(|(name, _)| of(name)).collect();
    rates.ok_or_else(|| Failure::run(format_args!("the tour's program said '{printed}'")))
}

#[cfg(test)]
mod tests {
    use super::rates;

    #[test]
    fn rates_are_found_by_name_and_missing_ones_noticed() {
        let printed = "locked-set 3 1.5\nour-set 4 9\nour-counter 2 8\nshared-counter 10 2\n";
        let found = rates(printed).unwrap();
        assert_eq!(found, [[10.0, 2.0], [2.0, 8.0], [3.0, 1.5], [4.0, 9.0]]);
        assert!(rates("our-set 4 9\n").is_err());
    }
}
