//! Two objects and one place in the table: evictions (oplog_table.T1 to oplog_table.T4, object.W3,
//! hot_state.C7).

use super::{Bag, contents, push, spawn};
use crate::oplog::{Deferred, LogTable, Logs, Publish};
use crate::percpu::loom_tests::model;
use std::sync::Arc;

/// Makes a hot object and a cold one, of one table with one place.
fn two_of_one_place(logs: Logs) -> Arc<(Arc<Bag>, Arc<Bag>)> {
    let builder =
        Deferred::builder().publish(Publish::Locked).logs(logs).table(Arc::new(LogTable::new(1)));
    let make = || Arc::new(builder.build(Vec::new()).unwrap());
    let (victim, newcomer): (Arc<Bag>, Arc<Bag>) = (make(), make());
    assert!(victim.promote());
    victim.append(push(0));
    Arc::new((victim, newcomer))
}

#[test]
fn loom_eviction_races_append_and_nothing_is_lost() {
    model(2, || {
        let bags = two_of_one_place(Logs::Auto);
        let evictor = spawn(&bags, |(_, newcomer)| newcomer.promote());
        let (victim, newcomer) = &*bags;
        victim.append(push(1));
        assert!(evictor.join().unwrap(), "no thread held the victim's lock");
        assert!(newcomer.is_hot());
        assert_eq!(contents(victim), [0, 1]);
    });
}

#[test]
fn loom_eviction_races_read_and_one_of_them_gives_way() {
    model(2, || {
        let bags = two_of_one_place(Logs::Auto);
        let evictor = spawn(&bags, |(_, newcomer)| {
            newcomer.promote();
            newcomer.append(push(2));
        });
        let (victim, newcomer) = &*bags;
        assert_eq!(contents(victim), [0]);
        evictor.join().unwrap();
        assert_eq!(contents(victim), [0]);
        assert_eq!(contents(newcomer), [2]);
    });
}

#[test]
fn loom_eviction_races_demotion_and_the_core_is_freed_once() {
    model(3, || {
        let bags = two_of_one_place(Logs::Auto);
        let evictor = spawn(&bags, |(_, newcomer)| newcomer.promote());
        let (victim, _) = &*bags;
        victim.demote();
        evictor.join().unwrap();
        assert!(!victim.is_hot());
        assert_eq!(contents(victim), [0]);
    });
}

/// The victim's last owner drops it while another object evicts it.
#[test]
fn loom_eviction_races_drop_and_the_core_is_freed_once() {
    model(3, || {
        let bags = two_of_one_place(Logs::Auto);
        let (victim, newcomer) = Arc::into_inner(bags).unwrap();
        let evictor = spawn(&newcomer, |newcomer| newcomer.promote());
        assert_eq!(Arc::into_inner(victim).unwrap().into_inner(), [0]);
        assert!(evictor.join().unwrap());
    });
}

/// Objects that insist on logs evict each other in turn.
#[test]
fn loom_two_objects_that_evict_each_other_lose_nothing() {
    model(2, || {
        let bags = two_of_one_place(Logs::Always);
        let other = spawn(&bags, |(_, second)| second.append(push(2)));
        let (first, second) = &*bags;
        first.append(push(1));
        other.join().unwrap();
        assert_eq!(contents(first), [0, 1]);
        assert_eq!(contents(second), [2]);
    });
}
