//! The goals about workloads.

use super::{Against, Goal};
use crate::compare::Better;

const MAPS: Against = Against::These(&["dashmap", "scc", "scc-index", "papaya"]);
const LOCK: Against = Against::These(&["parking_lot"]);
const SCHEMES: Against = Against::These(&["kovan", "crossbeam-epoch"]);

/// A goal of a map of numbers to numbers: of the one for plain entries, and of the one that lends
/// references, which pays for that.
const fn map(name: &'static str, ours: &'static str, words: &'static str, goal: f64) -> Goal {
    Goal { against: MAPS, ..faster(name, words, ours, goal) }
}

/// A goal of single events: at most 1.2 times what one takes in crossbeam's queue.
const fn delay(words: &'static str, metric: &'static str) -> Goal {
    let queue = faster("EventQueue", words, "event-queue", 1.0 / 1.2);
    Goal { metric, better: Better::Less, against: Against::These(&["segqueue"]), ..queue }
}

/// A goal of the list.
const fn list(words: &'static str, goal: f64) -> Goal {
    Goal { against: LOCK, ..faster("Deferred", words, "oplog-auto", goal) }
}

/// A goal against every rival, in throughput.
const fn faster(subject: &'static str, words: &'static str, ours: &'static str, goal: f64) -> Goal {
    Goal {
        subject,
        words,
        ours,
        against: Against::Rivals,
        metric: "throughput",
        better: Better::More,
        goal,
        only: &[],
    }
}

/// Every goal about a workload.
pub static GOALS: &[Goal] = &[
    Goal {
        metric: "delivered",
        ..faster("EventQueue", "notify --threads 1,2", "event-queue", 1.0)
    },
    Goal {
        metric: "delivered",
        ..faster("EventQueue", "notify --threads 1,2 --burst 1000000", "event-queue", 1.0)
    },
    // Events that are alone, and those of a busy sender.
    delay("notify --threads 1 --gap 3000,100", "delay p50"),
    delay("notify --threads 1 --gap 3000,100", "delay p99"),
    map(
        "FlatHashMap",
        "flat-hash-map",
        "map --threads 1 --keys 1000,64000,1000000 --update 0,5,50",
        1.0,
    ),
    map(
        "FlatHashMap",
        "flat-hash-map",
        "map --threads 2 --keys 1000,64000,1000000 --update 0",
        1.2,
    ),
    map(
        "FlatHashMap",
        "flat-hash-map",
        "map --threads 2 --keys 1000,64000,1000000 --update 5,50",
        1.0,
    ),
    map("HashMap", "hash-map", "map --threads 1 --keys 1000,64000,1000000 --update 0,5,50", 1.0),
    map("HashMap", "hash-map", "map --threads 2 --keys 1000,64000,1000000 --update 0", 1.2),
    map("HashMap", "hash-map", "map --threads 2 --keys 1000,64000,1000000 --update 5,50", 1.0),
    list("list --threads 1,2 --read-every 100", 1.0),
    list("list --threads 1,2 --read-every 10,2", 0.95),
    Goal {
        against: Against::Every,
        ..faster(
            "Adaptive",
            "adaptive-sweep --threads 2 --share 0,1,5,10,25,50,75,90,99,99.9,100",
            "adaptive",
            0.87,
        )
    },
    Goal {
        against: Against::Every,
        ..faster(
            "Adaptive",
            "adaptive-sweep --threads 2 --elements 8,64 --share 0,10,25,50,90",
            "adaptive",
            0.87,
        )
    },
    Goal {
        against: LOCK,
        ..faster("Adaptive", "adaptive-sweep --threads 1 --share 0,10,50,90,100", "adaptive", 0.9)
    },
    faster("Registry", "registry --threads 1 --read-every never", "registry", 0.95),
    faster("Registry", "registry --threads 1,2 --read-every 100", "registry", 1.0),
    faster("Registry", "registry --threads 1,2 --read-every 10", "registry", 0.95),
    faster("Counter", "counter --threads 1 --read-every never", "counter", 0.9),
    faster("Counter", "counter --threads 2 --read-every 1", "counter", 0.8),
    faster("ActiveSet", "active-set --threads 2 --read-every 1", "active-set", 0.8),
    Goal { against: SCHEMES, ..faster("sections", "smr --threads 2 --update 10", "section", 1.2) },
    Goal {
        against: SCHEMES,
        ..faster("sections", "smr --threads 2 --update 50,90", "section", 1.4)
    },
    Goal {
        against: Against::These(&["sdd"]),
        ..faster("sections", "smr --threads 1 --update 10,50,90", "section", 1.0)
    },
    faster("Slab", "slab --threads 1", "slab", 1.0),
    Goal {
        against: Against::These(&["sharded-slab"]),
        ..faster("IdSpace", "ids --threads 1,2", "id-space", 1.0)
    },
    faster("ScalableArc", "arc --threads 1", "scalable-arc", 0.95),
    faster("Lru", "lru --threads 2 --read-every 100,10", "lru", 1.0),
    faster("TimerQueue", "timers --threads 2 --read-every 100", "timers", 1.0),
    faster("TimerQueue", "timers --threads 2 --read-every 10", "timers", 0.5),
    cache("kv --threads 1,2 --set 0", FITS, 1.3),
    cache("kv --threads 1,2 --set 10", FITS, 1.2),
    cache("kv --threads 1,2 --set 20", FITS, 1.1),
    cache("kv --threads 1,2 --set 0", TENTH, 1.0),
    // Not fewer hits than the best other, but for what two runs differ by.
    Goal { metric: "hits", ..cache("kv --threads 1,2 --set 0", TENTH, 0.99) },
    // A microsecond where the best rival seen had three quarters of one.
    Goal {
        metric: "p99.9",
        better: Better::Less,
        ..cache("kv --threads 2 --set 10,20", FITS, 0.75)
    },
];

const FITS: &[(&str, &str)] = &[("capacity", "sufficient"), ("order", "zipf")];
const TENTH: &[(&str, &str)] = &[("capacity", "a tenth"), ("order", "zipf")];

/// A goal of the cache, for one capacity.
const fn cache(
    words: &'static str,
    only: &'static [(&'static str, &'static str)],
    goal: f64,
) -> Goal {
    Goal { only, against: Against::These(&["scc-get"]), ..faster("Cache", words, "cache", goal) }
}
