//! K42 (Appavoo and others), measured by its authors on 24 PowerPC processors.

use super::{Axis, Claim, Curve, Figure};

pub(super) const FIGURES: &[Figure] = &[Figure {
    id: "k42-4",
    title: "K42, Figure 4: a request that counts",
    story: "Section 2: each processor sends requests of 1193 cycles to a server of its own, \
        which counts them: under a lock, with an atomic increment, in an array of counters side \
        by side, in a padded array. The text gives how much slower a request is with 24 \
        processors than with one. Here a request is 1193 cycles of spinning. K42's lock is a \
        queue lock, and so is the one here. The machine's transfer times are not published: the \
        bus is a guess.",
    calibration: false,
    machine: "power-24",
    workload: "counter",
    arguments: &["--work", "1193", "--read-every", "never"],
    duration: "1ms",
    quick_duration: "300us",
    axis: Axis::Cores { beside: 0, full: &[1, 2, 4, 8, 12, 16, 20, 24], quick: &[1, 12, 24] },
    metric: "latency",
    unit: "times one processor's",
    scale: 1.0,
    relative: true,
    curves: &[
        Curve::new("lock", "mcs", &[(24.0, 19.0)]),
        Curve::new("atomic increment", "atomic", &[(24.0, 12.0)]),
        Curve::new("array", "unpadded", &[(24.0, 6.0)]),
        Curve::new("padded array", "padded", &[(24.0, 1.0)]),
    ],
    claims: &[
        Claim::Value { curve: "mcs", x: 24.0, published: 19.0 },
        Claim::Value { curve: "atomic", x: 24.0, published: 12.0 },
        Claim::Value { curve: "unpadded", x: 24.0, published: 6.0 },
        Claim::Value { curve: "padded", x: 24.0, published: 1.0 },
        Claim::Order { curves: &["mcs", "atomic", "unpadded", "padded"], from: 8.0 },
    ],
    why: &[
        "The bus's transfer time is a guess of 250 cycles, and decides all three. With 360 \
             (--set hop1=360 and the same for the others) an atomic increment is 11.4 times one \
             processor's, the array 5.9, published 12 and 6.",
        "The array begins on a line here, with 16 counters on the first. Where the \
             allocator happened to put it before, the mean over all processors was 3.1 instead \
             of 4.4; by accesses alone it is 3.1 to 4.9 by its place, and the slowest processor \
             4.9 to 6.3. The paper speaks of the worst case.",
        "Up to 16 processors the array is one line, and costs what the atomic increment \
             costs (at 12 it is 2 % above): a load and a store fetch it twice, as load-linked \
             and store-conditional do. On the real machine conditional stores fail; in the \
             model they never do.",
    ],
}];
