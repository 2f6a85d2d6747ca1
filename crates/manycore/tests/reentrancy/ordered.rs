//! The walk of the map in order: comparisons, clones, closures and destructors.

use crate::maps::{Map, Operations, States, armed, ignore, trapped, works};
use crate::trap::{At, Key, Value, key};
use manycore::collections::OrderedMap;

fn insert(map: &OrderedMap<Key, Value>, ids: std::ops::Range<u32>) {
    ids.for_each(|id| ignore(map.insert(key(id), Value::default())));
}

impl Map for OrderedMap<Key, Value> {
    const NAME: &'static str = "OrderedMap";
    const OPERATIONS: Operations<Self> = &[
        ("get", |map| works(map.enter().get(&key(1)).is_some())),
        ("insert", |map| works(map.insert(key(7), Value::default()))),
        ("insert many", |map| works(insert(map, 200..240))),
        ("replace", |map| works(map.insert(key(1), Value::default()))),
        ("remove", |map| works(map.remove(&key(3)))),
        ("update", |map| works(map.update(&key(1), |_| Value::default()))),
        ("walk", |map| works(map.enter().range(key(2)..).rev().count())),
        ("pop_first", |map| works(map.enter().pop_first().is_some())),
        ("clear", |map| works(map.clear())),
    ];
    const STATES: States<Self> = &[
        ("inserting", |map, trap| ignore(map.insert(trapped(9, trap), armed(trap)))),
        ("replacing", |map, trap| {
            map.insert(trapped(1, trap), armed(trap));
            map.insert(trapped(1, trap), armed(trap));
        }),
        ("looking up", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            ignore(map.get_cloned(&trapped(9, trap)));
            ignore((map.first_cloned(), map.last_cloned()));
        }),
        ("reading", |map, trap| ignore(map.read(&trapped(3, trap), |_| trap.run_at(At::Closure)))),
        ("updating", |map, trap| {
            map.update(&key(1), |_| {
                trap.run_at(At::Closure);
                armed(trap)
            });
            map.update(&key(1), |_| Value::default());
        }),
        ("computing", |map, trap| {
            map.compute(trapped(9, trap), |_| {
                trap.run_at(At::Closure);
                Some(armed(trap))
            });
            map.compute(trapped(9, trap), |_| None);
        }),
        ("making", |map, trap| {
            map.get_or_insert_with(trapped(9, trap), || {
                trap.run_at(At::Closure);
                armed(trap)
            });
        }),
        ("removing", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            map.remove_if(&trapped(9, trap), |_, _| {
                trap.run_at(At::Closure);
                true
            });
        }),
        ("popping", |map, trap| {
            map.insert(trapped(0, trap), armed(trap));
            map.insert(trapped(9, trap), armed(trap));
            ignore((map.pop_first_cloned(), map.pop_last_cloned()));
        }),
        ("walking", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            map.enter().range(trapped(2, trap)..).rev().for_each(ignore);
            map.for_each(|_, _| trap.run_at(At::Closure));
        }),
        ("retaining", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            map.retain(|_, _| {
                trap.run_at(At::Closure);
                false
            });
        }),
        ("dividing", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            insert(map, 100..400);
        }),
        ("tidying up", |map, trap| {
            insert(map, 100..160);
            map.insert(trapped(130, trap), armed(trap));
            (100..130).for_each(|id| ignore(map.remove(&key(id))));
            (131..160).for_each(|id| ignore(map.remove(&key(id))));
            ignore(map.first_cloned());
        }),
        ("reclaiming", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            map.remove(&key(9));
            (0..3).for_each(|_| map.domain().collect());
        }),
    ];

    fn new() -> Self {
        let map = Self::new();
        insert(&map, 1..5);
        map
    }
    fn is_usable(&self) -> bool {
        self.insert(key(1000), Value::default());
        self.contains_key(&key(1000)) && self.remove(&key(1000))
    }
}
