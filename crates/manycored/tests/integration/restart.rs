//! Items in a file and back, without a process: what comes back is what was there, or nothing does.

use crate::common::{Server, expect};
use crate::rng::Rng;
use manycored::protocol::Mode;
use manycored::restart::{BLOCK, HEADER, Header, Loaded, Refusal, load, save};
use manycored::server_state::{ServerState, Settings};
use manycored::store::{Limits, NewItem, Store, StoreCondition};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

/// Everything that is known of an item, but its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    value: Vec<u8>,
    numbers: (u32, u32, u64, u64, u32),
    marks: [bool; 4],
}

fn all(store: &Store) -> BTreeMap<Vec<u8>, Known> {
    let (mut found, mut next) = (BTreeMap::new(), Some(manycore_cache::Cursor::default()));
    while let Some(cursor) = next {
        next = store.scan(cursor, 64, |item| {
            let numbers = (item.flags(), item.deadline(), item.cas(), item.stamp(), item.used());
            let marks = [item.is_sent(), item.was_fetched(), item.is_stale(), item.is_binary()];
            let known = Known { value: item.value().into_owned(), numbers, marks };
            found.insert(item.key().to_vec(), known);
        });
    }
    found
}

fn saved(store: &Store) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let saved = save(store, &mut file, SystemTime::now()).unwrap();
    assert_eq!((saved.bytes, store.len()), (file.get_ref().len() as u64, 0));
    file.into_inner()
}

/// The store that begins with this file, so long after it was written.
fn loaded(file: &[u8], limits: Limits, later: u64) -> Result<(Store, Loaded), Refusal> {
    let header = Header::decode(&file[..file.len().min(HEADER)], file.len() as u64)?;
    let now = SystemTime::now() + Duration::from_secs(later);
    let store = Store::beginning_with(limits, 2, header.beginning(now)?);
    let (mut rest, mut last) = (&file[HEADER..], 0);
    let loaded = load(&header, &mut rest, &store, |read| last = read)?;
    assert!(header.items() == 0 || last == file.len() as u64);
    Ok((store, loaded))
}

fn again(server: &Server, limits: Limits, later: u64) -> (Server, Loaded) {
    let (store, loaded) = loaded(&saved(&server.store), limits, later).unwrap();
    (Server { store, state: ServerState::default() }, loaded)
}

/// Items of all kinds.
fn fill(store: &Store, rng: &mut Rng, count: usize) {
    let mut handle = store.handle(rng.below(2));
    for number in 0..count {
        let mut key = format!("key{number}").into_bytes();
        key.resize(key.len() + [0, 30, 200][rng.below(3)], b'.');
        let longest = *rng.pick(&[10, 100, 1000, 3 * BLOCK]);
        let value: Vec<u8> = (0..rng.below(longest)).map(|_| rng.next() as u8).collect();
        let new_item = NewItem {
            flags: if rng.once_in(2) { rng.next() as u32 } else { 0 },
            deadline: store.clock().deadline(if rng.once_in(2) { 1000 } else { 0 }),
            cas: rng.once_in(3).then(|| rng.next()),
            is_binary: rng.once_in(3),
            is_stale: rng.once_in(3),
            is_sent: rng.once_in(3),
            ..NewItem::new(&key, &value)
        };
        handle.put(&new_item, StoreCondition::plain(Mode::Set));
        if rng.once_in(2) {
            store.clock().move_on(1 + rng.below(3) as u32);
            store.tick();
            handle.peek(&key).unwrap().key().touch(store.clock().second());
        }
    }
}

#[test]
fn items_come_back_with_all_that_is_known_of_them() {
    let seed = crate::env::seed();
    println!("seed {seed:#x}");
    let mut rng = Rng::new(seed);
    for count in [0, 1, 2, 300] {
        let store = Store::new(Limits::default(), 2);
        fill(&store, &mut rng, count);
        let before = all(&store);
        assert_eq!(before.len(), count);
        let file = saved(&store);
        let (new, loaded) = loaded(&file, Limits::default(), 0).unwrap();
        assert_eq!(loaded, Loaded { restored: count as u64, ..Loaded::default() });
        assert!(all(&new) == before, "seed {seed:#x}");
        // And they can be saved again.
        let (new, _) = self::loaded(&saved(&new), Limits::default(), 0).unwrap();
        assert!(all(&new) == before, "seed {seed:#x}");
    }
}

/// Changes the file at one place.
fn damage(file: &mut Vec<u8>, other: &[u8], rng: &mut Rng) -> String {
    let (at, to) = (rng.below(file.len()), rng.below(file.len()));
    match rng.below(7) {
        0 => {
            file.truncate(at);
            format!("{at} bytes are left")
        }
        1 => {
            file.extend_from_slice(&other[..(1 + at % 100).min(other.len())]);
            format!("{} bytes are behind it", (1 + at % 100).min(other.len()))
        }
        2 => {
            let end = (at + 1 + rng.below(1000)).min(file.len());
            file[at..end].iter_mut().for_each(|byte| *byte = rng.next() as u8);
            format!("noise at {at}..{end}")
        }
        3 => {
            let end = (at + 4096).min(file.len());
            file[at..end].fill(0);
            format!("zeros at {at}..{end}")
        }
        // A block of another file, and of another place.
        4 => {
            let from = HEADER + (BLOCK + 8) * rng.below(3);
            let end = (from + BLOCK + 8).min(file.len()).min(other.len());
            file[from.min(end)..end].copy_from_slice(&other[from.min(end)..end]);
            format!("another file's bytes at {from}..{end}")
        }
        5 => {
            let (from, onto) = (HEADER + (BLOCK + 8) * (at % 3), HEADER + (BLOCK + 8) * (to % 3));
            let count = (BLOCK + 8).min(file.len().saturating_sub(from.max(onto)));
            file.copy_within(from..from + count, onto);
            format!("{count} bytes of {from} at {onto}")
        }
        _ => {
            file[at] ^= 1 << rng.below(8);
            format!("a bit at {at}")
        }
    }
}

#[test]
fn damaged_file_is_refused_whole() {
    let seed = crate::env::seed();
    println!("seed {seed:#x}");
    let mut rng = Rng::new(seed);
    let (store, other) = (Store::new(Limits::default(), 2), Store::new(Limits::default(), 2));
    fill(&store, &mut rng, 40);
    fill(&other, &mut rng, 40);
    let (before, file, other) = (all(&store), saved(&store), saved(&other));
    let (mut refused, mut reasons) = (0, BTreeMap::<String, usize>::new());
    for _ in 0..crate::env::rounds(150) {
        let mut wrong = file.clone();
        let what = damage(&mut wrong, &other, &mut rng);
        match loaded(&wrong, Limits::default(), 0) {
            Err(refusal) => {
                assert!(wrong != file, "{what}: {refusal}, seed {seed:#x}");
                refused += 1;
                let reason = refusal.to_string().replace(char::is_numeric, "");
                *reasons.entry(reason).or_default() += 1;
            }
            Ok((new, _)) => {
                // Zeros or copies where they were before.
                assert!(wrong == file, "{what} was taken, seed {seed:#x}");
                assert!(all(&new) == before, "{what}, seed {seed:#x}");
            }
        }
    }
    println!("{refused} refused: {reasons:?}");
    assert!(refused > 0);
}

/// Takes so many bytes, as a file system with no more room does.
struct Full(Cursor<Vec<u8>>, usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.position() as usize + bytes.len() > self.1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Full {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn file_without_room_for_all_is_no_file() {
    for room in [0, HEADER, HEADER + BLOCK, HEADER + 4 * BLOCK] {
        let store = Store::new(Limits::default(), 2);
        fill(&store, &mut Rng::new(7), 100);
        let mut file = Full(Cursor::new(Vec::new()), room);
        let error = save(&store, &mut file, SystemTime::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let refusal = loaded(file.0.get_ref(), Limits::default(), 0).map(drop).unwrap_err();
        assert!(matches!(refusal, Refusal::Foreign), "{refusal}");
    }
}

/// What can be read without a checksum's help must not be believed either.
#[test]
fn each_bit_of_a_small_file_counts() {
    let store = Store::new(Limits::default(), 2);
    store.handle(0).put(&NewItem::new(b"key", b"value"), StoreCondition::plain(Mode::Set));
    let file = saved(&store);
    for bit in (0..16 * 8).chain((HEADER - 4) * 8..file.len() * 8) {
        let mut wrong = file.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(loaded(&wrong, Limits::default(), 0).is_err(), "bit {bit}");
    }
    for length in (0..20).chain(HEADER - 2..file.len()) {
        assert!(loaded(&file[..length], Limits::default(), 0).is_err(), "{length} bytes");
    }
}

#[test]
fn times_and_marks_go_on_where_they_were() {
    let server = Server::new();
    expect(&server, "set short 0 10 1\na\nset long 7 500 1\nb\nset ever 0 0 1\nc\n", {
        "STORED\nSTORED\nSTORED\n"
    });
    expect(&server, "ms Zm9v 1 b\nx\nms won 1\ny\nmd won I T500\n", "HD\nHD\nHD\n");
    expect(&server, "mg won v\nms own 1 E99\nz\n", "VA 1 X W\ny\nHD\n");
    server.store.clock().move_on(4);
    expect(&server, "mg ever t l h\n", "HD t-1 l4 h0\n");
    let (server, loaded) = again(&server, Limits::default(), 100);
    assert_eq!((loaded.restored, loaded.expired), (5, 1));
    expect(&server, "get short\nget long\n", "END\nVALUE long 7 1\nb\nEND\n");
    expect(&server, "mg Zm9v b k v\nmg foo v\n", "VA 1 kZm9v b\nx\nVA 1\nx\n");
    // Another client was told to make it anew.
    expect(&server, "mg won v\nmg own c\n", "VA 1 Z X\ny\nHD c99\n");
    let life = server.say("mg ever l h\nmg long t\n");
    let (ever, long) = life.split_once('\n').unwrap();
    assert!(["HD l100 h1", "HD l101 h1"].contains(&ever), "{ever}");
    let left: i64 = long.trim().strip_prefix("HD t").unwrap().parse().unwrap();
    assert!((394..=397).contains(&left), "{left}");
}

#[test]
fn versions_of_before_are_known_and_not_given_again() {
    let server = Server::new();
    let version = |server: &Server, key: &str| {
        let reply = server.say(&format!("mg {key} c\n"));
        reply.trim().strip_prefix("HD c").unwrap().parse::<u64>().unwrap()
    };
    expect(&server, "set a 0 0 1\nx\nset b 0 0 1\nx\n", "STORED\nSTORED\n");
    let (a, b) = (version(&server, "a"), version(&server, "b"));
    expect(&server, "set b 0 0 1\ny\n", "STORED\n");
    let last = version(&server, "b");
    let (server, _) = again(&server, Limits::default(), 0);
    expect(&server, &format!("cas b 0 0 1 {b}\nz\n"), "EXISTS\n");
    expect(&server, &format!("cas a 0 0 1 {a}\nz\n"), "STORED\n");
    let new = version(&server, "a");
    assert!(new > last);
    let (server, _) = again(&server, Limits::default(), 1000);
    expect(&server, &format!("cas a 0 0 1 {a}\nw\n"), "EXISTS\n");
    expect(&server, &format!("cas b 0 0 1 {last}\nw\n"), "STORED\n");
    assert!(version(&server, "b") > new);
    // A file of a store that has made no item yet says nothing less.
    expect(&server, "set c 0 0 1\nx\n", "STORED\n");
    let all = version(&server, "c");
    let (server, _) = again(&server, Limits::default(), 0);
    let (server, _) = again(&server, Limits::default(), 0);
    expect(&server, "set d 0 0 1\nx\n", "STORED\n");
    assert!(version(&server, "d") > all);
}

#[test]
fn flush_that_was_to_come_comes() {
    for (later, is_there) in [(0, true), (60, false)] {
        let server = Server::new();
        expect(&server, "set a 0 0 1\nx\nflush_all 30\n", "STORED\nOK\n");
        let (server, _) = again(&server, Limits::default(), later);
        let found = if is_there { "VALUE a 0 1\nx\nEND\n" } else { "END\n" };
        expect(&server, "get a\n", found);
        expect(&server, "set b 0 0 1\nx\nget b\n", "STORED\nVALUE b 0 1\nx\nEND\n");
        server.store.clock().move_on(40);
        expect(&server, "get a\n", "END\n");
        expect(&server, "get b\n", if is_there { "END\n" } else { "VALUE b 0 1\nx\nEND\n" });
    }
}

#[test]
fn flushed_items_are_not_saved() {
    let limits = || Limits { delimiter: Some(b':'), ..Limits::default() };
    let server = Server::with(limits(), Settings::default());
    expect(&server, "set a:1 0 0 1\nx\nset b:1 0 0 1\nx\nflush_prefix a\n", "STORED\nSTORED\nOK\n");
    let (other, loaded) = again(&server, Limits::default(), 0);
    assert_eq!(loaded.restored, 1);
    expect(&other, "get a:1 b:1\n", "VALUE b:1 0 1\nx\nEND\n");
    expect(&other, "set c:1 0 0 1\nx\nflush_all\n", "STORED\nOK\n");
    let (none, loaded) = again(&other, limits(), 0);
    assert_eq!((loaded, none.store.len()), (Loaded::default(), 0));
}

#[test]
fn other_settings_take_what_they_can() {
    let server = Server::new();
    let large = "x".repeat(200_000);
    expect(&server, &format!("set large 0 0 200000\n{large}\nset small 3 0 1\ns\n"), {
        "STORED\nSTORED\n"
    });
    let file = saved(&server.store);
    let smaller = Limits { item: 2000, has_versions: false, ..Limits::default() };
    let (store, loaded) = loaded(&file, smaller, 0).unwrap();
    assert_eq!((loaded.restored, loaded.too_large), (1, 1));
    let server = Server { store, state: ServerState::default() };
    expect(&server, "gets large small\n", "VALUE small 3 1 0\ns\nEND\n");
}

#[test]
fn less_memory_takes_the_items_that_were_used_last() {
    let server = Server::new();
    let mut handle = server.store.handle(0);
    // Read in another order than that of their making.
    for number in 0..8000_u32 {
        handle.put(
            &NewItem::new(&number.to_le_bytes(), &[7; 1000]),
            StoreCondition::plain(Mode::Set),
        );
    }
    for part in 0..8 {
        server.store.clock().move_on(1000);
        server.store.tick();
        for number in (0..8000_u32).filter(|number| number % 8 == part) {
            let found = handle.peek(&number.to_le_bytes()).unwrap();
            found.key().touch(server.store.clock().second());
        }
    }
    let file = saved(&server.store);
    for evicts in [true, false] {
        let (memory, item) = (4 << 20, 1 << 20);
        let limits = Limits { memory, item, evicts, ..Limits::default() };
        let (store, loaded) = loaded(&file, limits, 0).unwrap();
        let found = all(&store);
        assert!(found.len() > 3000 && found.len() < 4000, "{} items", found.len());
        assert_eq!(loaded.restored + loaded.no_room, 8000);
        let young = |key: &Vec<u8>| key[0] % 8 >= 4;
        let count = found.keys().filter(|key| young(key)).count();
        assert!(count == found.len(), "{count} of {} were used last", found.len());
        assert!(store.bytes() <= memory);
    }
}
