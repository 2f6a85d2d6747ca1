//! Parallel sections, one behaviour at a time, in every mode.

use crate::common::counted::{Counted, drain, forget, replace};
use crate::common::process::in_own_process;
use manycore::section::{Atomic, BuildError, Domain, Mode, Owned, Section, Shared};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const MODES: [Mode; 2] = [Mode::Epoch, Mode::Bounded];

/// Returns domains that seal every batch at once: every mode, with both kinds of barrier.
fn domains() -> Vec<Domain> {
    let build = |mode, asymmetric| {
        Domain::builder().mode(mode).asymmetric(asymmetric).batch_nodes(1).build().unwrap()
    };
    MODES.iter().flat_map(|&mode| [build(mode, true), build(mode, false)]).collect()
}

#[test]
fn node_is_freed_after_the_last_section_that_could_hold_it() {
    for domain in domains() {
        let freed = Arc::default();
        let link = Atomic::new(Counted(Arc::clone(&freed)));
        thread::scope(|s| {
            let (inside, is_inside) = mpsc::channel();
            let (leave, may_leave) = mpsc::channel::<()>();
            let (domain, link, freed) = (&domain, &link, &freed);
            s.spawn(move || {
                let section = domain.enter();
                let held = link.load(&section).as_ref().unwrap();
                inside.send(()).unwrap();
                may_leave.recv().unwrap();
                assert_eq!(held.0.load(SeqCst), 0, "freed under its reader");
            });
            is_inside.recv().unwrap();
            replace(link, freed, &domain.enter());
            for _ in 0..10 {
                domain.collect();
            }
            assert_eq!(freed.load(SeqCst), 0, "freed under its reader: {domain:?}");
            leave.send(()).unwrap();
        });
        drain(&domain);
        assert_eq!(freed.load(SeqCst), 1);
        forget(link);
    }
}

#[test]
fn inner_sections_may_be_closed_in_any_order() {
    for domain in domains() {
        let freed = Arc::default();
        let link = Atomic::new(Counted(Arc::clone(&freed)));
        let outer = domain.enter();
        let inner = domain.enter();
        drop(outer);
        let third = domain.enter();
        replace(&link, &freed, &inner);
        drop(inner);
        domain.collect();
        domain.collect();
        assert_eq!(freed.load(SeqCst), 0, "the third section is open: {domain:?}");
        drop(third);
        drain(&domain);
        assert_eq!(freed.load(SeqCst), 1);
        forget(link);
    }
}

#[test]
fn domains_hold_only_their_own_back() {
    let (quiet, busy) = (Domain::new(), Domain::new());
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    let _elsewhere = quiet.enter();
    replace(&link, &freed, &busy.enter());
    drain(&busy);
    assert_eq!(freed.load(SeqCst), 1);
    forget(link);
}

/// Runs `f` while another thread is in a section and has seen the first node. That thread leaves
/// when the sender is dropped.
fn with_stalled_reader(domain: &Domain, link: &Atomic<Counted>, f: impl FnOnce()) {
    thread::scope(|s| {
        let (inside, is_inside) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        thread::Builder::new()
            .name("sleepy".into())
            .spawn_scoped(s, move || {
                let section = domain.enter();
                let held = link.load(&section).as_ref().unwrap();
                inside.send(()).unwrap();
                let _ = may_leave.recv();
                assert!(Arc::strong_count(&held.0) > 0);
            })
            .unwrap();
        is_inside.recv().unwrap();
        f();
        drop(leave);
    });
}

#[test]
fn stalled_reader_holds_little_back_in_a_bounded_domain() {
    let domain = Domain::builder().mode(Mode::Bounded).batch_nodes(64).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    with_stalled_reader(&domain, &link, || {
        let mut most = 0;
        for _ in 0..100_000 {
            replace(&link, &freed, &domain.enter());
            most = most.max(100_000 - freed.load(SeqCst));
        }
        let waiting = domain.backlog(Duration::ZERO).nodes;
        assert!(waiting < 1000, "{waiting} of 100,000 nodes wait for one reader");
    });
    drain(&domain);
    assert_eq!(freed.load(SeqCst), 100_000);
    forget(link);
}

#[test]
fn stalled_reader_is_named_and_what_it_held_is_freed_soon_after() {
    let domain = Domain::builder().batch_nodes(64).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    with_stalled_reader(&domain, &link, || {
        let _ = domain.backlog(Duration::ZERO);
        thread::sleep(Duration::from_millis(20));
        for _ in 0..10_000 {
            replace(&link, &freed, &domain.enter());
        }
        let backlog = domain.backlog(Duration::from_millis(20));
        assert!(backlog.nodes > 9_900, "{backlog}");
        assert_eq!(backlog.stalled.len(), 1, "{backlog}");
        assert_eq!(backlog.stalled[0].name.as_deref(), Some("sleepy"));
        assert!(backlog.to_string().contains("sleepy"), "{backlog}");
        assert!(domain.backlog(Duration::from_secs(3600)).stalled.is_empty());
    });
    drain(&domain);
    assert_eq!(freed.load(SeqCst), 10_000);
    forget(link);
}

#[test]
fn limbo_left_by_ten_thousand_threads_is_freed() {
    let domain = Domain::new();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    for _ in 0..1250 {
        thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| replace(&link, &freed, &domain.enter()));
            }
        });
    }
    // A scope ends before its threads' own destructors have.
    let until = Instant::now() + Duration::from_secs(20);
    while domain.backlog(Duration::ZERO).nodes != 0 && Instant::now() < until {
        domain.collect();
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(freed.load(SeqCst), 10_000);
    forget(link);
}

#[test]
fn threads_that_each_retire_one_node_and_end_free_each_others() {
    let domain = Domain::builder().batch_nodes(64).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    for _ in 0..2000 {
        thread::scope(|s| s.spawn(|| replace(&link, &freed, &domain.enter())).join().unwrap());
    }
    let freed = freed.load(SeqCst);
    assert!(freed > 1500, "of 2000 nodes that as many threads retired, {freed} were freed");
    forget(link);
}

#[test]
fn threads_that_retire_little_but_large_and_end_free_each_others() {
    let domain = Domain::builder().batch_bytes(1 << 16).build().unwrap();
    let link = Atomic::new([0_u8; 1 << 12]);
    for _ in 0..500 {
        let replace = || {
            let section = domain.enter();
            let old = link.swap(Owned::new([1; 1 << 12]), &section);
            // SAFETY: unlinked by the swap; no links.
            unsafe { section.retire(old) };
        };
        thread::scope(|s| s.spawn(replace).join().unwrap());
    }
    let waiting = domain.backlog(Duration::ZERO).nodes;
    assert!(waiting < 100, "{waiting} nodes of 4 KiB wait, 16 make a batch");
    forget(link);
}

thread_local! {
    static LAST: RefCell<Vec<Section<'static>>> = const { RefCell::new(Vec::new()) };
}

/// Opens sections that are closed at the thread's end, about when it has given its slot back.
fn end_in_sections(domains: &[&'static Domain], f: impl FnOnce() + Send + 'static) {
    let sections = domains.to_vec();
    let end = move || {
        LAST.with_borrow_mut(|last| {
            last.extend(sections.iter().flat_map(|domain| [domain.enter(), domain.enter()]));
        });
        f();
    };
    thread::spawn(end).join().unwrap();
}

#[test]
fn section_closed_after_its_threads_destructors_leaves_slot_and_limbo_to_others() {
    // Other tests' threads would take slots, too.
    in_own_process(
        "section_closed_after_its_threads_destructors_leaves_slot_and_limbo_to_others",
        || {
            static DOMAINS: [std::sync::LazyLock<Domain>; 2] =
                [const { std::sync::LazyLock::new(Domain::new) }; 2];
            let domains: [&Domain; 2] = DOMAINS.each_ref().map(|domain| &**domain);
            let freed: Arc<AtomicUsize> = Arc::default();
            let before = manycore::percpu::slot_count();
            for _ in 0..300 {
                let freed = Arc::clone(&freed);
                end_in_sections(&domains, move || {
                    let link = Atomic::new(Counted(Arc::clone(&freed)));
                    replace(&link, &freed, &domains[0].enter());
                    forget(link);
                });
            }
            let taken = manycore::percpu::slot_count() - before;
            assert!(taken < 200, "{taken} slots for threads that ran one after the other");
            domains.into_iter().for_each(drain);
            assert_eq!(freed.load(SeqCst), 600);
        },
    );
}

#[test]
fn section_that_outlives_its_threads_destructors_still_protects() {
    static DOMAIN: std::sync::LazyLock<Domain> = std::sync::LazyLock::new(Domain::new);
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            // Perhaps after the thread has given its slot back.
            let section = DOMAIN.enter();
            let inner = DOMAIN.enter();
            if cfg!(target_os = "linux") {
                let waits = catch_unwind(|| DOMAIN.synchronize());
                assert!(waits.is_err(), "it would wait for itself");
            }
            drop(section);
            drop(inner);
        }
    }
    thread_local! {
        static KEPT: RefCell<Option<Section<'static>>> = const { RefCell::new(None) };
        static LATE: Late = const { Late };
    }
    for _ in 0..100 {
        thread::spawn(|| {
            LATE.with(|_| {});
            KEPT.with(|kept| *kept.borrow_mut() = Some(DOMAIN.enter()));
        })
        .join()
        .unwrap();
    }
    // Every one of these sections was closed by its thread's end.
    let moment = DOMAIN.now();
    assert!((0..10).any(|_| DOMAIN.quiesced(moment)));
}

#[test]
fn quiesced_waits_for_older_sections_only() {
    for domain in domains() {
        let older = domain.enter();
        let moment = domain.now();
        assert!((0..5).all(|_| !domain.quiesced(moment)), "{domain:?}");
        let barrier = Barrier::new(2);
        thread::scope(|s| {
            let (domain, barrier) = (&domain, &barrier);
            drop(older);
            s.spawn(move || {
                // Long after the moment: rounds have moved the era on.
                let _ = domain.backlog(Duration::ZERO);
                let _ = domain.backlog(Duration::ZERO);
                let _younger = domain.enter();
                barrier.wait();
                barrier.wait();
            });
            barrier.wait();
            assert!((0..5).any(|_| domain.quiesced(moment)), "{domain:?}");
            barrier.wait();
        });
        domain.synchronize();
    }
}

#[test]
fn synchronize_waits_for_an_open_section() {
    for domain in domains() {
        let left = AtomicBool::new(false);
        thread::scope(|s| {
            let (inside, is_inside) = mpsc::channel();
            let (domain, left) = (&domain, &left);
            s.spawn(move || {
                let section = domain.enter();
                inside.send(()).unwrap();
                thread::sleep(Duration::from_millis(30));
                left.store(true, SeqCst);
                drop(section);
            });
            is_inside.recv().unwrap();
            domain.synchronize();
            assert!(left.load(SeqCst), "{domain:?}");
        });
    }
}

#[test]
#[should_panic(expected = "would wait for itself")]
fn synchronize_inside_a_section_panics() {
    let domain = Domain::new();
    let _section = domain.enter();
    domain.synchronize();
}

#[test]
fn builder_refuses_bounds_that_cannot_work() {
    for builder in [
        Domain::builder().batch_nodes(0),
        Domain::builder().batch_bytes(0),
        Domain::builder().bound(0),
        Domain::builder().batch_nodes(usize::MAX),
    ] {
        let text = format!("{builder:?}");
        let error = builder.build().expect_err(&text);
        assert!(matches!(error, BuildError::OutOfRange(..)), "{text}");
        assert!(error.to_string().contains("at least 1"), "{error}");
    }
}

#[test]
fn long_chain_of_destructors_needs_no_deep_stack() {
    const LINKS: usize = 20_000;
    static DOMAIN: Domain = Domain::new();
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Link {
        next: Option<Box<Link>>,
    }
    impl Drop for Link {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, SeqCst);
            if let Some(next) = self.next.take() {
                let section = DOMAIN.enter();
                let next = Owned::new(*next).into_shared(&section);
                // SAFETY: never linked anywhere.
                unsafe { section.retire(next) };
            }
        }
    }
    // A stack that has room for one destructor in another a hundred times, and not for each link.
    let small = thread::Builder::new().stack_size(128 << 10).spawn(|| {
        let mut chain = Box::new(Link { next: None });
        for _ in 1..LINKS {
            chain = Box::new(Link { next: Some(chain) });
        }
        drop(chain);
        // Each link waits for a grace period of its own: its destructor retires the next one.
        while DOMAIN.backlog(Duration::ZERO).nodes != 0 {
            DOMAIN.collect();
        }
    });
    small.unwrap().join().unwrap();
    assert_eq!(DROPPED.load(SeqCst), LINKS);
}

#[test]
fn panic_in_a_destructor_reaches_whoever_frees_and_nothing_else_is_lost() {
    struct Bomb(Arc<AtomicUsize>, bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            if self.1 {
                panic!("planned");
            }
        }
    }
    let domain = Domain::new();
    let freed: Arc<AtomicUsize> = Arc::default();
    let retire = || {
        let section = domain.enter();
        for number in 0..10 {
            let bomb = Owned::new(Bomb(Arc::clone(&freed), number == 5)).into_shared(&section);
            // SAFETY: never linked anywhere.
            unsafe { section.retire(bomb) };
        }
    };
    let mut panics = usize::from(catch_unwind(AssertUnwindSafe(retire)).is_err());
    panics +=
        (0..4).filter(|_| catch_unwind(AssertUnwindSafe(|| domain.collect())).is_err()).count();
    assert_eq!(panics, 1);
    assert_eq!(freed.load(SeqCst), 10);
    assert_eq!(domain.backlog(Duration::ZERO).nodes, 0);
}

#[test]
fn deferred_work_runs_after_the_section() {
    for domain in domains() {
        let ran = Arc::new(AtomicBool::new(false));
        let section = domain.enter();
        section.defer({
            let ran = Arc::clone(&ran);
            move || ran.store(true, SeqCst)
        });
        domain.collect();
        assert!(!ran.load(SeqCst), "{domain:?}");
        drop(section);
        drain(&domain);
        assert!(ran.load(SeqCst));
    }
}

#[test]
fn refresh_lets_go_of_what_was_retired_before() {
    for domain in domains() {
        let freed = Arc::default();
        let link = Atomic::new(Counted(Arc::clone(&freed)));
        let mut section = domain.enter();
        replace(&link, &freed, &section);
        for _ in 0..6 {
            section.refresh();
            domain.collect();
        }
        assert_eq!(freed.load(SeqCst), 1, "{domain:?}");
        drop(section);
        forget(link);
    }
}

#[test]
fn node_held_for_a_passing_section_is_freed_when_that_has_gone() {
    let domain = Domain::builder().mode(Mode::Bounded).batch_nodes(8).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    with_stalled_reader(&domain, &link, || {
        for _ in 0..50 {
            // Another section, younger than the stalled one, that lasts longer than a batch.
            with_stalled_reader(&domain, &link, || {
                (0..200).for_each(|_| replace(&link, &freed, &domain.enter()));
            });
        }
        (0..200).for_each(|_| replace(&link, &freed, &domain.enter()));
        let waiting = domain.backlog(Duration::ZERO).nodes;
        assert!(waiting < 1000, "{waiting} of 10,200 nodes wait for one reader");
    });
    drain(&domain);
    assert_eq!(freed.load(SeqCst), 10_200);
    forget(link);
}

#[test]
fn long_section_seals_without_being_closed() {
    let domain = Domain::builder().batch_nodes(16).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    {
        let section = domain.enter();
        (0..10_000).for_each(|_| replace(&link, &freed, &section));
        assert_eq!(freed.load(SeqCst), 0, "the section could hold them all");
    }
    drain(&domain);
    assert_eq!(freed.load(SeqCst), 10_000);
    forget(link);
}

#[test]
fn domain_at_its_bound_makes_the_retirer_reclaim() {
    let bounded = Domain::builder().bound(100).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    for _ in 0..10_000 {
        replace(&link, &freed, &bounded.enter());
        let waiting = bounded.backlog(Duration::ZERO).nodes;
        assert!(waiting <= 200, "{waiting} nodes wait beyond a bound of 100");
    }
    drop(bounded);
    assert_eq!(freed.load(SeqCst), 10_000);
    forget(link);
}

#[test]
fn large_nodes_are_sealed_by_bytes() {
    let domain = Domain::builder().batch_bytes(1 << 16).build().unwrap();
    let link = Atomic::new([0_u8; 1 << 14]);
    for _ in 0..1000 {
        let section = domain.enter();
        let old = link.swap(Owned::new([1; 1 << 14]), &section);
        // SAFETY: unlinked by the swap; no links.
        unsafe { section.retire(old) };
    }
    let waiting = domain.backlog(Duration::ZERO).nodes;
    assert!(waiting < 50, "{waiting} nodes of 16 KiB wait");
    forget(link);
}

#[test]
fn dropping_the_domain_frees_everything() {
    for mode in MODES {
        let domain = Domain::builder().mode(mode).build().unwrap();
        let freed = Arc::default();
        let link = Atomic::new(Counted(Arc::clone(&freed)));
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..5000).for_each(|_| replace(&link, &freed, &domain.enter())));
            }
        });
        drop(domain);
        assert_eq!(freed.load(SeqCst), 20_000);
        forget(link);
    }
}

#[test]
#[should_panic(expected = "null pointer was retired")]
fn retiring_nothing_panics() {
    let section = manycore::section::enter();
    // SAFETY: there is no node; it panics.
    unsafe { section.retire(Shared::<u8>::null()) };
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "retired twice")]
fn retiring_twice_panics_in_a_debug_build() {
    let domain = Domain::new();
    let section = domain.enter();
    let node = Owned::new(1).into_shared(&section);
    // SAFETY: the second call breaks the rule; the header still stands, so it panics.
    unsafe {
        section.retire(node);
        section.retire(node);
    }
}

#[test]
fn tagged_pointers_of_a_bounded_domain_lead_nowhere() {
    let domain = Domain::builder().mode(Mode::Bounded).build().unwrap();
    let link = Atomic::new(7);
    let section = domain.enter();
    assert_eq!(link.load(&section).as_ref(), Some(&7));
    assert_eq!(link.fetch_or(1, &section).tag(), 0);
    let tagged = link.load(&section);
    assert_eq!((tagged.tag(), tagged.as_ref()), (1, None));
    assert_eq!(tagged.with_tag(0).as_ref(), None, "nor without the tag");
    let other = Atomic::null();
    let linked = catch_unwind(AssertUnwindSafe(|| other.store(tagged, &section)));
    assert!(linked.is_err(), "a pointer that may lead nowhere was linked");
    // SAFETY: the node is linked in `link`, which no other thread can see.
    let trusted = unsafe { tagged.with_tag(0).assume_linked() };
    assert_eq!(trusted.as_ref(), Some(&7));
    drop(section);
    forget(link);
}

#[test]
fn compare_exchange_gives_back_what_it_did_not_link() {
    for domain in domains() {
        let section = domain.enter();
        let link = Atomic::new(1);
        let first = link.load(&section);
        let error = link.compare_exchange(Shared::null(), Owned::new(2), &section).unwrap_err();
        assert_eq!(error.current, first);
        assert_eq!(*error.new, 2);
        let second = link.compare_exchange(first, error.new, &section).unwrap();
        assert_eq!(link.load(&section), second);
        assert_eq!(second.as_ref(), Some(&2));
        // SAFETY: unlinked just now.
        unsafe { section.retire(first) };
        drop(section);
        forget(link);
    }
}
