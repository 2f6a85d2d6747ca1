//! Every workload of the command: its name, its implementations, and the groups that it runs.
//!
//! This module imports all workloads, and no workload imports it. A workload's options, loop and
//! table are in its own module. What all workloads share is in [`crate::workload`].

use crate::{
    arc, chain, coherence, counter, dispatch, everyday, faults, ids, kv, list, lock, lru, map,
    notify, pages, pairs, path_lookup, programs, ranges, registry, rmap,
    runner::Group,
    slabs, smr, swap, sweep, timers, trace,
    workload::{About, Entry, Options, UnknownImpl},
};

/// A workload of the command.
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// One line on it.
    pub about: &'static str,
    /// The command's options that it takes beside those of all workloads, and those with another
    /// default than the command's with theirs.
    pub options: &'static [Choice],
    /// Its implementations.
    pub impls: fn() -> Vec<About>,
    /// The groups to run for some options.
    pub groups: fn(&Options) -> Result<Vec<Group>, UnknownImpl>,
}

/// An option of a workload: its name on the command line, and its default if that is the
/// workload's own.
pub type Choice = (&'static str, Option<&'static str>);

const READ_EVERY: Choice = ("read-every", None);
const UPDATE_PCT: Choice = ("update-pct", None);
const SPIN: Choice = ("spin", None);
const WORK: Choice = ("work", None);
const UPDATE: Choice = ("update", None);
const SET: Choice = ("set", None);
const OPS: Choice = ("ops", None);
const CACHE_KEYS: Choice = ("keys", Some("1000000"));

/// Of workloads whose threads update, and read everything now and then.
const READS: &[Choice] = &[READ_EVERY, UPDATE_PCT, SPIN];

/// Every workload.
pub static WORKLOADS: &[Workload] = &[
    Workload {
        name: "list",
        about: "add and remove an own element of one shared list (OpLog, section 7.3)",
        options: READS,
        impls: || abouts(list::ENTRIES),
        groups: list::groups,
    },
    Workload {
        name: "counter",
        about: "increment one shared counter (K42, figure 4)",
        options: &[READ_EVERY, UPDATE_PCT, WORK],
        impls: || abouts(counter::ENTRIES),
        groups: counter::groups,
    },
    Workload {
        name: "notify",
        about: "many producers, one drainer (OpLog, figure 2: inotify)",
        options: &[("pause", None), ("burst", None), ("gap", None)],
        impls: || abouts(notify::ENTRIES),
        groups: notify::groups,
    },
    Workload {
        name: "coherence",
        about: "what one write to a shared line costs (OpLog, figure 4)",
        options: &[],
        impls: || abouts(coherence::ENTRIES),
        groups: coherence::groups,
    },
    #[cfg(target_os = "linux")]
    Workload {
        name: "syscalls",
        about: "what four system calls cost (OpLog, figure 5)",
        options: &[],
        impls: || abouts(crate::syscalls::ENTRIES),
        groups: crate::syscalls::groups,
    },
    Workload {
        name: "registry",
        about: "register and unregister entries, sometimes walk over all (OpLog: open files)",
        options: READS,
        impls: || abouts(registry::ENTRIES),
        groups: registry::groups,
    },
    Workload {
        name: "rmap-fork",
        about: "fork and exit: add and remove mappings of shared files (OpLog, figure 7; LDU, 2.6)",
        options: READS,
        impls: || abouts(rmap::ENTRIES),
        groups: rmap::groups,
    },
    Workload {
        name: "rmap-hand",
        about: "fork here, exit on the next thread (LDU, 2.1: what logs cannot cancel)",
        options: READS,
        impls: || abouts(rmap::cross_thread_exit::ENTRIES),
        groups: rmap::cross_thread_exit::groups,
    },
    Workload {
        name: "fork-chain",
        about: "fork lines of processes, each linked into its ancestors' sets (LDU, 2.5.1)",
        options: READS,
        impls: || abouts(chain::ENTRIES),
        groups: chain::groups,
    },
    Workload {
        name: "aim",
        about: "users' jobs: a process, its file, memory, pipe and arithmetic (LDU, 2.6.2: AIM7)",
        options: READS,
        impls: || abouts(rmap::loads::AIM.entries()),
        groups: |options| rmap::loads::AIM.groups(options),
    },
    Workload {
        name: "mail",
        about: "a message makes three processes, which spool and deliver it (LDU, 2.6.3: Exim)",
        options: READS,
        impls: || abouts(rmap::loads::MAIL.entries()),
        groups: |options| rmap::loads::MAIL.groups(options),
    },
    Workload {
        name: "spawn",
        about: "a process is made, runs and ends (LDU, 2.6.4: lmbench)",
        options: READS,
        impls: || abouts(rmap::loads::SPAWN.entries()),
        groups: |options| rmap::loads::SPAWN.groups(options),
    },
    Workload {
        name: "spawn-exec",
        about: "a process is made and becomes another program (LDU, 2.6.4: lmbench)",
        options: READS,
        impls: || abouts(rmap::loads::EXECUTE.entries()),
        groups: |options| rmap::loads::EXECUTE.groups(options),
    },
    Workload {
        name: "spawn-shell",
        about: "a process is made and becomes a shell, which starts a program (lmbench)",
        options: READS,
        impls: || abouts(rmap::loads::SHELL.entries()),
        groups: |options| rmap::loads::SHELL.groups(options),
    },
    Workload {
        name: "slab",
        about: "allocate and free nodes: at once, at random, on another thread (ParSec, 3.4)",
        options: &[],
        impls: || abouts(slabs::ENTRIES),
        groups: slabs::groups,
    },
    Workload {
        name: "smr",
        about: "read, replace and reclaim shared nodes (ParSec, figures 4 to 6)",
        options: &[UPDATE, OPS, ("read", None), ("stall", None)],
        impls: || abouts(smr::ENTRIES),
        groups: smr::groups,
    },
    Workload {
        name: "arc",
        about: "clone and drop one counted reference",
        options: &[],
        impls: || abouts(arc::ENTRIES),
        groups: arc::groups,
    },
    Workload {
        name: "map",
        about: "look up, insert and remove keys of one map",
        options: &[UPDATE, ("keys", Some("1000,64000,1000000"))],
        impls: || abouts(map::ENTRIES),
        groups: map::groups,
    },
    Workload {
        name: "ordered",
        about: "look up, insert and remove keys of one map that is in order",
        options: &[UPDATE, ("keys", Some("1000000"))],
        impls: || abouts(map::ordered::ENTRIES),
        groups: map::ordered::groups,
    },
    Workload {
        name: "walks",
        about: "visit fifty entries of such a map from a key on",
        options: &[UPDATE, ("keys", Some("1000000"))],
        impls: || abouts(map::ordered::WALK_ENTRIES),
        groups: map::ordered::walk_groups,
    },
    Workload {
        name: "ids",
        about: "look up, give out and take back ids of nodes (ParSec, section 3.6)",
        options: &[],
        impls: || abouts(ids::ENTRIES),
        groups: ids::groups,
    },
    Workload {
        name: "regions",
        about: "look up keys that are there, now and then remove one (K42, figure 8)",
        options: &[UPDATE],
        impls: || abouts(map::regions::ENTRIES),
        groups: map::regions::groups,
    },
    Workload {
        name: "pages",
        about: "pin pages of a slow store, sometimes change one (K42, 4.3: the file cache)",
        options: &[UPDATE],
        impls: || abouts(pages::PIN),
        groups: pages::groups,
    },
    Workload {
        name: "grep",
        about: "read one cached file page by page on every thread (K42, figure 12)",
        options: &[],
        impls: || abouts(pages::GREP),
        groups: pages::grep,
    },
    Workload {
        name: "faults",
        about: "map a file of one's own, touch its pages, unmap it (K42, figure 8)",
        options: &[],
        impls: || abouts(faults::FAULTS),
        groups: faults::groups,
    },
    Workload {
        name: "file-open",
        about: "the same of a file that is opened and closed each time (K42, figure 10)",
        options: &[],
        impls: || abouts(faults::OPEN),
        groups: faults::open_groups,
    },
    Workload {
        name: "sdet",
        about: "scripts of commands: processes, files and their pages (K42, figure 1)",
        options: &[],
        impls: || abouts(programs::SDET),
        groups: programs::sdet,
    },
    Workload {
        name: "postmark",
        about: "files of one's own: make, remove, read, add to (K42, figure 2)",
        options: &[],
        impls: || abouts(programs::POSTMARK),
        groups: programs::postmark,
    },
    Workload {
        name: "make",
        about: "builds side by side from shared sources (K42, figure 3)",
        options: &[],
        impls: || abouts(programs::MAKE),
        groups: programs::make,
    },
    Workload {
        name: "dispatch",
        about: "call one method of a shared object (K42, section 3.3)",
        options: &[],
        impls: || abouts(dispatch::ENTRIES),
        groups: dispatch::groups,
    },
    Workload {
        name: "swap",
        about: "call an object whose implementation is exchanged every millisecond",
        options: &[],
        impls: || abouts(swap::ENTRIES),
        groups: swap::groups,
    },
    Workload {
        name: "stat",
        about: "reference the entries of one path by their generations (OpLog, figure 3)",
        options: &[WORK],
        impls: || abouts(path_lookup::ENTRIES),
        groups: path_lookup::groups,
    },
    Workload {
        name: "http",
        about: "serve one file over HTTP, whose name is looked up twice (OpLog, figure 9: Apache)",
        options: &[],
        impls: || abouts(path_lookup::SERVERS),
        groups: path_lookup::servers,
    },
    Workload {
        name: "lock",
        about: "take one lock, to read or to update four words",
        options: &[UPDATE],
        impls: || abouts(lock::ENTRIES),
        groups: lock::groups,
    },
    Workload {
        name: "ranges",
        about: "look up keys of ranges, insert and remove ranges (address spaces)",
        options: &[UPDATE, ("keys", Some("1000,100000")), ("pages", Some("1,16"))],
        impls: || abouts(ranges::ENTRIES),
        groups: ranges::groups,
    },
    Workload {
        name: "lru",
        about: "touch keys of one recency list, and sometimes evict the oldest",
        options: &[READ_EVERY, UPDATE_PCT],
        impls: || abouts(lru::ENTRIES),
        groups: lru::groups,
    },
    Workload {
        name: "timers",
        about: "set timers and cancel them, sometimes advance the time (timeouts of requests)",
        options: READS,
        impls: || abouts(timers::ENTRIES),
        groups: timers::groups,
    },
    Workload {
        name: "active-set",
        about: "register transactions and end them, sometimes ask for the oldest",
        options: READS,
        impls: || abouts(pairs::ACTIVE),
        groups: pairs::active,
    },
    Workload {
        name: "budget",
        about: "charge a limit of a user and of all, and release it",
        options: READS,
        impls: || abouts(pairs::BUDGET),
        groups: pairs::budget,
    },
    Workload {
        name: "object-pool",
        about: "take a buffer from a pool and give it back",
        options: READS,
        impls: || abouts(pairs::POOL),
        groups: pairs::pool,
    },
    Workload {
        name: "histogram",
        about: "count values in one of 64 buckets, sometimes sum them",
        options: READS,
        impls: || abouts(pairs::HISTOGRAM),
        groups: pairs::histogram,
    },
    Workload {
        name: "metrics",
        about: "count requests in one counter of a metrics crate, sometimes scrape it",
        options: READS,
        impls: || abouts(pairs::METRICS),
        groups: pairs::metrics,
    },
    Workload {
        name: "latencies",
        about: "record latencies in one histogram of a metrics crate, sometimes scrape it",
        options: READS,
        impls: || abouts(pairs::LATENCIES),
        groups: pairs::latencies,
    },
    #[cfg(target_os = "linux")]
    Workload {
        name: "metis",
        about: "take, touch and give back pages and blocks of them (ParSec, figures 9 and 10)",
        options: &[OPS, ("replays", None)],
        impls: || abouts(crate::metis::ENTRIES),
        groups: crate::metis::groups,
    },
    Workload {
        name: "everyday-shared",
        about: "locks, reads, maps, queues and counts of other crates, for the simulator's score",
        options: &[],
        impls: || abouts(everyday::SHARED.entries),
        groups: |options| everyday::SHARED.groups(options),
    },
    Workload {
        name: "everyday-own",
        about: "memory, maps and sorting, each thread by itself, for the same",
        options: &[],
        impls: || abouts(everyday::OWN.entries),
        groups: |options| everyday::OWN.groups(options),
    },
    Workload {
        name: "everyday-waiting",
        about: "channels, there and back, for the same",
        options: &[],
        impls: || abouts(everyday::WAITING.entries),
        groups: |options| everyday::WAITING.groups(options),
    },
    Workload {
        name: "everyday-pools",
        about: "jobs for pools of threads and for tasks, for the same",
        options: &[],
        impls: || abouts(everyday::POOLS.entries),
        groups: |options| everyday::POOLS.groups(options),
    },
    Workload {
        name: "trace",
        about: "record events, spans, and events that are off (K42, section 3.5: its tracing)",
        options: &[("record", None)],
        impls: || abouts(trace::ENTRIES),
        groups: trace::groups,
    },
    Workload {
        name: "topic",
        about: "subscribe and unsubscribe, sometimes rename the topic, sometimes read both",
        options: READS,
        impls: || abouts(pairs::TOPIC),
        groups: pairs::topic,
    },
    Workload {
        name: "kv",
        about: "read a cache, fill it at a miss, and set keys (ParSec, figures 7 and 8)",
        options: &[SET, CACHE_KEYS, OPS, ("trace", None), ("capacity", None)],
        impls: || abouts(kv::ENTRIES),
        groups: kv::groups,
    },
    #[cfg(target_os = "linux")]
    Workload {
        name: "server",
        about: "a cache server on loopback: gets and sets, pipelined, and gets of many keys",
        options: &[
            SET,
            CACHE_KEYS,
            OPS,
            ("connect", None),
            ("protocol", None),
            ("pipeline", None),
            ("connections", None),
            ("multiget", None),
            ("value", None),
            ("slice", None),
            ("rate", None),
        ],
        impls: || abouts(crate::server::ENTRIES),
        groups: crate::server::groups,
    },
    Workload {
        name: "adaptive-sweep",
        about: "one list at every share of updates: the adaptive object and the fixed ones",
        options: &[
            ("share", Some("0,1,5,10,25,50,75,90,99,99.9,100")),
            ("elements", None),
            ("warm-up", None),
        ],
        impls: || abouts(sweep::ENTRIES),
        groups: sweep::groups,
    },
];

fn abouts<P>(entries: &[Entry<P>]) -> Vec<About> {
    entries.iter().map(About::from).collect()
}

/// The workload of that name.
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, panic::catch_unwind, sync::Mutex, thread};

    use super::WORKLOADS;
    use crate::{
        limits,
        row::Kind,
        workload::{About, Options, ReadEvery},
    };

    /// Every adapter once, by its conformance test: workloads that share a table share them.
    fn adapters() -> Vec<(&'static str, About)> {
        let each = |workload: &'static super::Workload| {
            (workload.impls)().into_iter().map(move |about| (workload.name, about))
        };
        let mut seen = HashSet::new();
        let all = WORKLOADS.iter().flat_map(each);
        all.filter(|(_, about)| seen.insert(about.conform as *const ())).collect()
    }

    #[test]
    fn every_implementation_does_what_its_workload_takes_for_granted() {
        let (adapters, failed) = (Mutex::new(adapters().into_iter()), Mutex::new(Vec::new()));
        assert!(adapters.lock().unwrap().len() > 100, "adapters were not found");
        let next = || adapters.lock().unwrap().next();
        let check = || {
            while let Some((workload, about)) = next() {
                let error = match catch_unwind(about.conform) {
                    Ok(Ok(())) => continue,
                    Ok(Err(error)) => error,
                    Err(_) => "it panics".to_owned(),
                };
                failed.lock().unwrap().push(format!("{workload}, {}: {error}", about.name));
            }
        };
        thread::scope(|scope| {
            for _ in 0..limits::cores().max(2) {
                scope.spawn(check);
            }
        });
        assert_eq!(failed.into_inner().unwrap(), [""; 0]);
    }

    /// An option of several workloads, and how to give it a value that is no default.
    type Changed = (&'static str, fn(&mut Options));

    const SHARED: [Changed; 7] = [
        ("read-every", |options| options.read_every = vec![ReadEvery::Updates(77)]),
        ("spin", |options| options.spin = 77),
        ("work", |options| options.work = 77),
        ("pause", |options| options.pause = 77),
        ("update", |options| options.update = vec![77]),
        ("set", |options| options.set = vec![77]),
        ("keys", |options| options.keys = vec![777]),
    ];

    /// What a reader of the rows sees of some options.
    fn seen(workload: &super::Workload, options: &Options) -> Vec<String> {
        let groups = (workload.groups)(options).unwrap();
        groups.iter().map(|group| format!("{} {:?}", group.title, group.params)).collect()
    }

    #[test]
    fn options_of_a_workload_are_those_that_its_rows_show() {
        for workload in WORKLOADS {
            let plain = Options::default();
            for (name, set) in SHARED {
                let mut changed = plain.clone();
                set(&mut changed);
                let matters = seen(workload, &plain) != seen(workload, &changed);
                let listed = workload.options.iter().any(|(option, _)| *option == name);
                assert_eq!(listed, matters, "{}: --{name}", workload.name);
            }
        }
    }

    #[test]
    fn every_workload_has_something_of_ours_and_a_baseline() {
        for workload in WORKLOADS {
            // Two measure the machine, four are about the simulator, one is processes of its own.
            let (has_ours, has_baseline) = match workload.name {
                "coherence" | "syscalls" => (false, true),
                "everyday-waiting" => (false, false),
                name if name.starts_with("everyday") => (false, true),
                "server" => (true, false),
                _ => (true, true),
            };
            let impls = (workload.impls)();
            let has = |kind: Kind| impls.iter().any(|about| about.kind == kind);
            assert_eq!(has(Kind::Ours), has_ours, "{}: ours", workload.name);
            assert_eq!(has(Kind::Baseline), has_baseline, "{}: a baseline", workload.name);
        }
    }
}
