//! An inverted index of a text, in memory of a page pool: where each word stands.
//!
//!     cargo run --release -p manycore-vm --example inverted_index -- [--text MB] [--record FILE]
//!
//! As in Metis, a MapReduce library, the text has parts, and a thread that indexes one uses single
//! pages for words and positions, and blocks of 1024 pages for the text, the hash table and the
//! output. The text has 8 MB unless `--text` says otherwise. `--record` writes the requests of each
//! part in their order, a line for a part: counts of single pages, and `L` for a block.
//! `manycore-bench bench metis` replays such a record.
//!
//! Source: the trace of Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016), section 5.3.

use manycore_vm::{Error, PagePool, Pages};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, fs, thread};

/// Pages of a block, and the 32-bit words of a page.
const BLOCK: usize = 1024;
const WORDS: usize = 1024;
/// The most parts of the text.
const PARTS: usize = 16;
/// Different words of the text.
const VOCABULARY: u64 = 50_000;
/// Positions of a chunk, which also has the next chunk and the number of those it holds.
const POSITIONS: usize = 14;

/// A sequence of numbers that look random.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }
}

/// Memory of one part. Words are addressed by their number.
struct Arena<'p> {
    pool: &'p PagePool,
    singles: Vec<Pages<'p>>,
    blocks: Vec<Pages<'p>>,
    /// Words used of the last single page.
    used: usize,
    /// The requests so far: runs of single pages, each followed by a block.
    runs: Vec<usize>,
}

impl<'p> Arena<'p> {
    fn new(pool: &'p PagePool) -> Self {
        Self { pool, singles: Vec::new(), blocks: Vec::new(), used: WORDS, runs: vec![0] }
    }

    /// Another block of zeros; its number.
    fn block(&mut self) -> Result<usize, Error> {
        self.blocks.push(self.pool.alloc_zeroed(BLOCK)?);
        self.runs.push(0);
        Ok(self.blocks.len() - 1)
    }

    /// So many words in one page; the number of the first, which is never zero.
    fn words(&mut self, count: usize) -> Result<u32, Error> {
        if self.used + count > WORDS {
            self.singles.push(self.pool.alloc_zeroed(1)?);
            *self.runs.last_mut().expect("there is a run from the start") += 1;
            // Zero means none.
            self.used = usize::from(self.singles.len() == 1);
        }
        let first = (self.singles.len() - 1) * WORDS + self.used;
        self.used += count;
        Ok(u32::try_from(first).expect("a part has less than 16 GB"))
    }

    fn get(&self, at: u32) -> u32 {
        word(&self.singles[at as usize / WORDS], at as usize % WORDS)
    }

    fn set(&mut self, at: u32, value: u32) {
        set_word(&mut self.singles[at as usize / WORDS], at as usize % WORDS, value);
    }

    /// The record of the requests.
    fn record(&self) -> String {
        let mut line = String::new();
        for (number, run) in self.runs.iter().enumerate() {
            let block = if number == 0 { "" } else { " L" };
            write!(line, "{block} {run}").expect("a string takes all");
        }
        line.replace(" 0", "").trim().to_owned()
    }
}

fn word(page: &[u8], at: usize) -> u32 {
    let bytes = page[at * 4..][..4].try_into().expect("four bytes");
    u32::from_le_bytes(bytes)
}

fn set_word(page: &mut [u8], at: usize, value: u32) {
    page[at * 4..][..4].copy_from_slice(&value.to_le_bytes());
}

/// Fills a block with words of the vocabulary, frequent ones more often, with spaces between.
fn generate(text: &mut [u8], random: &mut Random) {
    let mut at = 0;
    while at < text.len() {
        let chance = random.next() >> 40; // 24 bits
        let rank = (((chance * chance) >> 24) * VOCABULARY) >> 24;
        let mut letters = Random(rank);
        let length = 2 + (letters.next() % 11) as usize;
        for place in text.iter_mut().skip(at).take(length) {
            *place = b'a' + (letters.next() % 26) as u8;
        }
        at = (at + length).min(text.len() - 1);
        text[at] = b' ';
        at += 1;
    }
}

/// FNV-1a.
fn hash(word: &[u8]) -> u32 {
    word.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The index of one part. A word's entry: the next entry of its bucket, the hash, the newest chunk
/// of positions, their count, the place of the word in the text, and its length.
struct Part<'p> {
    arena: Arena<'p>,
    table: usize,
    texts: Vec<usize>,
    entries: Vec<u32>,
    words: usize,
}

impl<'p> Part<'p> {
    /// Reads the text, of so many blocks, and indexes it.
    fn map(pool: &'p PagePool, number: usize, blocks: usize) -> Result<Self, Error> {
        let mut arena = Arena::new(pool);
        let table = arena.block()?;
        let (texts, entries) = (Vec::new(), Vec::new());
        let mut part = Self { arena, table, texts, entries, words: 0 };
        let mut random = Random(number as u64);
        for _ in 0..blocks {
            let text = part.arena.block()?;
            generate(&mut part.arena.blocks[text], &mut random);
            part.texts.push(text);
            let (mut start, end) = (0, part.arena.blocks[text].len());
            while start < end {
                let rest = &part.arena.blocks[text][start..];
                let length = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
                if length > 0 {
                    part.add((part.texts.len() - 1) * BLOCK * WORDS * 4 + start, length)?;
                }
                start += length + 1;
            }
        }
        Ok(part)
    }

    /// The bytes of the text at a position.
    fn text(&self, at: usize, length: usize) -> &[u8] {
        let block = BLOCK * WORDS * 4;
        &self.arena.blocks[self.texts[at / block]][at % block..][..length]
    }

    /// Adds a word that stands at this position.
    fn add(&mut self, at: usize, length: usize) -> Result<(), Error> {
        self.words += 1;
        let hash = hash(self.text(at, length));
        let bucket = hash as usize % (BLOCK * WORDS);
        let mut entry = word(&self.arena.blocks[self.table], bucket);
        while entry != 0 {
            let (place, len) = (self.arena.get(entry + 4), self.arena.get(entry + 5));
            if self.arena.get(entry + 1) == hash
                && self.text(place as usize, len as usize) == self.text(at, length)
            {
                break;
            }
            entry = self.arena.get(entry);
        }
        if entry == 0 {
            entry = self.arena.words(6)?;
            let next = word(&self.arena.blocks[self.table], bucket);
            let fields = [next, hash, 0, 0, at as u32, length as u32];
            (entry..).zip(fields).for_each(|(at, field)| self.arena.set(at, field));
            set_word(&mut self.arena.blocks[self.table], bucket, entry);
            self.entries.push(entry);
        }
        let (mut chunk, count) = (self.arena.get(entry + 2), self.arena.get(entry + 3));
        let used = count as usize % POSITIONS;
        if used == 0 {
            let newest = self.arena.words(2 + POSITIONS)?;
            self.arena.set(newest, chunk);
            self.arena.set(entry + 2, newest);
            chunk = newest;
        }
        self.arena.set(chunk + 1, used as u32 + 1);
        self.arena.set(chunk + 2 + used as u32, at as u32);
        self.arena.set(entry + 3, count + 1);
        Ok(())
    }

    /// The positions of the word with this entry, the newest first.
    fn positions(&self, entry: u32) -> Vec<u32> {
        let mut positions = Vec::new();
        let mut chunk = self.arena.get(entry + 2);
        while chunk != 0 {
            let held = self.arena.get(chunk + 1);
            positions.extend((0..held).rev().map(|at| self.arena.get(chunk + 2 + at)));
            chunk = self.arena.get(chunk);
        }
        positions
    }

    /// Writes each word's hash, count and positions in order into blocks. Returns the number of
    /// positions.
    fn reduce(&mut self) -> Result<usize, Error> {
        let (mut block, mut used, mut written) = (self.arena.block()?, 0, 0);
        for number in 0..self.entries.len() {
            let entry = self.entries[number];
            let mut positions = self.positions(entry);
            positions.reverse();
            written += positions.len();
            let head = [self.arena.get(entry + 1), self.arena.get(entry + 3)];
            for value in head.into_iter().chain(positions) {
                if used == BLOCK * WORDS {
                    (block, used) = (self.arena.block()?, 0);
                }
                set_word(&mut self.arena.blocks[block], used, value);
                used += 1;
            }
        }
        Ok(written)
    }

    /// Whether each position of some words is one at which the word stands, and all are there.
    fn check(&self) {
        let mut counts: HashMap<&[u8], u32> = HashMap::new();
        for text in &self.texts {
            let words = self.arena.blocks[*text].split(|byte| *byte == b' ');
            words
                .filter(|word| !word.is_empty())
                .for_each(|word| *counts.entry(word).or_default() += 1);
        }
        assert_eq!(counts.len(), self.entries.len(), "words are missing");
        for entry in &self.entries {
            let (at, length) = (self.arena.get(entry + 4), self.arena.get(entry + 5));
            let own = self.text(at as usize, length as usize);
            let positions = self.positions(*entry);
            assert_eq!(counts[own] as usize, positions.len(), "positions are missing");
            assert!(positions.iter().all(|at| self.text(*at as usize, length as usize) == own));
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut megabytes, mut file) = (8, None);
    let mut words = env::args().skip(1);
    while let Some(option) = words.next() {
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--text" => megabytes = value.parse().map_err(|error| format!("--text: {error}"))?,
            "--record" => file = Some(value),
            _ => return Err(format!("{option}: there are --text MB and --record FILE").into()),
        }
    }
    let count = (megabytes / 4).clamp(1, PARTS);
    let blocks = (megabytes / 4 / count).max(1);
    // The text, its positions twice, a table, and what is left of the last pages.
    let pool = PagePool::new(u32::try_from(count * (6 * blocks + 8) * BLOCK)?)?;
    let (next, parts) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let start = Instant::now();
    let work = || -> Result<(), Error> {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            let mut part = Part::map(&pool, number, blocks)?;
            let written = part.reduce()?;
            assert_eq!(written, part.words, "the output has not all positions");
            parts.lock().expect("no panic under it").push((number, part));
        }
    };
    let cores = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker panicked"))
    })?;
    let time = start.elapsed();
    let mut parts = parts.into_inner().expect("no panic under it");
    parts.sort_by_key(|(number, _)| *number);
    parts[0].1.check();
    let sum =
        |count: fn(&Part<'_>) -> usize| parts.iter().map(|(_, part)| count(part)).sum::<usize>();
    let (singles, large) =
        (sum(|part| part.arena.singles.len()), sum(|part| part.arena.blocks.len()));
    println!(
        "{} words of {} MB in {:.2} s on {cores} threads\n{singles} single pages and {large} \
         blocks of {BLOCK} pages: {} MB, of which the pool has {} MB resident",
        sum(|part| part.words),
        blocks * count * 4,
        time.as_secs_f64(),
        (singles + large * BLOCK) * 4 / 1024,
        pool.resident() * 4 / 1024,
    );
    if let Some(file) = file {
        let lines = parts.iter().map(|(_, part)| part.arena.record() + "\n");
        fs::write(&file, lines.collect::<String>()).map_err(|error| format!("{file}: {error}"))?;
    }
    drop(parts);
    println!("after the index is dropped and the pool trimmed: {} MB", {
        pool.trim();
        pool.resident() * 4 / 1024
    });
    Ok(())
}
