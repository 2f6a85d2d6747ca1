//! Every callback with every operation in it, on its own cache and on another one. A table in
//! docs/cache.md says what works, and what panics with which message; this test generates it.
//! Nothing hangs: each case has a watchdog, and the cache works on after it.

use crate::tasks::{block_on, message, within};
use manycore::collections::{BudgetTree, Reclaimer};
use manycore_cache::{Builder, Cache, Cause, Change};
use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

type Numbers = Cache<Key, Value>;

/// A place where user code is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    Hash,
    HashInGrowth,
    Eq,
    Clone,
    Drop,
    Waker,
    WakerClone,
    Listener,
    Weigher,
    Expiry,
    IdleAfter,
    Clock,
    ClockUnderLock,
    BareEnd,
    BareEndUnderLock,
    InsertIf,
    RemoveIf,
    Compute,
    InsertHeldIf,
    RemoveHeldIf,
    HoldIf,
    ExpireIf,
    Retain,
    GetMany,
    VisitMany,
    Reclaim,
    ListenerOfRequest,
    Load,
    AsyncLoad,
}

use Site::{AsyncLoad, Load};

const SITES: [(Site, &str); 29] = [
    (Site::Hash, "`Hash`"),
    (Site::HashInGrowth, "`Hash`, while a table grows"),
    (Site::Eq, "`Eq`, `Borrow`"),
    (Site::Clone, "`Clone` of a value"),
    (Site::Drop, "`Drop` of a key or value"),
    (Site::Waker, "a waker"),
    (Site::WakerClone, "a waker's `Clone`"),
    (Site::Listener, "`listener`"),
    (Site::Weigher, "`weigher`"),
    (Site::Expiry, "`expire_after`"),
    (Site::IdleAfter, "`idle_after`"),
    (Site::Clock, "`clock`"),
    (Site::ClockUnderLock, "`clock`, where it is asked under a lock"),
    (Site::BareEnd, "`without_metadata`"),
    (Site::BareEndUnderLock, "`without_metadata`, where it is asked under a lock"),
    (Site::InsertIf, "`insert_if`"),
    (Site::RemoveIf, "`remove_if`"),
    (Site::Compute, "`compute`, `update`, `update_or_insert_with`"),
    (Site::InsertHeldIf, "`insert_locked_if`, second call"),
    (Site::RemoveHeldIf, "`remove_locked_if`, second call"),
    (Site::HoldIf, "`get_locked_if`"),
    (Site::ExpireIf, "`expire_if`"),
    (Site::Retain, "`retain`"),
    (Site::GetMany, "`get_many`"),
    (Site::VisitMany, "`visit_many`"),
    (Site::Reclaim, "`on_reclaim` of its budget, for an insertion"),
    (Site::ListenerOfRequest, "`listener`, where its budget asks for memory"),
    (Load, "the load of `get_or_insert_with`"),
    (AsyncLoad, "the load of `get_or_insert_async`"),
];

/// What a callback does. The groups are the columns of the table.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Get,
    GetMany,
    ContainsKey,
    Peek,
    TimeLeft,
    Iter,
    Collect,
    Stats,
    Insert,
    InsertSame,
    InsertIf,
    Compute,
    Update,
    Pin,
    Remove,
    RemoveMissing,
    HoldIf,
    Retain,
    InvalidateAll,
    Purge,
    SetCapacity,
    LoadOther,
    AsyncLoadOther,
    LoadSame,
    AsyncLoadSame,
}

use Operation as O;

const GROUPS: [&[Operation]; 5] = [
    &[O::Get, O::GetMany, O::ContainsKey, O::Peek, O::TimeLeft, O::Iter, O::Collect, O::Stats],
    &[
        O::Insert,
        O::InsertSame,
        O::InsertIf,
        O::Compute,
        O::Update,
        O::Pin,
        O::Remove,
        O::RemoveMissing,
        O::HoldIf,
        O::Retain,
        O::InvalidateAll,
        O::Purge,
        O::SetCapacity,
    ],
    &[O::LoadOther, O::AsyncLoadOther],
    &[O::LoadSame],
    &[O::AsyncLoadSame],
];

/// The key that the trigger is about, and a key that is missing.
const SAME: u32 = 1;
const OTHER: u32 = 70;

thread_local! {
    static PLAN: Cell<Option<Plan>> = const { Cell::new(None) };
    static CACHES: RefCell<Option<[Arc<Numbers>; 2]>> = const { RefCell::new(None) };
    static OUTCOME: RefCell<Option<Result<(), String>>> = const { RefCell::new(None) };
}

/// Runs the operation on one of the caches, at the call with this number at this site.
#[derive(Debug, Clone, Copy)]
struct Plan {
    site: Site,
    calls: u32,
    operation: Operation,
    on_other: bool,
}

/// Runs the planned operation if this is its site and its call.
fn reach(site: Site) {
    let plan = PLAN.try_with(Cell::get).ok().flatten();
    let Some(plan) = plan.filter(|plan| plan.site == site) else { return };
    if plan.calls > 0 {
        PLAN.set(Some(Plan { calls: plan.calls - 1, ..plan }));
        return;
    }
    PLAN.set(None);
    let cache = CACHES.with_borrow(|caches| {
        caches.as_ref().expect("set before")[usize::from(plan.on_other)].clone()
    });
    let ended = catch_unwind(AssertUnwindSafe(|| operate(&cache, plan.operation)));
    let ended = ended.map_err(|payload| message(&*payload));
    OUTCOME.with_borrow_mut(|outcome| *outcome = Some(ended));
}

fn operate(cache: &Numbers, operation: Operation) {
    match operation {
        O::Get => drop(cache.get(&Key(SAME))),
        O::GetMany => cache.get_many([Key(SAME), Key(OTHER)].iter(), |_, _| ()),
        O::ContainsKey => _ = cache.contains_key(&Key(SAME)),
        O::Peek => drop(cache.peek(&Key(SAME))),
        O::TimeLeft => _ = cache.time_left(&Key(SAME)),
        O::Iter => _ = cache.iter().count(),
        O::Collect => cache.collect(),
        O::Stats => _ = (cache.stats(), cache.footprint(), cache.len(), cache.weight()),
        O::Insert => _ = cache.insert(Key(OTHER), Value),
        O::InsertSame => _ = cache.insert(Key(SAME), Value),
        O::InsertIf => drop(cache.insert_if(Key(SAME), Value, |_| true)),
        O::Compute => drop(cache.compute(Key(OTHER), |_| Change::Remove)),
        O::Update => _ = cache.update_or_insert_with(Key(SAME), |_| Value, || Value),
        O::Pin => _ = (cache.pin(&Key(SAME)).is_some(), cache.unpin(&Key(OTHER))),
        O::Remove => drop(cache.remove(&Key(SAME))),
        O::RemoveMissing => drop(cache.remove(&Key(OTHER))),
        O::HoldIf => drop(cache.get_locked_if(&Key(SAME), |_| true)),
        O::Retain => cache.retain(|_| true),
        O::InvalidateAll => cache.invalidate_all(),
        O::Purge => cache.purge(),
        O::SetCapacity => cache.set_capacity(100),
        O::LoadOther => drop(cache.get_or_insert_with(Key(OTHER), || Value)),
        O::AsyncLoadOther => drop(block_on(cache.get_or_insert_async(Key(OTHER), async { Value }))),
        O::LoadSame => drop(cache.get_or_insert_with(Key(SAME), || Value)),
        O::AsyncLoadSame => drop(block_on(cache.get_or_insert_async(Key(SAME), async { Value }))),
    }
}

struct Key(u32);

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        reach(Site::Hash);
        reach(Site::HashInGrowth);
        self.0.hash(hasher);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        reach(Site::Eq);
        self.0 == other.0
    }
}
impl Eq for Key {}

struct Value;

impl Clone for Value {
    fn clone(&self) -> Self {
        reach(Site::Clone);
        Self
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        reach(Site::Drop);
    }
}

fn waker() -> Waker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |data| {
            reach(Site::WakerClone);
            RawWaker::new(data, &TABLE)
        },
        |_| reach(Site::Waker),
        |_| reach(Site::Waker),
        |_| (),
    );
    // SAFETY: the functions of the table use no data.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

/// A budget that is used up by two caches, and by a user that gives back what it is asked for.
struct Shared {
    budget: BudgetTree,
    _user: Reclaimer,
}

thread_local! {
    static SHARED: RefCell<Option<Shared>> = const { RefCell::new(None) };
}

/// The amount that the budget's own user holds. It is more than the caches hold, so the user is
/// asked first.
const HELD: u64 = 400;

fn build_within() -> [Arc<Numbers>; 2] {
    let budget = BudgetTree::with_batch(HELD + 8, 0);
    let caches = [(); 2].map(|()| {
        let listener = |_: &Key, _: &Value, _: Cause| {
            reach(Site::Listener);
            reach(Site::ListenerOfRequest);
        };
        let cache = Cache::builder(50).initial_entries(1).listener(listener).build_within(&budget);
        let cache = cache.unwrap();
        (SAME..5).for_each(|key| _ = cache.insert(Key(key), Value));
        cache
    });
    let own = budget.child_with_batch(HELD, 0);
    own.try_charge(HELD).unwrap();
    let user = own.on_reclaim({
        let own = own.clone();
        move |wanted| {
            reach(Site::Reclaim);
            own.release(wanted);
            wanted
        }
    });
    SHARED.set(Some(Shared { budget, _user: user }));
    caches
}

/// Charges more than the user has, so the caches are asked for the rest.
fn ask_caches() {
    SHARED.with_borrow(|shared| {
        let shared = shared.as_ref().expect("built within a budget");
        drop(shared.budget.charge(HELD + 6));
    });
}

fn build(site: Site) -> Arc<Numbers> {
    // The clock is not read for an entry without an end.
    let has_end = matches!(site, Site::ClockUnderLock);
    let end = |site| {
        move |_: &Key, _: &Value| {
            reach(site);
            reach(Site::BareEndUnderLock);
            has_end.then_some(Duration::from_secs(100))
        }
    };
    let builder: Builder<Key, Value> = Cache::builder(50).initial_entries(1);
    let builder = builder
        .listener(|_, _, _: Cause| reach(Site::Listener))
        .weigher(|_, _| {
            reach(Site::Weigher);
            1
        })
        .clock(|| {
            reach(Site::Clock);
            reach(Site::ClockUnderLock);
            Duration::from_secs(1)
        });
    let builder = match site {
        Site::BareEnd | Site::BareEndUnderLock => builder.without_metadata(end(Site::BareEnd)),
        _ => builder.expire_after(end(Site::Expiry)).idle_after(|_, _| {
            reach(Site::IdleAfter);
            None
        }),
    };
    let cache = builder.build().unwrap();
    // If the trigger is a load, its key is missing.
    let from = if matches!(site, Load | AsyncLoad) { SAME + 1 } else { SAME };
    (from..5).for_each(|key| _ = cache.insert(Key(key), Value));
    Arc::new(cache)
}

/// Makes the cache reach the site, with `plan` set before that.
fn trigger(cache: &Numbers, plan: Plan) {
    let arm = |calls| PLAN.set(Some(Plan { calls, ..plan }));
    arm(0);
    match plan.site {
        Site::Hash | Site::Eq | Site::Clock | Site::BareEnd => drop(cache.get(&Key(SAME))),
        Site::Weigher | Site::Expiry | Site::IdleAfter | Site::Listener => {
            _ = cache.insert(Key(SAME), Value)
        }
        Site::Clone => drop(block_on(cache.get_or_insert_async(Key(SAME), async { Value }))),
        Site::HashInGrowth => {
            for key in 5..50 {
                // The first call hashes the key itself.
                arm(1);
                cache.insert(Key(key), Value);
                if PLAN.take().is_none() {
                    return;
                }
            }
        }
        Site::Drop => {
            drop(cache.remove(&Key(2)));
            (0..3).for_each(|_| cache.collect());
        }
        Site::Waker | Site::WakerClone => {
            let ask = || {
                cache.get_or_insert_async(Key(60), async {
                    crate::tasks::yield_once().await;
                    Value
                })
            };
            let (mut leader, mut waits) = (pin!(ask()), pin!(ask()));
            assert!(leader.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(waits.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
            assert!(matches!(leader.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_)));
        }
        Site::ClockUnderLock => drop(cache.get_locked_if(&Key(SAME), |_| true)),
        Site::BareEndUnderLock => drop(cache.get_locked_if(&Key(SAME), |_| true)),
        Site::InsertIf => drop(cache.insert_if(Key(SAME), Value, |_| at(Site::InsertIf))),
        Site::RemoveIf => drop(cache.remove_if(&Key(SAME), |_| at(Site::RemoveIf))),
        Site::Compute => drop(cache.compute(Key(SAME), |_| change(Site::Compute))),
        Site::InsertHeldIf => {
            arm(1);
            drop(cache.insert_locked_if(Key(SAME), Value, |_| at(Site::InsertHeldIf)));
        }
        Site::RemoveHeldIf => {
            arm(1);
            drop(cache.remove_locked_if(&Key(SAME), |_| at(Site::RemoveHeldIf)));
        }
        Site::HoldIf => drop(cache.get_locked_if(&Key(SAME), |_| at(Site::HoldIf))),
        Site::ExpireIf => drop(cache.expire_if(&Key(SAME), None, |_| at(Site::ExpireIf))),
        Site::Retain => cache.retain(|_| at(Site::Retain)),
        Site::Reclaim => _ = cache.insert(Key(6), Value),
        Site::ListenerOfRequest => ask_caches(),
        Site::GetMany => cache.get_many([Key(SAME)].iter(), |_, _| reach(Site::GetMany)),
        Site::VisitMany => {
            cache.visit_many([Key(SAME)].iter(), |_, spot| {
                reach(Site::VisitMany);
                spot.insert(Key(SAME), Value);
            });
        }
        Load => drop(cache.get_or_insert_with(Key(SAME), || {
            reach(Load);
            Value
        })),
        AsyncLoad => drop(block_on(cache.get_or_insert_async(Key(SAME), async {
            reach(AsyncLoad);
            Value
        }))),
    }
}

fn change(site: Site) -> Change<Value> {
    reach(site);
    Change::Put(Value)
}

fn at(site: Site) -> bool {
    reach(site);
    true
}

/// Runs one case. Returns `None` if it works, or the message of its panic.
fn outcome(site: Site, operation: Operation, on_other: bool) -> Option<String> {
    let what = format!("{site:?}, {operation:?}, on another cache: {on_other}");
    let case = what.clone();
    let run = move || {
        let caches = match site {
            Site::Reclaim | Site::ListenerOfRequest => build_within(),
            _ => [build(site), build(site)],
        };
        CACHES.set(Some(caches.clone()));
        trigger(&caches[0], Plan { site, calls: 0, operation, on_other });
        let outcome = OUTCOME.take();
        PLAN.set(None);
        for cache in &caches {
            for key in 0..80 {
                cache.insert(Key(key), Value);
                drop(cache.remove(&Key(key)));
            }
            cache.invalidate_all();
            assert_eq!((cache.len(), cache.weight()), (0, 0), "{case}: something is left");
        }
        outcome.unwrap_or_else(|| panic!("{case}: the site was not reached"))
    };
    println!("{what}");
    within(20, run).err()
}

const REFUSED: &str = "manycore: a callback that runs under a cache's lock updates the same cache";
const OWN_KEY: &str = "manycore: the load of a cached value asks for the same key";

/// Returns the table's word for a group.
fn word(site: Site, group: &[Operation], on_other: bool) -> &'static str {
    let all: Vec<_> = group.iter().map(|one| (one, outcome(site, *one, on_other))).collect();
    let (_, first) = &all[0];
    assert!(all.iter().all(|(_, other)| other == first), "{site:?}: {all:?}");
    match first.as_deref() {
        None => "works",
        Some(REFUSED) => "panics (1)",
        Some(OWN_KEY) => "panics (2)",
        Some(other) => panic!("{site:?}: {other}"),
    }
}

#[test]
fn every_callback_with_every_operation_is_as_the_table_says() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if ![REFUSED, OWN_KEY].contains(&&*message(info.payload())) {
            hook(info);
        }
    }));
    let mut table = String::from(
        "| In | reads | updates | load of another key | blocking, async load of the same key | \
         all on another cache |\n|---|---|---|---|---|---|\n",
    );
    for (site, name) in SITES {
        let [reads, updates, other, same, same_async] =
            GROUPS.map(|group| word(site, group, false));
        let elsewhere = GROUPS.concat();
        let elsewhere = word(site, &elsewhere, true);
        let same = if same == same_async { same.into() } else { format!("{same}, {same_async}") };
        table += &format!("| {name} | {reads} | {updates} | {other} | {same} | {elsewhere} |\n");
    }
    println!("{table}");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cache.md");
    let page = std::fs::read_to_string(page).expect("the page with the table");
    assert!(page.contains(&table), "docs/cache.md has another table than:\n{table}");
}

/// Callbacks under the locks of two caches update each other's cache: one of them panics.
#[test]
fn callbacks_that_update_each_others_caches_panic_instead_of_waiting_for_ever() {
    let caches = [build(Site::Hash), build(Site::Hash)];
    let both_hold = Arc::new(Barrier::new(2));
    let (send, receive) = mpsc::channel();
    for own in 0..2 {
        let (caches, both_hold, send) = (caches.clone(), both_hold.clone(), send.clone());
        thread::spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                drop(caches[own].get_locked_if(&Key(SAME), |_| {
                    both_hold.wait();
                    caches[1 - own].insert(Key(SAME), Value);
                    true
                }));
            }));
            send.send(ended.map_err(|payload| message(&*payload))).unwrap();
        });
    }
    let ended = [(); 2].map(|()| receive.recv_timeout(Duration::from_secs(30)).expect("a hang"));
    let gave_up = |ended: &Result<(), String>| {
        ended.as_ref().is_err_and(|sentence| sentence.contains("update each other's caches"))
    };
    assert!(ended.iter().any(gave_up), "{ended:?}");
    for cache in &caches {
        cache.insert(Key(SAME), Value);
    }
}

#[cfg(unix)]
#[test]
fn caches_in_the_child_of_a_fork_are_as_the_table_says() {
    let tests: &[fn()] = &[
        every_callback_with_every_operation_is_as_the_table_says,
        callbacks_that_update_each_others_caches_panic_instead_of_waiting_for_ever,
    ];
    let name = "caches_in_the_child_of_a_fork_are_as_the_table_says";
    crate::process::again_in_children(name, tests);
}
