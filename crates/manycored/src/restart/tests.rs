//! The header alone; whole files are in `tests/restart.rs`.

use super::*;

fn header() -> Header {
    let beginning = Beginning { clock: 7_000_000_000, flush_at: 3, entries: 5000 };
    let (id, saved_at, last_stamp) = (9, 1_000_000, 77);
    let (items, blocks, bytes, ages) = (4, 2, 70_000, Ages::default());
    Header { id, saved_at, beginning, last_stamp, items, blocks, bytes, ages }
}

#[test]
fn a_header_comes_back_and_one_with_another_bit_does_not() {
    let (bytes, length) = (header().encode(), (HEADER + 2 * FRAME + 70_000) as u64);
    let read = Header::decode(&bytes, length).unwrap();
    assert_eq!((read.numbers(), read.encode()), (header().numbers(), bytes.clone()));
    for bit in (0..bytes.len() * 8).step_by(13).chain(0..200) {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let refusal = Header::decode(&wrong, length).unwrap_err();
        assert_eq!(matches!(refusal, Refusal::Foreign), bit < 64, "bit {bit}");
    }
    for other in [0, length - 1, length + 1, u64::MAX] {
        let refusal = Header::decode(&bytes, other).unwrap_err();
        assert!(refusal.to_string().contains("not what its header says"), "{refusal}");
    }
    for short in [0, 7, 8, 11, 12, 100, HEADER - 1] {
        assert!(Header::decode(&bytes[..short], length).is_err());
    }
}

/// A later version's file is right, and says so.
#[test]
fn another_versions_header_is_refused_as_that() {
    let mut bytes = header().encode();
    bytes[8] = 2;
    let sum = checksum(&[&bytes[..HEADER - 4]]);
    bytes[HEADER - 4..].copy_from_slice(&sum.to_le_bytes());
    let refusal = Header::decode(&bytes, (HEADER + 2 * FRAME + 70_000) as u64).unwrap_err();
    assert_eq!(refusal.to_string(), "it has version 2, not 1");
}

#[test]
fn the_new_clock_is_later_by_the_time_between() {
    let at = |seconds: f64| UNIX_EPOCH + Duration::from_secs_f64(seconds);
    let clock = |now| header().beginning(at(now)).map(|beginning| beginning.clock);
    assert_eq!(clock(1000.0).unwrap(), 7_000_000_000);
    assert_eq!(clock(1002.5).unwrap(), 9_500_000_000);
    // A correction is none of hours.
    assert_eq!(clock(996.0).unwrap(), 7_000_000_000);
    for back in [994.0, 0.0] {
        let refusal = clock(back).unwrap_err();
        assert!(refusal.to_string().contains("before the file's"), "{refusal}");
    }
    assert!(clock(9.0 * 365.0 * 86400.0).unwrap_err().to_string().contains("eight years"));
    assert_eq!(header().beginning(at(1000.0)).unwrap(), header().beginning);
}

/// A sparse file, whose header says that there are 40 GiB of items.
#[test]
fn a_file_that_is_a_hole_is_refused_at_its_first_block() {
    use crate::store::{Limits, Store};
    let header = Header { items: u64::MAX, blocks: 1 << 20, bytes: 40 << 30, ..header() };
    let store = Store::new(Limits { memory: 1 << 20, ..Limits::default() }, 1);
    let mut last = 0;
    let refused = load(&header, &mut std::io::repeat(0), &store, |read| last = read);
    assert!(matches!(refused, Err(Refusal::Damaged(_))), "{refused:?}");
    assert_eq!(last, 0, "no block was taken");
}
