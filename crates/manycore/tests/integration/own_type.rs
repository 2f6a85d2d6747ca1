//! Types that refer to an object of their own kind: nodes of a graph, each with a list of nodes.
//!
//! The test is that this file compiles. Whether such a type is `Send` and `Sync` must not depend on
//! a trait that asks the same question again. If it did, the compiler would give up with E0275.

use manycore::collections::{EventQueue, Lru, Registry};
use manycore::oplog::{Cancel, Cancelling, Commuting, Deferred, Log, Op, Ordered};
use std::sync::Arc;
use std::thread;

macro_rules! node {
    ($node:ident, $list:ty) => {
        struct $node {
            list: Arc<$list>,
        }

        impl Op<Vec<Arc<$node>>> for Link<$node> {
            fn apply(self, nodes: &mut Vec<Arc<$node>>) {
                nodes.push(self.0);
            }
        }
    };
}

/// An update that also holds a node.
struct Link<N>(Arc<N>);

impl<N> Cancel for Link<N> {
    type Key = usize;
    fn key(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
    fn inserts(&self) -> bool {
        true
    }
}

node!(InOrder, Deferred<Vec<Arc<InOrder>>, Ordered<Link<InOrder>>>);
node!(InAnyOrder, Deferred<Vec<Arc<InAnyOrder>>, Commuting<Link<InAnyOrder>>>);
node!(Undone, Deferred<Vec<Arc<Undone>>, Cancelling<Link<Undone>>>);

/// A type that contains the other collections, with itself inside them.
struct Everything {
    _registry: Registry<Arc<Everything>>,
    _queue: EventQueue<Arc<Everything>>,
    _recent: Lru<u32>,
}

fn is_send_and_sync<T: Send + Sync>() {}

#[test]
fn types_that_hold_themselves_are_send_and_sync() {
    is_send_and_sync::<InOrder>();
    is_send_and_sync::<InAnyOrder>();
    is_send_and_sync::<Undone>();
    is_send_and_sync::<Everything>();
}

fn grow<N, L>(root: &Deferred<Vec<Arc<N>>, L>, leaf: fn() -> N) -> usize
where
    N: Send + Sync + 'static,
    L: Log<Vec<Arc<N>>, Op = Link<N>>,
{
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| root.append(Link(Arc::new(leaf()))));
        }
    });
    root.read().len()
}

#[test]
fn node_shared_by_threads_gets_its_children() {
    let in_order = InOrder { list: Arc::default() };
    assert_eq!(grow(&in_order.list, || InOrder { list: Arc::default() }), 4);
    let in_any_order = InAnyOrder { list: Arc::default() };
    assert_eq!(grow(&in_any_order.list, || InAnyOrder { list: Arc::default() }), 4);
    let undone = Undone { list: Arc::default() };
    assert_eq!(grow(&undone.list, || Undone { list: Arc::default() }), 4);
}
