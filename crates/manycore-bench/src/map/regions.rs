//! The region list of K42's process object (section 4.1, figure 8): every look-up finds its key,
//! and now and then one is removed and put back.
//!
//! Owns: the loop and the table; the maps are those of the workload `map`.

use std::hint::black_box;

use super::{BATCH, MapHandle, MapImpl, Random, conform, ours, rivals, value_of};
use crate::{
    row::Kind,
    runner::{Control, Group, Metric, Subject, Tally, total_rate},
    workload::{Entry, Options, UnknownImpl, cases, choose, threads_word},
};

/// How many regions there are.
pub const REGIONS: u64 = 1024;

/// What a subject is built from.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    threads: usize,
    update: u8,
}

struct Shared<M> {
    map: M,
    shape: Shape,
}

impl<M: MapImpl> Shared<M> {
    fn new(shape: Shape) -> Self {
        let map = M::new();
        let mut handle = map.handle();
        (0..REGIONS).for_each(|key| handle.insert(key, value_of(key, 0)));
        drop(handle);
        Self { map, shape }
    }
}

impl<M: MapImpl> Subject for Shared<M> {
    fn workers(&self) -> usize {
        self.shape.threads
    }

    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut handle = self.map.handle();
        let mut random = Random::of(index);
        // Of 2^16 chances.
        let updates = u64::from(self.shape.update) * 65_536 / 100;
        control.drive(|| {
            for _ in 0..BATCH {
                let word = random.next();
                let key = (word >> 32) % REGIONS;
                if word & 0xFFFF >= updates {
                    black_box(handle.get(key));
                } else {
                    handle.remove(key);
                    handle.insert(key, value_of(key, 1));
                }
            }
            BATCH
        })
    }
}

/// The table's row for a map.
const fn entry<M: MapImpl>(name: &'static str, about: &'static str) -> Entry<Shape> {
    Entry {
        name,
        kind: Kind::Rival,
        about,
        threads_max: usize::MAX,
        build: |shape| Box::new(Shared::<M>::new(shape)),
        conform: || conform::<M>(3),
    }
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &[
    Entry {
        kind: Kind::Baseline,
        conform: || conform::<rivals::Unshared>(1),
        ..entry::<rivals::Unshared>("unshared", "std HashMap, owned by one thread")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Replicated>("replicated", "ReplicatedMap: a cache for each thread")
    },
    Entry {
        kind: Kind::Ours,
        ..entry::<ours::Sections>("hash-map", "collections::HashMap: a section for each call")
    },
    entry::<rivals::StdMutex>("mutex", "std HashMap behind std's Mutex"),
    entry::<rivals::StdRwLock>("rwlock", "std HashMap behind std's RwLock"),
    entry::<rivals::Dash>("dashmap", "dashmap: a read-write lock for each shard"),
    entry::<rivals::Papaya>("papaya", "papaya HashMap: reads without a lock, pinned each time"),
];

const METRICS: [Metric; 1] =
    [Metric { name: "throughput", unit: "Mops/s", of: |tallies| total_rate(tallies) / 1e6 }];

/// The groups for some options: one for each share of updates and thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    let chosen = choose("regions", ENTRIES, &options.impls)?;
    let mut groups = Vec::new();
    for &update in &options.smr.update {
        for &threads in &options.threads {
            let (cases, left_out) = cases(&chosen, threads, |threads| Shape { threads, update });
            groups.push(Group {
                bench: "regions",
                title: format!("{}, {update} % remove and put back", threads_word(threads)),
                params: options.params([("keys", REGIONS.into()), ("update", update.into())]),
                metrics: METRICS.to_vec(),
                cases,
                left_out,
            });
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::ENTRIES;

    #[test]
    fn every_map_of_regions_holds_what_was_put_in() {
        for entry in ENTRIES {
            if let Err(error) = (entry.conform)() {
                panic!("{}: {error}", entry.name);
            }
        }
    }
}
