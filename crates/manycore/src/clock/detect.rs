//! Detection of what the clock of this machine is good for.
//!
//! Owns: the facts that [`super::verdict::decide`] weighs.
//!
//! No probe runs at start if the kernel vouches for the counter. The kernel's own test compares all
//! cores when they come up, and its watchdog goes on comparing. A probe of a few milliseconds sees
//! less, costs every program a pinned thread, and proves nothing about later. So the probe decides
//! only if the kernel says nothing (no sysfs in a container). `manycore doctor` runs the whole
//! probe on request.
//! whole one on request.

use std::path::Path;
use std::time::Instant;

use super::hardware::{self, Instruction};
use super::verdict::{Facts, Probe, VARIABLE, Verdict, decide};
use super::{Clock, Mode, probe};

/// The path at which Linux keeps the file.
const SYSFS: &str = "/sys/devices/system";

/// Returns the verdict on this machine, with the user's environment.
pub(crate) fn verdict() -> Verdict {
    let request = std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned());
    decide(&facts(Path::new(SYSFS), request))
}

/// Returns the verdict for a clock that the program itself has chosen.
pub(crate) fn chosen(mode: Mode) -> Verdict {
    let mut facts = facts_without_probe(Path::new(SYSFS), None);
    if mode == Mode::Counter {
        facts.instruction = None;
    }
    let mut verdict = decide(&facts);
    verdict.mode = mode;
    verdict.reasons = vec!["chosen by the program".to_owned()];
    verdict
}

/// Returns the facts of a machine with its sysfs tree at `root`.
pub(crate) fn facts(root: &Path, request: Option<String>) -> Facts {
    let mut facts = facts_without_probe(root, request);
    let open = facts.clocksource.is_none() && !facts.architected;
    if open && facts.instruction.is_some() && facts.readable && facts.invariant {
        facts.probe = probe::quick();
    }
    facts
}

fn facts_without_probe(root: &Path, request: Option<String>) -> Facts {
    let instruction = Instruction::detect();
    let readable = hardware::readable();
    Facts {
        request,
        instruction: instruction.map(Instruction::name),
        readable,
        invariant: hardware::invariant(),
        architected: hardware::ARCHITECTED,
        trusted_clocksource: hardware::TRUSTED_CLOCKSOURCE,
        // Without a counter there is nothing for the kernel to vouch for.
        clocksource: instruction.and_then(|_| clocksource(root)),
        // Other counters are known to be fine, and the query is slow in a guest.
        nominal_hz: hardware::ARCHITECTED.then(hardware::nominal_hz).flatten(),
        hypervisor: hardware::hypervisor(),
        read_ns: instruction.filter(|_| readable).map(|it| nanoseconds_each(|| it.stamp())),
        probe: Probe::NotNeeded,
    }
}

/// Returns the kernel's clocksource, if it tells.
pub(crate) fn clocksource(root: &Path) -> Option<String> {
    let path = root.join("clocksource/clocksource0/current_clocksource");
    let name = std::fs::read_to_string(path).ok()?.trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Returns the cost of a stamp of `clock` on this core, in nanoseconds.
pub(crate) fn stamp_nanoseconds(clock: &Clock) -> f64 {
    nanoseconds_each(|| clock.stamp().ticks())
}

/// Returns the least mean of a few short batches: an interruption spoils at most one of them.
fn nanoseconds_each(read: impl Fn() -> u64) -> f64 {
    const BATCHES: usize = 8;
    const READS: u32 = 64;
    let batch = || {
        let start = Instant::now();
        for _ in 0..READS {
            std::hint::black_box(read());
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(READS)
    };
    (0..BATCHES).map(|_| batch()).fold(f64::INFINITY, f64::min)
}
