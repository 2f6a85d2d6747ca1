//! LDU (Kyong's thesis, chapter 2), measured by its author on 120 cores.

use super::{Axis, Claim, Curve, Figure};

const CURVES: &[Curve] = &[
    Curve::new("stock", "rwlock", &[]),
    Curve::new("Harris", "harris", &[]),
    Curve::new("LDU, a queue for each core", "ldu-percore", &[]),
    Curve::new("LDU, one queue", "ldu-global", &[]),
    Curve::new("OpLog", "oplog", &[]),
];

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        id: "ldu-throughput",
        title: "LDU, Figures 2.8, 2.12 and 2.13: throughput",
        story: "Sections 2.6.2 to 2.6.4: AIM7, Exim and lmbench, which fork most of the time. \
            With 120 cores LDU is 1.5, 2.6 and 2.7 times stock and 1.1, 1.2 and 1.1 times a \
            lock-free list, and one queue 2 % slower than a queue for each core. Here the \
            reverse map of files alone is loaded, with 10,000 cycles of other work after each \
            update, a chosen number; lmbench, which does little but fork, is nearest. OpLog's \
            curve is the comparison that the thesis did not have.",
        calibration: false,
        machine: "xeon-8x15",
        workload: "rmap-fork",
        arguments: &["--read-every", "never", "--spin", "10000"],
        duration: "300us",
        quick_duration: "150us",
        axis: Axis::Cores { beside: 0, full: &[1, 15, 30, 45, 60, 90, 120], quick: &[1, 30, 120] },
        metric: "throughput",
        unit: "forks/ms",
        scale: 1.0,
        relative: false,
        curves: CURVES,
        claims: &[
            Claim::Times { above: "ldu-percore", below: "rwlock", x: 120.0, published: 2.7 },
            Claim::Times { above: "ldu-percore", below: "harris", x: 120.0, published: 1.1 },
            Claim::Times { above: "ldu-percore", below: "ldu-global", x: 120.0, published: 1.02 },
            Claim::Order { curves: &["ldu-percore", "harris", "rwlock"], from: 60.0 },
            Claim::Peak { curve: "rwlock", x: 45.0, published: None },
        ],
        why: &[
            "How far stock falls behind is decided by the work between updates, which we had to \
             choose, and which the paper's programs have much more of. With 10,000, 40,000 and \
             100,000 cycles LDU is 15.3, 4.2 and 1.9 times stock with 120 cores, and 1.60, 1.14 \
             and 1.05 times the lock-free list; published are 2.7 and 1.1, so between 40,000 \
             and 100,000 for the one and at about 60,000 for the other. Stock itself hardly \
             changes (116, 111, 100 forks/ms): its locks are the bottleneck throughout.",
        ],
    },
    Figure {
        id: "ldu-ratio",
        title: "LDU, Figures 2.14 to 2.19: shares of updates",
        story: "Section 2.6.5: the same with reads added. With Exim and lmbench LDU is ahead of \
            stock from 85 % updates on, with AIM7 already at 75 %. Here reads are truncates of \
            the same reverse map, on 120 cores.",
        calibration: false,
        machine: "xeon-8x15",
        workload: "rmap-fork",
        arguments: &["--spin", "10000"],
        duration: "300us",
        quick_duration: "150us",
        axis: Axis::Option {
            name: "--read-every",
            label: "updates, in percent",
            full: &[(1, 50.0), (3, 75.0), (4, 80.0), (6, 85.7), (9, 90.0), (99, 99.0)],
            quick: &[(3, 75.0), (99, 99.0)],
            cores: 120,
        },
        metric: "throughput",
        unit: "forks/ms",
        scale: 1.0,
        relative: false,
        curves: CURVES,
        claims: &[Claim::Crossing { above: "ldu-percore", below: "rwlock", x: 85.7 }],
        why: &[],
    },
];
