//! Files that are made to take memory or time: both follow the bytes that they have on the disk.

use crate::Temporary;
use crate::bounds::Bound;
use manycore_trace::convert::{Filter, Summary};
use manycore_trace::{Account, Class, Kind, Trace, TraceWriter};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

/// What `Trace` documents.
const BOUND: Bound = Bound { each: 48, besides: 1 << 20 };

/// Words of a sub-buffer's head, and of a ring's page.
const BLOCK_HEAD: usize = 8;
const RING_PAGE: usize = 512;

pub fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A chunk of this mark and length, with these words behind them.
pub fn chunk(mark: &[u8; 8], length: u64, words: &[u64]) -> Vec<u8> {
    [&mark[..], &length.to_le_bytes(), &bytes(words)].concat()
}

/// The first chunk of a recording with sub-buffers of so many words.
pub fn head(block_words: u64) -> Vec<u8> {
    let words = [1, 1_000_000_000, 0, 0, block_words, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    chunk(b"MCTRACE1", 128, &words)
}

/// The head of a sub-buffer that is the first of its ring.
pub fn block_head(committed: u64) -> Vec<u8> {
    bytes(&[1, 0, committed, 0, 0, 0, 0, 0])
}

/// A ring's page: its number, and its sub-buffers' size and number.
pub fn ring_page(length: u64, number: u64, block_words: u64, blocks: u64) -> Vec<u8> {
    let mut page = chunk(b"MCTRRING", length, &[number, block_words, blocks]);
    page.resize(8 * RING_PAGE, 0);
    page
}

/// What LZ4 makes of so many bytes that are all the same.
pub fn packed_bytes(byte: u8, count: usize) -> Vec<u8> {
    // One byte, a copy of it that goes on, and at the end five as they are.
    let copied = count - 1 - 5 - 19;
    let mut packed = vec![0x1f, byte, 1, 0];
    packed.extend(std::iter::repeat_n(255, copied / 255));
    packed.push((copied % 255) as u8);
    packed.push(0x50);
    packed.extend([byte; 5]);
    packed
}

/// Reads a file with this part of its length on the disk, to its end.
fn account(bytes_of_file: &[u8]) -> Account {
    BOUND.hold(bytes_of_file.len(), || {
        Trace::from_bytes(bytes_of_file.to_vec()).expect("a recording").account()
    })
}

/// The same of a sparse file: parts at their offsets, and a hole to its end.
fn account_of_sparse(name: &str, length: u64, parts: &[(u64, &[u8])]) -> Account {
    let path = Temporary::new(name);
    let mut file = File::create(path.as_ref()).expect("a file");
    for (offset, part) in parts {
        file.seek(SeekFrom::Start(*offset)).expect("a place");
        file.write_all(part).expect("room on the disk");
    }
    file.set_len(length).expect("a sparse file");
    drop(file);
    let there = parts.iter().map(|(_, part)| part.len()).sum();
    BOUND.hold(there, || Trace::open(&path).expect("a recording").account())
}

fn damage(account: &Account) -> Vec<&str> {
    account.damage.iter().map(|damage| damage.what).collect()
}

const LONG: u64 = 40 << 30;

#[test]
fn chunks_that_are_holes_take_no_memory_and_end() {
    let front = head(512);
    let at = front.len() as u64;
    let schema = chunk(b"MCSCHEMA", LONG, &[LONG - 4096, LONG - 4096]);
    let account = account_of_sparse("schema", at + LONG, &[(0, &front), (at, &schema)]);
    assert_eq!(damage(&account), ["no entry of a schema"]);

    let totals = chunk(b"MCTTOTAL", LONG, &[0, 0, 0]);
    let account = account_of_sparse("totals", at + LONG, &[(0, &front), (at, &totals)]);
    assert_eq!(damage(&account), ["no number of a ring"]);

    let ring = ring_page(LONG, 0, 512, u64::MAX);
    let account = account_of_sparse("ring", at + LONG, &[(0, &front), (at, &ring)]);
    assert!(account.is_closed(), "{account}");

    let packed = chunk(b"MCTPACKD", LONG, &[0, LONG - 4096]);
    let packed = [packed, block_head(512)].concat();
    let account = account_of_sparse("packed", at + LONG, &[(0, &front), (at, &packed)]);
    assert_eq!(damage(&account), ["a packed sub-buffer that is longer than unpacked"]);
}

/// What follows a sub-buffer's head is a hole: it has no records.
#[test]
fn sub_buffers_that_are_holes_take_no_memory() {
    const BLOCK_WORDS: u64 = 1 << 20;
    let length = 8 * (RING_PAGE as u64 + BLOCK_WORDS);
    let (front, blocks) = (head(BLOCK_WORDS), block_head(BLOCK_WORDS));
    let pages: Vec<Vec<u8>> =
        (0..100).map(|number| ring_page(length, number, BLOCK_WORDS, 1)).collect();
    let mut parts = vec![(0, &front[..])];
    for (number, page) in (0..).zip(&pages) {
        let at = front.len() as u64 + number * length;
        parts.extend([(at, &page[..]), (at + page.len() as u64, &blocks)]);
    }
    let account = account_of_sparse("blocks", front.len() as u64 + 100 * length, &parts);
    assert_eq!((account.is_closed(), account.merged), (true, 0), "{account}");
}

/// A hundred rings of which each would be 8 MiB, of 33 KB in the file.
#[test]
fn packed_sub_buffers_that_unfold_further_than_any_are_refused() {
    const BLOCK_WORDS: usize = 1 << 20;
    let packed = packed_bytes(1, 8 * (BLOCK_WORDS - BLOCK_HEAD));
    let length = (32 + 8 * BLOCK_HEAD + packed.len()).next_multiple_of(8);
    let mut file = head(BLOCK_WORDS as u64);
    for ring in 0..100 {
        let start = file.len();
        file.extend(chunk(b"MCTPACKD", length as u64, &[ring, packed.len() as u64]));
        file.extend(block_head(BLOCK_WORDS as u64));
        file.extend(&packed);
        file.resize(start + length, 0);
    }
    let account = account(&file);
    assert!(damage(&account).iter().all(|what| what.contains("16-fold")), "{account}");
    assert_eq!(account.damage.len(), 100);
}

/// Each ring claims one sub-buffer of 8 MiB, which would be the rest of the file.
#[test]
fn sub_buffers_share_no_bytes() {
    const BLOCK_WORDS: u64 = 1 << 20;
    let mut file = head(BLOCK_WORDS);
    for number in 0..500 {
        let mut ring = ring_page(0, number, BLOCK_WORDS, 1);
        // The page's words are records, too: of two words, without a schema.
        (0..RING_PAGE).step_by(2).skip(34).for_each(|at| {
            ring[8 * at..][..8].copy_from_slice(&(2_u64 << 32 | 99 << 40).to_le_bytes());
        });
        ring.extend(block_head(BLOCK_WORDS));
        let length = ring.len() as u64;
        ring[8..16].copy_from_slice(&length.to_le_bytes());
        file.extend(ring);
    }
    let account = account(&file);
    assert_eq!(account.merged + account.missing, 0, "{account}");
}

#[test]
fn damage_everywhere_is_listed_up_to_a_thousand_places() {
    let mut file = head(512);
    for _ in 0..100_000 {
        file.extend(chunk(b"MCTPACKD", 32, &[u64::MAX, 0]));
    }
    let account = account(&file);
    assert_eq!(account.damage.len(), 1001);
    assert_eq!(account.damage[1000].what, "more damage, which is not listed");
}

/// Rings of which each has one sub-buffer without a record.
#[test]
fn many_rings_take_memory_for_their_bytes() {
    let mut file = head(512);
    for ring in 0..50_000 {
        file.extend(chunk(b"MCTBLOCK", 96, &[ring, 0]));
        file.extend(block_head(8));
    }
    assert!(account(&file).is_closed());
}

/// An entry of a schema with a name of so many bytes.
pub fn entry(name: usize) -> Vec<u8> {
    let mut entry = vec![0; 4];
    entry.extend(16_u16.to_le_bytes());
    entry.extend([3, 0, 1, 0, 0, 0, 0]);
    entry.extend(1_u16.to_le_bytes());
    entry.push(b'c');
    entry.extend((name as u16).to_le_bytes());
    entry.resize(entry.len() + name, b'n');
    entry.extend([0; 4]);
    entry.resize(entry.len().next_multiple_of(8), 0);
    let length = entry.len() as u32;
    entry[..4].copy_from_slice(&length.to_le_bytes());
    entry
}

/// Converters write an event's name for each record of eight bytes.
#[test]
fn names_are_as_long_as_a_writer_keeps_them() {
    for (name, count) in [(255, 1), (256, 0), (60_000, 0)] {
        let entry = entry(name);
        let mut file = head(512);
        let length = 32 + entry.len() as u64;
        file.extend(chunk(b"MCSCHEMA", length, &[entry.len() as u64, 0]));
        file.extend(entry);
        let trace = Trace::from_bytes(file).expect("a recording");
        assert_eq!(trace.events().count(), count, "{name}");
    }
}

/// Spans that never end, then ends of others.
#[test]
fn ends_that_fit_no_span_do_not_search_all_open_ones() {
    const COUNT: u64 = 100_000;
    let mut writer = TraceWriter::new(1_000_000_000);
    let lane = writer.thread(1, "deep");
    let class = Class::new(1, "test");
    (0..COUNT).for_each(|n| writer.record(lane, n, class, Kind::Begin, "Opened", &[]));
    writer.record(lane, COUNT, class, Kind::Begin, "Other", &[]);
    (0..=COUNT).for_each(|n| writer.record(lane, COUNT + n, class, Kind::End, "Other", &[]));
    writer.record(lane, 3 * COUNT, class, Kind::End, "Opened", &[]);
    let bytes = writer.finish();
    let summary = BOUND.hold(bytes.len(), || {
        Summary::of(&mut Trace::from_bytes(bytes).expect("a recording"), &Filter::default())
    });
    let counts: Vec<_> = summary.spans.iter().map(|(key, of)| (&*key.1, of.count)).collect();
    assert_eq!(counts, [("Opened", 1), ("Other", 1)]);
}
