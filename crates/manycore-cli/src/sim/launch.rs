//! A run of an instrumented program on virtual cores.

use std::{
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use manycore_sim::{Machine, report::variations};

use super::{Band, map, outcome::Run};
use crate::failure::Failure;

/// The variable that the runtime reads, and then removes from the program's environment.
pub(crate) const VARIABLE: &str = "MANYCORE_SIM_RUN";
/// The exit code of a run that the runtime gave up, for example in a deadlock.
const GIVEN_UP: i32 = 86;
/// A program with its arguments.
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: &'a [String],
    pub(crate) seed: u64,
    /// The day on which its time of day begins, in days since 1970.
    pub(crate) day: u64,
    /// Whether the program's output is dropped.
    pub(crate) quiet: bool,
    /// The number of its threads' waits that are kept.
    pub(crate) waits: u32,
}

impl Launch<'_> {
    /// Runs the program to its end.
    pub(crate) fn run(&self, machine: &Machine, cores: u32) -> Result<Run, Failure> {
        let out = if self.quiet { Stdio::null() } else { Stdio::inherit() };
        self.run_with(machine, cores, out).map(|(run, _)| run)
    }

    /// Runs the program to its end, and returns what it prints. Fails if the program fails.
    pub(crate) fn run_and_read(
        &self,
        machine: &Machine,
        cores: u32,
    ) -> Result<(Run, String), Failure> {
        let (run, printed) = self.run_with(machine, cores, Stdio::piped())?;
        run.failure(cores).map_or(Ok((run, printed)), Err)
    }

    fn run_with(
        &self,
        machine: &Machine,
        cores: u32,
        out: Stdio,
    ) -> Result<(Run, String), Failure> {
        let cannot = |error: std::io::Error| {
            Failure::run(format_args!("cannot run {}: {error}", self.program.display()))
        };
        let folder = tempfile::tempdir().map_err(cannot)?;
        let result = folder.path().join("result");
        let mut command = Command::new(self.program);
        command.args(self.arguments).stdout(out).stderr(Stdio::inherit());
        named_alone(&mut command, self.program);
        map::write(folder.path(), machine, cores).map_err(cannot)?;
        let run = (cores, self.seed, self.waits, self.day);
        simulated(&mut command, machine, run, (&result, folder.path()));
        let output = command.output().map_err(cannot)?;
        let status = output.status;
        let text = std::fs::read_to_string(&result).unwrap_or_default();
        let run = Run::parse(&text);
        match run {
            Ok(run) if status.code() == Some(GIVEN_UP) => Err(deadlock(&run, cores)),
            Ok(mut run) if status.code().is_some() => {
                run.exit_code = status.code().unwrap_or(0);
                Ok((run, String::from_utf8_lossy(&output.stdout).into_owned()))
            }
            Err(damage) if status.success() && !text.is_empty() => Err(damage),
            _ => Err(ended_badly(status, cores)),
        }
    }

    /// Runs the program once more for each possible value of an unknown parameter.
    pub(crate) fn bands(&self, machine: &Machine, cores: &[u32]) -> Result<Vec<Band>, Failure> {
        let mut bands = Vec::new();
        for (change, machine) in variations(machine) {
            eprintln!("manycore sim: the same with {change}");
            let runs = cores.iter().map(|&count| self.run(&machine, count));
            bands.push(Band { runs: runs.collect::<Result<_, _>>()?, change });
        }
        Ok(bands)
    }
}

/// Sets up a command so that it, or the first instrumented program that it starts, is simulated.
/// `result` is the file for its result, and `map` the folder with the map of the virtual machine.
pub(crate) fn simulated(
    command: &mut Command,
    machine: &Machine,
    (cores, seed, waits, day): (u32, u64, u32, u64),
    (result, map): (&Path, &Path),
) {
    let (path, machine) = (result.display(), machine.encode());
    // The text has the same length for all numbers, because its length decides the addresses on the
    // stack, and so what shares a line.
    let text = format!("{cores:04}|{seed:020}|{waits:010}|{day:010}|{path}|{machine}");
    command.env(VARIABLE, text);
    command.env("MANYCORE_TOPOLOGY", map);
    // Otherwise the library's clock would ask the host whether to trust its counter. Virtual
    // counters agree.
    command.env("MANYCORE_CLOCK", "tsc");
    // These variables move libc's allocations, and so decide what shares a cache line.
    let moves = |name: &str| name == "GLIBC_TUNABLES" || name.starts_with("MALLOC_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(moves) {
            command.env_remove(name);
        }
    }
    fixed_addresses(command);
}

/// Passes the program its name without the folder. A copy of a longer path would move later
/// allocations.
fn named_alone(command: &mut Command, program: &Path) {
    #[cfg(unix)]
    if let Some(name) = program.file_name() {
        std::os::unix::process::CommandExt::arg0(command, name);
    }
    #[cfg(not(unix))]
    let _ = (command, program);
}

/// Gives every run the same addresses, because they decide which data share a cache line.
#[cfg(target_os = "linux")]
fn fixed_addresses(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x0004_0000;
    // SAFETY: between fork and exec; `personality` is a plain system call. Where it is refused (a
    // sandbox), runs may differ from each other, and nothing else is wrong.
    unsafe {
        command.pre_exec(|| {
            libc::personality(ADDR_NO_RANDOMIZE);
            Ok(())
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn fixed_addresses(_: &mut Command) {}

fn deadlock(run: &Run, cores: u32) -> Failure {
    let mut symbols = manycore_sim::symbols::Symbols::new();
    let waits: Vec<String> = run
        .blocked
        .iter()
        .take(8)
        .map(|blocked| {
            let place = symbols.place(&run.modules, &blocked.addresses);
            format!("thread {} on core {} at {place}", blocked.thread, blocked.core)
        })
        .collect();
    Failure::run(format_args!(
        "on {cores} cores the program came to a deadlock at cycle {}: {}",
        run.count("end"),
        waits.join("; ")
    ))
}

fn ended_badly(status: ExitStatus, cores: u32) -> Failure {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    let how = match (status.code(), signal) {
        (Some(GIVEN_UP), _) => "the runtime gave up, see above".to_owned(),
        (Some(0), _) => {
            "it ended well, but left no result: it is not instrumented, or it ended by _exit".into()
        }
        (Some(code), _) => format!("it ended with exit code {code}, and left no result"),
        (None, Some(signal)) => format!("the program was ended by signal {signal}"),
        (None, None) => "the program ended in an unknown way".to_owned(),
    };
    Failure::run(format_args!("on {cores} cores: {how}"))
}
