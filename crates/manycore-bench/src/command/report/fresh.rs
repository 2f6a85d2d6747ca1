//! Workloads that the model has not seen, on this machine's cores and on a model of this machine.

use std::path::PathBuf;

use manycore_cli::{failure::Failure, save, sim::Own, text};
use manycore_sim::{Machine, PARAMETERS, calibrate::Calibration};

use super::store::Store;
use crate::command::{args, bench, progress::Progress, simulated};
use crate::figures::{
    fresh::{self, Compared},
    page::Real,
};

/// The duration of each run on virtual cores: in full, and with `--quick`.
const VIRTUAL: [&str; 2] = ["1ms", "300us"];
/// The duration and the number of repeats on real cores: in full, and with `--quick`.
const REAL: [(&str, u32); 2] = [("60ms", 5), ("10ms", 1)];

/// If a transfer of a line takes this many times as long, the machine is no longer the same.
const MOVED: f64 = 2.0;

/// Returns the number of runs.
pub(super) fn steps(here: u32) -> usize {
    2 * fresh::cases(here).count()
}

/// Measures and simulates each workload.
pub(super) fn run(
    quick: bool,
    here: u32,
    store: &Store,
    command: &Own,
    progress: &Progress,
) -> Result<Real, Failure> {
    let machine = simulated::for_benchmarks(this_machine(store.path("this-host.toml"))?);
    let (length, repeats) = REAL[usize::from(quick)];
    let (mut measured, mut now) = (Vec::new(), false);
    for case in fresh::cases(here) {
        progress.next(&format!("{}: {}, this machine", fresh::ID, case.fresh.workload));
        let words = case.words(length, repeats);
        let rows = store.measured(&words, || {
            now = true;
            bench::output(&args::bench(&words)?)
        })?;
        measured.push((case, rows));
    }
    if now {
        warn_if_moved(&machine, &Machine::this_host());
    }
    let mut compared = Vec::new();
    for (case, rows) in measured {
        progress.next(&format!("{}: {}, virtual cores", fresh::ID, case.fresh.workload));
        let cores = case.threads + case.fresh.beside;
        let bench = case.words(VIRTUAL[usize::from(quick)], 1);
        let words = [&["bench".to_owned()], &bench[..]].concat();
        let simulated =
            store.simulated(&machine, cores, &words, || command.run(&machine, cores, &words))?;
        if let Some(((measured, range), (simulated, _))) =
            case.rate(&rows).zip(case.rate(&simulated))
        {
            compared.push(Compared { case, simulated, measured, range });
        }
    }
    let line = |name: &str| {
        let value = machine.get(name).unwrap_or_default();
        format!("{name} = {value} ({})", machine.source(name))
    };
    let model = PARAMETERS.iter().map(|parameter| line(parameter.name)).collect();
    Ok(Real { model, compared })
}

/// Warns if a line's transfer takes another time after the measurement than at the calibration,
/// because the cores of a virtual machine may move.
fn warn_if_moved(before: &Machine, after: &Machine) {
    let [before, after] = [before, after]
        .map(|machine| f64::from(machine.same_socket) * 1e3 / f64::from(machine.mhz));
    if before.max(after) > MOVED * before.min(after) {
        eprintln!(
            "manycore-bench report: a line takes {after:.0} ns from core to core now, and took \
             {before:.0} when this machine was calibrated: two threads were not measured on the \
             machine that is simulated"
        );
    }
}

/// Returns the model of this machine, which is calibrated once and kept with the runs. If
/// calibration is impossible, the model is what one or two threads show.
fn this_machine(path: PathBuf) -> Result<Machine, Failure> {
    if let Ok(text) = text::read(&path, text::MACHINE) {
        return Machine::from_toml(&text)
            .map_err(|error| Failure::run(format_args!("{}: {error}", path.display())));
    }
    let (machine, text) = match Calibration::measure(|_| ()) {
        Ok(found) => {
            let text = found.to_toml();
            (found.machine, text)
        }
        Err(error) => {
            eprintln!("manycore-bench report: this machine is not calibrated: {error}");
            let machine = Machine::this_host();
            let text = machine.to_toml();
            (machine, text)
        }
    };
    save::whole(&path, text.as_bytes())?;
    Ok(machine)
}
