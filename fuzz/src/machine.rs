//! What must hold whatever describes a machine.
//!
//! The first byte says what the rest is: a machine file, a machine in one line, or a list of CPUs.
//! Demanded is:
//! - Memory and steps follow the length of the text.
//! - A model that is taken keeps to its limits, and comes back from its own text.
//! - A list of CPUs is in order, each of them once.

use crate::bounds::Bound;
use manycore::percpu::topology::parse_cpulist;
use manycore_sim::{Machine, PARAMETERS};

/// What a text may take, as `Machine::from_toml` has it.
const BOUND: Bound = Bound { each: 256, besides: 256 << 10 };
/// A list names up to 65,536 CPUs in nine bytes.
const LIST: Bound = Bound { each: 64, besides: 2 << 20 };

/// A machine file, a line, or a list.
pub fn machine(data: &[u8]) {
    let [what, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match what % 3 {
        0 => {
            let machine = BOUND.hold(text.len(), || Machine::from_toml(text).ok());
            if let Some(machine) = machine {
                demand(&machine);
                let again = Machine::from_toml(&machine.to_toml()).expect("its own text");
                assert_eq!(again.encode(), machine.encode());
            }
        }
        1 => {
            let machine = BOUND.hold(text.len(), || Machine::decode(text).ok());
            if let Some(machine) = machine {
                demand(&machine);
            }
        }
        _ => {
            let list = LIST.hold(text.len(), || parse_cpulist(text).ok()).unwrap_or_default();
            assert!(list.is_sorted_by(|a, b| a < b), "{list:?}");
            assert!(list.last().is_none_or(|last| *last < 1 << 16));
        }
    }
}

fn demand(machine: &Machine) {
    assert!(machine.check().is_ok());
    let number = |name| machine.get(name).and_then(|text| text.parse::<u64>().ok());
    let kib: u64 = ["l1_kib", "l2_kib"].into_iter().filter_map(number).sum();
    let lines = (u64::from(machine.physical_cores()) * kib * 1024) >> number("line_shift").unwrap();
    assert!(lines <= 128 << 20, "{lines} lines in the cores' own caches");
    assert!(PARAMETERS.iter().all(|parameter| machine.get(parameter.name).is_some()));
    let again = Machine::decode(&machine.encode()).expect("its own line");
    assert_eq!(again.encode(), machine.encode());
}
