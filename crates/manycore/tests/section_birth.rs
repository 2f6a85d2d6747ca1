//! Births of nodes in a bounded domain (law section.E4): a section may stay on a node that it has
//! linked itself.

mod common;

use common::counted::{Counted, drain, forget, replace};
use manycore::section::{Atomic, Domain, Mode, Owned};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// A thread that links a node may hold it, even if the era has moved since the thread's last
/// section.
#[test]
fn stalled_section_holds_the_node_that_it_has_linked_itself() {
    let domain = Domain::builder().mode(Mode::Bounded).batch_nodes(1).build().unwrap();
    let freed: Arc<AtomicUsize> = Arc::default();
    let link = Atomic::new(Counted(Arc::clone(&freed)));
    let by_another = |f: &(dyn Fn() + Sync)| thread::scope(|s| s.spawn(f).join().unwrap());
    let replace_some = || (0..20).for_each(|_| replace(&link, &freed, &domain.enter()));
    assert!(!link.load(&domain.enter()).is_null()); // in an era of old
    by_another(&replace_some);
    let section = domain.enter();
    let own: Arc<AtomicUsize> = Arc::default();
    let mine = Owned::new(Counted(Arc::clone(&own))).into_shared(&section);
    let other = Atomic::null();
    other.store(mine, &section); // a store looks at no era
    by_another(&|| replace(&other, &freed, &domain.enter()));
    by_another(&replace_some);
    by_another(&|| (0..5).for_each(|_| domain.collect()));
    assert_eq!(own.load(SeqCst), 0, "freed under the section that linked it");
    drop(section);
    drain(&domain);
    assert_eq!(own.load(SeqCst), 1);
    forget(other);
    forget(link);
}
