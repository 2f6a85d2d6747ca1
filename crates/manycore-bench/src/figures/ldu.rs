//! LDU (Kyong's thesis, chapter 2), measured by its author on 120 cores.

use super::{Axis, Claim, Curve, Figure, IDLE};

const CURVES: &[Curve] = &[
    Curve::new("stock", "rwlock", &[]),
    Curve::new("Harris", "harris", &[]),
    Curve::new("LDU, a queue for each core", "ldu-per-thread", &[]),
    Curve::new("LDU, one queue", "ldu-global", &[]),
    Curve::new("OpLog", "oplog", &[]),
];

const PROGRAM_CURVES: &[Curve] = &[
    Curve::new("stock", "rwlock", &[]),
    Curve::new("Harris", "harris", &[]),
    Curve::new("LDU, a queue for each core", "ldu-per-thread", &[]),
    Curve::new("LDU, one queue", "ldu-global", &[]),
];

const DRAFT_CURVES: &[Curve] = &[
    Curve::new("stock", "rwlock", &[]),
    Curve::new("Harris, sorted", "harris", &[]),
    Curve::new("Harris, unsorted", "harris-unsorted", &[]),
    Curve::new("LDU, a queue for each core", "ldu-per-thread", &[]),
];

/// What holds of all three programs.
const PROGRAMS: &str = "Where stock stops growing is decided by how long the parts between two \
    updates take. Here they take what small programs do on a present machine: a message 0.4 ms, a \
    process 0.12 ms, with eight mappings each. The thesis' programs do more, such as to read \
    configurations and link libraries, and how long theirs took is not in the text; the longer \
    the parts, the nearer are the curves and the farther out is stock's peak.";

/// One of the thesis' three programs.
const fn program(
    (id, title): (&'static str, &'static str),
    (workload, unit): (&'static str, &'static str),
    story: &'static str,
    claims: &'static [Claim],
) -> Figure {
    Figure {
        id,
        title,
        story,
        calibration: false,
        machine: "xeon-8x15",
        workload,
        arguments: &["--read-every", "never"],
        duration: "2ms",
        quick_duration: "500us",
        axis: Axis::Cores {
            beside: 0,
            full: &[1, 15, 30, 45, 60, 75, 90, 105, 120],
            quick: &[1, 120],
        },
        metric: "throughput",
        unit,
        scale: 1.0,
        relative: false,
        curves: PROGRAM_CURVES,
        claims,
        why: &[PROGRAMS],
    }
}

/// One of the draft's programs: the thesis' with one more list.
const fn draft(
    name: (&'static str, &'static str),
    load: (&'static str, &'static str),
    story: &'static str,
    claims: &'static [Claim],
) -> Figure {
    Figure { curves: DRAFT_CURVES, ..program(name, load, story, claims) }
}

/// The same with reads.
const fn program_ratio(
    (id, title): (&'static str, &'static str),
    (workload, unit): (&'static str, &'static str),
    claims: &'static [Claim],
) -> Figure {
    Figure {
        id,
        title,
        story: "Section 2.6.5: reads, each of which brings the reverse map up to date, in \
            proportion to updates, on 120 cores. In the thesis stock is ahead below the share that \
            is claimed. Here readers share the reverse map, and the round that brings it up to \
            date, so that marks are ahead of stock from one read for each update on.",
        calibration: false,
        machine: "xeon-8x15",
        workload,
        arguments: &[],
        duration: "1500us",
        quick_duration: "500us",
        axis: Axis::Option {
            name: "--read-every",
            label: "updates, in percent",
            full: &[(1, 50.0), (2, 66.7), (3, 75.0), (6, 85.7), (9, 90.0), (99, 99.0)],
            quick: &[(3, 75.0), (6, 85.7)],
            cores: 120,
        },
        metric: "throughput",
        unit,
        scale: 1.0,
        relative: false,
        curves: PROGRAM_CURVES,
        claims,
        why: &[],
    }
}

/// A program on rising numbers of cores, at a share of updates.
const fn program_scaling(
    (id, title): (&'static str, &'static str),
    (workload, unit): (&'static str, &'static str),
    arguments: &'static [&'static str],
) -> Figure {
    let claims = &[Claim::Order { curves: &["ldu-per-thread", "rwlock"], from: 60.0 }];
    Figure {
        story: "Section 2.6.5: reads in proportion to updates, on rising numbers of cores. The \
            text says that LDU scales substantially better than stock at this share; the picture \
            has the rest.",
        arguments,
        duration: "1500us",
        axis: Axis::Cores { beside: 0, full: &[1, 15, 30, 60, 90, 120], quick: &[1, 120] },
        ..program((id, title), (workload, unit), "", claims)
    }
}

/// How much of their time 120 cores are idle under one of the programs.
const fn idle(
    (id, title): (&'static str, &'static str),
    workload: &'static str,
    curves: &'static [Curve],
    story: &'static str,
    claims: &'static [Claim],
) -> Figure {
    Figure {
        metric: IDLE,
        curves,
        axis: Axis::Cores { beside: 0, full: &[120], quick: &[120] },
        why: &[
            PROGRAMS,
            "Here a core is idle while a thread waits for one lock, std's, which lets it spin for \
             a while first; the kernel's semaphores, the reclamation of memory and what else a \
             system does are not there.",
        ],
        ..program((id, title), (workload, "% of all cycles"), story, claims)
    }
}

/// The distances that the thesis gives, and where stock stops growing.
macro_rules! claims {
    ($stock:expr, $list:expr, $knee:expr) => {
        &[
            Claim::Times { above: "ldu-per-thread", below: "rwlock", x: 120.0, published: $stock },
            Claim::Times { above: "ldu-per-thread", below: "harris", x: 120.0, published: $list },
            Claim::Peak { curve: "rwlock", x: $knee, published: None },
        ]
    };
}

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
            Claim::Times { above: "ldu-per-thread", below: "rwlock", x: 120.0, published: 2.7 },
            Claim::Times { above: "ldu-per-thread", below: "harris", x: 120.0, published: 1.1 },
            Claim::Times {
                above: "ldu-per-thread",
                below: "ldu-global",
                x: 120.0,
                published: 1.02,
            },
            Claim::Order { curves: &["ldu-per-thread", "harris", "rwlock"], from: 60.0 },
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
        title: "LDU, Figures 2.14, 2.16 and 2.18: shares of updates",
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
        claims: &[Claim::Crossing { above: "ldu-per-thread", below: "rwlock", x: 85.7 }],
        why: &[],
    },
    program(
        ("ldu-aim", "LDU, Figure 2.8: AIM7"),
        ("aim", "jobs/ms"),
        "Section 2.6.2: users in proportion to cores, whose jobs fork, use files in memory and \
            pipes, and compute. With 120 cores LDU is 1.5 times stock and 1.1 times the list; \
            stock stops growing at 75.",
        claims!(1.5, 1.1, 75.0),
    ),
    program(
        ("ldu-mail", "LDU, Figure 2.12: Exim"),
        ("mail", "messages/ms"),
        "Section 2.6.3: a mail server, three processes a message, an area of its own for each \
            user. With 120 cores LDU is 2.6 times stock and 1.2 times the list; stock collapses \
            after 60.",
        claims!(2.6, 1.2, 60.0),
    ),
    program(
        ("ldu-spawn", "LDU, Figure 2.13: lmbench, process creation"),
        ("spawn", "processes/ms"),
        "Section 2.6.4: processes are made and end. With 120 cores LDU is 2.7 times stock and 1.1 \
            times the list; stock stops growing at 45.",
        claims!(2.7, 1.1, 45.0),
    ),
    program_ratio(
        ("ldu-aim-ratio", "LDU, Figure 2.14: AIM7, shares of updates"),
        ("aim", "jobs/ms"),
        // That stock is ahead before, the text does not say of AIM7.
        &[Claim::Order { curves: &["ldu-per-thread", "rwlock"], from: 75.0 }],
    ),
    program_ratio(
        ("ldu-mail-ratio", "LDU, Figure 2.16: Exim, shares of updates"),
        ("mail", "messages/ms"),
        &[Claim::Crossing { above: "ldu-per-thread", below: "rwlock", x: 85.7 }],
    ),
    program_ratio(
        ("ldu-spawn-ratio", "LDU, Figure 2.18: lmbench, shares of updates"),
        ("spawn", "processes/ms"),
        &[Claim::Crossing { above: "ldu-per-thread", below: "rwlock", x: 85.7 }],
    ),
    program_scaling(
        ("ldu-aim-80", "LDU, Figure 2.15: AIM7 at 80 % updates"),
        ("aim", "jobs/ms"),
        &["--read-every", "4"],
    ),
    program_scaling(
        ("ldu-aim-99", "LDU, Figure 2.15: AIM7 at 99 % updates"),
        ("aim", "jobs/ms"),
        &["--read-every", "99"],
    ),
    program_scaling(
        ("ldu-mail-90", "LDU, Figure 2.17: Exim at 90 % updates"),
        ("mail", "messages/ms"),
        &["--read-every", "9"],
    ),
    program_scaling(
        ("ldu-spawn-90", "LDU, Figure 2.19: lmbench at 90 % updates"),
        ("spawn", "processes/ms"),
        &["--read-every", "9"],
    ),
    idle(
        ("ldu-aim-idle", "LDU, Figure 2.9: AIM7, idle time"),
        "aim",
        PROGRAM_CURVES,
        "Section 2.6.2: stock is idle for 58 % of the time on 120 cores, the most of all; LDU is \
            idle for longer than the list.",
        &[
            Claim::Value { curve: "rwlock", x: 120.0, published: 58.0 },
            Claim::Order { curves: &["rwlock", "ldu-per-thread", "harris"], from: 120.0 },
        ],
    ),
    idle(
        ("ldu-mail-idle", "LDU, Figure 2.10: Exim, idle time"),
        "mail",
        PROGRAM_CURVES,
        "Section 2.6.3: the list is idle for 15 %, LDU for 22 % of the time on 120 cores.",
        &[
            Claim::Value { curve: "harris", x: 120.0, published: 15.0 },
            Claim::Value { curve: "ldu-per-thread", x: 120.0, published: 22.0 },
        ],
    ),
    idle(
        ("ldu-spawn-idle", "LDU, Figure 2.11: lmbench, idle time"),
        "spawn",
        PROGRAM_CURVES,
        "Section 2.6.4: stock is idle for 69 % of the time on 120 cores, the others for about \
            35 %.",
        &[
            Claim::Value { curve: "rwlock", x: 120.0, published: 69.0 },
            Claim::Value { curve: "harris", x: 120.0, published: 35.0 },
            Claim::Value { curve: "ldu-per-thread", x: 120.0, published: 35.0 },
        ],
    ),
    idle(
        ("draft-aim-idle", "LDU draft: AIM7, idle time"),
        "aim",
        DRAFT_CURVES,
        "Section VI.B, and a table that the text lacks: stock is idle for 51 % of the time on 120 \
            cores, the unsorted list for 19 %, LDU for 23 %.",
        &[
            Claim::Value { curve: "rwlock", x: 120.0, published: 51.0 },
            Claim::Value { curve: "harris-unsorted", x: 120.0, published: 19.0 },
            Claim::Value { curve: "ldu-per-thread", x: 120.0, published: 23.0 },
        ],
    ),
    draft(
        ("draft-aim", "LDU draft, Figure 7: AIM7"),
        ("aim", "jobs/ms"),
        "Section VI.B: LDU over an unsorted lock-free list is 1.7 times stock and 1.1 times that \
            list on 120 cores, stock scales up to 60, and the sorted list is the slowest. Here \
            LDU's elements lie in `IntervalRegistry`'s tree, and the programs are those of the \
            thesis' figures.",
        &[
            Claim::Times { above: "ldu-per-thread", below: "rwlock", x: 120.0, published: 1.7 },
            Claim::Times {
                above: "ldu-per-thread",
                below: "harris-unsorted",
                x: 120.0,
                published: 1.1,
            },
            Claim::Peak { curve: "rwlock", x: 60.0, published: None },
            Claim::Order { curves: &["harris-unsorted", "harris"], from: 60.0 },
        ],
    ),
    draft(
        ("draft-mail", "LDU draft, Figure 8: Exim"),
        ("mail", "messages/ms"),
        "Section VI.C: LDU is 1.6 times stock and 1.1 times the unsorted list; stock falls after \
            60 cores, the others do not.",
        &[
            Claim::Times { above: "ldu-per-thread", below: "rwlock", x: 120.0, published: 1.6 },
            Claim::Times {
                above: "ldu-per-thread",
                below: "harris-unsorted",
                x: 120.0,
                published: 1.1,
            },
            Claim::Peak { curve: "rwlock", x: 60.0, published: None },
        ],
    ),
    draft(
        ("draft-spawn", "LDU draft, Figure 10: lmbench, fork"),
        ("spawn", "processes/ms"),
        "Section VI.D: the lists and LDU are 2.2 times stock on 120 cores.",
        &[
            Claim::Times { above: "ldu-per-thread", below: "rwlock", x: 120.0, published: 2.2 },
            Claim::Times { above: "harris-unsorted", below: "rwlock", x: 120.0, published: 2.2 },
            Claim::Times { above: "harris", below: "rwlock", x: 120.0, published: 2.2 },
        ],
    ),
    Figure {
        id: "ldu-oplog",
        title: "LDU against OpLog: added on one core, removed on another",
        story: "Section 2.1 says that time stamps limit OpLog, and section 2.4.1 that marks cancel \
            what one core adds and another removes, which logs of cores cannot. The thesis could \
            not run OpLog. Here both run, on 120 cores, with reads in proportion to updates; \
            ldu-ratio has the same with both on one core. OpLog cancels in the logs of each core.",
        calibration: false,
        machine: "xeon-8x15",
        workload: "rmap-hand",
        arguments: &["--spin", "10000"],
        duration: "300us",
        quick_duration: "150us",
        axis: Axis::Option {
            name: "--read-every",
            label: "updates, in percent",
            full: &[(1, 50.0), (3, 75.0), (9, 90.0), (99, 99.0), (999, 99.9)],
            quick: &[(3, 75.0), (99, 99.0)],
            cores: 120,
        },
        metric: "throughput",
        unit: "forks/ms",
        scale: 1.0,
        relative: false,
        curves: CURVES,
        claims: &[Claim::Order { curves: &["ldu-per-thread", "oplog"], from: 90.0 }],
        why: &[],
    },
];
