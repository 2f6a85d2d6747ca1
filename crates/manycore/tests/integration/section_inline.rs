//! Sections opened and closed through their words in memory, as the inline functions of another
//! language do.

use crate::common::counted::{Counted, drain, forget, replace};
use manycore::percpu::end_thread;
use manycore::section::{Atomic, Domain, Mode, OpenSection};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*, compiler_fence};
use std::sync::mpsc::channel;
use std::thread;

/// The words that inline functions of a header keep for a thread.
struct Words<'d> {
    domain: &'d Domain,
    announced: *mut u64,
    pending: *const u32,
    era: *const u64,
}

impl<'d> Words<'d> {
    /// Of the calling thread, which has a section for it once; `None` where readers pay a fence.
    fn new(domain: &'d Domain) -> Option<Self> {
        let open = domain.enter().leave_open();
        let words = open.is_inlinable().then(|| Self {
            domain,
            announced: open.announced(),
            pending: open.pending(),
            era: open.era(),
        });
        // SAFETY: opened above by this thread, and closed once.
        drop(unsafe { domain.resume(open.announced()) });
        words
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: as long as the domain lives, the thread's own word is there.
        unsafe { AtomicU64::from_ptr(self.announced) }
    }

    fn enter(&self) {
        // SAFETY: as long as the domain lives, its era is there.
        let era = unsafe { &*self.era.cast::<AtomicU64>() };
        if self.word().load(Relaxed) != 0 {
            let _ = self.domain.enter().leave_open();
            return;
        }
        self.word().store(era.load(Acquire), Release);
        compiler_fence(SeqCst);
    }

    fn leave(&self) {
        // SAFETY: as long as the domain lives, the thread's own word is there.
        if unsafe { &*self.pending.cast::<AtomicU32>() }.load(Relaxed) == 0 {
            return self.word().store(0, Release);
        }
        // SAFETY: this thread has a section open, which is closed here.
        drop(unsafe { self.domain.resume(self.announced) });
    }
}

#[test]
fn section_opened_by_its_words_holds_a_node_until_it_is_closed_by_them() {
    let domain = Domain::builder().batch_nodes(1).build().unwrap();
    let Some(words) = Words::new(&domain) else { return };
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    for nested in [0, 1, 3] {
        words.enter();
        (0..nested).for_each(|_| words.enter());
        assert!(domain.is_inside());
        let before = freed.load(SeqCst);
        thread::scope(|s| {
            s.spawn(|| {
                replace(&link, &freed, &domain.enter());
                (0..10).for_each(|_| domain.collect());
            });
        });
        assert_eq!(freed.load(SeqCst), before, "freed under its reader");
        (0..nested).for_each(|_| words.leave());
        assert!(domain.is_inside());
        words.leave();
        assert!(!domain.is_inside());
        drain(&domain);
        assert_eq!(freed.load(SeqCst), before + 1);
    }
    forget(link);
}

#[test]
fn section_of_words_has_its_full_batch_sealed_when_it_is_closed() {
    let domain = Domain::builder().batch_nodes(1).build().unwrap();
    let Some(words) = Words::new(&domain) else { return };
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    words.enter();
    replace(&link, &freed, &domain.enter());
    // SAFETY: as long as the domain lives, the thread's own word is there.
    assert_ne!(unsafe { *words.pending }, 0, "nothing says that a batch waits to be sealed");
    words.leave();
    drain(&domain);
    assert_eq!(freed.load(SeqCst), 1);
    forget(link);
}

#[test]
fn raw_node_born_after_a_stalled_section_was_opened_is_freed_beside_it() {
    static FREED: AtomicU64 = AtomicU64::new(0);
    fn free(_: NonNull<()>) {
        FREED.fetch_add(1, SeqCst);
    }
    let domain = Domain::builder().mode(Mode::Bounded).batch_nodes(1).build().unwrap();
    let (opened, is_open) = channel();
    let (close, closes) = channel::<()>();
    let domain = &domain;
    thread::scope(|s| {
        s.spawn(move || {
            let section = domain.enter();
            assert!(section.protects_loaded());
            opened.send(()).unwrap();
            closes.recv().unwrap();
            assert!(!section.protects_loaded(), "eras have passed");
            assert!(section.protects_loaded(), "and the section has caught up");
        });
        is_open.recv().unwrap();
        let retire = |births: [bool; 8]| {
            for is_known in births {
                let section = domain.enter();
                let birth = if is_known { section.birth() } else { 0 };
                // SAFETY: `free` follows nothing; a birth is of this section.
                unsafe { section.retire_born(NonNull::dangling(), 8_usize, birth, free) };
            }
            (0..10).for_each(|_| domain.collect());
        };
        retire([true; 8]); // the first ones in the era in which the section was opened
        retire([true; 8]);
        let freed = FREED.load(SeqCst);
        assert!(freed >= 8, "{freed} of 16 freed");
        retire([false; 8]);
        assert!(FREED.load(SeqCst) <= 16, "of unknown birth");
        close.send(()).unwrap();
    });
    drain(domain);
    assert_eq!(FREED.load(SeqCst), 24);
}

#[test]
fn thread_that_was_ended_leaves_its_slot_and_its_garbage_to_others() {
    let domain = Domain::builder().batch_nodes(1).build().unwrap();
    let freed = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    thread::scope(|s| {
        s.spawn(|| {
            replace(&link, &freed, &domain.enter());
            for _ in 0..2 {
                // SAFETY: the thread is in no call of the library's, and keeps nothing by number.
                unsafe { end_thread() };
            }
            drop(domain.enter()); // on a slot for this section
            drain(&domain);
            assert_eq!(freed.load(SeqCst), 1);
        });
    });
    forget(link);
}

#[test]
fn sections_with_a_fence_are_not_inlinable() {
    let domain = Domain::builder().asymmetric(false).build().unwrap();
    let open = domain.enter().leave_open();
    assert!(!open.is_inlinable());
    // SAFETY: opened above by this thread, and closed once.
    drop(unsafe { domain.resume(open.announced()) });
    assert!(OpenSection::PENDING_OFFSET.is_multiple_of(4));
}
