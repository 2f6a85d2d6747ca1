//! K42 (Appavoo and others), measured by its authors on 24 PowerPC processors.

use super::{Axis, Claim, Curve, Figure};

/// The processors of the paper's machine, and five, of which its text speaks.
const CORES: &[u32] = &[1, 2, 4, 5, 6, 8, 12, 16, 20, 24];
const QUICK: &[u32] = &[1, 5, 24];

const SYSTEMS: &[Curve] = &[
    Curve::new("a lock for each table", "one-lock", &[]),
    Curve::new("this library, one allocator of pages", "one-allocator", &[]),
    Curve::new("this library", "library", &[]),
];

/// Instances of a program side by side.
const fn programs(
    id: &'static str,
    title: &'static str,
    story: &'static str,
    (workload, unit): (&'static str, &'static str),
    claims: &'static [Claim],
) -> Figure {
    Figure {
        id,
        title,
        story,
        calibration: false,
        machine: "power-24",
        workload,
        arguments: &[],
        duration: "4ms",
        quick_duration: "1ms",
        axis: Axis::Cores { beside: 0, full: &[1, 2, 4, 8, 12, 16, 20, 24], quick: &[1, 4, 24] },
        metric: "throughput",
        unit,
        scale: 1.0,
        relative: false,
        curves: SYSTEMS,
        claims,
        why: &[],
    }
}

pub(super) const FIGURES: &[Figure] = &[
    programs(
        "k42-1",
        "K42, Figure 1: SDET",
        "Section 1 and appendix A: a script of Unix commands on each processor; K42 scales well up \
         to 24, Linux 2.4.19 up to some processors and then degrades. Here a command is a process \
         in a list, the pages of its program, a file that it makes, reads and removes, and 2000 \
         cycles, a chosen number. The locks stand in for a system that is not distributed, not \
         for Linux.",
        ("sdet", "scripts/ms"),
        &[
            Claim::Linear { curve: "library", to: 24.0, words: "scales well up to 24" },
            Claim::Order { curves: &["library", "one-lock"], from: 4.0 },
        ],
    ),
    programs(
        "k42-2",
        "K42, Figure 2: PostMark",
        "Section 1: an instance on each processor, with a directory of its own. K42's speed-up is \
         good, and better than Linux's, but not yet perfect, for its file system's allocator of \
         memory. That allocator is a curve here; 200 files an instance, not 20,000.",
        ("postmark", "transactions/ms"),
        &[
            Claim::Order { curves: &["library", "one-allocator"], from: 8.0 },
            Claim::Order { curves: &["one-allocator", "one-lock"], from: 8.0 },
        ],
    ),
    programs(
        "k42-3",
        "K42, Figure 3: parallel make",
        "Section 1: a sequential make on each processor, of one source tree. K42 scales well up to \
         24 processors, and Linux does not degrade. Here a compiler reads shared pages, spins \
         20,000 cycles, a chosen number, and makes a file.",
        ("make", "builds/ms"),
        &[Claim::Linear { curve: "library", to: 24.0, words: "scales well up to 24" }],
    ),
    Figure {
        id: "k42-4",
        title: "K42, Figure 4: a request that counts",
        story: "Section 2: each processor sends requests of 1193 cycles to a server of its own, \
        which counts them: under a lock, with an atomic increment, in an array of counters side \
        by side, in a padded array. The text gives about how much slower a request is with 24 \
        processors than with one, for the array in the worst case, and says that the padded one \
        is entirely flat. Here a request is 1193 cycles of spinning. K42's lock is a \
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
            Claim::Grows { curve: "mcs", from: 1.0, to: 24.0, published: 19.0 },
            Claim::Grows { curve: "atomic", from: 1.0, to: 24.0, published: 12.0 },
            Claim::Grows { curve: "unpadded", from: 1.0, to: 24.0, published: 6.0 },
            Claim::Grows { curve: "padded", from: 1.0, to: 24.0, published: 1.0 },
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
    },
    Figure {
        id: "k42-8",
        title: "K42, Figure 8: page faults in regions of one process",
        story: "Section 4.1: each thread maps a file of its own into a region of its own, accesses \
            each page and unmaps it. With the list of regions under one lock the process slows \
            down substantially beyond 5 processors; the distributed process object scales well, \
            but for the machine's invalidation of its TLBs. The picture has the rest. Here files, \
            pages and regions are objects of one program, so there is no TLB; both have the same \
            files below, and the lock is std's.",
        calibration: false,
        machine: "power-24",
        workload: "faults",
        arguments: &[],
        duration: "2ms",
        quick_duration: "500us",
        axis: Axis::Cores { beside: 0, full: CORES, quick: QUICK },
        metric: "throughput",
        unit: "times one processor's",
        scale: 1.0,
        relative: true,
        curves: &[
            Curve::new("a list under a lock", "list-lock", &[]),
            Curve::new("distributed, as here", "address-space", &[]),
        ],
        claims: &[
            Claim::Peak { curve: "list-lock", x: 5.0, published: None },
            Claim::Order { curves: &["address-space", "list-lock"], from: 5.0 },
        ],
        why: &[
            "The peak at the fifth processor does not hold here: the lock is the bottleneck with \
             the second thread already. A touch is two look-ups, without the trap and the \
             machine's page table of a page fault, and all of the list's time is under the lock.",
        ],
    },
    Figure {
        id: "k42-10",
        title: "K42, Figure 10: the page manager of all files",
        story: "Section 4.2: SDET with free pages and attached files under one lock, and \
            distributed over the processors. The text says that the advantage is apparent even on \
            a small number of processors; the picture has the rest. Here, of SDET, the part that \
            reaches the page manager: a thread opens a file, maps it, touches its pages, which \
            takes memory, unmaps and closes it. Both have the same regions and files above; the \
            lock is std's.",
        calibration: false,
        machine: "power-24",
        workload: "file-open",
        arguments: &[],
        duration: "8ms",
        quick_duration: "4ms",
        axis: Axis::Cores { beside: 0, full: CORES, quick: QUICK },
        metric: "throughput",
        unit: "times one processor's",
        scale: 1.0,
        relative: true,
        curves: &[
            Curve::new("one page manager under a lock", "one-manager", &[]),
            Curve::new("distributed, as here", "address-space", &[]),
        ],
        claims: &[Claim::Order { curves: &["address-space", "one-manager"], from: 2.0 }],
        why: &[],
    },
    Figure {
        id: "k42-12",
        title: "K42, Figure 12: one file that all processors read",
        story: "Section 4.3: an instance of grep on each processor searches the same file of 111 \
            MB. The text says that the file cache manager with one lock is about 1 % ahead on one \
            processor; that the distributed one is ahead on many is in the picture. Here each \
            thread pins the pages of one cached file in turn and looks at them. `PageCache` \
            becomes distributed by itself once threads wait for each other.",
        calibration: false,
        machine: "power-24",
        workload: "grep",
        arguments: &[],
        duration: "2ms",
        quick_duration: "500us",
        axis: Axis::Cores { beside: 0, full: CORES, quick: QUICK },
        metric: "throughput",
        unit: "MB/s",
        scale: 1.0,
        relative: false,
        curves: &[
            Curve::new("not distributed", "page-cache-in-one", &[]),
            Curve::new("distributed", "page-cache-distributed", &[]),
            Curve::new("distributed when contended", "page-cache", &[]),
        ],
        claims: &[
            Claim::Times {
                above: "page-cache-in-one",
                below: "page-cache-distributed",
                x: 1.0,
                published: 1.01,
            },
            Claim::Order { curves: &["page-cache-distributed", "page-cache-in-one"], from: 4.0 },
        ],
        why: &[],
    },
];
