use super::*;

/// Some logs have their payloads forged, with checksums that hold.
fn payloads() -> Vec<Vec<u8>> {
    let pairs: [Pair; 1] = [((*b"user.x").into(), (*b"value").into())];
    let mut change = Change::new(BranchId(0));
    change.gone(Ino(70));
    change.entry(Ino::ROOT, b"name", Some((Ino(71), Kind::File)), true);
    change.bytes(Ino(71), 5, 3);
    change.0.extend(b"abc");
    change.shrink(Ino(71), 4);
    change.cut(Ino(71), 1, 2);
    change.xattrs(Ino(71), &pairs);
    change.hole(Ino(71), 0);
    change.clear(Ino(71), 0, 1);
    vec![
        base(Some((b"/base", 7))),
        base(None),
        fork(BranchId(0), BranchId(1), -1, "try"),
        commit(BranchId(1)),
        abort(BranchId(1)),
        directory(Ino::ROOT, [(Ino(64), &b"a"[..]), (Ino(65), b"b")].into_iter()),
        ready(2, 3),
        change.0,
    ]
}

fn log(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = start(9);
    for (at, payload) in payloads.iter().enumerate() {
        let sum = checksum(&[payload]);
        bytes.extend(header(9, payload.len() as u32, sum, at as u64 + 1, 0));
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// Reads to the end. Returns how many records were whole.
fn read(bytes: &[u8]) -> usize {
    let Ok(Ok(mut reader)) = Reader::new(bytes, bytes.len() as u64) else { return 0 };
    let mut count = 0;
    while let Step::Record { number } = reader.step().expect("bytes in memory") {
        count += 1;
        assert_eq!(number, count as u64);
        assert!(reader.payload.len() <= bytes.len(), "record.E3");
        assert!(decode(&reader.payload).is_some());
    }
    count
}

#[test]
fn records_are_read_as_they_were_written() {
    let payloads = payloads();
    assert_eq!(read(&log(&payloads)), payloads.len());
    let Some(Record::Change(BranchId(0), items)) = decode(&payloads[7]) else { panic!() };
    let Item::Bytes { file: Ino(71), offset: 5, bytes: b"abc" } = items[2] else { panic!() };
    let Item::Xattrs { pairs, .. } = &items[5] else { panic!() };
    assert_eq!((items.len(), &*pairs[0].1), (8, &b"value"[..]));
    let Some(Record::Fork { created: -1, name: "try", .. }) = decode(&payloads[2]) else {
        panic!()
    };
}

#[test]
fn log_cut_or_damaged_at_each_byte_has_the_records_before() {
    let payloads = payloads();
    let log = log(&payloads);
    let mut ends = vec![START as usize];
    for payload in &payloads {
        ends.push(ends.last().unwrap() + HEADER + payload.len());
    }
    for at in 0..log.len() {
        let whole = ends.iter().filter(|end| **end <= at).count().saturating_sub(1);
        assert_eq!(read(&log[..at]), whole, "cut at {at}");
        for bit in 0..8 {
            let mut damaged = log.clone();
            damaged[at] ^= 1 << bit;
            assert_eq!(read(&damaged), whole, "bit {bit} of {at}");
        }
    }
}

/// Payloads whose checksum holds, but which nobody wrote: refused or read, without a panic, and
/// with no more memory than their bytes ask for.
#[test]
fn forged_payloads_are_bounded() {
    for payload in payloads() {
        for length in 0..payload.len() {
            let _ = decode(&payload[..length]);
        }
        for at in 0..payload.len() {
            for byte in [0, 1, 7, 0x7f, 0x80, 0xff] {
                let mut forged = payload.clone();
                forged[at] = byte;
                let _ = decode(&forged);
            }
        }
    }
    // Counts beyond all bytes.
    let mut change = Change::new(BranchId(0));
    change.item(XATTRS, &[71, u64::MAX]);
    assert!(decode(&change.0).is_none());
    let mut change = Change::new(BranchId(0));
    change.bytes(Ino(71), 0, u32::MAX as usize);
    assert!(decode(&change.0).is_none());
}

#[test]
fn what_was_synced_is_told_from_a_torn_tail() {
    let payloads = payloads();
    let log = log(&payloads);
    let second = START as usize + HEADER + payloads[0].len();
    assert_eq!(behind(&log[second..second + 20], 9, 1), Behind::Nothing);
    assert_eq!(behind(&log[second + 1..], 9, 1), Behind::Unsynced);
    assert_eq!(behind(&log[second + 1..], 10, 1), Behind::Nothing, "record.E1: another salt");
    let sum = checksum(&[b"x"]);
    let later = [&log[second + 1..], &header(9, 1, sum, 9, 2), b"x"].concat();
    assert_eq!(behind(&later, 9, 1), Behind::Synced);
    assert_eq!(behind(&later, 9, 2), Behind::Unsynced);
}
