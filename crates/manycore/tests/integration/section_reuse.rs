//! Memory of retired nodes that is reused without being freed.

use manycore::section::{Domain, Mode, Section};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// A node of the kind `KIND`. Each test has its own kind, because the tests run at the same time,
/// and count.
struct Node<const KIND: usize>(AtomicUsize);

static FREED: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];

fn free<const KIND: usize>(node: NonNull<()>) {
    FREED[KIND].fetch_add(1, SeqCst);
    // SAFETY: nodes of a kind are boxes of that type, and one that was retired comes back once.
    drop(unsafe { Box::from_raw(node.cast::<Node<KIND>>().as_ptr()) });
}

/// Returns a node, and whether its memory was reused from another node.
fn make<const KIND: usize>(number: usize, section: &Section<'_>) -> (NonNull<Node<KIND>>, bool) {
    match section.reuse_raw(free::<KIND>) {
        Some(node) => {
            let node = node.cast::<Node<KIND>>();
            // SAFETY: a box of this kind, which `free` would have taken; it is ours now.
            unsafe { node.as_ref() }.0.store(number, SeqCst);
            (node, true)
        }
        None => {
            let node = Node(AtomicUsize::new(number));
            (NonNull::from(Box::leak(Box::new(node))), false)
        }
    }
}

/// # Safety
/// No link leads to the node, and it is retired once.
unsafe fn retire<const KIND: usize>(node: NonNull<Node<KIND>>, section: &Section<'_>) {
    // SAFETY: the caller's promise; `free` takes nodes of this kind.
    unsafe { section.retire_raw(node.cast(), size_of::<Node<KIND>>(), free::<KIND>) };
}

#[test]
fn nodes_of_two_kinds_in_one_domain_are_reused_each_as_its_own() {
    const ROUNDS: usize = 20_000;
    let domain = Domain::new();
    let (mut made, mut reused) = ([0, 0], [0, 0]);
    for number in 0..ROUNDS {
        let section = domain.enter();
        if number % 1_000 < 500 {
            let (node, again) = make::<0>(number, &section);
            *if again { &mut reused[0] } else { &mut made[0] } += 1;
            // SAFETY: never linked.
            unsafe { retire(node, &section) };
        } else {
            let (node, again) = make::<1>(number, &section);
            *if again { &mut reused[1] } else { &mut made[1] } += 1;
            // SAFETY: never linked.
            unsafe { retire(node, &section) };
        }
    }
    assert!(reused.iter().all(|reused| *reused > ROUNDS / 20), "{made:?} made, {reused:?} reused");
    drop(domain);
    assert_eq!([FREED[0].load(SeqCst), FREED[1].load(SeqCst)], made, "boxes freed");
}

#[test]
fn garbage_is_as_much_where_memory_is_reused() {
    let waiting = |reuses: bool| {
        let domain = Domain::builder().batch_nodes(64).build().unwrap();
        for number in 0..50_000 {
            let section = domain.enter();
            let again = if reuses {
                make::<2>(number, &section).0
            } else {
                NonNull::from(Box::leak(Box::new(Node(AtomicUsize::new(number)))))
            };
            // SAFETY: never linked.
            unsafe { retire(again, &section) };
        }
        domain.backlog(Duration::ZERO).nodes
    };
    let (without, with) = (waiting(false), waiting(true));
    assert!(with <= without + 64 && with >= 64, "{with} nodes wait, and {without} without reuse");
}

#[test]
fn memory_that_a_reader_has_is_not_reused() {
    for mode in [Mode::Epoch, Mode::Bounded] {
        let domain = Domain::builder().mode(mode).batch_nodes(64).build().unwrap();
        let link = AtomicPtr::new(make::<3>(0, &domain.enter()).0.as_ptr());
        let reused = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for number in 1..2_000_000 {
                        if number > 20_000 && reused.load(SeqCst) > 0 {
                            break;
                        }
                        let section = domain.enter();
                        let (node, again) = make::<3>(number, &section);
                        reused.fetch_add(usize::from(again), SeqCst);
                        let old = NonNull::new(link.swap(node.as_ptr(), SeqCst)).unwrap();
                        // SAFETY: unlinked by the swap, and it has no links.
                        unsafe { retire(old, &section) };
                    }
                });
            }
            for _ in 0..2_000 {
                let section = domain.enter();
                // SAFETY: loaded in the section, which keeps the node.
                let node = unsafe { &*section.protect(&link) };
                let seen = node.0.load(SeqCst);
                thread::yield_now();
                assert_eq!(node.0.load(SeqCst), seen, "{mode:?}: reused under its reader");
            }
        });
        assert_ne!(reused.load(SeqCst), 0, "{mode:?}: never reused");
        free::<3>(NonNull::new(link.into_inner()).unwrap().cast());
    }
}
