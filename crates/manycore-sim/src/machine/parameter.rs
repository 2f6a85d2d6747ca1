//! The table of parameters: one row each. Files, text and reports are made from it.

use super::{Arbitration, Machine, Topology};

/// One parameter of a machine model.
#[non_exhaustive]
pub struct Parameter {
    /// Its name in files, on the command line and in reports.
    pub name: &'static str,
    /// The kind of value that it takes.
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

const ARBITRATIONS: [(&str, Arbitration); 5] = [
    ("fifo", Arbitration::Fifo),
    ("rounds", Arbitration::Rounds),
    ("turns", Arbitration::Turns),
    ("nearest", Arbitration::Nearest),
    ("random", Arbitration::Random),
];
const TOPOLOGIES: [(&str, Topology); 3] =
    [("full", Topology::Full), ("hypercube", Topology::Hypercube), ("ring", Topology::Ring)];
const SWITCH: [(&str, bool); 2] = [("false", false), ("true", true)];

/// Returns the position of a name in a list of choices.
fn one_of<T>(choices: &[(&str, T)], text: &str) -> Option<u32> {
    choices.iter().position(|choice| choice.0 == text).map(|at| at as u32)
}

/// Returns the position of a value in a list of choices.
fn place<T: PartialEq>(choices: &[(&str, T)], value: T) -> u32 {
    choices.iter().position(|choice| choice.1 == value).map_or(0, |at| at as u32)
}

/// Makes the row of a number. Its name is the field's, unless another name is given.
macro_rules! number {
    ($field:ident, $wants:literal) => {
        number!(stringify!($field), $wants, |m| m.$field)
    };
    ($name:expr, $wants:literal, |$m:ident| $place:expr) => {
        Parameter {
            name: $name,
            wants: $wants,
            get: |$m| $place,
            set: |$m, value| $place = value,
            parse: number,
            show: |value| value.to_string(),
        }
    };
}

const NUMBERS: [Parameter; 47] = [
    number!(sockets, "a number"),
    number!(cores_per_socket, "a number"),
    number!(cores_per_complex, "a number, or 0"),
    number!(threads_per_core, "a number"),
    number!(thread_share, "percent"),
    number!(mhz, "million cycles per second"),
    number!(same_complex, "cycles"),
    number!(same_socket, "cycles"),
    number!("hop1", "cycles", |m| m.hops[0]),
    number!("hop2", "cycles", |m| m.hops[1]),
    number!("hop3", "cycles", |m| m.hops[2]),
    number!(hit, "cycles"),
    number!(rmw, "cycles"),
    number!(memory, "cycles"),
    number!(memory_hop, "cycles"),
    number!(memory_occupancy, "cycles"),
    number!(memory_bandwidth, "million bytes a second, or 0"),
    number!(l1_kib, "KiB, or 0"),
    number!(l2_kib, "KiB, or 0"),
    number!(l3_kib, "KiB, or 0"),
    number!(l2_hit, "cycles"),
    number!(l3_hit, "cycles"),
    number!(read_occupancy, "cycles"),
    number!(linger, "cycles"),
    number!(jitter, "cycles"),
    number!(store_buffer, "stores"),
    number!(parallel_misses, "lines"),
    number!(line_shift, "a power of two"),
    number!(quantum, "cycles"),
    number!(drift, "cycles"),
    number!(slice, "cycles"),
    number!(spawn, "cycles"),
    number!(context_switch, "cycles"),
    number!(syscall, "cycles"),
    number!(wake, "cycles"),
    number!(malloc, "cycles"),
    number!(pause, "cycles"),
    number!(clock_read, "cycles"),
    number!(serialize, "cycles"),
    number!(clock_skew, "cycles"),
    number!(instructions_per_10_cycles, "instructions"),
    number!(window, "instructions, or 0"),
    number!(load, "cycles"),
    number!(mispredict, "cycles"),
    number!(division, "cycles"),
    number!(square_root, "cycles"),
    number!(vector, "cycles"),
];

/// Makes the row of a field that holds one of a list of choices.
macro_rules! choice {
    ($field:ident, $wants:literal, $choices:ident) => {
        Parameter {
            name: stringify!($field),
            wants: $wants,
            get: |m| place(&$choices, m.$field),
            set: |m, value| m.$field = $choices[value as usize].1,
            parse: |text| one_of(&$choices, text),
            show: |value| $choices[value as usize].0.to_string(),
        }
    };
}

const CHOICES: [Parameter; 3] = [
    choice!(topology, "full, hypercube or ring", TOPOLOGIES),
    choice!(arbitration, "fifo, rounds, turns, nearest or random", ARBITRATIONS),
    choice!(llsc, "true or false", SWITCH),
];

/// Every parameter of a machine, the choices first.
pub static PARAMETERS: [&Parameter; CHOICES.len() + NUMBERS.len()] = {
    let mut all = [&CHOICES[0]; CHOICES.len() + NUMBERS.len()];
    let mut at = 0;
    while at < all.len() {
        let first = CHOICES.len();
        all[at] = if at < first { &CHOICES[at] } else { &NUMBERS[at - first] };
        at += 1;
    }
    all
};

pub(super) fn find(name: &str) -> Option<&'static Parameter> {
    PARAMETERS.iter().copied().find(|p| p.name == name)
}
