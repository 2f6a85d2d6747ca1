//! Files that are made by hand: where each kind of damage is said to be, and what an account says.

use crate::Temporary;
#[cfg(feature = "lz4")]
use crate::bombs::packed_bytes;
use crate::bombs::{block_head, bytes, chunk, entry, head, ring_page};
use manycore_trace::{Account, Trace};
use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};

/// Words of a sub-buffer.
const WORDS: u64 = 512;
/// Where the second chunk begins, and what follows the head of a copied sub-buffer's chunk.
const SECOND: u64 = 128;
const COPIED: u64 = SECOND + 32;
/// More than any count in a recording.
const LIMIT: u64 = 1 << 62;
/// A record of the schema's event, which has no field: its number and its length.
const EVENT: u64 = 16 << 40 | 1 << 32;

fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
    [&head(WORDS)[..], &chunks.concat()].concat()
}

/// The chunk with the one event of these files.
fn schema() -> Vec<u8> {
    let entry = entry(1);
    let length = 32 + entry.len() as u64;
    [chunk(b"MCSCHEMA", length, &[entry.len() as u64, 0]), entry].concat()
}

/// A copied sub-buffer of this ring: its head's first words, and its records.
fn copied(ring: u64, front: [u64; 5], records: &[u64]) -> Vec<u8> {
    let words = [&[ring, 0][..], &front, &[0; 3], records].concat();
    chunk(b"MCTBLOCK", 16 + 8 * words.len() as u64, &words)
}

/// A sub-buffer with so many events: its sequence, and how many came and were dropped before it.
fn events(sequence: u64, first: u64, lost: u64, count: u64) -> Vec<u8> {
    let records = vec![EVENT; count as usize];
    copied(0, [sequence + 1, 0, 8 + count, first, lost], &records)
}

/// The chunk that ends a recording: refused events, and a row for each ring.
fn totals(refused: u64, rows: &[[u64; 4]]) -> Vec<u8> {
    let words = [&[refused, 0, 0][..], &rows.concat()].concat();
    chunk(b"MCTTOTAL", 16 + 8 * words.len() as u64, &words)
}

/// A packed sub-buffer with a head that claims `committed` words, and this behind it.
fn packed(committed: u64, length: u64, rest: &[u8]) -> Vec<u8> {
    let whole = 32 + 64 + rest.len() as u64;
    [chunk(b"MCTPACKD", whole, &[0, length]), block_head(committed), rest.to_vec()].concat()
}

fn account(file: Vec<u8>) -> Account {
    Trace::from_bytes(file).expect("a recording").account()
}

/// The places of a file's damage.
fn places(chunks: &[Vec<u8>]) -> Vec<(u64, &'static str)> {
    let damage = account(file(chunks)).damage;
    damage.iter().map(|damage| (damage.offset, damage.what)).collect()
}

#[test]
fn damage_of_chunks_has_its_place() {
    let whole = |length: u64| chunk(b"MCTRRING", length, &[]);
    assert_eq!(places(&[vec![1; 8]]), [(SECOND, "the file is cut between chunks")]);
    for mark in [b"MCTOTHER", b"MCTRACE1"] {
        let found = places(&[chunk(mark, 16, &[])]);
        assert_eq!(found, [(SECOND, "no chunk begins here")]);
    }
    for length in [0, 8, 15, 17, 20] {
        assert_eq!(places(&[whole(length)]), [(SECOND + 8, "no length of a chunk")], "{length}");
    }
    assert_eq!(places(&[whole(16)]), []);
    assert_eq!(places(&[whole(24)]), [(SECOND + 16, "the file is cut within a chunk")]);
    // Behind a chunk that is being made, nothing is looked at.
    assert_eq!(places(&[vec![0; 16], vec![1; 16]]), []);
}

#[test]
fn damage_of_a_schema_has_its_place_and_costs_no_entry_before_it() {
    let entry = entry(1);
    let room = entry.len() as u64;
    let schema = |committed: u64, rest: &[u8]| {
        let length = 32 + room + rest.len() as u64;
        [&chunk(b"MCSCHEMA", length, &[committed, 0])[..], &entry, rest].concat()
    };
    let short = copied(0, [1, 0, 9, 0, 0], &[EVENT]);
    for (schema, damage) in [
        (schema(room, &[]), None),
        (schema(room + 8, &[]), Some((SECOND + 16, "a schema beyond its chunk"))),
        (schema(room + 8, &[0xff; 8]), Some((SECOND + 32 + room, "no entry of a schema"))),
        // What is not committed yet is not looked at.
        (schema(room, &[0xff; 8]), None),
    ] {
        let chunks = [schema, short.clone()];
        assert_eq!(places(&chunks), damage.as_slice());
        assert_eq!(account(file(&chunks)).merged, 1);
    }
}

#[test]
fn entries_that_are_not_committed_are_not_read() {
    let mut next = entry(1);
    next[4] = 17;
    let length = entry(1).len() as u64;
    for (committed, count) in [(length, 1), (2 * length, 2)] {
        let front = chunk(b"MCSCHEMA", 32 + 2 * length, &[committed, 0]);
        let trace = Trace::from_bytes(file(&[front, entry(1), next.clone()])).expect("whole");
        assert_eq!(trace.events().count(), count);
    }
}

/// Later versions may add to an entry; this one is as long as any.
#[test]
fn entries_of_a_schema_are_up_to_128_kib_long() {
    for (length, count) in [(128 << 10, 1), ((128 << 10) + 8, 0)] {
        let mut entry = entry(1);
        entry.resize(length, 1);
        entry[..4].copy_from_slice(&(length as u32).to_le_bytes());
        let front = chunk(b"MCSCHEMA", 32 + length as u64, &[length as u64, 0]);
        let trace = Trace::from_bytes(file(&[front, entry])).expect("a recording");
        assert_eq!(trace.events().count(), count, "{length}");
    }
}

#[test]
fn damage_of_rings_has_its_place() {
    let ring = |number, words, blocks: &[Vec<u8>]| {
        let length = 8 * (WORDS + WORDS * blocks.len() as u64);
        let mut ring = ring_page(length, number, words, blocks.len() as u64);
        for block in blocks {
            ring.extend(block);
            ring.resize(ring.len().next_multiple_of(8 * WORDS as usize), 0);
        }
        ring
    };
    let number = [(SECOND + 16, "no number of a ring")];
    assert_eq!(places(&[ring(1 << 32, WORDS, &[])]), number);
    assert_eq!(places(&[ring(u64::from(u32::MAX), WORDS, &[])]), []);
    let size = [(SECOND + 24, "another size of sub-buffers")];
    assert_eq!(places(&[ring(0, WORDS + 1, &[])]), size);

    // A ring's page ends with its chunk, whatever is behind that.
    for (length, rings) in [(8 * WORDS - 8, 0), (8 * WORDS, 1)] {
        let page = ring_page(length, 0, WORDS, 0)[..length as usize].to_vec();
        let trace = Trace::from_bytes(file(&[page, schema()])).expect("a recording");
        assert_eq!(trace.slots(), rings, "{length}");
    }

    let block = |sequence: u64| {
        let mut block = block_head(9);
        block[..8].copy_from_slice(&(sequence + 1).to_le_bytes());
        block[24..32].copy_from_slice(&sequence.to_le_bytes());
        [block, bytes(&[EVENT])].concat()
    };
    let blocks = SECOND + 8 * WORDS;
    let wrong = "a sub-buffer at a wrong place of its ring";
    for (sequences, damage) in [
        ([0, 1], vec![]),
        ([2, 1], vec![]),
        ([2, 3], vec![]),
        ([1, 1], vec![(blocks, wrong)]),
        ([0, 2], vec![(blocks + 8 * WORDS, wrong)]),
        ([1, 0], vec![(blocks, wrong), (blocks + 8 * WORDS, wrong)]),
    ] {
        let ring = ring(0, WORDS, &sequences.map(block));
        assert_eq!(places(&[ring, schema()]), damage, "{sequences:?}");
    }

    let row = SECOND + 40;
    for (rows, damage) in [
        (vec![[0; 4], [5, 0, 0, 0]], None),
        (vec![[5, 0, 0, 0], [5, 0, 0, 0]], Some((row + 32, "no number of a ring"))),
        (vec![[u64::from(u32::MAX) - 1, 0, 0, 0]], None),
        (vec![[u64::from(u32::MAX), 0, 0, 0]], Some((row, "no number of a ring"))),
    ] {
        assert_eq!(places(&[totals(0, &rows)]), damage.as_slice(), "{rows:?}");
        // What follows is no row.
        assert_eq!(places(&[totals(0, &rows), schema()]), damage.as_slice(), "{rows:?}");
    }
}

#[test]
fn damage_of_a_sub_buffer_s_head_has_its_place() {
    let block = |front: [u64; 5]| places(&[copied(0, front, &[0; 504])]);
    assert_eq!(places(&[copied(1 << 32, [1; 5], &[])]), [(SECOND + 16, "no number of a ring")]);
    // A head ends with its chunk, too.
    for (words, rings) in [(7, 0), (8, 1)] {
        let front = [&[0, 0, 1, 0, 8][..], &vec![0; words - 3]].concat();
        let short = chunk(b"MCTBLOCK", 32 + 8 * words as u64, &front);
        let trace = Trace::from_bytes(file(&[short, schema()])).expect("a recording");
        assert_eq!(trace.slots(), rings, "{words}");
    }
    let unbegun = [(COPIED, "a copied sub-buffer without a sequence")];
    assert_eq!(block([0, 0, 8, 0, 0]), unbegun);
    for committed in [8, WORDS] {
        assert_eq!(block([1, 0, committed, 0, 0]), [], "{committed}");
    }
    for committed in [0, 7, WORDS + 1, u64::MAX] {
        let place = (COPIED + 16, "no count of complete words");
        assert_eq!(block([1, 0, committed, 0, 0]), [place], "{committed}");
    }
    assert_eq!(block([LIMIT, LIMIT - 1, 8, LIMIT - 1, LIMIT - 1]), []);
    for word in [0, 1, 3, 4] {
        let mut front = [1, 0, 8, LIMIT - 1, 0];
        front[word] = LIMIT + u64::from(word == 0);
        assert_eq!(block(front), [(COPIED, "a number that no recording reaches")], "{word}");
    }
}

#[test]
fn damage_of_a_packed_sub_buffer_has_its_place() {
    let records = COPIED + 64;
    let beyond = [(SECOND + 24, "a packed sub-buffer beyond its chunk")];
    assert_eq!(places(&[packed(10, 17, &[0; 16])]), beyond);
    let longer = [(records, "a packed sub-buffer that is longer than unpacked")];
    assert_eq!(places(&[packed(10, 17, &[0; 24])]), longer);
    // 504 words are 4,032 bytes, which are 252 sixteenfold.
    let unfolds = [(records, "a packed sub-buffer that unfolds over 16-fold")];
    assert_eq!(places(&[packed(WORDS, 8, &[0; 248])]), unfolds);
    let packs = if cfg!(feature = "lz4") {
        "a packed sub-buffer that can't be unpacked"
    } else {
        "a packed sub-buffer, and this program has no feature lz4"
    };
    for (committed, length, room) in [(WORDS, 8, 256), (WORDS - 8, 8, 248), (10, 16, 16)] {
        let found = places(&[packed(committed, length, &vec![0; room])]);
        assert_eq!(found, [(records, packs)], "{committed}");
    }
}

/// Its 4,032 bytes are all 0, and take the sixteenth part.
#[cfg(feature = "lz4")]
#[test]
fn packed_sub_buffer_is_filled_up_to_a_sixteenth() {
    let zeros = packed_bytes(0, 8 * (WORDS as usize - 8));
    let length = zeros.len();
    let mut rest = zeros;
    rest.resize(4032 / 16, 0xff);
    rest.resize(256, 0);
    let whole = packed(WORDS, length as u64, &rest);
    assert_eq!(places(&[whole]), []);
    let bad = (COPIED + 64, "a packed sub-buffer that can't be unpacked");
    for at in [length, 4032 / 16 - 1] {
        let mut rest = rest.clone();
        rest[at] = 0;
        assert_eq!(places(&[packed(WORDS, length as u64, &rest)]), [bad], "{at}");
    }
}

#[test]
fn damage_of_records_has_its_place_and_costs_none_before_it() {
    const TIME: u64 = 1 << 40;
    const THREAD: u64 = 2 << 40;
    let length = |words: u64| words << 32;
    let bad = "no length of a record";
    for (records, damage) in [
        (vec![EVENT, EVENT], None),
        (vec![EVENT, 16 << 40, EVENT], Some((8, bad))),
        (vec![EVENT, 16 << 40 | length(2)], Some((8, bad))),
        (vec![EVENT, TIME | length(1)], Some((8, bad))),
        (vec![EVENT, TIME | length(2), LIMIT], Some((8, bad))),
        (vec![EVENT, TIME | length(2), LIMIT - 1], None),
        (vec![EVENT, THREAD | length(2), 1], Some((8, bad))),
        (vec![EVENT, THREAD | length(3), 1, 0], None),
        (vec![EVENT, EVENT, 17 << 40 | length(1)], Some((16, "an event without a schema"))),
    ] {
        let block = copied(0, [1, 0, 8 + records.len() as u64, 0, 0], &records);
        let schema = schema();
        let start = COPIED + 64 + schema.len() as u64;
        let damage: Vec<_> = damage.iter().map(|(offset, what)| (start + offset, *what)).collect();
        let chunks = [schema, block];
        assert_eq!(places(&chunks), damage, "{records:x?}");
        assert!(account(file(&chunks)).merged >= 1, "{records:x?}");
    }
    // Each number that the schema lacks is listed once.
    let unknown = copied(0, [1, 0, 10, 0, 0], &[EVENT, EVENT]);
    assert_eq!(places(&[unknown]), [(COPIED + 64, "an event without a schema")]);
}

/// Files are read in pieces of 64 KiB.
#[test]
fn sub_buffer_of_several_pieces_has_all_its_records() {
    const LARGE: u64 = 1 << 15;
    let block = events(0, 0, 0, LARGE - 8);
    let account = account([head(LARGE), schema(), block].concat());
    assert_eq!(sums(&account), (LARGE - 8, LARGE - 8, 0, 0));
    assert!(account.is_closed(), "{account}");
    // A word of 0 behind the first piece: less than a piece of them is no hole.
    let records = [&vec![EVENT; 8183][..], &[1 << 40 | 2 << 32, 0]].concat();
    let block = copied(0, [1, 0, 8193, 0, 0], &records);
    let account = self::account([head(LARGE), schema(), block].concat());
    assert_eq!((sums(&account), account.damage.len()), ((8183, 8183, 0, 0), 0), "{account}");
}

#[test]
fn sub_buffers_that_go_back_are_damage_at_their_place() {
    let schema = schema();
    let front = events(0, 0, 0, 3);
    let second = SECOND + (schema.len() + front.len() + 32) as u64;
    let front_at = |base: u64| copied(0, [1, base, 9, 0, 0], &[EVENT]);
    for (front, head, is_bad) in [
        (&front, [2, 0, 9, 3, 0], false),
        (&front, [2, 0, 9, 2, 0], true),
        (&front, [2, 0, 9, 3, 4], true),
        (&front, [2, 0, 9, 3, 3], false),
        (&front_at(1 << 32), [2, 1 << 32, 9, 1, 0], false),
        (&front_at(1 << 32), [2, (1 << 32) - 1, 9, 1, 0], true),
    ] {
        let found = places(&[schema.clone(), front.clone(), copied(0, head, &[EVENT])]);
        let at = second + front.len() as u64 - events(0, 0, 0, 3).len() as u64;
        let damage = is_bad.then_some((at, "a sub-buffer that goes back"));
        assert_eq!(found, damage.as_slice(), "{head:?}");
    }
}

/// (produced, merged, lost, missing)
fn sums(account: &Account) -> (u64, u64, u64, u64) {
    (account.produced, account.merged, account.lost, account.missing)
}

#[test]
fn accounts_tell_what_was_lost_from_what_is_missing() {
    for (blocks, row, refused, expected) in [
        (vec![events(0, 0, 0, 3)], [3, 0, 0], 0, (3, 3, 0, 0)),
        // Overwritten before the first one that is left.
        (vec![events(2, 10, 0, 3)], [13, 0, 0], 0, (13, 3, 10, 0)),
        // Dropped between two, counted by the writer and not.
        (vec![events(0, 0, 0, 3), events(1, 5, 2, 2)], [7, 2, 0], 0, (7, 5, 2, 0)),
        (vec![events(0, 0, 0, 3), events(1, 5, 0, 2)], [7, 0, 0], 0, (7, 5, 0, 2)),
        (vec![events(0, 0, 0, 3), events(1, 9, 2, 2)], [11, 2, 0], 0, (11, 5, 2, 4)),
        (vec![events(0, 4, 4, 3), events(1, 9, 6, 2)], [11, 6, 0], 0, (11, 5, 6, 0)),
        // A sub-buffer is not in the file.
        (vec![events(0, 0, 0, 3), events(3, 20, 0, 2)], [22, 0, 0], 0, (22, 5, 0, 17)),
        // After the last one.
        (vec![events(0, 0, 0, 3)], [10, 4, 0], 0, (10, 3, 4, 3)),
        (vec![events(0, 2, 2, 3)], [9, 6, 0], 0, (9, 3, 6, 0)),
        (vec![events(0, 0, 0, 3)], [0, 0, 0], 0, (3, 3, 0, 0)),
        (vec![events(0, 0, 0, 3)], [3, 0, 5], 0, (8, 3, 5, 0)),
        // In front of the ring's very first, nothing can have been overwritten.
        (vec![events(0, 4, 0, 3)], [7, 0, 0], 0, (7, 3, 0, 4)),
        // A sub-buffer without a record counts what was dropped before it.
        (vec![events(0, 0, 0, 3), events(1, 5, 2, 0)], [0, 0, 0], 0, (5, 3, 2, 0)),
        // A ring without a sub-buffer.
        (vec![], [9, 4, 2], 0, (11, 0, 6, 5)),
        (vec![events(0, 0, 0, 3)], [3, 0, 0], 6, (9, 3, 6, 0)),
    ] {
        let rows = [[0, row[0], row[1], row[2]], [7, 100, 30, 1]];
        let file = |rows| file(&[&[schema()], &blocks[..], &[totals(refused, rows)]].concat());
        assert_eq!(sums(&account(file(&rows[..1]))), expected, "{row:?}");
        let (produced, merged, lost, missing) = expected;
        let both = (produced + 101, merged, lost + 31, missing + 70);
        assert_eq!(sums(&account(file(&rows))), both, "{row:?}");
    }
}

#[test]
fn accounts_read_as_sums_with_the_damage_behind_them() {
    let gap = [schema(), events(0, 0, 0, 3), events(1, 5, 0, 2)];
    let says = |chunks: &[Vec<u8>]| account(file(chunks)).to_string();
    let is_closed = |chunks: &[Vec<u8>]| account(file(chunks)).is_closed();
    assert!(is_closed(&gap[..2]) && !is_closed(&gap), "nothing but events is missing");
    assert!(!is_closed(&[vec![1; 8]]), "nothing but bytes is damaged");
    assert_eq!(says(&gap[..2]), "3 produced = 3 merged + 0 lost");
    assert_eq!(says(&gap), "7 produced = 5 merged + 0 lost + 2 missing");
    let cut = says(&[&gap[..2], &[vec![1; 8]]].concat());
    let end = file(&gap[..2]).len();
    let damage = format!("damaged at byte {end}: the file is cut between chunks");
    assert_eq!(cut, format!("3 produced = 3 merged + 0 lost\n{damage}"));
}

#[test]
fn merge_from_a_number_leaves_out_what_is_before_it_and_accounts_for_it() {
    let blocks = [schema(), events(0, 0, 0, 3), events(1, 5, 2, 2)];
    let bytes = file(&[&blocks[..], &[totals(0, &[[0, 7, 2, 0]])]].concat());
    let all = [0, 1, 2, 5, 6];
    for from in 0..9 {
        let mut trace = Trace::from_bytes(bytes.clone()).expect("a recording");
        let mut merge = trace.merge_from(&BTreeMap::from([(0, from), (1, 100)]));
        let mut found = Vec::new();
        while let Some(record) = merge.next() {
            found.push(record.sequence);
        }
        assert!(all.iter().filter(|at| **at >= from).eq(&found), "from {from}: {found:?}");
        assert_eq!(sums(&merge.into_account()), (7, 5, 2, 0), "from {from}");
    }
}

/// Between the look for sub-buffers and their turn, a writer may begin a new one in the same place.
#[test]
fn what_is_overwritten_while_it_is_read_is_lost_and_no_damage() {
    let blocks = [events(0, 0, 0, 3), events(1, 3, 0, 3), events(2, 6, 0, 3)];
    let front = file(&[schema()]).len() as u64;
    for (overwritten, sum) in [(0, (9, 6, 3, 0)), (1, (9, 6, 3, 0))] {
        let path = Temporary::new("overtaken");
        let bytes = file(&[&[schema()], &blocks[..]].concat());
        std::fs::write(path.as_ref(), bytes).expect("a file");
        let mut trace = Trace::open(&path).expect("a recording");
        let mut file = std::fs::OpenOptions::new().write(true).open(&path).expect("the file");
        let at = front + overwritten * blocks[0].len() as u64 + 32;
        file.seek(SeekFrom::Start(at)).expect("a place");
        file.write_all(&9_u64.to_le_bytes()).expect("room on the disk");
        let account = trace.account();
        assert_eq!((sums(&account), account.damage.len()), (sum, 0), "{overwritten}");
    }
}

/// The low half of a time goes on from the one before.
#[test]
fn times_go_on_from_those_before_them() {
    let at = |low: u64| EVENT | low;
    let time = [1 << 40 | 2 << 32, 7 << 32 | 5];
    let records = [at(10), at(10), at(9), time[0], time[1], at(4), at(6)];
    let block = copied(0, [1, 3 << 32, 15, 0, 0], &records);
    let mut trace = Trace::from_bytes(file(&[schema(), block])).expect("a recording");
    let mut merge = trace.merge();
    let mut times = Vec::new();
    while let Some(record) = merge.next() {
        times.push((record.time >> 32, record.time & 0xffff_ffff));
    }
    assert_eq!(times, [(3, 10), (3, 10), (4, 9), (8, 4), (8, 6)]);
}

#[test]
fn thread_and_its_name_are_those_of_the_last_record_about_it() {
    let block = |sequence: u64, thread: u64, records: &[u64]| {
        let first = sequence.saturating_sub(1);
        let head = [0, 0, sequence + 1, 0, 8 + records.len() as u64, first, 0, thread, 0, 0];
        let words = [&head[..], records].concat();
        chunk(b"MCTBLOCK", 16 + 8 * words.len() as u64, &words)
    };
    let name = u64::from_le_bytes(*b"listener");
    let named = |words: usize, length: u64| {
        let front = [2 << 40 | (3 + words as u64) << 32, 7, length];
        [&front[..], &vec![name; words], &[EVENT]].concat()
    };
    let blocks = [
        block(0, 7, &named(1, 4)[..4]),
        block(1, 7, &[EVENT]),
        block(2, 8, &[EVENT]),
        // 64 bytes of a name are kept.
        block(3, 7, &named(9, 72)),
    ];
    let mut trace = Trace::from_bytes(file(&[&[schema()], &blocks[..]].concat())).expect("whole");
    let mut merge = trace.merge();
    let mut found = Vec::new();
    while let Some(record) = merge.next() {
        found.push((record.thread, record.thread_name().to_owned()));
    }
    assert_eq!(found, [(7, "list".into()), (8, String::new()), (7, "listener".repeat(8))]);
    assert!(merge.into_account().is_closed());
}

#[test]
fn a_recording_s_clock_is_read_from_its_head() {
    let with = |words: &[(usize, u64)]| {
        let mut bytes = head(WORDS);
        for (word, value) in words {
            bytes[8 * word..][..8].copy_from_slice(&value.to_le_bytes());
        }
        Trace::from_bytes(bytes).expect("a recording")
    };
    // 1,000 ticks a second; tick 100 is at 5 us, and tick 1,100 500 us later than it says.
    let (rate, ticks, nanos, process) = ((3, 1000), (4, 100), (5, 5000), (7, 42));
    let end = |ticks, nanos| [rate, (4, 100), (5, 5000), process, (9, ticks), (10, nanos)];
    let trace = with(&end(1100, 5000 + 1_000_500_000));
    assert_eq!((trace.ticks_per_second(), trace.start(), trace.process()), (1000, 5000, 42));
    assert_eq!((trace.nanos(100), trace.nanos(101), trace.nanos(99)), (0, 1_000_000, -1_000_000));
    let drift = trace.drift().expect("an end");
    assert!((drift - 500.0).abs() < 1e-6, "{drift}");
    for (ticks, nanos) in [(0, 0), (100, 5000), (99, 6000), (1100, 4999)] {
        assert_eq!(with(&end(ticks, nanos)).drift(), None, "{ticks} {nanos}");
    }
    let slow = with(&[(3, 1), ticks, nanos]);
    assert_eq!((slow.nanos(u64::MAX), slow.slots()), (i64::MAX, 0));
    assert_eq!(with(&[(3, 1), (4, u64::MAX)]).nanos(0), i64::MIN);
}

/// A pipe has no length: a recording is read to its end, and anything else is not waited for.
#[cfg(unix)]
#[test]
fn pipes_are_read_to_their_end_if_a_recording_begins_in_them() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    let pair = || UnixStream::pair().expect("two sockets");
    let bytes = file(&[schema(), events(0, 0, 0, 300)]);
    let (reader, mut writer) = pair();
    let trace = std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(&bytes).expect("a reader"));
        Trace::from_file(OwnedFd::from(reader).into())
    });
    assert_eq!(sums(&trace.expect("a recording").account()), (300, 300, 0, 0));

    let (reader, mut writer) = pair();
    writer.write_all(&[b'x'; 128]).expect("a reader");
    assert!(Trace::from_file(OwnedFd::from(reader).into()).is_err());
    drop(writer);
}
