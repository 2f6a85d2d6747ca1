//! The profile ranks objects by the waits for them, names the line that waited, and counts only
//! real waits.
//!
//! The tests take turns, because there is one profile for the whole program. Other tests run beside
//! them and wait for other things, so only waits in lines of this file are checked.

use crate::common::env;
use manycore::cluster::Adaptive;
use manycore::collections::{DHash, ReplicatedMap};
use manycore::lock::{BrLock, McsLock, TicketLock};
use manycore::oplog::{Commuting, Deferred, Op};
use manycore::profile::{self, HotObject};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

struct Add;

impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += 1;
    }
}

/// Returns the objects that lines of this file have waited for, the hottest first.
fn own(profile: &profile::Profile) -> Vec<&HotObject> {
    let is_here = |site: &profile::CallSite| site.location.is_some_and(|at| at.file() == file!());
    let all = profile.hottest(usize::MAX).iter();
    all.filter(|hot| hot.call_sites.iter().any(is_here)).collect()
}

/// Runs `wait` in another thread while this thread holds the object, for at least `time`.
///
/// Repeats until the profile reports a wait. (A thread that does not get to run for so long finds
/// everything free.) `hold` holds the object while it runs its argument.
fn meet(time: Duration, hold: impl Fn(&dyn Fn()), wait: impl Fn() + Sync) {
    let waits = || own(&profile::read()).iter().map(|hot| hot.waits).sum::<u64>();
    let before = waits();
    for _ in 0..200 {
        thread::scope(|scope| {
            hold(&|| {
                let (begins, begun) = mpsc::channel();
                let wait = &wait;
                scope.spawn(move || {
                    begins.send(()).unwrap();
                    wait();
                });
                begun.recv().unwrap();
                thread::sleep(time);
            });
        });
        if !profile::is_on() || waits() > before {
            return;
        }
    }
    panic!("no thread ever waited");
}

/// Returns the named object's line in the profile.
fn find<'a>(profile: &'a profile::Profile, name: &str) -> Option<&'a HotObject> {
    profile.hottest(usize::MAX).iter().find(|hot| hot.name == Some(name))
}

const SHORT: Duration = Duration::from_millis(15);

#[test]
fn hot_lock_is_first_and_its_line_is_named() {
    let _alone = env::alone();
    let ticket = TicketLock::new(0);
    let (mcs, idle) = (McsLock::new(0), McsLock::new(0));
    let _names =
        [profile::name(&mcs, "warm"), profile::name(&ticket, "hot"), profile::name(&idle, "idle")];
    profile::start();
    let hold = |meanwhile: &dyn Fn()| {
        let _held = mcs.lock();
        meanwhile();
    };
    meet(SHORT, hold, || drop(mcs.lock()));
    let line = line!() + 9;
    let hold = |meanwhile: &dyn Fn()| {
        let _held = ticket.lock();
        meanwhile();
    };
    // The first wait may have been long: a preempted thread may get its core back late.
    while find(&profile::read(), "hot").map(|hot| hot.time)
        <= find(&profile::read(), "warm").map(|warm| warm.time)
    {
        meet(SHORT, hold, || drop(ticket.lock()));
    }
    *idle.lock() += 1;
    profile::stop();
    let waits = profile::read();
    println!("{waits}");
    let [hot, warm] = own(&waits)[..] else { panic!("two were waited for: {waits}") };
    assert_eq!((hot.name, hot.kind), (Some("hot"), "TicketLock"));
    assert_eq!((warm.name, warm.kind, warm.waits), (Some("warm"), "McsLock", 1));
    assert!(hot.waits > 0 && hot.time > warm.time && hot.longest <= hot.time, "{hot:?}");
    assert!((hot.waits..=2 * hot.waits).contains(&hot.handoffs), "{hot:?}");
    let place = hot.call_sites[0].location.unwrap();
    assert_eq!((place.file(), place.line(), hot.call_sites.len()), (file!(), line, 1));
    assert!(find(&waits, "idle").is_none(), "no thread waited for it");
    assert!(waits.time() >= 2 * SHORT && waits.uncounted() == 0);
    assert!(waits.to_string().contains("hot (TicketLock)"));
}

#[test]
fn every_object_that_is_waited_for_says_what_it_is_and_who_waited() {
    let _alone = env::alone();
    let deferred = Deferred::<u64, Commuting<Add>>::new(0);
    let adaptive = Adaptive::<u64, Commuting<Add>>::new(0);
    let (br, read) = (BrLock::new(0), BrLock::new(0));
    let _names = (
        profile::name(&deferred, "deferred"),
        profile::name(&adaptive, "adaptive"),
        profile::name(&br, "br"),
        profile::name(&read, "read"),
    );
    profile::start();
    meet(
        SHORT,
        |meanwhile| {
            let _held = deferred.read();
            meanwhile();
        },
        || deferred.append(Add),
    );
    meet(SHORT, |meanwhile| adaptive.change(|_| meanwhile()), || adaptive.update(Add));
    meet(
        SHORT,
        |meanwhile| {
            let _held = br.write();
            meanwhile();
        },
        || drop(br.read()),
    );
    meet(
        SHORT,
        |meanwhile| {
            let _held = read.read();
            meanwhile();
        },
        || drop(read.write()),
    );
    profile::stop();
    let waits = profile::read();
    println!("{waits}");
    for (name, kind) in
        [("deferred", "Deferred"), ("adaptive", "Adaptive"), ("br", "BrLock"), ("read", "BrLock")]
    {
        let hot = find(&waits, name).unwrap_or_else(|| panic!("no thread waited for {name}"));
        assert_eq!((hot.kind, hot.waits), (kind, 1), "{name}");
        assert_eq!(hot.call_sites[0].location.unwrap().file(), file!(), "{name}");
    }
}

#[test]
fn collections_tell_the_users_line_and_not_their_own() {
    let _alone = env::alone();
    let map = ReplicatedMap::new();
    let table = DHash::<u32, u32, u32>::new();
    profile::start();
    // The look is in this thread's copy; the removal waits for it under the map's own lock.
    meet(
        SHORT,
        |meanwhile| {
            map.insert(1, 1);
            map.read(&1, |_| meanwhile());
        },
        || {
            map.remove(&1);
        },
    );
    meet(
        SHORT,
        |meanwhile| {
            table.insert(1, 1);
            table.with_local(&1, |_, _| meanwhile());
        },
        || drop(table.remove(&1)),
    );
    profile::stop();
    let waits = profile::read();
    let collections = own(&waits).iter().filter(|hot| hot.kind == "collection").count();
    assert_eq!(collections, 2, "a copy of the map's and one of the table's");
}

#[test]
fn nothing_is_counted_while_it_is_off_and_a_start_begins_anew() {
    let _alone = env::alone();
    let lock = TicketLock::new(());
    let hold = |meanwhile: &dyn Fn()| {
        let _held = lock.lock();
        meanwhile();
    };
    assert!(!profile::is_on());
    profile::start();
    assert!(profile::is_on());
    meet(SHORT, hold, || drop(lock.lock()));
    assert_eq!(own(&profile::read()).len(), 1);
    profile::start();
    assert_eq!(own(&profile::read()).len(), 0);
    profile::stop();
    meet(SHORT, hold, || drop(lock.lock()));
    let nothing = profile::read();
    assert!(own(&nothing).is_empty() && nothing.hottest(0).is_empty());
}

#[test]
fn objects_that_count_tell_their_updates_and_reads() {
    let _alone = env::alone();
    let adaptive = Adaptive::<u64, Commuting<Add>>::new(0);
    let deferred = Deferred::<u64, Commuting<Add>>::new(0);
    assert!(deferred.promote());
    let _names = (profile::name(&adaptive, "adaptive"), profile::name(&deferred, "deferred"));
    profile::start();
    for _ in 0..40 {
        (0..500).for_each(|_| adaptive.update(Add));
        (0..500).for_each(|_| assert!(*adaptive.read() > 0));
        (0..500).for_each(|_| deferred.append(Add));
        assert!(*deferred.read() > 0);
    }
    profile::stop();
    let counts = profile::read();
    println!("{counts}");
    let hot = find(&counts, "adaptive").unwrap();
    assert!((10_000..=20_000).contains(&hot.updates), "{hot:?}");
    assert!((10_000..=20_000).contains(&hot.reads), "{hot:?}");
    assert_eq!((hot.kind, hot.waits), ("Adaptive", 0));
    let hot = find(&counts, "deferred").unwrap();
    assert_eq!((hot.kind, hot.updates, hot.reads), ("Deferred", 20_000, 40));
}

#[test]
fn names_go_with_their_guards_and_the_narrower_holds() {
    let _alone = env::alone();
    let pair = (TicketLock::new(0), TicketLock::new(0));
    let wide = profile::name(&pair, "pair");
    let narrow = profile::name(&pair.1, "second");
    profile::start();
    for lock in [&pair.0, &pair.1] {
        let hold = |meanwhile: &dyn Fn()| {
            let _held = lock.lock();
            meanwhile();
        };
        meet(SHORT, hold, || drop(lock.lock()));
    }
    profile::stop();
    let both = profile::read();
    assert!(find(&both, "pair").is_some_and(|hot| hot.waits == 1));
    assert!(find(&both, "second").is_some_and(|hot| hot.waits == 1));
    drop(narrow);
    let one = profile::read();
    assert!(find(&one, "pair").is_some_and(|hot| hot.waits == 2 && hot.call_sites.len() == 1));
    drop(wide);
    assert!(profile::read().hottest(9).iter().all(|hot| hot.name.is_none()));
}
