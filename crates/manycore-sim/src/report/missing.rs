//! The parts of a real machine that the model leaves out.

use crate::machine::Machine;

/// Left out for every machine.
const ALWAYS: [&str; 7] = [
    "Links between sockets have no limit.",
    "Nothing is prefetched, and a narrow load waits for its line before the next begins.",
    "Memory order is sequentially consistent: no weak outcome is ever seen.",
    "Address translation (TLB misses, page faults) takes no time.",
    "The frequency is fixed: no turbo, no throttling.",
    "A wake-up takes the same time however long the woken core has slept, and costs the waker a \
     system call (wake and syscall).",
    "What inline assembly accesses moves no cache line, but for locked instructions, repeated \
     copies and fills: the compiler makes no callback for it.",
];

/// Lists what the model leaves out, except for parts that the machine's parameters switch on.
pub fn missing(machine: &Machine) -> Vec<String> {
    let caches = if machine.l2_kib == 0 {
        let text = "Caches have no limit: a line once fetched stays until another core takes it";
        format!("{text} (l2_kib is 0{}).", why(machine, "l2_kib"))
    } else {
        "Caches replace lines in the order in which they came, and writing them back is free."
            .to_string()
    };
    let code = if machine.window == 0 {
        "Instructions have no latency of their own, and branches are never mispredicted: code runs \
         at one rate (instructions_per_10_cycles; window is 0)."
    } else {
        "Execution units are without number, and what is stored and loaded again is followed on \
         the stack only."
    };
    let stores = why(machine, "store_buffer");
    let stores = format!("A core waits for each of its stores (store_buffer is 0{stores}).");
    let switches = [
        (machine.memory_hop, "Memory is equally far from everywhere (memory_hop is 0)."),
        (
            machine.memory_occupancy + machine.memory_bandwidth,
            "Memory has no limit (memory_bandwidth and memory_occupancy are 0).",
        ),
        (machine.store_buffer, &stores[..]),
        (machine.parallel_misses - 1, "Copies fetch one line at a time (parallel_misses is 1)."),
        (
            machine.threads_per_core - 1,
            "A core runs one thread at a time: no hardware threads (threads_per_core is 1).",
        ),
        (
            machine.division + machine.square_root,
            "Divisions and square roots take no longer than other instructions (division and \
             square_root are 0).",
        ),
    ];
    let off = switches.into_iter().filter(|(value, _)| *value == 0).map(|(_, text)| text);
    [&caches[..], code].into_iter().chain(ALWAYS).chain(off).map(str::to_string).collect()
}

/// Returns the reason why a model lacks a part, if the parameter's source gives one.
fn why(machine: &Machine, parameter: &str) -> String {
    let source = machine.source(parameter);
    if source.starts_with("left out") { format!("; {source}") } else { String::new() }
}

#[cfg(test)]
#[test]
fn a_part_that_is_switched_on_is_not_named() {
    let mut machine = Machine::guessed("any");
    let before = missing(&machine);
    assert!(before.iter().any(|text| text.contains("division")));
    assert!(before.iter().any(|text| text.contains("hardware threads")));
    for (name, value) in [("division", "10"), ("threads_per_core", "2"), ("l2_kib", "1024")] {
        machine.set(name, value, "test").unwrap();
    }
    let after = missing(&machine);
    assert_eq!(after.len() + 2, before.len());
    assert!(!after.iter().any(|text| text.contains("no limit: a line")), "{after:?}");
}

#[cfg(test)]
#[test]
fn model_that_was_calibrated_without_a_part_says_so() {
    let opteron = missing(&Machine::named("opteron-8x6").expect("a shipped model"));
    for part in ["l2_kib is 0", "store_buffer is 0"] {
        let text = opteron.iter().find(|text| text.contains(part)).expect("it is left out");
        assert!(text.contains("as when the model was calibrated"), "{text}");
    }
}
