//! Memory stays bounded also where free memory is in pieces that the next items cannot use, as keys
//! must lie in one piece.

use manycored::protocol::Mode;
use manycored::store::{Handle, Limits, NewItem, Store, StoreCondition};

const MB: usize = 1 << 20;

/// Bytes that a store with this limit may have from the system, with one worker.
fn bound(limit: usize) -> usize {
    limit + limit / 10 + (24 + 3) * MB
}

fn key(number: usize, length: usize) -> Vec<u8> {
    let mut key = format!("key{number}").into_bytes();
    key.resize(length.max(key.len()), b'k');
    key
}

fn set(handle: &mut Handle<'_>, key: &[u8], value: &[u8], mode: Mode) {
    handle.put(&NewItem::new(key, value), StoreCondition::plain(mode));
}

/// Short items between long keys are deleted; then come long keys only, none of which fits a gap.
#[test]
fn gaps_that_no_long_key_fits_do_not_add_up() {
    let limit = 64 * MB;
    for (long, short) in [((250, 30), (10, 180))] {
        let store = Store::new(Limits { memory: limit as u64, ..Limits::default() }, 1);
        let mut handle = store.handle(0);
        let mut most = (0, 0);
        let bytes = long.0 + long.1 + short.0 + short.1 + 2 * 88;
        let pairs = limit * 19 / 20 / bytes;
        for number in 0..pairs {
            set(&mut handle, &key(2 * number, long.0), &vec![1; long.1], Mode::Set);
            set(&mut handle, &key(2 * number + 1, short.0), &vec![2; short.1], Mode::Set);
        }
        for number in 0..pairs {
            handle.delete(&key(2 * number + 1, short.0), None);
        }
        for number in pairs..2 * pairs + pairs / 2 {
            set(&mut handle, &key(2 * number, long.0), &vec![1; long.1], Mode::Set);
            if number % 512 == 0 {
                most = most.max((store.usage().mapped, number));
            }
        }
        println!("{long:?} {short:?}: {} MB at {}, {:?}", most.0 / MB, most.1, store.usage());
        assert!(most.0 <= bound(limit), "{} MB for keys of {long:?}", most.0 / MB);
    }
}

/// What a lower limit leaves over goes back to the system, without a request.
#[test]
fn memory_goes_back_when_the_limit_is_lowered() {
    let store = Store::new(Limits { memory: 64 << 20, ..Limits::default() }, 1);
    let mut handle = store.handle(0);
    for number in 0..100_000 {
        set(&mut handle, &key(number, 20), &[4; 700], Mode::Set);
    }
    store.set_memory(8 << 20);
    for _ in 0..8 {
        store.sweep(true);
    }
    let mapped = store.usage().mapped;
    assert!(mapped <= bound(8 * MB), "{} MB are kept of 8", mapped / MB);
}
