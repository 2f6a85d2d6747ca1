//! A user's log that panics at the n-th call of any of its functions, for all n, in everything that
//! an object does.
//!
//! No other update is lost, and no lock stays held. A thread that runs another object's eviction
//! goes on.
//!
//! The account: every appended update was applied, or was dropped by the call that panicked while
//! it held the update. In the second case a caller was told, by a panic or by poison.

use crate::common::watchdog::ends;
use manycore::clock::Stamp;
use manycore::cluster::Adaptive;
use manycore::cluster::adaptive::Mode;
use manycore::oplog::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Default,
    Push,
    Len,
    Collect,
    Absorb,
    Merge,
    Apply,
    Drop,
}

const CALLS: [Call; 8] = [
    Call::Default,
    Call::Push,
    Call::Len,
    Call::Collect,
    Call::Absorb,
    Call::Merge,
    Call::Apply,
    Call::Drop,
];

/// The kind of call that panics, and how many calls of its kind come before. One fault at a time.
static KIND: AtomicUsize = AtomicUsize::new(usize::MAX);
static LEFT: AtomicI64 = AtomicI64::new(-1);
/// Held by a test while it uses the fault, which all tests of this file share.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Prevents planned panics, and messages about poison, from being printed.
fn be_quiet() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<String>().map(String::as_str);
        let said = said.or(info.payload().downcast_ref::<&str>().copied()).unwrap_or_default();
        if !said.contains("planned") && !said.contains("poisoned") {
            print(info);
        }
    }));
}

fn arm(call: Call, before: i64) {
    LEFT.store(before, SeqCst);
    KIND.store(call as usize, SeqCst);
}

/// Takes the fault away. Returns whether it happened.
fn disarm() -> bool {
    KIND.store(usize::MAX, SeqCst);
    LEFT.load(SeqCst) < 0
}

fn fault(call: Call) {
    if KIND.load(SeqCst) == call as usize && LEFT.fetch_sub(1, SeqCst) == 0 {
        KIND.store(usize::MAX, SeqCst);
        panic!("planned: {call:?}");
    }
}

/// How many updates were appended, applied and dropped.
#[derive(Default)]
struct Account {
    appended: AtomicU64,
    applied: AtomicU64,
    dropped: AtomicU64,
}

struct Ticket {
    account: Arc<Account>,
    is_applied: bool,
}

impl Ticket {
    fn new(account: &Arc<Account>) -> Self {
        account.appended.fetch_add(1, SeqCst);
        Self { account: Arc::clone(account), is_applied: false }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let sum = if self.is_applied { &self.account.applied } else { &self.account.dropped };
        sum.fetch_add(1, SeqCst);
    }
}

struct Faulty<const ORDERED: bool>(Vec<Ticket>);

impl<const ORDERED: bool> Default for Faulty<ORDERED> {
    fn default() -> Self {
        fault(Call::Default);
        Self(Vec::new())
    }
}

impl<const ORDERED: bool> Drop for Faulty<ORDERED> {
    fn drop(&mut self) {
        fault(Call::Drop);
    }
}

impl<const ORDERED: bool> Log<u64> for Faulty<ORDERED> {
    type Op = Ticket;
    const ORDERED: bool = ORDERED;

    fn apply(mut ticket: Ticket, sum: &mut u64) {
        fault(Call::Apply);
        ticket.is_applied = true;
        *sum += 1;
    }
    fn push(&mut self, ticket: Ticket, _: Stamp) {
        fault(Call::Push);
        self.0.push(ticket);
    }
    fn len(&self) -> usize {
        fault(Call::Len);
        self.0.len()
    }
    fn collect(&mut self, _: Stamp, into: &mut Self) {
        // Half of it is moved when it panics.
        let half = self.0.len() / 2;
        into.0.extend(self.0.drain(..half));
        fault(Call::Collect);
        into.0.append(&mut self.0);
    }
    fn absorb(&mut self, other: &mut Self) {
        fault(Call::Absorb);
        self.0.append(&mut other.0);
    }
    fn merge(logs: &mut [Self], sum: &mut u64) -> usize {
        fault(Call::Merge);
        let mut merged = 0;
        for log in logs {
            while let Some(ticket) = log.0.pop() {
                <Self as Log<u64>>::apply(ticket, sum);
                merged += 1;
            }
        }
        merged
    }
}

type Object<const ORDERED: bool> = Deferred<u64, Faulty<ORDERED>>;

/// An act on the object while the fault is armed. The second object is a newcomer to the first
/// object's place in the table.
type Act<const ORDERED: bool> = fn(&mut Object<ORDERED>, &Object<ORDERED>, &Arc<Account>);

/// Whether the act may end with the panic. An eviction may not, because it is part of another
/// object's operation.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    Here,
    Never,
}

fn acts<const ORDERED: bool>() -> [(&'static str, Told, Act<ORDERED>); 11] {
    [
        ("read", Told::Here, |object, _, _| drop(object.read())),
        ("synchronize twice", Told::Here, |object, _, _| {
            object.synchronize();
            object.synchronize();
        }),
        ("demotion", Told::Here, |object, _, _| object.demote()),
        ("idle demotion", Told::Here, |object, _, _| (0..12).for_each(|_| object.synchronize())),
        ("eviction", Told::Never, |object, other, _| {
            assert!(other.promote(), "the newcomer has the place");
            let _ = object.is_poisoned();
        }),
        ("eviction, then an update", Told::Here, |object, other, account| {
            other.promote();
            object.append(Ticket::new(account));
        }),
        ("get_mut", Told::Here, |object, _, _| assert!(*object.get_mut() <= 20)),
        ("stats", Told::Here, |object, _, _| assert!(object.stats().appended <= 20)),
        ("append", Told::Here, |object, _, account| object.append(Ticket::new(account))),
        ("append to full logs", Told::Here, |object, _, account| {
            (0..8).for_each(|_| object.append(Ticket::new(account)));
        }),
        ("promotion", Told::Here, |object, _, account| {
            object.demote();
            object.promote();
            object.append(Ticket::new(account));
        }),
    ]
}

/// Runs one round with a fault. Returns whether the fault happened.
fn round<const ORDERED: bool>(
    (name, told, act): (&'static str, Told, Act<ORDERED>),
    merge: MergeStrategy,
    call: Call,
    before: i64,
) -> bool {
    let what = format!("{name}, ordered: {ORDERED}, {merge:?}, {call:?} after {before}");
    let account = Arc::new(Account::default());
    let builder =
        Object::<ORDERED>::builder().table(Arc::new(LogTable::new(1))).merge(merge).max_entries(6);
    let (mut object, other) = (builder.build(0).unwrap(), builder.build(0).unwrap());
    assert!(object.promote());
    let append_from = |object: &Object<ORDERED>, updates: usize| {
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..updates).for_each(|_| object.append(Ticket::new(&account))));
            }
        });
    };
    append_from(&object, 4);
    arm(call, before);
    let ended = catch_unwind(AssertUnwindSafe(|| act(&mut object, &other, &account)));
    let came = disarm();
    assert!(ended.is_ok() || (came && told == Told::Here), "{what}: told the wrong thread");
    let mut is_told = ended.is_err() || object.is_poisoned();
    append_from(&object, 1);
    object.clear_poison();
    object.synchronize();
    is_told |= object.is_poisoned();
    let queued = object.stats().pending;
    let dropped = account.dropped.load(SeqCst);
    let applied = account.applied.load(SeqCst);
    assert_eq!(queued, 0, "{what}: a read applies what is queued");
    assert_eq!(applied + dropped, account.appended.load(SeqCst), "{what}: updates are lost");
    assert_eq!(applied, object.into_inner(), "{what}");
    let may_drop = matches!(call, Call::Apply | Call::Push | Call::Len | Call::Default);
    assert!(dropped <= u64::from(came && may_drop), "{what}: {dropped} updates are lost");
    assert!(dropped == 0 || is_told, "{what}: an update went without a word");
    came
}

/// Runs every fault in every act, each until it no longer happens. Returns how many happened.
fn all_rounds<const ORDERED: bool>() -> usize {
    let mut faults = 0;
    for act in acts::<ORDERED>() {
        for merge in [MergeStrategy::Flat, MergeStrategy::Tree] {
            for call in CALLS {
                faults += (0..).take_while(|before| round(act, merge, call, *before)).count();
            }
        }
    }
    faults
}

#[test]
fn logs_that_panic_lose_no_other_update() {
    ends("faults", || {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        be_quiet();
        let (unordered, ordered) = (all_rounds::<false>(), all_rounds::<true>());
        assert!(unordered > 150 && ordered > 150, "few faults came: {unordered}, {ordered}");
    });
}

/// The same test for an adaptive object that changes its mode, with its own updates besides.
#[test]
fn adaptive_objects_lose_no_other_update_to_a_panic() {
    ends("adaptive faults", || {
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        be_quiet();
        let modes = [Mode::Direct, Mode::Logs, Mode::Shared];
        for (from, to) in modes.into_iter().flat_map(|from| modes.map(|to| (from, to))) {
            for call in CALLS {
                for before in 0.. {
                    let account = Arc::new(Account::default());
                    let object = Adaptive::<u64, Faulty<false>>::new(0);
                    assert!(object.pin(from));
                    let append = || object.update(Ticket::new(&account));
                    arm(call, before);
                    let mut told = 0;
                    for _ in 0..4 {
                        told += u64::from(catch_unwind(AssertUnwindSafe(append)).is_err());
                        // Under a guard: deferred, or logged.
                        let guard = catch_unwind(AssertUnwindSafe(|| object.try_read()));
                        told += u64::from(guard.is_err());
                        told += u64::from(catch_unwind(AssertUnwindSafe(append)).is_err());
                        drop(guard);
                    }
                    let pinned = catch_unwind(AssertUnwindSafe(|| object.pin(to)));
                    let read = catch_unwind(AssertUnwindSafe(|| drop(object.read())));
                    let came = disarm();
                    told += u64::from(pinned.is_err() || read.is_err());
                    object.repair(|_| ());
                    drop(object.read());
                    let applied = account.applied.load(SeqCst);
                    let dropped = account.dropped.load(SeqCst);
                    let what = format!("{from:?} to {to:?}, {call:?} after {before}");
                    assert_eq!(applied + dropped, account.appended.load(SeqCst), "{what}");
                    assert_eq!(object.into_inner(), applied, "{what}");
                    assert!(dropped <= u64::from(came), "{what}: {dropped} lost");
                    assert!(dropped == 0 || told > 0, "{what}: no caller was told");
                    if !came {
                        break;
                    }
                }
            }
        }
    });
}

/// An update that adds its number, or panics.
struct Number(u32);

impl Op<Vec<u32>> for Number {
    fn apply(self, list: &mut Vec<u32>) {
        assert!(self.0 != 666, "planned");
        list.push(self.0);
    }
}

type List = Deferred<Vec<u32>, Ordered<Number>>;

/// Makes a list with logs, in which a panicking update lies between others. The list has its own
/// table: otherwise an eviction for another test's object would apply the update.
fn with_a_bad_update() -> List {
    let list = List::builder().table(Arc::new(LogTable::new(1))).build(Vec::new()).unwrap();
    assert!(list.promote());
    [1, 666, 2].into_iter().for_each(|number| list.append(Number(number)));
    thread::scope(|scope| drop(scope.spawn(|| list.append(Number(3)))));
    list
}

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(f)).is_err()
}

#[test]
fn get_mut_of_a_poisoned_object_leaves_the_queue() {
    let mut list = with_a_bad_update();
    assert!(panics(|| drop(list.read())));
    list.append(Number(4));
    assert_eq!(*list.get_mut(), [1], "as the panic left it");
    assert!(list.is_poisoned());
    list.append(Number(5));
    list.get_mut().push(0);
    list.clear_poison();
    assert_eq!(*list.read(), [1, 0, 2, 3, 4, 5]);
}

#[test]
fn get_mut_that_panics_leaves_the_queue() {
    let mut list = with_a_bad_update();
    assert!(panics(|| list.get_mut().len()));
    assert!(list.is_poisoned());
    assert_eq!(*list.get_mut(), [1]);
    let mut moved = list; // the object moves; its value and its queue are elsewhere
    moved.clear_poison();
    assert_eq!(*moved.get_mut(), [1, 2, 3]);
    assert_eq!(moved.into_inner(), [1, 2, 3]);
}

#[test]
fn into_inner_of_a_poisoned_object_is_refused() {
    let list = with_a_bad_update();
    assert!(panics(|| drop(list.read())));
    let list = list.try_into_inner().expect_err("poisoned");
    list.clear_poison();
    assert_eq!(list.try_into_inner().unwrap(), [1, 2, 3]);
    let list = with_a_bad_update();
    assert!(panics(|| drop(list.read())));
    assert!(panics(|| list.into_inner()), "says that updates are dropped");
    let cold = List::new(Vec::new());
    assert!(panics(|| cold.append(Number(666))));
    assert!(cold.try_into_inner().is_err());
}

#[test]
fn eviction_of_a_poisoned_object_leaves_the_queue() {
    let builder = List::builder().table(Arc::new(LogTable::new(1)));
    let (list, newcomer) = (builder.build(vec![]).unwrap(), builder.build(vec![]).unwrap());
    assert!(list.promote());
    [1, 666, 2].into_iter().for_each(|number| list.append(Number(number)));
    assert!(panics(|| drop(list.read())));
    list.append(Number(3));
    assert!(newcomer.promote());
    list.append(Number(4));
    list.clear_poison();
    assert_eq!(*list.read(), [1, 2, 3, 4]);
}

#[test]
fn poisoned_adaptive_objects_keep_what_waits() {
    for mode in [Mode::Direct, Mode::Logs, Mode::Shared] {
        let mut list = Adaptive::<Vec<u32>, Ordered<Number>>::new(Vec::new());
        assert!(list.pin(mode));
        list.update(Number(1));
        let bad = panics(|| {
            list.update(Number(666));
            list.update(Number(2));
            drop(list.read());
        });
        assert!(bad && list.is_poisoned(), "{mode:?}");
        list.update(Number(3));
        assert_eq!(*list.get_mut(), [1], "{mode:?}");
        list.repair(|list| list.push(0));
        let found = list.into_inner();
        let expected: &[u32] = if mode == Mode::Logs { &[1, 0, 2, 3] } else { &[1, 0, 3] };
        assert_eq!(found, expected, "{mode:?}");
    }
}
