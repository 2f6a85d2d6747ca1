//! Gates: custom grace periods that follow the normal grace period.

use crate::common::counted::{Counted, drain, forget, replace};
use manycore::section::{Atomic, Domain, Mode, Retired};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn gate_holds_a_node_back_until_it_says_yes() {
    let may_free = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicUsize::new(0));
    let expected = Arc::new(AtomicUsize::new(0));
    let gate = {
        let (may_free, asked) = (Arc::clone(&may_free), Arc::clone(&asked));
        let expected = Arc::clone(&expected);
        move |node: &Retired| {
            assert_eq!(node.address(), expected.load(SeqCst));
            asked.fetch_add(1, SeqCst);
            may_free.load(SeqCst)
        }
    };
    let domain = Domain::builder().gate(gate).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    expected.store(link.load(&domain.enter()).address(), SeqCst);
    replace(&link, &freed, &domain.enter());
    for _ in 0..5 {
        domain.collect();
    }
    assert!(asked.load(SeqCst) > 0);
    assert_eq!(freed.load(SeqCst), 0);
    assert_eq!(domain.backlog(Duration::ZERO).nodes, 1);
    may_free.store(true, SeqCst);
    drain(&domain);
    assert_eq!(freed.load(SeqCst), 1);
    forget(link);
}

#[test]
fn gate_keeps_a_node_for_ten_milliseconds() {
    let gate = |node: &Retired| node.age() >= Duration::from_millis(10);
    let domain = Domain::builder().gate(gate).batch_nodes(1).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    let start = Instant::now();
    replace(&link, &freed, &domain.enter());
    while freed.load(SeqCst) == 0 {
        domain.collect();
    }
    assert!(start.elapsed() >= Duration::from_millis(10));
    forget(link);
}

#[test]
fn gate_that_panics_loses_no_node() {
    let panics = Arc::new(AtomicBool::new(true));
    let gate = {
        let panics = Arc::clone(&panics);
        move |_: &Retired| if panics.load(SeqCst) { panic!("planned") } else { true }
    };
    let domain = Domain::builder().gate(gate).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    for _ in 0..3 {
        let _ = catch_unwind(AssertUnwindSafe(|| replace(&link, &freed, &domain.enter())));
    }
    for _ in 0..4 {
        let _ = catch_unwind(AssertUnwindSafe(|| domain.collect()));
    }
    assert_eq!(domain.backlog(Duration::ZERO).nodes, 3);
    panics.store(false, SeqCst);
    drain(&domain);
    assert_eq!(freed.load(SeqCst), 3);
    forget(link);
}

#[test]
fn section_refreshed_through_a_panic_still_protects() {
    for mode in [Mode::Epoch, Mode::Bounded] {
        let panics = Arc::new(AtomicBool::new(true));
        let gate = {
            let panics = Arc::clone(&panics);
            move |_: &Retired| if panics.load(SeqCst) { panic!("planned") } else { true }
        };
        let domain = Domain::builder().mode(mode).gate(gate).batch_nodes(1).build().unwrap();
        let freed = Arc::default();
        let link = Atomic::new(Counted(Arc::clone(&freed)));
        let mut section = domain.enter();
        replace(&link, &freed, &section);
        // By clocks, what was retired a few microseconds ago is not expired yet.
        let panicked = (0..3).chain((0..100).inspect(|_| thread::sleep(Duration::from_millis(1))));
        assert!(
            panicked.into_iter().any(|_| {
                replace(&link, &freed, &section);
                catch_unwind(AssertUnwindSafe(|| section.refresh())).is_err()
            }),
            "{mode:?}"
        );
        panics.store(false, SeqCst);
        let held = link.load(&section).as_ref().unwrap();
        let before = freed.load(SeqCst);
        thread::scope(|s| {
            let other = s.spawn(|| {
                replace(&link, &freed, &domain.enter());
                (0..5).for_each(|_| domain.collect());
            });
            other.join().unwrap(); // also its last words, which pass on what it leaves
        });
        assert_eq!(held.0.load(SeqCst), freed.load(SeqCst));
        let moment = domain.now();
        assert!((0..5).all(|_| !domain.quiesced(moment)), "{mode:?}: no look finds the section");
        assert!(freed.load(SeqCst) >= before);
        drop(section);
        drain(&domain);
        forget(link);
    }
}
