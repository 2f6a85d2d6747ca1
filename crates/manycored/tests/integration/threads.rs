//! Several workers at one key: no update is lost, and no condition is passed twice.

use crate::common::Server;
use manycored::protocol::{Arith, Mode};
use manycored::server_state::Settings;
use manycored::store::{Change, Handle, Limits, NewItem, Outcome, StoreCondition};
use std::thread;

/// Runs this on two workers.
fn both(server: &Server, work: impl Fn(&mut Handle<'_>, usize) + Sync) {
    thread::scope(|scope| {
        for worker in 0..2 {
            let work = &work;
            scope.spawn(move || work(&mut server.store.handle(worker), worker));
        }
    });
}

fn value(handle: &Handle<'_>, key: &[u8]) -> Option<Vec<u8>> {
    handle.peek(key).map(|found| found.key().value().to_vec())
}

/// Nor do two handles of one worker, one after the other.
#[test]
fn no_two_items_have_one_version() {
    let server = Server::new();
    let versions = [0, 0, 1, 1, 0].map(|worker| {
        let mut handle = server.store.handle(worker);
        handle.put(&NewItem::new(b"a", b"x"), StoreCondition::plain(Mode::Set)).cas
    });
    assert!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
}

#[test]
fn sums_of_two_workers_add_up() {
    const ROUNDS: u64 = 5_000;
    let server = Server::new();
    let mut handle = server.store.handle(0);
    handle.put(&NewItem::new(b"n", b"0"), StoreCondition::plain(Mode::Set));
    both(&server, |handle, _| {
        for _ in 0..ROUNDS {
            let done = handle.change(b"n", (Arith::Incr, 1), None, None, None);
            assert!(matches!(done, Change::Done(..)), "{done:?}");
        }
    });
    assert_eq!(value(&handle, b"n"), Some((2 * ROUNDS).to_string().into_bytes()));
}

#[test]
fn what_two_workers_append_is_all_there() {
    const ROUNDS: usize = 500;
    let server = Server::new();
    server.store.handle(0).put(&NewItem::new(b"a", b""), StoreCondition::plain(Mode::Set));
    both(&server, |handle, worker| {
        for _ in 0..ROUNDS {
            let mode = if worker == 0 { Mode::Append } else { Mode::Prepend };
            let letter = [b"a", b"p"][worker];
            let outcome =
                handle.put(&NewItem::new(b"a", letter), StoreCondition::plain(mode)).outcome;
            assert_eq!(outcome, Outcome::Stored);
        }
    });
    let text = value(&server.store.handle(0), b"a").unwrap();
    let (front, back) = text.split_at(ROUNDS);
    assert!(front.iter().all(|b| *b == b'p') && back.iter().all(|b| *b == b'a'));
    assert_eq!(text.len(), 2 * ROUNDS);
}

#[test]
fn each_version_is_replaced_by_one_worker_alone() {
    const ROUNDS: usize = 3_000;
    let server = Server::new();
    server.store.handle(0).put(&NewItem::new(b"a", b"0"), StoreCondition::plain(Mode::Set));
    let stored = std::sync::atomic::AtomicUsize::new(0);
    both(&server, |handle, _| {
        for _ in 0..ROUNDS {
            let Some(found) = handle.peek(b"a") else { panic!("it is never removed") };
            let number: usize = String::from_utf8_lossy(&found.key().value()).parse().unwrap();
            let cas = found.key().cas();
            drop(found);
            let next = (number + 1).to_string();
            let condition = StoreCondition { cas: Some(cas), ..StoreCondition::plain(Mode::Set) };
            if handle.put(&NewItem::new(b"a", next.as_bytes()), condition).outcome
                == Outcome::Stored
            {
                stored.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    let sum = stored.into_inner().to_string();
    assert_eq!(value(&server.store.handle(0), b"a"), Some(sum.into_bytes()));
}

#[test]
fn of_two_adds_and_two_deletes_one_succeeds() {
    let server = Server::new();
    let (added, deleted) = (std::sync::atomic::AtomicIsize::new(0), 2_000);
    both(&server, |handle, _| {
        for _ in 0..deleted {
            if handle.put(&NewItem::new(b"a", b"x"), StoreCondition::plain(Mode::Add)).outcome
                == Outcome::Stored
            {
                added.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            if handle.delete(b"a", None) == Outcome::Stored {
                added.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    });
    assert_eq!(added.into_inner(), isize::from(server.store.handle(0).peek(b"a").is_some()));
}

#[test]
fn readers_see_no_other_keys_value_while_items_are_evicted() {
    let limits = Limits { memory: 256 << 10, ..Limits::default() };
    let server = Server::with(limits, Settings::default());
    both(&server, |handle, worker| {
        for round in 0..6_000_usize {
            let number = round * 7 % 2_000;
            let key = format!("key{number}");
            if worker == 0 {
                let value = format!("{key}:").repeat(1 + round % 60);
                handle.put(
                    &NewItem::new(key.as_bytes(), value.as_bytes()),
                    StoreCondition::plain(Mode::Set),
                );
            } else if let Some(found) = handle.peek(key.as_bytes()) {
                let text = String::from_utf8(found.key().value().to_vec()).unwrap();
                assert!(text.split_terminator(':').all(|part| part == key), "{key}: {text}");
            }
        }
    });
    assert!(server.store.bytes() <= 256 << 10);
    assert!(server.store.cache_stats().evictions > 1_000);
}

#[test]
fn touch_beside_changes_is_not_lost() {
    let server = Server::new();
    for _ in 0..300 {
        let mut handle = server.store.handle(0);
        handle.put(&NewItem::new(b"n", b"0"), StoreCondition::plain(Mode::Set));
        let deadline = server.store.clock().deadline(1_000);
        both(&server, |handle, worker| {
            if worker == 0 {
                assert!(handle.touch(b"n", deadline).is_some());
            } else {
                for _ in 0..5 {
                    handle.change(b"n", (Arith::Incr, 1), None, None, None);
                }
            }
        });
        assert_eq!(handle.peek(b"n").unwrap().key().deadline(), deadline);
    }
}
