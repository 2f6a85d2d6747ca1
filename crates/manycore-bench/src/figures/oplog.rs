//! OpLog (MIT-CSAIL-TR-2014-019), measured by its authors on 48 cores.

use super::{Axis, Claim, Curve, Figure, WAITING};

const CORES: &[u32] = &[1, 2, 3, 4, 6, 8, 12, 24, 36, 48];
const QUICK: &[u32] = &[1, 6, 48];

/// How much of its time a lock-free program waits for cache lines.
const fn waiting(
    (id, title): (&'static str, &'static str),
    story: &'static str,
    (workload, arguments): (&'static str, &'static [&'static str]),
    curves: &'static [Curve],
    full: &'static [u32],
    claims: &'static [Claim],
) -> Figure {
    Figure {
        id,
        title,
        story,
        calibration: false,
        machine: "opteron-8x6",
        workload,
        arguments,
        duration: "200us",
        quick_duration: "60us",
        axis: Axis::Cores { beside: 0, full, quick: QUICK },
        metric: WAITING,
        unit: "% of all cycles",
        scale: 1.0,
        relative: false,
        curves,
        claims,
        why: &[],
    }
}

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        id: "oplog-1",
        title: "OpLog, Figure 1: fork and the reverse map",
        story: "Section 3: a process on each core forks children that exit at once, which adds \
            and removes mappings of shared files. Stock Linux has a lock around an interval \
            tree for each file; the authors replaced it by a lock-free list, and by OpLog. The \
            text gives a ratio and the order, the picture the rest. Here the kernel's other \
            work is not there: 1000 cycles after each update stand for it, a chosen number, so \
            that curves bend sooner than the paper's.",
        calibration: false,
        machine: "opteron-8x6",
        workload: "rmap-fork",
        arguments: &["--read-every", "never", "--spin", "1000"],
        duration: "200us",
        quick_duration: "60us",
        axis: Axis::Cores { beside: 0, full: &[1, 6, 12, 24, 40, 48], quick: QUICK },
        metric: "throughput",
        unit: "forks/ms",
        scale: 1.0,
        relative: false,
        curves: &[
            Curve::new("stock", "mutex", &[]),
            Curve::new("lock-free", "harris", &[]),
            Curve::new("OpLog", "oplog", &[]),
        ],
        claims: &[
            Claim::Times { above: "harris", below: "mutex", x: 48.0, published: 2.0 },
            Claim::Order { curves: &["oplog", "harris", "mutex"], from: 12.0 },
        ],
        why: &[
            "The ratio depends on the work that we had to choose: the more other work there is, \
             the nearer are the curves. The text does not say how long a fork takes.",
        ],
    },
    waiting(
        ("oplog-1b", "OpLog, Figure 1(b): waiting in the lock-free reverse map"),
        "Section 3: with 40 cores roughly 35 % of the time is spent waiting for cache lines in the \
            lock-free reverse map. Here, of the loop of oplog-1, the part of the cores' cycles \
            that they wait for lines; it depends on the other work of a fork, which is chosen.",
        ("rmap-fork", &["--read-every", "never", "--spin", "1000"]),
        &[Curve::new("lock-free", "harris", &[(40.0, 35.0)])],
        &[1, 6, 12, 24, 40, 48],
        &[Claim::Value { curve: "harris", x: 40.0, published: 35.0 }],
    ),
    Figure {
        id: "oplog-2",
        title: "OpLog, Figure 2: a queue of notifications that is read all the time",
        story: "Section 3: processes append to inotify's queue, one takes out. The text says \
            where the curves turn, the picture how high they are. Here: threads that send and \
            one that drains, on as many cores; a sender has at most 4096 events under way, and \
            the figure is what arrives.",
        calibration: false,
        machine: "opteron-8x6",
        workload: "notify",
        arguments: &[],
        duration: "2ms",
        quick_duration: "60us",
        axis: Axis::Cores { beside: 1, full: &[1, 2, 3, 4, 6, 8, 12, 24, 47], quick: &[1, 6, 47] },
        metric: "delivered",
        unit: "Mevents/s",
        scale: 1.0,
        relative: false,
        curves: &[Curve::new("stock", "mutex", &[]), Curve::new("OpLog", "event-queue-hot", &[])],
        claims: &[
            Claim::Peak { curve: "mutex", x: 3.0, published: None },
            Claim::Peak { curve: "event-queue-hot", x: 6.0, published: None },
            Claim::Order { curves: &["event-queue-hot", "mutex"], from: 4.0 },
        ],
        why: &["Our senders do nothing between two events, the paper's make system calls. So a \
             lock is at its best with one sender here (10.8 million a second, 2.3 with three, 2.1 \
             with 47), and our queue, which one thread drains, with three (12.3; 9.1 with six, \
             6.6 with 47)."],
    },
    Figure {
        id: "oplog-3",
        title: "OpLog, Figure 3: references to one directory entry",
        story: "Section 3: a thread on each core calls stat for one name. Stock Linux takes the \
            entry's lock to look at its generation and count the reference; lock-free exchanges \
            both in one word; OpLog counts for each core and looks at the generation again. The \
            text gives words and no number: stock has no parallel speed-up, lock-free scales \
            poorly, OpLog nearly perfectly. Here a path has three entries, and the rest of the \
            system call is left out.",
        calibration: false,
        machine: "opteron-8x6",
        workload: "stat",
        arguments: &[],
        duration: "100us",
        quick_duration: "30us",
        axis: Axis::Cores { beside: 0, full: CORES, quick: QUICK },
        metric: "throughput",
        unit: "Mpaths/s",
        scale: 1.0,
        relative: false,
        curves: &[
            Curve::new("stock", "mutex", &[]),
            Curve::new("lock-free", "cas", &[]),
            Curve::new("OpLog", "scalable-hot", &[]),
        ],
        claims: &[
            Claim::Order { curves: &["scalable-hot", "cas"], from: 2.0 },
            Claim::Order { curves: &["scalable-hot", "mutex"], from: 2.0 },
            Claim::Peak { curve: "mutex", x: 1.0, published: None },
            Claim::Linear { curve: "scalable-hot", to: 48.0, words: "scales nearly perfectly" },
        ],
        why: &[],
    },
    waiting(
        ("oplog-3b", "OpLog, Figure 3(b): waiting in lock-free reference counting"),
        "Section 3: with more than a few cores, the code that counts references accounts for \
            almost all of the time. Here, of the loop of oplog-3, the part of the cores' cycles \
            that they wait for lines.",
        ("stat", &[]),
        &[Curve::new("lock-free", "cas", &[])],
        CORES,
        &[Claim::NearlyAll { curve: "cas", from: 6.0, words: "almost all, with more than a few" }],
    ),
    Figure {
        id: "oplog-4",
        title: "OpLog, Figure 4: a write to a line that others write",
        story: "Section 3.1: cores store to one line and wait for each store. The text gives \
            182 cycles with 2 writers, 8182 with 48, a line between them, and that an atomic \
            increment takes 1.5 % longer. This is the calibration: the model's order of service, \
            and how long `cpuid` takes once the write is done, were chosen so that accesses alone \
            meet both ends. It is no evidence for the model. The curves here are the paper's \
            loop as a real program on that model, and the same loop without the wait.",
        calibration: true,
        machine: "opteron-8x6",
        workload: "coherence",
        arguments: &[],
        duration: "300us",
        quick_duration: "100us",
        axis: Axis::Cores { beside: 0, full: &[2, 6, 12, 24, 36, 48], quick: &[2, 12, 48] },
        metric: "latency",
        unit: "cycles/write",
        scale: 2.4,
        relative: false,
        curves: &[
            Curve {
                less: Some("store-cpuid-private"),
                ..Curve::new("store", "store-cpuid", &[(2.0, 182.0), (48.0, 8182.0)])
            },
            Curve {
                less: Some("store-cpuid-private"),
                ..Curve::new("atomic increment", "fetch-add-cpuid", &[])
            },
            Curve::new("store and fence, no wait", "store", &[]),
            Curve::new("atomic increment, no wait", "fetch-add", &[]),
        ],
        claims: &[
            Claim::Value { curve: "store-cpuid", x: 2.0, published: 182.0 },
            Claim::Value { curve: "store-cpuid", x: 48.0, published: 8182.0 },
            Claim::Times {
                above: "fetch-add-cpuid",
                below: "store-cpuid",
                x: 48.0,
                published: 1.015,
            },
        ],
        why: &[
            "A core that does not wait between its writes is faster because of linger: the old \
             holder may use a line for another 62 cycles after it was granted away, and does \
             several writes in that time. Linger is a guess from two cores of another machine.",
        ],
    },
    Figure {
        id: "oplog-9",
        title: "OpLog, Figure 9: Apache and one file",
        story: "Section 7.1: a server and a client on each core, all asking for one file, which \
            costs two look-ups of its name. The text says that stock falls after 24 cores, that \
            lock-free levels off and that OpLog scales to 48; the picture has the numbers. Here \
            a server and a client on each core speak HTTP over a TCP connection, and the server \
            looks three entries up, twice. How long a request takes decides where the curve turns: \
            here it is what this small server and the model's time of a system call say, and \
            Apache does more. So the order is evidence, the place of the peak is not.",
        calibration: false,
        machine: "opteron-8x6",
        workload: "http",
        arguments: &[],
        duration: "1500us",
        quick_duration: "300us",
        axis: Axis::Cores { beside: 0, full: &[1, 6, 12, 24, 36, 48], quick: QUICK },
        metric: "throughput",
        unit: "Mrequests/s",
        scale: 1.0,
        relative: false,
        curves: &[
            Curve::new("stock", "mutex", &[]),
            Curve::new("lock-free", "cas", &[]),
            Curve::new("OpLog", "scalable-hot", &[]),
        ],
        claims: &[
            Claim::Linear { curve: "scalable-hot", to: 48.0, words: "scales perfectly" },
            Claim::Order { curves: &["scalable-hot", "cas", "mutex"], from: 36.0 },
            Claim::Peak { curve: "mutex", x: 24.0, published: None },
        ],
        why: &["Where a lock's curve turns is decided by the time of a request, which the text \
             does not say. On one virtual core it is 2.9 us, because the model charges little for \
             a system call; on a present machine the same server takes 9."],
    },
    Figure {
        id: "oplog-10",
        title: "OpLog, Figure 10: Exim",
        story: "Section 7.1: a mail server that makes three processes for each message. Section 1 \
            gives 35 % more than with the lock-free list on 48 cores; section 7.1 says that stock \
            and lock-free level off and that OpLog does from 42 cores on, for zeroing pages. Here \
            a message's processes add and remove their mappings of shared files, and between that \
            take what real ones do on a present machine, 0.4 ms a message; pages are not zeroed.",
        calibration: false,
        machine: "opteron-8x6",
        workload: "mail",
        arguments: &["--read-every", "never"],
        duration: "2ms",
        quick_duration: "500us",
        axis: Axis::Cores { beside: 0, full: &[1, 6, 12, 24, 36, 42, 48], quick: QUICK },
        metric: "throughput",
        unit: "messages/ms",
        scale: 1.0,
        relative: false,
        curves: &[
            Curve::new("stock", "mutex", &[]),
            Curve::new("lock-free", "harris", &[]),
            Curve::new("OpLog", "oplog", &[]),
        ],
        claims: &[
            Claim::Times { above: "oplog", below: "harris", x: 48.0, published: 1.35 },
            Claim::Order { curves: &["oplog", "harris"], from: 36.0 },
        ],
        why: &[],
    },
    Figure {
        id: "oplog-11",
        title: "OpLog, Figure 11: fork with truncate",
        story: "Section 7.2: 48 processes fork, and each truncates a shared file once in so \
            many forks, which reads the file's reverse map. The text: stock is ahead by 10 % at \
            one fork and by 25 % at two, OpLog from three on. (A gain that grows and then is \
            lost looks like two numbers exchanged; so only the crossing is compared, that stock \
            is ahead before it included.) Here a fork is 16 updates of 16 files.",
        calibration: false,
        machine: "opteron-8x6",
        workload: "rmap-fork",
        arguments: &["--spin", "1000"],
        duration: "200us",
        quick_duration: "60us",
        axis: Axis::Option {
            name: "--read-every",
            label: "forks between two truncates",
            full: &[(16, 1.0), (32, 2.0), (48, 3.0), (80, 5.0), (160, 10.0)],
            quick: &[(16, 1.0), (160, 10.0)],
            cores: 48,
        },
        metric: "throughput",
        unit: "forks/ms",
        scale: 1.0,
        relative: false,
        curves: &[Curve::new("stock", "mutex", &[]), Curve::new("OpLog", "oplog", &[])],
        claims: &[Claim::Crossing { above: "oplog", below: "mutex", x: 3.0 }],
        why: &[],
    },
    Figure {
        id: "oplog-12",
        title: "OpLog, Figure 12: a list under updates",
        story: "Section 7.3: each thread adds an element of its own to one list, spins 1000 \
            cycles, removes it, spins 1000; such a round is an operation. The text gives peaks \
            and ends. Here the same loop runs on the list as the paper describes it: a chain in \
            which a removal searches, logs that are merged by their stamps, absorption by a flag \
            in the element. Threads cycle through 16 elements. The paper leaves open how logs \
            are merged and how long they grow: here by a heap, and to 512 updates. This \
            library's own forms stand beside them: they sort where logs are many, absorb before \
            they sort, and have logs of 4096.",
        calibration: false,
        machine: "opteron-8x6",
        workload: "list",
        arguments: &["--read-every", "never", "--spin", "1000"],
        duration: "20ms",
        quick_duration: "2ms",
        axis: Axis::Cores { beside: 0, full: CORES, quick: QUICK },
        metric: "throughput",
        unit: "operations/ms",
        scale: 1.0,
        relative: false,
        curves: &[
            Curve::new("lock-free", "harris", &[(3.0, 1364.0)]),
            Curve::new("OpLog basic", "paper-basic", &[(6.0, 4463.0), (48.0, 1979.0)]),
            Curve::new("OpLog global absorption", "paper-global", &[(8.0, 5186.0), (48.0, 2516.0)]),
            Curve::new("OpLog local absorption", "oplog-local", &[(48.0, 49_963.0)]),
            Curve::new("this library, basic", "oplog-basic", &[]),
            Curve::new("this library, global absorption", "oplog-global", &[]),
        ],
        claims: &[
            Claim::Linear { curve: "oplog-local", to: 48.0, words: "scales linearly" },
            Claim::Value { curve: "oplog-local", x: 48.0, published: 49_963.0 },
            Claim::Value { curve: "paper-global", x: 48.0, published: 2516.0 },
            Claim::Value { curve: "paper-basic", x: 48.0, published: 1979.0 },
            Claim::Peak { curve: "paper-global", x: 8.0, published: Some(5186.0) },
            Claim::Peak { curve: "paper-basic", x: 6.0, published: Some(4463.0) },
            Claim::Peak { curve: "harris", x: 3.0, published: Some(1364.0) },
            Claim::Order {
                curves: &["oplog-local", "paper-global", "paper-basic", "harris"],
                from: 6.0,
            },
        ],
        why: &[
            "How logs are merged decides where the curves go, and the paper does not say it. A \
             small program with this loop had, with the heap, 3928 and 2954 operations on 6 and 48 \
             cores, and 4170 and 3527 with absorption. With a look at the oldest update of every \
             log for each that is taken it had 3500 and 1819, and 4091 and 1762: then the fall \
             from 6 to 48 cores is the published one (4463 to 1979, 5186 to 2516), and what \
             absorption saves is lost among the looks. With one sort it had 2678 and 2953, and \
             3072 and 2880. With the heap and logs of 256: 3786 and 2845, 3959 and 3290.",
            "Caches have no limit in the model, and 48 logs of 512 updates are more than a core's \
             own cache held; nor does the text say what an element is. With absorption, 8 and 12 \
             cores are the same but for a hundredth (4469 and 4499), so where the peak is says \
             little.",
            "The lock-free list: a fetch from a core of the same chip costs 124 cycles in the \
             model, what the paper gives for a write. With 300 (--set same_socket=300) it has \
             1001, 1174 and 1204 operations with 2, 3 and 6 cores: flat from three on, as \
             published (1364 at 3). With 1000 cycles for each call of the allocator instead of \
             60: 958, 1319, 2285. The cost of memory (700) and of instructions (8 in ten \
             cycles) change it by a tenth.",
        ],
    },
];
