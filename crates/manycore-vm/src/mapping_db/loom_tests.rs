//! Models of derivations beside revocations (tree.M2 to tree.M6, space.A3) on real nodes and
//! windows, and of the gate (mapping_db_gate.Q1) on a whole database.

use super::*;
use crate::backing::{Frames, Span};
use crate::loom_models::{self, model, unexplored};
use crate::sync::UnsafeCell;
use loom::thread;
use manycore::section::Mode;
use std::sync::{Arc, Mutex};

/// A chain of derivations: page 0 is the root, and each further page is derived from the page
/// before.
struct Tree {
    domain: Domain,
    space: Space,
    /// Has no pages at first.
    other: Space,
    nodes: Vec<*mut Node>,
    /// Not loom's mutex: it only collects what is queued, and must order nothing.
    queued: Mutex<Vec<usize>>,
}

// SAFETY: tree.M1 - nodes are made for sharing.
unsafe impl Send for Tree {}
// SAFETY: tree.M1 - the nodes' links are under locks, and loom checks that.
unsafe impl Sync for Tree {}

impl Tree {
    fn new(depth: u32) -> Arc<Self> {
        let domain = Domain::builder().mode(Mode::Epoch).build().unwrap();
        let space = Space::new(crate::PAGE_BYTES, 4);
        let other = Space::new(crate::PAGE_BYTES, 1);
        let tree = Self { domain, space, other, nodes: Vec::new(), queued: Mutex::default() };
        let mut tree = Arc::new(tree);
        for page in 0..depth {
            let this = Arc::get_mut(&mut tree).unwrap();
            let parent = this.nodes.last().copied().unwrap_or(std::ptr::null_mut());
            this.nodes.push(std::ptr::null_mut());
            let section = tree.domain.enter();
            let node = tree.derive((&tree.space, page), parent, &section).unwrap();
            drop(section);
            let this = Arc::get_mut(&mut tree).unwrap();
            *this.nodes.last_mut().unwrap() = node;
        }
        tree
    }

    /// Derives `page` from `parent`, like `derive` of an alias.
    fn derive(
        &self,
        (space, page): (&Space, u32),
        parent: *mut Node,
        section: &Section<'_>,
    ) -> Result<*mut Node, ErrorKind> {
        space.claim(page, 1)?;
        let node = Node::new((space, page), 0, Rights::WRITE, parent);
        let node = Box::into_raw(Box::new(node));
        // SAFETY: tree.M6 - the parent was made in this model, which frees no node.
        if let Some(parent) = unsafe { parent.as_ref() } {
            // SAFETY: the node was made just now, below this parent.
            if let Err(kind) = unsafe { parent.insert(node, section) } {
                space.unclaim(page, 1);
                return Err(kind);
            }
        }
        space.publish(page, node);
        Ok(node)
    }

    fn queue(&self, dead: tree::Chain) {
        let mut queued = self.queued.lock().unwrap();
        // SAFETY: tree.M6 - the chain belongs to the caller.
        for node in unsafe { dead.nodes() } {
            assert!(!queued.contains(&node.addr()), "a node is queued twice");
            queued.push(node.addr());
        }
    }

    fn unmap(&self, index: usize) -> Option<usize> {
        let section = self.domain.enter();
        Node::unmap(self.nodes[index], &section, |dead| self.queue(dead))
    }

    fn revoke(&self, index: usize) -> Option<usize> {
        let section = self.domain.enter();
        Node::revoke(self.nodes[index], &section, None, |dead| self.queue(dead))
    }

    fn expect_gone(&self, pages: std::ops::Range<u32>) {
        for page in pages {
            assert!(self.space.node(page).is_none(), "a revoked page resolves");
        }
    }
}

/// Runs two operations at the same time, on a tree of this depth.
fn beside(
    depth: u32,
    preemptions: usize,
    one: impl Fn(&Tree) + Copy + Send + Sync + 'static,
    other: impl Fn(&Tree) + Copy + Send + Sync + 'static,
    end: impl Fn(&Tree) + Send + Sync + 'static,
) {
    model(preemptions, move || {
        let tree = unexplored(|| Tree::new(depth));
        let thread = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || one(&tree))
        };
        other(&tree);
        thread.join().unwrap();
        unexplored(|| end(&tree));
    });
}

#[test]
fn loom_alias_beside_the_revoking_of_its_parent() {
    let alias = |tree: &Tree| {
        let section = tree.domain.enter();
        let _ = tree.derive((&tree.space, 1), tree.nodes[0], &section);
    };
    let unmap = |tree: &Tree| {
        assert!(tree.unmap(0).is_some());
        // Everything derived before is gone, and nothing more is derived.
        tree.expect_gone(0..1);
    };
    beside(1, 3, alias, unmap, |tree| tree.expect_gone(0..2));
}

#[test]
fn loom_revocation_beside_the_unmapping_in_between() {
    let unmap = |tree: &Tree| {
        tree.unmap(1);
        tree.expect_gone(1..3);
    };
    let revoke = |tree: &Tree| {
        tree.revoke(0);
        tree.expect_gone(1..3);
    };
    beside(3, 2, unmap, revoke, |tree| {
        assert_eq!(tree.queued.lock().unwrap().len(), 2, "a dead node is lost");
    });
}

#[test]
fn loom_revocation_beside_a_revocation_below() {
    let below = |tree: &Tree| {
        tree.revoke(1);
        tree.expect_gone(2..3);
    };
    let above = |tree: &Tree| {
        assert!(tree.unmap(0).is_some());
        tree.expect_gone(0..3);
    };
    beside(3, 2, below, above, |tree| {
        assert_eq!(tree.queued.lock().unwrap().len(), 3, "a dead node is lost");
    });
}

#[test]
fn loom_alias_into_a_space_that_ends() {
    let alias = |tree: &Tree| {
        let section = tree.domain.enter();
        let _ = tree.derive((&tree.other, 0), tree.nodes[0], &section);
    };
    let gone = |tree: &Tree| assert!(tree.other.node(0).is_none(), "a revoked page resolves");
    // Like `MappingDb::end`.
    let end = move |tree: &Tree| {
        tree.other.end();
        for page in tree.other.used_pages() {
            let section = tree.domain.enter();
            if let Some(node) = tree.other.settled_node(page) {
                Node::unmap(node, &section, |dead| tree.queue(dead));
            }
        }
        gone(tree);
    };
    beside(1, 3, alias, end, gone);
}

/// One frame with contents: a loom cell that readers read and a flush clears.
struct Cleared(Arc<UnsafeCell<u32>>);

// SAFETY: the cell is the subject of the model, and loom checks it.
unsafe impl Send for Cleared {}
// SAFETY: loom reports unordered accesses to the cell.
unsafe impl Sync for Cleared {}

impl Backing for Cleared {
    fn frames(&self) -> u32 {
        1
    }
    fn reserve(&self, _pages: usize) -> Result<usize, Error> {
        Ok(crate::PAGE_BYTES)
    }
    fn release(&self, _address: usize, _pages: usize) {}
    fn map(&self, _runs: &[Run]) -> Result<(), Error> {
        Ok(())
    }
    fn unmap(&self, _spans: &[Span]) -> Result<(), Error> {
        Ok(())
    }
    fn protect(&self, _span: Span, _rights: Rights) -> Result<(), Error> {
        Ok(())
    }
    fn flush(&self, _frames: &[Frames]) -> Result<(), Error> {
        // SAFETY: backing.G4 - the frame is mapped nowhere; loom checks it.
        self.0.with_mut(|contents| unsafe { *contents = 0 });
        Ok(())
    }
}

#[test]
fn loom_frame_is_reused_after_its_readers() {
    frame_under_a_reader(false);
}

/// The page is unmapped after the moment for which the flush waits.
#[test]
fn loom_frame_that_is_queued_during_a_flush_waits_for_the_next() {
    frame_under_a_reader(true);
}

/// Reads a frame in a section, while its page is unmapped and two ticks run.
fn frame_under_a_reader(in_flush: bool) {
    model(2, move || {
        let contents = Arc::new(UnsafeCell::new(7));
        let domain = unexplored(|| Domain::builder().mode(Mode::Epoch).build().unwrap());
        // The domain lives as long as the threads, whose handles need 'static.
        let domain: &'static Domain = Box::leak(Box::new(domain));
        let (db, space, page) = unexplored(|| {
            let backing = Cleared(Arc::clone(&contents));
            let db = Arc::new(MappingDb::with_tick(backing, domain, Duration::ZERO));
            let space = db.space(2).unwrap();
            let page = db.grant(space, 1, Rights::WRITE).unwrap();
            if in_flush {
                // The flush has begun, and later rounds have found its moment over. So it is over,
                // whatever the reader does.
                db.tick().unwrap();
                (0..2).for_each(|_| domain.synchronize());
            }
            (db, space, page)
        });
        let reader = {
            let db = Arc::clone(&db);
            thread::spawn(move || {
                let section = domain.enter();
                if db.resolve(space, page, &section).is_some() {
                    // SAFETY: mapping_db.V4 - the page was found in this section; loom checks it.
                    let read = db.backing.0.with(|contents| unsafe { *contents });
                    assert_eq!(read, 7, "a frame was cleared under its reader");
                }
            })
        };
        db.unmap(space, page, 1).unwrap();
        (0..2).for_each(|_| drop(db.tick()));
        reader.join().unwrap();
        unexplored(|| {
            db.flush().unwrap();
            assert_eq!(db.free_frames(), 1);
            drop(db);
            // SAFETY: the value was leaked above; the database and all threads are gone.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(domain).cast_mut()) });
        });
    });
}

fn must_catch(bug: &str, model: &str, signs: &[&str]) {
    loom_models::must_catch(bug, &format!("mapping_db::loom_tests::{model}"), signs);
}

/// The messages of a model about a page that resolves, and of loom about two unordered accesses.
const SIGNS: [&str; 5] = [
    "a revoked page resolves",
    "a frame was cleared under its reader",
    "Causality violation",
    "currently writing to cell",
    "currently reading from cell",
];

#[test]
fn loom_alias_without_its_parents_lock_is_caught() {
    must_catch("vm-alias-without-lock", "loom_alias_beside_the_revoking_of_its_parent", &SIGNS);
}

#[test]
fn loom_node_that_is_dead_before_its_children_is_caught() {
    must_catch(
        "vm-dead-before-its-children",
        "loom_revocation_beside_the_unmapping_in_between",
        &SIGNS,
    );
}

#[test]
fn loom_claim_in_a_space_that_ended_is_caught() {
    must_catch("vm-claim-in-ended-space", "loom_alias_into_a_space_that_ends", &SIGNS);
}

#[test]
fn loom_gate_that_does_not_wait_is_caught() {
    must_catch("vm-early-gate", "loom_frame_is_reused_after_its_readers", &SIGNS);
}

#[test]
fn loom_killer_that_is_not_awaited_is_caught() {
    must_catch("vm-killer-not-awaited", "loom_revocation_beside_a_revocation_below", &SIGNS);
}

#[test]
fn loom_node_that_two_threads_queue_is_caught() {
    let model = "loom_revocation_beside_the_unmapping_in_between";
    must_catch("vm-queued-by-two", model, &["a node is queued twice"]);
}

#[test]
fn loom_flush_that_takes_what_came_after_its_moment_is_caught() {
    let model = "loom_frame_that_is_queued_during_a_flush_waits_for_the_next";
    must_catch("vm-newer-label-taken", model, &SIGNS);
}
