//! Nodes that lead to nodes: a reader stands on an unlinked node and looks at its link
//! (section.E4).

use super::{Canary, Freed, kind};
use crate::percpu::loom_tests::{large_model, unexplored};
use crate::section::{Atomic, Builder, Domain, Owned};
use crate::sync::{Ordering, thread};
use std::sync::Arc;

struct Link {
    canary: Canary,
    next: Atomic<Link>,
}

/// A chain that one thread changes, and a separate node that is replaced to move the era.
struct Chain {
    domain: Domain,
    head: Atomic<Link>,
    apart: Atomic<Canary>,
    freed: Freed,
}

impl Chain {
    /// Of one node.
    fn new(builder: Builder) -> Arc<Self> {
        let freed = Freed::default();
        let domain = builder.batch_nodes(1).build().unwrap();
        let apart = Atomic::new(Canary::new(9, &freed));
        let chain = Self { domain, head: Atomic::null(), apart, freed };
        let section = chain.domain.enter();
        chain.head.store(chain.link(0), &section);
        drop(section);
        Arc::new(chain)
    }

    fn link(&self, number: usize) -> Owned<Link> {
        Owned::new(Link { canary: Canary::new(number, &self.freed), next: Atomic::null() })
    }

    /// Retires a node that is not in the chain: that makes a round, and so advances the era.
    fn pass_time(&self) {
        let section = self.domain.enter();
        let old = self.apart.swap(Owned::new(Canary::new(9, &self.freed)), &section);
        // SAFETY: unlinked by the swap; nothing else leads to it; it has no links.
        unsafe { section.retire(old) };
    }

    fn append(&self, number: usize) {
        let section = self.domain.enter();
        let first = self.head.load(&section).as_ref().unwrap();
        first.next.store(self.link(number), &section);
    }

    /// Unlinks the first node, after tagging the link out of it, and retires it.
    fn remove_first(&self) {
        let section = self.domain.enter();
        let first = self.head.load(&section);
        let link = &first.as_ref().unwrap().next;
        let second = link.load(&section);
        link.fetch_or(1, &section);
        self.head.store(second, &section);
        // SAFETY: unlinked by the store of the only thread that writes links; its link has a tag.
        unsafe { section.retire(first) };
    }

    /// Walks as far as links lead, and then looks at every node that it stood on.
    fn walk(&self) {
        let section = self.domain.enter();
        let mut held = Vec::new();
        let mut next = self.head.load(&section).as_ref();
        thread::yield_now();
        while let Some(link) = next {
            held.push(link);
            next = link.next.load(&section).as_ref();
        }
        held.iter().for_each(|link| assert!(link.canary.sing() < 2));
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        if !crate::sync::model_failed() {
            // SAFETY: the chain is gone, so no other thread has the links.
            drop(unsafe { std::mem::take(&mut self.apart).into_owned() });
        }
    }
}

/// The second node is younger than the reader's section, and both nodes go while the reader may
/// stand on them. The reader learns of the second node by the first one's link. By then it covers
/// the second node, or it does not follow the link.
fn walker_keeps_what_it_stands_on(kind_of: &str) {
    let builder = kind(kind_of);
    large_model(2, move || {
        let chain = Chain::new(builder());
        let reader = {
            let chain = Arc::clone(&chain);
            thread::spawn(move || chain.walk())
        };
        chain.pass_time();
        chain.append(1);
        chain.remove_first();
        chain.remove_first();
        chain.pass_time();
        chain.domain.collect();
        reader.join().unwrap();
        unexplored(|| (0..2).for_each(|_| chain.domain.collect()));
        let freed = chain.freed.load(Ordering::Relaxed);
        assert_eq!(freed, 4, "no section is open, and a node is not freed");
    });
}

#[test]
fn loom_section_epoch_walker_keeps_what_it_stands_on() {
    walker_keeps_what_it_stands_on("epoch");
}

#[test]
fn loom_section_bounded_walker_keeps_what_it_stands_on() {
    walker_keeps_what_it_stands_on("bounded");
}

#[test]
fn loom_section_fenced_walker_keeps_what_it_stands_on() {
    walker_keeps_what_it_stands_on("bounded, fenced");
}
