//! The shipped models of machines that are sold today.
//!
//! Times between cores are published measurements in nanoseconds, converted at the frequency that
//! all cores reach together. If none was found for a machine, the time of its nearest relative is
//! used; the source then says "guess" and names the relative.

use super::{
    Arbitration, Machine,
    guess::{guessed, with},
};

/// nviennot/core-to-core-latency, a table of medians in its README.
const MILAN: &str = "guess: core-to-core-latency (README) has 107 ns between the complexes of an \
    EPYC 7R13, a generation older";
const MILAN_FAR: &str = "guess: core-to-core-latency (README) has 197 ns between two EPYC 7R13, a \
    generation older";
const ZEN_4: &str = "AnandTech, review of Zen 4: 15 to 19 ns within a core complex, the middle";
const SHARE: &str = "guess: a core with two busy threads does 1.2 times the work";
const LINGER: &str = "guess: half a transfer within a socket";

/// Converts nanoseconds to cycles.
const fn cycles(nanos: u32, mhz: u32) -> u32 {
    (nanos * mhz + 500) / 1000
}

/// Builds the part that these machines have in common.
fn server(name: &str, mhz: u32, about_within: [u32; 3], memory: [u32; 2]) -> Machine {
    let [same_complex, same_socket, hop] = about_within.map(|nanos| cycles(nanos, mhz));
    let [memory, memory_hop] = memory.map(|nanos| cycles(nanos, mhz));
    Machine {
        sockets: 2,
        mhz,
        same_complex,
        same_socket,
        hops: [hop; 3],
        memory,
        memory_hop,
        linger: same_socket / 2,
        arbitration: Arbitration::Turns,
        slice: mhz * 3000,
        l1_kib: 32,
        l2_kib: 1 << 10,
        parallel_misses: 8,
        store_buffer: 64,
        division: 12,
        square_root: 15,
        // Guesses for all of these machines: at best their cores take up six to eight instructions
        // in a cycle, and have 320 to 512 under way.
        instructions_per_10_cycles: 50,
        window: 320,
        load: 4,
        mispredict: 15,
        hit: 0,
        ..guessed(name)
    }
}

/// Two EPYC 9654 of 96 cores.
pub(super) fn epyc_9654() -> Machine {
    let shape = Machine {
        cores_per_socket: 96,
        cores_per_complex: 8,
        threads_per_core: 2,
        thread_share: 60,
        l3_kib: 32 << 10,
        memory_bandwidth: 460_800,
        ..server("epyc-9654", 3550, [17, 107, 197], [118, 90])
    };
    with(
        shape,
        "two 96-core AMD EPYC 9654 (Zen 4) at 3.55 GHz, 384 hardware threads",
        &[
            ("sockets", "as sold: one or two"),
            ("cores_per_socket", "AMD's data sheet: 96 cores"),
            ("cores_per_complex", "AMD's data sheet: 12 core complexes"),
            ("threads_per_core", "AMD's data sheet: 192 threads"),
            ("thread_share", SHARE),
            ("mhz", "AMD's data sheet: boost of all cores"),
            ("same_complex", ZEN_4),
            ("same_socket", MILAN),
            ("hop1", MILAN_FAR),
            ("hop2", "not used: two sockets"),
            ("hop3", "not used: two sockets"),
            ("memory", "guess: 118 ns"),
            ("memory_hop", "guess: 90 ns, as much as the other socket's cache is farther"),
            ("store_buffer", "Chips and Cheese, Zen 4 part 2: 64 entries"),
            ("l1_kib", "AMD's data sheet"),
            ("l2_kib", "AMD's data sheet: 1 MiB of a core"),
            ("l3_kib", "AMD's data sheet: 384 MiB of 12 complexes"),
            ("memory_bandwidth", "AMD's data sheet: 460.8 GB/s of 12 channels DDR5-4800"),
            ("linger", LINGER),
        ],
    )
}

/// Two EPYC 9965 of 192 dense cores.
pub(super) fn epyc_9965() -> Machine {
    let shape = Machine {
        cores_per_socket: 192,
        cores_per_complex: 16,
        threads_per_core: 2,
        thread_share: 60,
        l1_kib: 48,
        l3_kib: 32 << 10,
        memory_bandwidth: 576_000,
        ..server("epyc-9965", 3350, [20, 107, 197], [120, 90])
    };
    with(
        shape,
        "two 192-core AMD EPYC 9965 (Zen 5c) at 3.35 GHz, 768 hardware threads",
        &[
            ("sockets", "as sold: one or two"),
            ("cores_per_socket", "AMD's data sheet: 192 cores"),
            ("cores_per_complex", "12 dies with one complex of 16 cores each (die shots, 2025)"),
            ("threads_per_core", "AMD's data sheet: 384 threads"),
            ("thread_share", SHARE),
            ("mhz", "AMD's data sheet: boost of all cores"),
            ("same_complex", "guess: the upper end of Zen 4's 15 to 19 ns and a larger complex"),
            ("same_socket", MILAN),
            ("hop1", MILAN_FAR),
            ("hop2", "not used: two sockets"),
            ("hop3", "not used: two sockets"),
            ("memory", "guess: 120 ns"),
            ("memory_hop", "guess: 90 ns, as much as the other socket's cache is farther"),
            ("l1_kib", "AMD's data sheet"),
            ("l2_kib", "AMD's data sheet: 1 MiB of a core"),
            ("l3_kib", "AMD's data sheet: 384 MiB of 12 complexes"),
            ("memory_bandwidth", "AMD's data sheet: 576 GB/s of 12 channels DDR5-6000"),
            ("linger", LINGER),
        ],
    )
}

/// Two Xeon 6 of 96 performance cores on three tiles.
pub(super) fn xeon_6972p() -> Machine {
    let shape = Machine {
        cores_per_socket: 96,
        cores_per_complex: 32,
        threads_per_core: 2,
        thread_share: 60,
        l1_kib: 48,
        l2_kib: 2 << 10,
        l3_kib: 160 << 10,
        l2_hit: 16,
        l3_hit: cycles(33, 3500),
        memory_bandwidth: 691_620,
        ..server("xeon-6972p", 3500, [51, 80, 138], [130, 70])
    };
    with(
        shape,
        "two 96-core Intel Xeon 6972P (Granite Rapids) at 3.5 GHz, 384 hardware threads",
        &[
            ("sockets", "as sold: one or two"),
            ("cores_per_socket", "Intel's data sheet: 96 cores"),
            ("cores_per_complex", "guess: three compute tiles with a third each"),
            ("threads_per_core", "Intel's data sheet: 192 threads"),
            ("thread_share", SHARE),
            ("mhz", "Intel's data sheet: turbo of all cores"),
            (
                "same_complex",
                "guess: core-to-core-latency (README) has 51 ns on the mesh of a Xeon 8375C",
            ),
            ("same_socket", "guess: 80 ns, a mesh half again as long"),
            (
                "hop1",
                "Chips and Cheese, Graviton 4 (2024): its 138.6 ns are \"similar to Intel's \
                 Sapphire Rapids\", the Xeon before",
            ),
            ("hop2", "not used: two sockets"),
            ("hop3", "not used: two sockets"),
            ("memory", "guess: 130 ns"),
            ("memory_hop", "guess: 70 ns"),
            ("l1_kib", "Redwood Cove has 48 KiB (TechPowerUp, Granite Rapids)"),
            ("l2_kib", "Chips and Cheese, Xeon 6: 2 MB of a core"),
            ("l3_kib", "480 MiB of three tiles, as sold"),
            ("l3_hit", "guess: 33 ns"),
            ("memory_bandwidth", "Chips and Cheese, Xeon 6 (6985P-C): 691.62 GB/s measured"),
            ("linger", LINGER),
        ],
    )
}

/// Two Graviton4 of 96 cores.
pub(super) fn graviton4() -> Machine {
    const SOURCE: &str = "Chips and Cheese, Graviton 4 (2024): 30 to 60 ns on its mesh, the middle";
    let shape = Machine {
        cores_per_socket: 96,
        l1_kib: 64,
        l2_kib: 2 << 10,
        l3_kib: 36 << 10,
        l2_hit: 11,
        l3_hit: cycles(30, 2800),
        memory_bandwidth: 536_700,
        ..server("graviton4", 2800, [45, 45, 139], [115, 95])
    };
    with(
        shape,
        "two 96-core AWS Graviton4 (Neoverse V2) at 2.8 GHz",
        &[
            ("sockets", "Chips and Cheese, Graviton 4 (2024): two in the largest instances"),
            ("cores_per_socket", "Chips and Cheese, Graviton 4 (2024)"),
            ("cores_per_complex", "Chips and Cheese, Graviton 4 (2024): \"no sharp jump\""),
            ("threads_per_core", "Neoverse V2 has one"),
            ("thread_share", "not used: one thread"),
            ("mhz", "AWS: 2.8 GHz"),
            ("llsc", "Neoverse V2 has atomic instructions (LSE)"),
            ("same_complex", "not used: no complexes"),
            ("same_socket", SOURCE),
            ("hop1", "Chips and Cheese, Graviton 4 (2024): 138.6 ns on average"),
            ("hop2", "not used: two sockets"),
            ("hop3", "not used: two sockets"),
            ("memory", "guess: 115 ns"),
            ("memory_hop", "guess: 95 ns, as much as the other socket's cache is farther"),
            ("l1_kib", "Neoverse V2 has 64 KiB"),
            ("l2_kib", "AWS: 2 MB of a core"),
            ("l3_kib", "Chips and Cheese, Graviton 4 (2024): 36 MB"),
            ("l3_hit", "guess: 30 ns, the lower end of its core-to-core latency"),
            ("memory_bandwidth", "AWS: 536.7 GB/s of 12 channels DDR5-5600"),
            ("linger", LINGER),
        ],
    )
}
