//! Budgets that ask users for memory: which users, for how much, and what hostile callbacks can do.

use crate::common::env;
use crate::common::rng::Rng;
use crate::common::watchdog::ends;
use manycore::collections::{BudgetTree, Charge, Reclaimer};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SHARE: Duration = Duration::from_millis(200);

/// A user that holds charges and gives the oldest back when asked.
struct Cache {
    budget: BudgetTree,
    charges: Arc<Mutex<Vec<Charge>>>,
    asked: Arc<Mutex<Vec<u64>>>,
    reclaimer: Reclaimer,
}

impl Cache {
    fn new(parent: &BudgetTree, charges: u64, each: u64) -> Self {
        let budget = parent.child_with_batch(u64::MAX, 0);
        let held: Arc<Mutex<Vec<Charge>>> = Arc::default();
        held.lock().unwrap().extend((0..charges).map(|_| budget.charge(each).unwrap()));
        let asked: Arc<Mutex<Vec<u64>>> = Arc::default();
        let reclaimer = budget.on_reclaim({
            let (held, asked) = (Arc::clone(&held), Arc::clone(&asked));
            move |wanted| {
                asked.lock().unwrap().push(wanted);
                let mut given = 0;
                while given < wanted {
                    let Some(charge) = held.lock().unwrap().pop() else { break };
                    given += charge.amount();
                }
                given
            }
        });
        Self { budget, charges: held, asked, reclaimer }
    }

    fn asked(&self) -> Vec<u64> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

#[test]
fn largest_user_is_asked_first_and_only_for_what_is_missing() {
    let top = BudgetTree::with_batch(100, 0);
    let (small, large) = (Cache::new(&top, 30, 1), Cache::new(&top, 60, 1));
    let idle = top.charge(10).unwrap();
    assert_eq!((small.asked(), large.asked()), (vec![], vec![]), "idle credits suffice");
    let first = top.charge(7).unwrap();
    assert_eq!((small.asked(), large.asked()), (vec![], vec![7]));
    let rest = top.charge(80).unwrap(); // of 83
    assert_eq!((small.asked(), large.asked()), (vec![27], vec![53]));
    assert!(top.charge(4).is_err(), "no more than there is");
    assert_eq!(small.asked(), [3]);
    assert_eq!((small.budget.used(), top.used()), (0, 97));
    drop((idle, first, rest));
    assert_eq!(top.used(), 0);
}

#[test]
fn user_with_the_fewest_recent_uses_for_what_it_holds_is_asked_first() {
    let top = BudgetTree::with_batch(100, 0);
    let (busy, quiet) = (Cache::new(&top, 60, 1), Cache::new(&top, 40, 1));
    busy.reclaimer.note_uses(1000);
    quiet.reclaimer.note_uses(100);
    drop(top.charge(5).unwrap());
    assert_eq!((busy.asked(), quiet.asked()), (vec![], vec![5]));
    // Uses of long ago are forgotten.
    quiet.reclaimer.note_uses(100);
    let mut requests = 0;
    while busy.asked().is_empty() {
        quiet.budget.try_charge(5).unwrap();
        quiet.charges.lock().unwrap().push(quiet.budget.charge(0).unwrap());
        quiet.reclaimer.note_uses(500);
        let _charge = top.charge(1);
        quiet.asked();
        requests += 1;
        assert!(requests < 60, "a user that is not used any more keeps all");
    }
}

#[test]
fn user_within_its_share_is_asked_last() {
    let top = BudgetTree::with_batch(100, 0);
    let (guarded, other) = (Cache::new(&top, 60, 1), Cache::new(&top, 40, 1));
    guarded.reclaimer.set_share(55);
    other.reclaimer.set_share(10);
    other.reclaimer.note_uses(1_000_000);
    let charge = top.charge(20).unwrap();
    assert_eq!((guarded.asked(), other.asked()), (vec![5], vec![15]));
    let more = top.charge(50).unwrap(); // 15 beyond the other's share
    assert_eq!((guarded.asked(), other.asked()), (vec![35], vec![15]));
    drop((charge, more));
}

#[test]
fn only_users_below_the_limit_in_the_way_are_asked() {
    let top = BudgetTree::with_batch(100, 0);
    let left = top.child_with_batch(50, 0);
    let (inner, outer) = (Cache::new(&left, 50, 1), Cache::new(&top, 45, 1));
    let charge = left.charge(10).unwrap();
    assert_eq!((inner.asked(), outer.asked()), (vec![10], vec![]));
    // The top is short now by five: the larger of both is asked, which the left limit ignores.
    let more = top.charge(10).unwrap();
    assert_eq!((inner.asked(), outer.asked()), (vec![], vec![5]));
    drop((charge, more));
}

#[test]
fn batch_is_asked_for_so_that_not_every_charge_asks() {
    let top = BudgetTree::with_batch(1000, 50);
    let cache = Cache::new(&top, 1000, 1);
    let charges: Vec<Charge> = (0..100).map(|_| top.charge(1).unwrap()).collect();
    let asked = cache.asked();
    assert!(asked.len() <= 3 && asked.iter().sum::<u64>() <= 150, "{asked:?}");
    drop(charges);
}

#[test]
fn lowered_limit_asks_users_and_refuses_charges_until_it_holds() {
    let top = BudgetTree::with_batch(100, 4);
    let cache = Cache::new(&top, 40, 1);
    let child = top.child_with_batch(100, 8);
    let mut charges: Vec<Charge> = (0..50).map(|_| child.charge(1).unwrap()).collect();
    assert_eq!(top.set_limit(60), 0);
    assert!(cache.budget.used() <= 10 && top.used() <= 60);
    assert_eq!(top.set_limit(20), 30);
    assert_eq!((cache.budget.used(), top.limit(), top.used()), (0, 20, 50));
    while charges.len() > 20 {
        charges.pop();
        assert!(child.charge(1).is_err() || charges.len() < 20, "{} are charged", charges.len());
        assert_eq!(top.used(), charges.len() as u64);
    }
    charges.pop();
    charges.push(child.charge(1).unwrap());
    assert!(child.charge(1).is_err());
    assert_eq!(top.set_limit(100), 0);
    drop(child.charge(80).unwrap());
    drop(charges);
    top.charge(100).map(drop).unwrap();
}

#[test]
fn wrong_answers_change_nothing_but_how_often_a_user_is_asked() {
    for (answer, most) in [(0, 1), (u64::MAX, 64)] {
        let top = BudgetTree::with_batch(100, 0);
        let user = top.child_with_batch(100, 0);
        user.try_charge(100).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let liar = user.on_reclaim(move |_| {
            count.fetch_add(1, SeqCst);
            answer
        });
        assert!(top.charge(1).is_err());
        assert_eq!(asked.load(SeqCst), most);
        assert_eq!(top.used(), 100);
        drop(liar);
        assert!(top.charge(1).is_err());
        assert_eq!(asked.load(SeqCst), most, "an unregistered user is not asked");
    }
}

/// Another charge takes everything that the user gives, again and again. The user is asked for as
/// long as it gives.
#[test]
fn charge_is_not_refused_because_others_got_what_was_given() {
    let top = BudgetTree::with_batch(100, 0);
    let (user, other) = (top.child_with_batch(100, 0), top.child_with_batch(100, 0));
    user.try_charge(100).unwrap();
    let taken = AtomicU64::new(0);
    let (own, rival) = (user.clone(), other.clone());
    let reclaimer = user.on_reclaim(move |wanted| {
        own.release(wanted);
        if taken.fetch_add(1, SeqCst) < 20 {
            rival.try_charge(wanted).unwrap();
        }
        wanted
    });
    top.try_charge(1).unwrap();
    assert_eq!((user.used(), other.used(), top.used()), (79, 20, 100));
    drop(reclaimer);
}

#[test]
fn panic_of_a_callback_reaches_the_charge_and_leaves_nothing_charged() {
    let top = BudgetTree::with_batch(100, 0);
    let user = top.child_with_batch(100, 0);
    user.try_charge(90).unwrap();
    let wild = AtomicBool::new(true);
    let own = user.clone();
    let reclaimer = user.on_reclaim(move |wanted| {
        own.release(1);
        assert!(!wild.swap(false, SeqCst), "planned");
        own.release(wanted);
        wanted
    });
    assert!(catch_unwind(AssertUnwindSafe(|| top.charge(20))).is_err());
    assert_eq!((top.used(), user.used()), (89, 89), "the release counts, the charge does not");
    top.charge(20).map(drop).unwrap();
    drop(reclaimer);
    assert_eq!(top.used(), user.used());
}

/// A callback that charges, releases, sets limits, and registers and unregisters itself and others.
#[test]
fn callbacks_may_use_the_tree() {
    ends("BudgetTree: a reclaim callback", || {
        let top = BudgetTree::with_batch(100, 0);
        let (first, second) = (Cache::new(&top, 40, 1), Cache::new(&top, 30, 1));
        second.reclaimer.note_uses(1 << 40);
        let busy = top.child_with_batch(100, 0);
        busy.try_charge(30).unwrap();
        let slot: Arc<Mutex<Option<Reclaimer>>> = Arc::default();
        let others = Mutex::new(Some(second));
        let (own, all, mine) = (busy.clone(), top.clone(), Arc::clone(&slot));
        let reclaimer = busy.on_reclaim(move |wanted| {
            let charge = all.charge(5).unwrap(); // asks others, never this one
            assert_eq!(all.set_limit(90), 0);
            all.set_limit(100);
            drop(all.on_reclaim(|_| 0));
            drop(others.lock().unwrap().take());
            drop(mine.lock().unwrap().take()); // this one
            drop(charge);
            own.release(wanted.min(30));
            wanted
        });
        first.reclaimer.note_uses(1 << 40);
        *slot.lock().unwrap() = Some(reclaimer);
        let charge = top.charge(1).unwrap();
        assert!(slot.lock().unwrap().is_none(), "the callback was asked");
        drop(charge);
        drop(first);
        assert!(top.used() <= 30);
    });
}

/// A charge that waits for a callback in another thread does not ask for the same memory again. If
/// the callback does not end, the charge is refused at last.
#[test]
fn charges_beside_a_callback_wait_for_it_with_a_limit() {
    let top = BudgetTree::with_batch(100, 0);
    let user = top.child_with_batch(100, 0);
    user.try_charge(100).unwrap();
    let (entered, is_entered) = channel();
    let (go, may_go) = channel::<()>();
    let (entered, may_go) = (Mutex::new(entered), Mutex::new(may_go));
    let asked = Arc::new(AtomicU64::new(0));
    let (own, sum) = (user.clone(), Arc::clone(&asked));
    let reclaimer = user.on_reclaim(move |wanted| {
        sum.fetch_add(wanted, SeqCst);
        entered.lock().unwrap().send(()).unwrap();
        may_go.lock().unwrap().recv().unwrap();
        own.release(wanted + 10);
        wanted
    });
    thread::scope(|scope| {
        scope.spawn(|| top.try_charge(20).unwrap());
        is_entered.recv().unwrap();
        let started = Instant::now();
        assert!(top.try_charge(10).is_err(), "the callback does not end");
        assert!(started.elapsed() >= Duration::from_secs(2), "it waited");
        go.send(()).unwrap();
    });
    // The surplus that it gave before suffices.
    top.try_charge(10).unwrap();
    assert_eq!(asked.load(SeqCst), 20);
    drop(reclaimer);
}

#[test]
fn drop_of_a_reclaimer_waits_for_a_call_in_another_thread() {
    let top = BudgetTree::with_batch(10, 0);
    top.try_charge(10).unwrap();
    let (entered, is_entered) = channel();
    let entered = Mutex::new(entered);
    let over = Arc::new(AtomicBool::new(false));
    let (own, ends) = (top.clone(), Arc::clone(&over));
    let reclaimer = top.on_reclaim(move |wanted| {
        entered.lock().unwrap().send(()).unwrap();
        (0..1000).for_each(|_| thread::yield_now());
        own.release(wanted);
        ends.store(true, SeqCst);
        wanted
    });
    thread::scope(|scope| {
        scope.spawn(|| top.try_charge(1).unwrap());
        is_entered.recv().unwrap();
        drop(reclaimer);
        assert!(over.load(SeqCst), "unregistered beside a call");
    });
}

const LIMIT: u64 = 1000;

/// The amount charged, by the test's own count, and the amount that users gave back.
#[derive(Default)]
struct Oracle {
    charged: AtomicU64,
    reclaimed: AtomicU64,
}

impl Oracle {
    fn take(&self, budget: &BudgetTree, amount: u64) -> Option<Charge> {
        let charge = budget.charge(amount).ok()?;
        let sum = self.charged.fetch_add(amount, SeqCst) + amount;
        assert!(sum <= LIMIT, "{sum} are charged");
        Some(charge)
    }

    /// Others may charge what is released: so it is out of the sum before.
    fn release(&self, charge: Charge) {
        self.charged.fetch_sub(charge.amount(), SeqCst);
        drop(charge);
    }
}

struct StressUser {
    level: BudgetTree,
    held: Arc<Mutex<Vec<Charge>>>,
    reclaimer: Reclaimer,
}

impl StressUser {
    fn new(top: &BudgetTree, batch: u64, oracle: &Arc<Oracle>) -> Self {
        let level = top.child_with_batch(LIMIT, batch);
        let held: Arc<Mutex<Vec<Charge>>> = Arc::default();
        let (own, oracle, is_inside) =
            (Arc::clone(&held), Arc::clone(oracle), AtomicBool::new(false));
        let reclaimer = level.on_reclaim(move |wanted| {
            assert!(!is_inside.swap(true, SeqCst), "a user is asked twice at once");
            let mut given = 0;
            while given < wanted {
                let Some(charge) = own.lock().unwrap().pop() else { break };
                given += charge.amount();
                oracle.release(charge);
            }
            oracle.reclaimed.fetch_add(given, SeqCst);
            is_inside.store(false, SeqCst);
            given
        });
        Self { level, held, reclaimer }
    }
}

/// Fills a user, or takes a large charge that needs reclaim. Returns true if the large charge was
/// granted.
fn stress(rng: &mut Rng, top: &BudgetTree, users: &[StressUser], oracle: &Oracle) -> bool {
    let user = &users[rng.below(users.len())];
    user.reclaimer.note_uses(rng.below(3) as u64);
    if let Some(charge) = oracle.take(&user.level, 1 + rng.below(20) as u64) {
        user.held.lock().unwrap().push(charge);
    }
    if rng.below(4) != 0 {
        return false;
    }
    let large = oracle.take(top, 100 + rng.below(100) as u64);
    large.map(|charge| oracle.release(charge)).is_some()
}

/// Threads fill users and take large charges, while the limit moves.
#[test]
fn reclaim_under_stress_passes_no_limit_and_loses_nothing() {
    let _alone = env::alone();
    for batch in [0, 13] {
        let until = env::soak(SHARE);
        let top = BudgetTree::with_batch(LIMIT, batch);
        let oracle = Arc::new(Oracle::default());
        let users: Vec<_> = (0..3).map(|_| StressUser::new(&top, batch, &oracle)).collect();
        let (is_over, large) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            for thread in 0..3 {
                let (top, users, oracle) = (&top, &users, &oracle);
                let (is_over, large) = (&is_over, &large);
                scope.spawn(move || {
                    let mut rng = Rng::part(env::seed(), thread);
                    while !is_over.load(SeqCst) {
                        let is_charged = stress(&mut rng, top, users, oracle);
                        large.fetch_add(usize::from(is_charged), SeqCst);
                        if thread == 0 && rng.below(20) == 0 {
                            top.set_limit(LIMIT / 2 * (1 + rng.below(2) as u64));
                        }
                    }
                });
            }
            while Instant::now() < until && large.load(SeqCst) < 20_000 {
                thread::sleep(Duration::from_millis(1));
            }
            is_over.store(true, SeqCst);
        });
        let given = oracle.reclaimed.load(SeqCst);
        assert!(given > 0 && large.load(SeqCst) > 0, "the users were asked");
        assert_eq!(top.set_limit(LIMIT), 0);
        assert_eq!(top.used(), oracle.charged.load(SeqCst), "credits were lost");
        for user in users {
            drop(user.reclaimer);
            user.held.lock().unwrap().drain(..).for_each(|charge| oracle.release(charge));
        }
        assert_eq!((top.used(), oracle.charged.load(SeqCst)), (0, 0));
        top.charge(LIMIT).map(drop).unwrap();
    }
}
