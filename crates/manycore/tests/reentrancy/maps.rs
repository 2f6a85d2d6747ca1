//! The walk of the keyed collections. Keys 1 to 4 are present at the beginning. The key of the
//! case, with its trap, is 1 or 9.

use crate::cases::{Case, Made, Outcome, Row};
use crate::probe::{Answer, Answers, message};
use crate::trap::{At, Key, Trap, Value, key};
use manycore::collections::{
    DHash, DHashBuilder, Distribution, HashMap, Lru, PageCache, PageStore, PinError, PrivatePages,
    ReplicatedMap,
};
use manycore::oplog::Logs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

/// The operations that a callback calls.
pub type Operations<M> = &'static [(&'static str, fn(&M) -> Answer)];
/// The ways to run the callbacks of a key with a trap.
pub type States<M> = &'static [(&'static str, fn(&M, &Arc<Trap>))];

pub trait Map: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    const OPERATIONS: Operations<Self>;
    const STATES: States<Self>;

    fn new() -> Self;
    /// Whether a new key can be put in, found, and taken out again.
    fn is_usable(&self) -> bool;
}

pub fn works<R>(_: R) -> Answer {
    Answer::Works
}

/// Drops what the state is not about.
pub fn ignore<R>(_: R) {}

pub fn trapped(id: u32, trap: &Arc<Trap>) -> Key {
    Key { id, trap: Some(Arc::clone(trap)) }
}

pub fn armed(trap: &Arc<Trap>) -> Value {
    Value { trap: Some(Arc::clone(trap)) }
}

/// Runs `f` on another thread, as the collection's first thread beside the one that walks.
fn elsewhere(f: impl FnOnce() + Send) {
    thread::scope(|scope| drop(scope.spawn(f).join()));
}

/// The collection of a case, and another collection. Threads that are gone have filled both.
type Maps<M> = [Arc<M>; 2];

fn maps<M: Map>() -> Maps<M> {
    thread::scope(|scope| {
        let filled = || [Arc::new(M::new()), Arc::new(M::new())];
        scope.spawn(filled).join().expect("they can be made")
    })
}

fn run<M: Map>(
    [first, other]: Maps<M>,
    at: At,
    state: fn(&M, &Arc<Trap>),
    operation: fn(&M) -> Answer,
    same: bool,
) -> Outcome {
    let answers = Answers::default();
    let called = Arc::downgrade(if same { &first } else { &other });
    let trap = {
        let answers = answers.clone();
        Trap::set(
            at,
            // At the collection's own end there is nothing to call on.
            Box::new(move || {
                if let Some(called) = called.upgrade() {
                    answers.note(|| operation(&called));
                }
            }),
        )
    };
    let provoked = catch_unwind(AssertUnwindSafe(|| state(&first, &trap)));
    provoked.map_err(|panic| format!("the library panicked: {}", message(&*panic)))?;
    for map in [&first, &other] {
        let usable = catch_unwind(AssertUnwindSafe(|| map.is_usable()));
        if !usable.map_err(|panic| format!("unusable: {}", message(&*panic)))? {
            return Err("does not keep a new key".to_owned());
        }
    }
    drop(first);
    Ok(answers.distinct())
}

pub fn cases<M: Map>() -> Vec<Case> {
    let mut cases = Vec::new();
    for (target, same) in [("on the same object", true), ("on another object", false)] {
        for at in At::ALL {
            for (operation, call) in M::OPERATIONS {
                for (state, provoke) in M::STATES {
                    let make = move || {
                        let maps = maps::<M>();
                        Box::new(move || run(maps, at, *provoke, *call, same)) as Made
                    };
                    let (callback, make) = (at.title(), Box::new(make));
                    cases.push(Case { target, callback, operation, state, make });
                }
            }
        }
    }
    cases
}

/// Removes the lines of callbacks that no state reaches.
pub fn without_dead_lines(mut rows: Vec<Row>) -> Vec<Row> {
    let live: Vec<_> = rows
        .iter()
        .filter(|row| row.outcome != Ok(Vec::new()))
        .map(|row| (row.target, row.callback))
        .collect();
    rows.retain(|row| live.contains(&(row.target, row.callback)));
    rows
}

impl Map for HashMap<Key, Value> {
    const NAME: &'static str = "HashMap";
    const OPERATIONS: Operations<Self> = &[
        ("get", |map| works(map.enter().get(&key(1)).is_some())),
        ("insert", |map| works(map.enter().insert(key(7), Value::default()).is_some())),
        ("replace", |map| works(map.enter().insert(key(1), Value::default()).is_some())),
        ("remove", |map| works(map.enter().remove(&key(3)).is_some())),
        ("update", |map| works(map.enter().update(&key(1), |_| Value::default()).is_some())),
        ("iterate", |map| works(map.enter().iter().count())),
        ("clear", |map| works(map.enter().clear())),
    ];
    const STATES: States<Self> = &[
        ("inserting", |map, trap| ignore(map.enter().insert(trapped(9, trap), armed(trap)))),
        ("replacing", |map, trap| {
            map.enter().insert(trapped(1, trap), armed(trap));
            map.enter().insert(trapped(1, trap), armed(trap));
        }),
        ("looking up", |map, trap| ignore(map.enter().get(&trapped(3, trap)))),
        ("updating", |map, trap| {
            map.enter().update(&key(1), |_| {
                trap.run_at(At::Closure);
                armed(trap)
            });
            map.enter().update(&key(1), |_| Value::default());
        }),
        ("computing", |map, trap| {
            map.enter().compute(trapped(9, trap), |_| {
                trap.run_at(At::Closure);
                Some(armed(trap))
            });
        }),
        ("making", |map, trap| {
            map.enter().get_or_insert_with(trapped(9, trap), || {
                trap.run_at(At::Closure);
                armed(trap)
            });
        }),
        ("removing", |map, trap| {
            map.enter().insert(trapped(9, trap), armed(trap));
            map.enter().remove(&trapped(9, trap));
        }),
        ("retaining", |map, trap| {
            map.enter().retain(|_, _| {
                trap.run_at(At::Closure);
                false
            });
        }),
        ("growing", |map, trap| {
            map.enter().insert(trapped(9, trap), armed(trap));
            (100..400).for_each(|id| ignore(map.enter().insert(key(id), Value::default())));
        }),
        ("reclaiming", |map, trap| {
            map.enter().insert(trapped(9, trap), armed(trap));
            map.enter().remove(&key(9));
            (0..3).for_each(|_| map.domain().collect());
        }),
    ];

    fn new() -> Self {
        let map = Self::new();
        (1..=4).for_each(|id| ignore(map.enter().insert(key(id), Value::default())));
        map
    }
    fn is_usable(&self) -> bool {
        let view = self.enter();
        view.insert(key(1000), Value::default());
        view.get(&key(1000)).is_some() && view.remove(&key(1000)).is_some()
    }
}

pub type Table = DHash<Key, Value, u64>;

/// The same type as [`Table`], distributed from the beginning.
pub struct DistributedTable(Table);

const TABLE_OPERATIONS: Operations<Table> = &[
    ("with_local", |table| works(table.with_local(&key(1), |_, uses| *uses += 1))),
    ("get", |table| works(table.get(&key(3)).is_some())),
    ("insert", |table| works(table.insert(key(7), Value::default()).is_some())),
    ("remove", |table| works(table.remove(&key(3)).is_some())),
    ("gather", |table| works(table.gather(&key(1), 0, |sum, uses| sum + *uses))),
    ("update_shared", |table| works(table.update_shared(&key(1), |_| ()))),
    ("snapshot", |table| works(table.snapshot().len())),
    ("clear", |table| works(table.clear())),
];

const TABLE_STATES: States<Table> = &[
    ("inserting", |table, trap| {
        elsewhere(|| ignore(table.with_local(&key(1), |_, uses| *uses += 1)));
        table.insert(trapped(9, trap), armed(trap));
    }),
    ("replacing", |table, trap| {
        table.insert(trapped(1, trap), armed(trap));
        elsewhere(|| ignore(table.with_local(&key(1), |_, uses| *uses += 1)));
        table.insert(trapped(1, trap), armed(trap));
    }),
    ("a hit", |table, trap| {
        for _ in 0..2 {
            table.with_local(&trapped(3, trap), |_, _| ());
        }
        table.with_local(&key(1), |_, _| trap.run_at(At::Closure));
    }),
    ("a copy", |table, trap| {
        table.insert(trapped(9, trap), armed(trap));
        elsewhere(|| ignore(table.with_local(&trapped(9, trap), |_, uses| *uses += 1)));
    }),
    ("gathering", |table, trap| {
        elsewhere(|| ignore(table.with_local(&key(1), |_, uses| *uses += 1)));
        table.gather(&trapped(1, trap), (), |(), _| trap.run_at(At::Closure));
    }),
    ("changing all", |table, trap| {
        elsewhere(|| ignore(table.with_local(&key(1), |_, uses| *uses += 1)));
        table.update_shared(&trapped(1, trap), |shared| {
            trap.run_at(At::Closure);
            *shared = armed(trap);
        });
    }),
    ("removing", |table, trap| {
        table.insert(trapped(9, trap), armed(trap));
        elsewhere(|| ignore(table.with_local(&key(9), |_, uses| *uses += 1)));
        table.remove(&trapped(9, trap));
    }),
    ("folding", |table, trap| {
        table.distribute();
        elsewhere(|| ignore(table.with_local(&key(1), |_, uses| *uses += 1)));
        table.insert(trapped(9, trap), armed(trap));
        table.fold(|into, from| {
            trap.run_at(At::Closure);
            *into += *from;
        });
    }),
    ("growing", |table, trap| {
        table.insert(trapped(9, trap), armed(trap));
        (100..400).for_each(|id| drop(table.insert(key(id), Value::default())));
    }),
];

impl Map for Table {
    const NAME: &'static str = "DHash centralized";
    const OPERATIONS: Operations<Self> = TABLE_OPERATIONS;
    const STATES: States<Self> = TABLE_STATES;

    fn new() -> Self {
        fill(DHashBuilder::new().distribution(Distribution::Never).build())
    }
    fn is_usable(&self) -> bool {
        self.insert(key(1000), Value::default());
        self.get(&key(1000)).is_some() && self.remove(&key(1000)).is_some()
    }
}

fn fill(table: Table) -> Table {
    (1..=4).for_each(|id| drop(table.insert(key(id), Value::default())));
    table
}

macro_rules! on_table {
    ($($place:literal),*) => {
        &[$((TABLE_OPERATIONS[$place].0, |of| TABLE_OPERATIONS[$place].1(&of.0))),*]
    };
}
macro_rules! in_table {
    ($($place:literal),*) => {
        &[$((TABLE_STATES[$place].0, |of, trap| TABLE_STATES[$place].1(&of.0, trap))),*]
    };
}

impl Map for DistributedTable {
    const NAME: &'static str = "DHash distributed";
    const OPERATIONS: Operations<Self> = on_table!(0, 1, 2, 3, 4, 5, 6, 7);
    const STATES: States<Self> = in_table!(0, 1, 2, 3, 4, 5, 6, 7, 8);

    fn new() -> Self {
        Self(fill(DHashBuilder::new().distribution(Distribution::Always).build()))
    }
    fn is_usable(&self) -> bool {
        self.0.is_usable()
    }
}

impl Map for ReplicatedMap<Key, Value> {
    const NAME: &'static str = "ReplicatedMap";
    const OPERATIONS: Operations<Self> = &[
        ("get", |map| works(map.get(&key(1)).is_some())),
        ("insert", |map| works(map.insert(key(7), Value::default()).is_some())),
        ("replace", |map| works(map.insert(key(1), Value::default()).is_some())),
        ("remove", |map| works(map.remove(&key(3)).is_some())),
        ("snapshot", |map| works(map.snapshot().len())),
        ("clear", |map| works(map.clear())),
    ];
    const STATES: States<Self> = &[
        ("inserting", |map, trap| drop(map.insert(trapped(9, trap), armed(trap)))),
        ("replacing", |map, trap| {
            map.insert(trapped(1, trap), armed(trap));
            elsewhere(|| drop(map.get(&key(1))));
            map.insert(trapped(1, trap), armed(trap));
        }),
        ("reading", |map, trap| {
            for _ in 0..2 {
                map.read(&trapped(3, trap), |_| trap.run_at(At::Closure));
            }
        }),
        ("a copy", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            elsewhere(|| drop(map.get(&trapped(9, trap))));
        }),
        ("removing", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            elsewhere(|| drop(map.get(&key(9))));
            map.remove(&trapped(9, trap));
        }),
        ("clearing", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            map.clear();
        }),
        ("growing", |map, trap| {
            map.insert(trapped(9, trap), armed(trap));
            (100..400).for_each(|id| drop(map.insert(key(id), Value::default())));
        }),
    ];

    fn new() -> Self {
        let map = Self::new();
        (1..=4).for_each(|id| drop(map.insert(key(id), Value::default())));
        map
    }
    fn is_usable(&self) -> bool {
        self.insert(key(1000), Value::default());
        self.get(&key(1000)).is_some() && self.remove(&key(1000)).is_some()
    }
}

/// A store of empty pages. It runs the trap of a key when the page is loaded or written back.
pub struct Store;

impl PageStore for Store {
    type Key = Key;
    type Page = Value;
    type Error = ();

    fn load(&self, key: &Key) -> Result<Value, ()> {
        key.trap.iter().for_each(|trap| trap.run_at(At::Load));
        Ok(Value { trap: key.trap.clone() })
    }
    fn write_back(&self, key: &Key, _: &Value) -> Result<(), ()> {
        key.trap.iter().for_each(|trap| trap.run_at(At::WriteBack));
        Ok(())
    }
}

fn unless_full<G, E>(tried: Result<G, PinError<E>>) -> Answer {
    match tried {
        Ok(_) => Answer::Works,
        Err(PinError::Full) => Answer::Refuses("Full"),
        Err(_) => Answer::Refuses("Store"),
    }
}

impl Map for PageCache<Store> {
    const NAME: &'static str = "PageCache";
    const OPERATIONS: Operations<Self> = &[
        ("pin", |cache| unless_full(cache.pin(&key(3)))),
        ("pin the page of the case", |cache| unless_full(cache.pin(&key(9)))),
        ("pin a new page", |cache| unless_full(cache.pin(&key(7)))),
        ("pin_if_cached", |cache| works(cache.pin_if_cached(&key(9)).is_some())),
        ("reclaim", |cache| works(cache.reclaim(100))),
        ("flush", |cache| works(cache.flush())),
        ("distribute", |cache| works(cache.distribute())),
        ("fold", |cache| works(cache.fold())),
    ];
    const STATES: States<Self> = &[
        ("loading", |cache, trap| drop(cache.pin(&trapped(9, trap)))),
        ("loading when distributed", |cache, trap| {
            cache.distribute();
            drop(cache.pin(&trapped(9, trap)));
        }),
        ("hitting", |cache, trap| {
            cache.distribute();
            (0..2).for_each(|_| drop(cache.pin(&trapped(1, trap))));
        }),
        ("flushing", |cache, trap| {
            if let Ok(page) = cache.pin(&trapped(9, trap)) {
                page.mark_dirty();
            }
            ignore(cache.flush());
        }),
        ("reclaiming", |cache, trap| {
            if let Ok(page) = cache.pin(&trapped(9, trap)) {
                page.mark_dirty();
            }
            (0..3).for_each(|_| ignore(cache.reclaim(100)));
        }),
        ("making room", |cache, trap| {
            if let Ok(page) = cache.pin(&trapped(9, trap)) {
                page.mark_dirty();
            }
            (100..120).for_each(|id| drop(cache.pin(&key(id))));
        }),
        ("folding", |cache, trap| {
            cache.distribute();
            drop(cache.pin(&trapped(9, trap)));
            elsewhere(|| drop(cache.pin(&key(9))));
            cache.fold();
        }),
    ];

    fn new() -> Self {
        let cache = Self::new(Store, 8);
        (1..=4).for_each(|id| drop(cache.pin(&key(id))));
        cache
    }
    fn is_usable(&self) -> bool {
        self.pin(&key(1000)).is_ok() && self.pin(&key(9)).is_ok() && self.reclaim(100).is_ok()
    }
}

impl Map for PrivatePages<Store> {
    const NAME: &'static str = "PrivatePages";
    const OPERATIONS: Operations<Self> = &[
        ("read", |view| unless_full(view.read(&key(3)))),
        ("read the page of the case", |view| unless_full(view.read(&key(9)))),
        ("with_mut", |view| unless_full(view.with_mut(&key(3), |_| ()))),
        ("with_mut of the page of the case", |view| unless_full(view.with_mut(&key(9), |_| ()))),
        ("for_each", |view| works(view.for_each(|_, _| ()))),
        ("fork", |view| works(view.fork())),
    ];
    const STATES: States<Self> = &[
        ("reading", |view, trap| drop(view.read(&trapped(9, trap)))),
        ("writing", |view, trap| {
            let _ = view.with_mut(&trapped(9, trap), |_| trap.run_at(At::Closure));
        }),
        ("writing again", |view, trap| {
            let _ = view.with_mut(&trapped(9, trap), |_| ());
            let _ = view.with_mut(&key(9), |_| trap.run_at(At::Closure));
        }),
        ("writing after a fork", |view, trap| {
            let _ = view.with_mut(&trapped(9, trap), |_| ());
            let child = view.fork();
            let _ = child.with_mut(&key(9), |_| trap.run_at(At::Closure));
            let _ = view.with_mut(&key(9), |_| trap.run_at(At::Closure));
        }),
        ("writing what is read", |view, trap| {
            let _ = view.with_mut(&trapped(9, trap), |_| ());
            let _page = view.read(&key(9));
            let _ = view.with_mut(&key(9), |_| trap.run_at(At::Closure));
        }),
        ("walking", |view, trap| {
            let _ = view.with_mut(&trapped(9, trap), |_| ());
            view.for_each(|_, _| trap.run_at(At::Closure));
        }),
        ("forking", |view, trap| {
            let _ = view.with_mut(&trapped(9, trap), |_| ());
            for round in 0..20 {
                let child = view.fork();
                let _ = child.with_mut(&key(round % 5), |_| ());
            }
        }),
    ];

    fn new() -> Self {
        Self::new(Arc::new(<PageCache<Store> as Map>::new()))
    }
    fn is_usable(&self) -> bool {
        self.with_mut(&key(1000), |_| ()).is_ok() && self.read(&key(1000)).is_ok()
    }
}

impl Map for Lru<Key> {
    const NAME: &'static str = "Lru";
    const OPERATIONS: Operations<Self> = &[
        ("touch", |list| works(list.touch(key(1)))),
        ("touch a new key", |list| works(list.touch(key(7)))),
        ("remove", |list| works(list.remove(key(3)))),
        ("evict", |list| works(list.evict(1))),
        ("contains", |list| works(list.contains(&key(3)))),
        ("len", |list| works(list.len())),
        ("snapshot", |list| works(list.snapshot().len())),
        ("stats", |list| works(list.stats())),
    ];
    const STATES: States<Self> = &[
        ("touching", |list, trap| {
            list.touch(trapped(9, trap));
            list.touch(key(9));
        }),
        ("touching with logs", |list, trap| {
            list.touch(trapped(3, trap));
            list.touch(trapped(9, trap));
            list.touch(trapped(3, trap));
        }),
        ("merging", |list, trap| {
            list.touch(trapped(9, trap));
            elsewhere(|| list.touch(key(9)));
            list.touch(key(3));
            ignore(list.len());
        }),
        ("removing", |list, trap| {
            list.touch(trapped(9, trap));
            list.remove(trapped(9, trap));
            ignore(list.len());
        }),
        ("evicting", |list, trap| {
            list.touch(trapped(9, trap));
            drop(list.evict(10));
        }),
        ("looking up", |list, trap| ignore(list.contains(&trapped(9, trap)))),
        ("looking around", |list, trap| {
            list.touch(trapped(9, trap));
            drop(list.snapshot());
        }),
        ("growing", |list, trap| {
            list.touch(trapped(9, trap));
            (100..400).for_each(|id| list.touch(key(id)));
            ignore(list.len());
        }),
    ];

    fn new() -> Self {
        let list = Self::builder().logs(Logs::Always).build().expect("settings that can work");
        (1..=4).for_each(|id| list.touch(key(id)));
        list
    }
    fn is_usable(&self) -> bool {
        self.touch(key(1000));
        self.contains(&key(1000)) && {
            self.remove(key(1000));
            !self.contains(&key(1000))
        }
    }
}
