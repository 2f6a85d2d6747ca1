//! The decision about the clock of this machine, with the reasons.
//!
//! Owns: the decision, as a pure function from [`Facts`] to a [`Verdict`]. Does not own: finding
//! the facts out ([`super::detect`]).

use std::fmt;

use super::{Mode, NANOS_PER_SECOND};

/// The environment variable that overrules the detection.
pub(crate) const VARIABLE: &str = "MANYCORE_CLOCK";

/// If a read costs more, a hypervisor traps it. The shared counter is then faster as well as safer.
const READ_NS_MAX: f64 = 300.0;

/// Slower counters tick less often than messages can pass between cores (2 ns).
const FINE_HZ_MIN: u64 = 500_000_000;

/// If the probe sees a larger inversion, the counters are not one clock: there may be any
/// inversion.
const INVERSION_TICKS_MAX: u64 = 100_000;

/// The largest skew that the environment may ask for: about half a second on current machines.
const REQUESTED_SKEW_TICKS_MAX: u64 = 1 << 30;

/// What [`Clock::system`](super::Clock::system) decided, and why; `manycore doctor` prints it.
///
/// ```
/// let verdict = manycore::clock::Clock::system().verdict();
/// println!("{verdict}");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Verdict {
    /// The clock's promise.
    pub mode: Mode,
    /// The reasons, in the order in which they were weighed; at least one for every fallback.
    pub reasons: Vec<String>,
    /// The instructions that read the clock in order.
    pub instruction: &'static str,
    /// Whether the hardware counter runs at one rate in all sleep and frequency states.
    pub invariant_tsc: bool,
    /// The source from which the kernel itself reads the time; `None` if it does not tell (a
    /// container without the file, another system).
    pub clocksource: Option<String>,
    /// Ticks of the hardware counter per second, if the clock uses it.
    pub frequency_hz: Option<u64>,
    /// Whether a hypervisor reports its presence.
    pub hypervisor: bool,
    /// Duration of a stamp on one core, in nanoseconds.
    pub read_ns: Option<f64>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes_no = |yes| if yes { "yes" } else { "no" };
        writeln!(f, "mode:          {}", self.mode)?;
        match self.read_ns {
            Some(ns) => writeln!(f, "read by:       {} ({ns:.1} ns)", self.instruction)?,
            None => writeln!(f, "read by:       {}", self.instruction)?,
        }
        if let Some(hertz) = self.frequency_hz {
            writeln!(f, "frequency:     {:.6} GHz", hertz as f64 / NANOS_PER_SECOND as f64)?;
        }
        writeln!(f, "invariant:     {}", yes_no(self.invariant_tsc))?;
        writeln!(f, "clocksource:   {}", self.clocksource.as_deref().unwrap_or("unknown"))?;
        write!(f, "hypervisor:    {}", yes_no(self.hypervisor))?;
        for reason in &self.reasons {
            write!(f, "\nbecause:       {reason}")?;
        }
        Ok(())
    }
}

/// The facts that the decision rests on.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Value of [`VARIABLE`].
    pub request: Option<String>,
    /// The instruction that reads the counter; `None` if there is no known counter.
    pub instruction: Option<&'static str>,
    /// Whether this process may read the counter.
    pub readable: bool,
    pub invariant: bool,
    /// Whether the architecture promises the same time on all cores.
    pub architected: bool,
    /// The kernel's name for this counter.
    pub trusted_clocksource: &'static str,
    pub clocksource: Option<String>,
    /// Ticks per second, if stated and not measured.
    pub nominal_hz: Option<u64>,
    pub hypervisor: bool,
    pub read_ns: Option<f64>,
    pub probe: Probe,
}

/// The result of the quick probe.
#[derive(Debug, Clone)]
pub(crate) enum Probe {
    /// Others vouch for the counter, or nothing can.
    NotNeeded,
    /// Every message arrived later than it was sent.
    Clean { pairs: usize, min_ticks: i64 },
    /// A message arrived `by_ticks` before it was sent.
    Inverted { by_ticks: u64 },
    /// It could not run.
    Failed(String),
}

/// The clocks that the user may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Tsc,
    Counter,
    Bounded(u64),
}

impl Request {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text {
            "tsc" => return Ok(Self::Tsc),
            "counter" => return Ok(Self::Counter),
            _ => {}
        }
        let ticks = text.strip_prefix("bounded:").and_then(|ticks| ticks.parse().ok());
        match ticks {
            Some(ticks) if ticks <= REQUESTED_SKEW_TICKS_MAX => Ok(Self::Bounded(ticks)),
            Some(ticks) => Err(format!("{ticks} ticks are beyond {REQUESTED_SKEW_TICKS_MAX}")),
            None => Err("expected tsc, counter or bounded:<ticks>".to_owned()),
        }
    }
}

/// Chooses the clock.
pub(crate) fn decide(facts: &Facts) -> Verdict {
    let mut reasons = Vec::new();
    let mode = requested(facts, &mut reasons).unwrap_or_else(|| detected(facts, &mut reasons));
    let mode = match mode {
        Mode::Synchronized => fine_enough(facts, &mut reasons),
        mode => mode,
    };
    let hardware = facts.instruction.filter(|_| mode != Mode::Counter);
    Verdict {
        mode,
        reasons,
        instruction: hardware.unwrap_or("fetch_add on one shared word"),
        invariant_tsc: facts.invariant,
        clocksource: facts.clocksource.clone(),
        frequency_hz: facts.nominal_hz.filter(|_| hardware.is_some()),
        hypervisor: facts.hypervisor,
        read_ns: facts.read_ns.filter(|_| hardware.is_some()),
    }
}

/// Returns the mode that the user asks for, as far as the machine can do it.
fn requested(facts: &Facts, reasons: &mut Vec<String>) -> Option<Mode> {
    let text = facts.request.as_deref().filter(|text| !text.trim().is_empty())?;
    let mode = match Request::parse(text) {
        Ok(Request::Counter) => Mode::Counter,
        Ok(_) if facts.instruction.is_none() || !facts.readable => {
            reasons.push(format!("{VARIABLE}={text} ignored: no counter that may be read"));
            return None;
        }
        Ok(Request::Tsc) => Mode::Synchronized,
        Ok(Request::Bounded(skew_ticks)) => Mode::Bounded { skew_ticks },
        Err(problem) => {
            reasons.push(format!("{VARIABLE}={} ignored: {problem}", text.escape_debug()));
            return None;
        }
    };
    reasons.push(format!("asked for by {VARIABLE}={text}"));
    Some(mode)
}

/// Returns the mode that the machine supports. Each test that fails is a reason to count instead.
fn detected(facts: &Facts, reasons: &mut Vec<String>) -> Mode {
    let unfit = if facts.instruction.is_none() {
        Some("no hardware counter that we can read on this processor".to_owned())
    } else if !facts.readable {
        Some("this process is forbidden to read the counter (PR_SET_TSC)".to_owned())
    } else if !facts.invariant {
        Some("the counter is not invariant: it may stop or change its rate".to_owned())
    } else {
        let slow = facts.read_ns.filter(|ns| *ns > READ_NS_MAX);
        slow.map(|ns| format!("a read takes {ns:.0} ns: the counter is emulated"))
    };
    if let Some(reason) = unfit {
        reasons.push(reason);
        return Mode::Counter;
    }
    match facts.clocksource.as_deref() {
        Some(name) if name == facts.trusted_clocksource => {
            reasons.push(format!("the kernel keeps time by it (clocksource {name})"));
            if facts.hypervisor {
                reasons.push(format!(
                    "note: virtual machine; if it is moved between hosts, set {VARIABLE}=counter"
                ));
            }
            Mode::Synchronized
        }
        Some(name) => {
            reasons.push(format!("the kernel prefers clocksource {name}"));
            Mode::Counter
        }
        None if facts.architected => {
            reasons.push("the architecture gives all cores one counter".to_owned());
            Mode::Synchronized
        }
        None => {
            reasons.push("the kernel does not name its clocksource".to_owned());
            probed(&facts.probe, reasons)
        }
    }
}

/// Judges the result of the probe, if no other source vouches for the counter.
fn probed(probe: &Probe, reasons: &mut Vec<String>) -> Mode {
    let (mode, reason) = match probe {
        Probe::Clean { pairs, min_ticks } => (
            Mode::Synchronized,
            format!("quick probe: no inversion on {pairs} pairs of cores, least {min_ticks} ticks"),
        ),
        // A few milliseconds do not show the largest skew, so assume twice what they show.
        Probe::Inverted { by_ticks } if *by_ticks <= INVERSION_TICKS_MAX => (
            Mode::Bounded { skew_ticks: by_ticks * 2 },
            format!("quick probe: cores are {by_ticks} ticks apart; waiting out twice that"),
        ),
        Probe::Inverted { by_ticks } => {
            (Mode::Counter, format!("quick probe: cores are {by_ticks} ticks apart"))
        }
        Probe::Failed(why) => (Mode::Counter, format!("quick probe failed: {why}")),
        Probe::NotNeeded => (Mode::Counter, "no probe was run".to_owned()),
    };
    reasons.push(reason);
    mode
}

/// clock.C2 needs a tick between any two moments in order. If ticks are long, updates wait for a
/// tick.
fn fine_enough(facts: &Facts, reasons: &mut Vec<String>) -> Mode {
    match facts.nominal_hz {
        Some(hertz) if hertz < FINE_HZ_MIN => {
            let ns = NANOS_PER_SECOND / u128::from(hertz.max(1));
            reasons.push(format!("a tick lasts {ns} ns: ordered updates wait for the next one"));
            Mode::Bounded { skew_ticks: 0 }
        }
        _ => Mode::Synchronized,
    }
}
