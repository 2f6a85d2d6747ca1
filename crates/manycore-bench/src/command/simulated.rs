//! What runs on virtual cores for this command: itself, and the small program of the tour.

use manycore_cli::sim::Part;
use manycore_sim::Machine;

/// This command.
pub(super) const COMMAND: Part = Part {
    package: "manycore-bench",
    name: "manycore-bench",
    folder: "manycore-bench-command",
    depends_on: "manycore-bench",
    is_library: false,
    text: "fn main() -> std::process::ExitCode {\n    manycore_bench::command::main()\n}\n",
};

/// The small program of the tour.
pub(super) const TOUR: Part = Part {
    package: "manycore-sim-tests",
    name: "sim-tour",
    folder: "manycore-tour",
    depends_on: "manycore",
    is_library: false,
    text: include_str!("../../programs/sim-tour.rs"),
};

/// Returns the same machine with short slices. A benchmark has a thread on each core, and one more
/// thread that ends the run. With the system's long slices, that thread would get a core much too
/// late.
pub(super) fn for_benchmarks(mut machine: Machine) -> Machine {
    let slice = (machine.cycles(10_000)).to_string();
    machine.set("slice", &slice, "chosen: 10 us").expect("a parameter and a number");
    machine
}
