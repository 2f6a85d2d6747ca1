//! Objects with a last owner in one of their own updates or logs. Another object's eviction of such
//! an object then drops the object in the middle of its own work. Nothing waits, and everything is
//! freed once.

use crate::common::watchdog::{ends, message};
use manycore::clock::Stamp;
use manycore::cluster::Adaptive;
use manycore::cluster::adaptive::Mode;
use manycore::oplog::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// The callback in which an update drops its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callback {
    Collect,
    Apply,
    DropOfTheLog,
}

const CALLBACKS: [Callback; 3] = [Callback::Collect, Callback::Apply, Callback::DropOfTheLog];

/// The number of values that were made and still exist.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicUsize>);

struct Counted(Arc<AtomicUsize>);

impl Alive {
    fn new_one(&self) -> Counted {
        self.0.fetch_add(1, SeqCst);
        Counted(Arc::clone(&self.0))
    }
    fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, SeqCst);
        assert!(before > 0, "freed twice");
    }
}

/// An update that owns its object, and what it does with that owner at last.
struct Owning {
    at: Callback,
    last: Option<Box<dyn FnOnce() + Send>>,
    _counted: Counted,
}

impl Owning {
    fn drop_owner_at(&mut self, at: Callback) {
        if let Some(last) = self.last.take_if(|_| self.at == at) {
            last();
        }
    }
}

#[derive(Default)]
struct Owners {
    updates: Vec<Owning>,
    applied: Vec<Owning>,
}

impl Log<Vec<Counted>> for Owners {
    type Op = Owning;
    const ORDERED: bool = false;

    fn apply(mut op: Owning, value: &mut Vec<Counted>) {
        op.drop_owner_at(Callback::Apply);
        assert!(!value.is_empty(), "the value is there while an update is applied");
    }
    fn push(&mut self, op: Owning, _: Stamp) {
        self.updates.push(op);
    }
    fn len(&self) -> usize {
        self.updates.len()
    }
    fn collect(&mut self, _: Stamp, into: &mut Self) {
        self.updates.iter_mut().for_each(|op| op.drop_owner_at(Callback::Collect));
        std::mem::swap(&mut self.updates, &mut into.updates);
    }
    fn merge(logs: &mut [Self], value: &mut Vec<Counted>) -> usize {
        let mut applied = 0;
        for log in logs {
            while let Some(op) = log.updates.pop() {
                applied += 1;
                if op.at == Callback::DropOfTheLog {
                    log.applied.push(op);
                } else {
                    Self::apply(op, value);
                }
            }
        }
        applied
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        self.applied.iter_mut().for_each(|op| op.drop_owner_at(Callback::DropOfTheLog));
    }
}

type Object = Deferred<Vec<Counted>, Owners>;
type Owner = Arc<Object>;

/// Makes an object with an update that calls `last` with the object's last owner at `at`. Another
/// object evicts it.
fn end_at(at: Callback, last: fn(Owner)) {
    let alive = Alive::default();
    let table = Arc::new(LogTable::new(1));
    let make = || Object::builder().table(Arc::clone(&table)).build(vec![alive.new_one()]).unwrap();
    let (object, newcomer) = (Arc::new(make()), make());
    assert!(object.promote());
    let inner = Arc::clone(&object);
    let update = |last| Owning { at, last, _counted: alive.new_one() };
    object.append(update(None));
    object.append(update(Some(Box::new(move || last(inner)))));
    object.append(update(None));
    drop(object);
    assert_eq!(alive.count(), 5, "two values, three updates");
    assert!(newcomer.promote());
    assert_eq!(alive.count(), 1, "{at:?}: the newcomer's value");
    newcomer.append(update(None));
    assert_eq!(newcomer.read().len(), 1);
    drop(newcomer);
    assert_eq!((alive.count(), table.hot_objects()), (0, 0));
}

#[test]
fn object_that_an_update_of_its_own_drops_ends_with_its_eviction() {
    for at in CALLBACKS {
        ends("an end", move || end_at(at, drop));
    }
}

#[test]
fn object_cannot_be_taken_apart_by_its_own_update() {
    fn taken(owner: Owner) {
        let mut object = Arc::try_unwrap(owner).expect("the last one");
        let said = message(|| assert_eq!(object.get_mut().len(), 1));
        assert!(said.contains("taken apart from within its own updates"), "{said}");
        let said = message(|| drop(object.into_inner()));
        assert!(said.contains("taken apart from within its own updates"), "{said}");
    }
    for at in CALLBACKS {
        ends("a value taken", move || end_at(at, taken));
    }
}

/// An adaptive object uses the process's table, which has 4,096 places.
#[test]
fn adaptive_objects_that_own_themselves_end_with_their_evictions() {
    type Object = Adaptive<u64, Commuting<Keep>>;
    struct Keep(Mutex<Option<Arc<Object>>>);
    impl Op<u64> for Keep {
        fn apply(self, sum: &mut u64) {
            drop(self.0);
            *sum += 1;
        }
    }
    ends("adaptive objects", || {
        let mut objects = Vec::new();
        for _ in 0..9000 {
            let object = Arc::new(Object::new(0));
            object.pin(Mode::Logs);
            object.update(Keep(Mutex::new(Some(Arc::clone(&object)))));
            objects.push(Arc::downgrade(&object));
        }
        let left = objects.iter().filter(|object| object.strong_count() > 0).count();
        assert!(left <= 4096, "{left} of 9,000 are left");
    });
}
