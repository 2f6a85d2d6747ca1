//! The list of parameters: one row each, from which files, text and reports are made.

use super::{Arbitration, Machine, Topology};

/// One parameter of a machine model.
pub struct Parameter {
    /// Its name in files, on the command line and in reports.
    pub name: &'static str,
    /// What it takes.
    pub wants: &'static str,
    pub(super) get: fn(&Machine) -> u32,
    pub(super) set: fn(&mut Machine, u32),
    pub(super) parse: fn(&str) -> Option<u32>,
    pub(super) show: fn(u32) -> String,
}

impl std::fmt::Debug for Parameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.wants)
    }
}

fn number(text: &str) -> Option<u32> {
    text.replace('_', "").parse().ok()
}

fn one_of(names: &[&str], text: &str) -> Option<u32> {
    names.iter().position(|name| *name == text).map(|at| at as u32)
}

const ARBITRATIONS: &[&str] = &["fifo", "rounds", "turns", "nearest", "random"];
const TOPOLOGIES: &[&str] = &["full", "hypercube", "ring"];
const SWITCH: &[&str] = &["false", "true"];

fn arbitration(number: u32) -> Arbitration {
    match number {
        0 => Arbitration::Fifo,
        1 => Arbitration::Rounds,
        2 => Arbitration::Turns,
        3 => Arbitration::Nearest,
        _ => Arbitration::Random,
    }
}

fn topology(number: u32) -> Topology {
    match number {
        0 => Topology::Full,
        1 => Topology::Hypercube,
        _ => Topology::Ring,
    }
}

macro_rules! numbers {
    ($($name:literal $wants:literal $field:ident $([$at:literal])?;)+) => { [$(
        Parameter {
            name: $name,
            wants: $wants,
            get: |m| m.$field$([$at])?,
            set: |m, value| m.$field$([$at])? = value,
            parse: number,
            show: |value| value.to_string(),
        },
    )+] };
}

const NUMBERS: [Parameter; 28] = numbers! {
    "sockets" "a number" sockets;
    "cores_per_socket" "a number" cores_per_socket;
    "mhz" "million cycles per second" mhz;
    "same_socket" "cycles" same_socket;
    "hop1" "cycles" hops[0];
    "hop2" "cycles" hops[1];
    "hop3" "cycles" hops[2];
    "hit" "cycles" hit;
    "rmw" "cycles" rmw;
    "memory" "cycles" memory;
    "memory_hop" "cycles" memory_hop;
    "memory_occupancy" "cycles" memory_occupancy;
    "read_occupancy" "cycles" read_occupancy;
    "linger" "cycles" linger;
    "store_buffer" "stores" store_buffer;
    "parallel_misses" "lines" parallel_misses;
    "line_shift" "a power of two" line_shift;
    "quantum" "cycles" quantum;
    "drift" "cycles" drift;
    "slice" "cycles" slice;
    "context_switch" "cycles" context_switch;
    "syscall" "cycles" syscall;
    "wake" "cycles" wake;
    "malloc" "cycles" malloc;
    "pause" "cycles" pause;
    "clock_read" "cycles" clock_read;
    "clock_skew" "cycles" clock_skew;
    "instructions_per_10_cycles" "instructions" instructions_per_10_cycles;
};

const CHOICES: [Parameter; 3] = [
    Parameter {
        name: "topology",
        wants: "full, hypercube or ring",
        get: |m| m.topology as u32,
        set: |m, value| m.topology = topology(value),
        parse: |text| one_of(TOPOLOGIES, text),
        show: |value| TOPOLOGIES[value as usize].to_string(),
    },
    Parameter {
        name: "arbitration",
        wants: "fifo, rounds, turns, nearest or random",
        get: |m| m.arbitration as u32,
        set: |m, value| m.arbitration = arbitration(value),
        parse: |text| one_of(ARBITRATIONS, text),
        show: |value| ARBITRATIONS[value as usize].to_string(),
    },
    Parameter {
        name: "llsc",
        wants: "true or false",
        get: |m| u32::from(m.llsc),
        set: |m, value| m.llsc = value != 0,
        parse: |text| one_of(SWITCH, text),
        show: |value| SWITCH[value as usize].to_string(),
    },
];

/// Every parameter of a machine, the choices first.
pub static PARAMETERS: [&Parameter; 31] = {
    let mut all = [&CHOICES[0]; 31];
    let mut at = 0;
    while at < 31 {
        all[at] = if at < 3 { &CHOICES[at] } else { &NUMBERS[at - 3] };
        at += 1;
    }
    all
};

pub(super) fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().copied().find(|p| p.name == name)
}
