//! Re-entrancy, tested completely: every callback of an object with logs, in every state of that
//! object, calls every operation on the same object and on others.
//!
//! Each case works, refuses, or panics with a message of the library. None hangs, and none loses an
//! update. `docs/reentrancy.md` has the answers, and the walk demands that they match that page.
//!
//! After an intended change, `MANYCORE_ACCEPT=1 cargo test -p manycore --test reentrancy` writes
//! the page anew.

// Rows of the tables call operations with a result and without one alike.
#![allow(clippy::unit_arg)]

mod cases;
#[path = "../common/mod.rs"]
mod common;
mod maps;
mod ordered;
mod probe;
mod subject;
mod trap;
mod walk;

use cases::{Case, Row, assert_sound, here, tables, usual};
use manycore::collections::{HashMap, Lru, OrderedMap, PageCache, PrivatePages, ReplicatedMap};
use maps::{DistributedTable, Map, Store, Table};
use std::fs;
use std::panic::{set_hook, take_hook};
use std::path::PathBuf;
use std::sync::Once;
use std::thread;
use subject::{Fitting, Plain, Subject};
use trap::{Key, Value};

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reentrancy.md")
}

/// Silences panics on the threads of cases, which have no names: there, a panic is an answer.
fn silence_cases() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if thread::current().name().is_some() {
                report(panic);
            }
        }));
    });
}

/// Demands that no case fails, and that the page states their outcomes. If two objects happen to
/// share a place in the process's table of logs, or another test holds memory back, some answers
/// differ from the page. So a walk with different answers is repeated, and each case has the
/// outcome that most of the walks found.
fn check(name: &str, cases: &[Case], shown: impl Fn(Vec<Row>) -> Vec<Row>) {
    silence_cases();
    let text = fs::read_to_string(page()).expect("the page is there");
    let (begin, end) = (format!("<!-- {name}: generated -->\n"), format!("<!-- {name}: end -->\n"));
    let from = text.find(&begin).expect("the page has a place for the type") + begin.len();
    let to = from + text[from..].find(&end).expect("the place has an end");
    let mut found = String::new();
    let mut walks = Vec::new();
    for _ in 0..7 {
        walks.push(here(cases));
        assert_sound(name, &walks[walks.len() - 1]);
        found = tables(name, &shown(usual(&walks)));
        if found == text[from..to] {
            return;
        }
    }
    if std::env::var_os("MANYCORE_ACCEPT").is_some() {
        let new = format!("{}{found}{}", &text[..from], &text[to..]);
        fs::write(page(), new).expect("the page can be written");
    } else {
        assert_eq!(&text[from..to], found, "docs/reentrancy.md says something else");
    }
}

fn check_object<S: Subject>() {
    check(S::NAME, &walk::cases::<S>(), |rows| rows);
}

#[test]
fn deferred_never_waits_for_itself() {
    check_object::<Plain>();
}

#[test]
fn adaptive_never_waits_for_itself() {
    check_object::<Fitting>();
}

fn check_map<M: Map>() {
    check(M::NAME, &maps::cases::<M>(), maps::without_dead_lines);
}

#[test]
fn maps_never_wait_for_themselves() {
    check_map::<HashMap<Key, Value>>();
    check_map::<OrderedMap<Key, Value>>();
    check_map::<ReplicatedMap<Key, Value>>();
}

#[test]
fn tables_never_wait_for_themselves() {
    check_map::<Table>();
    check_map::<DistributedTable>();
}

#[test]
fn recency_lists_never_wait_for_themselves() {
    check_map::<Lru<Key>>();
}

#[test]
fn page_caches_never_wait_for_themselves() {
    check_map::<PageCache<Store>>();
    check_map::<PrivatePages<Store>>();
}

/// A type's name, and its cases.
#[cfg(unix)]
type Walk = (&'static str, fn() -> Vec<Case>);

/// Demands that a forked child gets the same answers as found here, for objects of its parent.
#[cfg(unix)]
fn check_children(test: &str, walks: &[Walk]) {
    common::process::in_own_process(test, || {
        silence_cases();
        for (name, cases) in walks {
            let cases = cases();
            cases::in_children(name, &cases, &here(&cases));
        }
    });
}

#[cfg(unix)]
#[test]
fn objects_in_the_child_of_a_fork_never_wait_for_themselves() {
    let walks: [Walk; 2] =
        [(Plain::NAME, walk::cases::<Plain>), (Fitting::NAME, walk::cases::<Fitting>)];
    check_children("objects_in_the_child_of_a_fork_never_wait_for_themselves", &walks);
}

#[cfg(unix)]
#[test]
fn collections_in_the_child_of_a_fork_never_wait_for_themselves() {
    fn of<M: Map>() -> Walk {
        (M::NAME, maps::cases::<M>)
    }
    let walks = [
        of::<HashMap<Key, Value>>(),
        of::<OrderedMap<Key, Value>>(),
        of::<ReplicatedMap<Key, Value>>(),
        of::<Table>(),
        of::<DistributedTable>(),
        of::<Lru<Key>>(),
        of::<PageCache<Store>>(),
        of::<PrivatePages<Store>>(),
    ];
    check_children("collections_in_the_child_of_a_fork_never_wait_for_themselves", &walks);
}
