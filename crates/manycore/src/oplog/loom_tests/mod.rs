//! Models of deferred updates: laws oplog.D1, oplog.D2, oplog.D6, oplog.D8, oplog.D10, hot_state.C1
//! to hot_state.C5, object.W1 to object.W3, combining_tree.B1 to combining_tree.B4, and readers.A1
//! to adaptive.A6, in every interleaving up to a bound. The header of [`crate::percpu::loom_tests`]
//! says what loom can and cannot show, and how a model is itself tested.
//!
//! The canaries are the library's own cells: logs, values and the data under the lock are in loom's
//! `UnsafeCell`s here. If two threads access one of them concurrently, or without a happens-before
//! between them, the model fails whatever its assertions say.

mod adaptive;
mod bounds;
mod combining_tree;
mod hardware;
mod inside;
mod life;
mod ordered;
mod promotion;
mod races;
mod reserved;
mod seeded;
mod table;
mod unordered;

use super::{Builder, Commuting, Deferred, Log, LogTable, Logs, Op, Ordered, Publish};
use crate::sync::thread;
use std::sync::Arc;

/// Appends a number to a list; the box makes a lost or doubled update a leak or a double free.
struct Push(Box<u32>);

impl Op<Vec<u32>> for Push {
    fn apply(self, list: &mut Vec<u32>) {
        list.push(*self.0);
    }
}

type Bag = Deferred<Vec<u32>, Commuting<Push>>;
type List = Deferred<Vec<u32>, Ordered<Push>>;

fn push(number: u32) -> Push {
    Push(Box::new(number))
}

/// Makes a builder of objects that have logs from the first update on, in a separate table, so that
/// no two objects share a place by chance.
fn builder<L: Log<Vec<u32>>>(publish: Publish) -> Builder<Vec<u32>, L> {
    let table = Arc::new(LogTable::new(1));
    Deferred::<Vec<u32>, L>::builder().publish(publish).logs(Logs::Always).table(table)
}

/// Makes an object that already has logs.
fn hot<L: Log<Vec<u32>>>(publish: Publish) -> Arc<Deferred<Vec<u32>, L>> {
    let object = builder(publish).build(Vec::new()).unwrap();
    assert!(object.promote());
    Arc::new(object)
}

/// Starts a thread with its own reference to `shared`. The caller joins it.
fn spawn<S: Send + Sync + 'static, R: 'static>(
    shared: &Arc<S>,
    f: impl FnOnce(&S) -> R + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || f(&shared))
}

/// Returns the up-to-date contents of an object, smallest first.
fn contents<L: Log<Vec<u32>>>(object: &Deferred<Vec<u32>, L>) -> Vec<u32> {
    let mut list = object.read().clone();
    list.sort_unstable();
    list
}
