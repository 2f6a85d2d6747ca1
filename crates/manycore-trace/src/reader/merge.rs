//! The merge of all rings, and its account.

use super::scan::{BlockInfo, Damage, LIMIT, RingInfo, note};
use super::source::Source;
use super::{Head, Record, Trace};
use crate::format::{self, BLOCK_HEAD, block, id, parts};
use crate::schema::EventInfo;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt;
use std::io;

/// The account of a merge: says whether every event that was produced is accounted for (reader.T2).
///
/// ```
/// use manycore_trace::{Recorder, Trace};
///
/// let mut trace = Trace::from_bytes(Recorder::new().start()?.finish()?)?;
/// let account = trace.account();
/// assert_eq!(account.produced, account.merged + account.lost);
/// assert!(account.is_closed());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Account {
    /// Events that the program recorded or tried to record, without those that sampling skipped.
    pub produced: u64,
    /// Events that the merge returned.
    pub merged: u64,
    /// Events that the writers counted as overwritten, dropped or refused.
    pub lost: u64,
    /// All other events. If there are any, the file is damaged.
    pub missing: u64,
    /// The damaged places of the file in order of offset: up to 1,000, and one more entry if there
    /// are others.
    pub damage: Vec<Damage>,
}

impl Account {
    /// Returns true if no event is missing and nothing is damaged.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.missing == 0 && self.damage.is_empty()
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { produced, merged, lost, missing, damage } = self;
        write!(f, "{produced} produced = {merged} merged + {lost} lost")?;
        if *missing != 0 {
            write!(f, " + {missing} missing")?;
        }
        damage.iter().try_for_each(|damage| write!(f, "\ndamaged {damage}"))
    }
}

/// Records in the order of (time, slot, sequence); see [`Trace::merge`].
///
/// Not an iterator: a record borrows its words from the sub-buffer that is being read.
///
/// ```
/// let bytes = manycore_trace::Recorder::new().start()?.finish()?;
/// let mut trace = manycore_trace::Trace::from_bytes(bytes)?;
/// let mut merge = trace.merge();
/// while let Some(record) = merge.next() {
///     println!("{record}");
/// }
/// assert_eq!(merge.into_account().merged, 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Merge<'a> {
    file: File<'a>,
    cursors: Vec<Cursor<'a>>,
    /// Rings without a sub-buffer.
    empty: Vec<&'a RingInfo>,
    /// The next record of each ring, except the current ring's.
    heap: BinaryHeap<Reverse<(u64, u32, usize)>>,
    current: Option<usize>,
    refused: u64,
    damage: Vec<Damage>,
    unknown: BTreeSet<u16>,
}

/// The data that all cursors share.
#[derive(Debug, Clone, Copy)]
struct File<'a> {
    source: &'a Source,
    head: &'a Head,
    events: &'a BTreeMap<u16, EventInfo>,
    block_words: usize,
}

impl File<'_> {
    /// Reads the complete words of a sub-buffer.
    fn read(&self, info: BlockInfo, to: &mut Vec<u64>) -> io::Result<()> {
        let count = self.block_words.min(info.committed);
        let Some(packed) = info.packed else {
            self.source.words(info.offset, count, to)?;
            // The rest of a hole is not a record, and must not take memory (reader.T4).
            to.truncate(end_of_records(to));
            to.shrink_to(2 * to.len());
            return Ok(());
        };
        self.source.words(info.offset, BLOCK_HEAD, to)?;
        let start = info.offset + 8 * BLOCK_HEAD as u64;
        let damaged = |what| Err(Damage { offset: start, what }.into());
        #[cfg(feature = "lz4")]
        {
            let area = format::packed::area(count - BLOCK_HEAD, packed);
            let bytes = self.source.bytes(start, area)?;
            let (packed, filler) = bytes.split_at(packed.min(bytes.len()));
            let is_filled =
                bytes.len() == area && filler.iter().all(|byte| *byte == format::packed::FILLER);
            if is_filled && crate::pack::unpack(packed, count - BLOCK_HEAD, to) {
                return Ok(());
            }
            damaged("a packed sub-buffer that can't be unpacked")
        }
        #[cfg(not(feature = "lz4"))]
        {
            let _ = packed;
            damaged("a packed sub-buffer, and this program has no feature lz4")
        }
    }
}

/// Returns where the records of a sub-buffer end, or where the first invalid record is.
fn end_of_records(words: &[u64]) -> usize {
    let mut at = BLOCK_HEAD;
    while let Some(word) = words.get(at) {
        let (_, length, ..) = parts(*word);
        if length == 0 {
            // Damage is reported when the cursor reaches it.
            return at + usize::from(*word != 0);
        }
        at += length;
    }
    words.len()
}

impl<'a> Merge<'a> {
    pub(super) fn new(trace: &'a mut Trace, first: &BTreeMap<u32, u64>) -> Self {
        let trace = &*trace;
        let file = File {
            source: &trace.source,
            head: &trace.head,
            events: &trace.events,
            block_words: trace.head.block_words,
        };
        let (full, empty): (Vec<_>, Vec<_>) =
            trace.rings.iter().partition(|(_, ring)| !ring.blocks.is_empty());
        let cursors = full
            .into_iter()
            .map(|(slot, ring)| Cursor::new(*slot, ring, first.get(slot).copied().unwrap_or(0)));
        let mut merge = Self {
            file,
            cursors: cursors.collect(),
            empty: empty.into_iter().map(|(_, ring)| ring).collect(),
            heap: BinaryHeap::new(),
            current: None,
            refused: trace.head.refused,
            damage: trace.damage.clone(),
            unknown: BTreeSet::new(),
        };
        (0..merge.cursors.len()).for_each(|at| merge.push(at));
        merge
    }

    /// Moves a cursor to its next record and queues the cursor.
    fn push(&mut self, at: usize) {
        if let Some(time) = self.advance(at) {
            self.heap.push(Reverse((time, self.cursors[at].slot, at)));
        }
    }

    /// Moves a cursor to its next known record and returns the record's time.
    fn advance(&mut self, at: usize) -> Option<u64> {
        let cursor = &mut self.cursors[at];
        loop {
            if !cursor.advance(&self.file, &mut self.damage) {
                return None;
            }
            let number = cursor.record.number;
            if self.file.events.contains_key(&number) {
                cursor.merged += 1;
                return Some(cursor.time);
            }
            if self.unknown.insert(number) {
                let offset = cursor.offset(cursor.record.at);
                note(&mut self.damage, Damage { offset, what: "an event without a schema" });
            }
        }
    }

    /// Returns the next record.
    #[allow(clippy::should_implement_trait)] // it lends
    pub fn next(&mut self) -> Option<Record<'_>> {
        if let Some(at) = self.current.take() {
            let slot = self.cursors[at].slot;
            if let Some(time) = self.advance(at) {
                // A ring mostly stays first for a while.
                let is_first =
                    self.heap.peek().is_none_or(|Reverse((t, s, _))| (time, slot) < (*t, *s));
                if is_first {
                    self.current = Some(at);
                } else {
                    self.heap.push(Reverse((time, slot, at)));
                }
            }
        }
        let at = match self.current {
            Some(at) => at,
            None => self.heap.pop()?.0.2,
        };
        self.current = Some(at);
        let cursor = &self.cursors[at];
        let found = &cursor.record;
        Some(Record {
            time: cursor.time,
            slot: cursor.slot,
            sequence: found.sequence,
            thread: cursor.thread,
            info: &self.file.events[&found.number],
            words: &cursor.words[found.at + 1..found.at + found.length],
            head: self.file.head,
            thread_name: &cursor.thread_name,
        })
    }

    /// Reads the remaining records and returns the account.
    #[must_use]
    pub fn into_account(mut self) -> Account {
        while self.next().is_some() {}
        let mut account = Account {
            produced: self.refused,
            lost: self.refused,
            damage: std::mem::take(&mut self.damage),
            ..Account::default()
        };
        account.damage.sort();
        account.damage.dedup();
        self.cursors.iter().for_each(|cursor| cursor.add_to(&mut account));
        self.empty.iter().for_each(|ring| Cursor::new(0, ring, 0).add_to(&mut account));
        debug_assert_eq!(
            account.produced,
            account.merged.saturating_add(account.lost).saturating_add(account.missing),
            "reader.T2: {account:?}"
        );
        account
    }
}

/// The record at which a cursor stands.
#[derive(Debug, Default)]
struct Found {
    at: usize,
    length: usize,
    number: u16,
    sequence: u64,
}

/// A ring that is being read.
#[derive(Debug)]
struct Cursor<'a> {
    slot: u32,
    ring: &'a RingInfo,
    /// The index of the next block.
    next_block: usize,
    words: Vec<u64>,
    /// The word after the current record.
    at: usize,
    time: u64,
    thread: u64,
    thread_name: String,
    record: Found,
    /// Records with a lower sequence number are skipped.
    skip: u64,
    /// The number of the next event; below, the last block.
    expected: u64,
    last: Option<BlockInfo>,
    /// True if a block was overwritten while it was read.
    is_overtaken: bool,
    merged: u64,
    skipped: u64,
    lost: u64,
}

impl<'a> Cursor<'a> {
    fn new(slot: u32, ring: &'a RingInfo, skip: u64) -> Self {
        Self {
            slot,
            ring,
            next_block: 0,
            words: Vec::new(),
            at: 0,
            time: 0,
            thread: 0,
            thread_name: String::new(),
            record: Found::default(),
            skip,
            expected: 0,
            last: None,
            is_overtaken: false,
            merged: 0,
            skipped: 0,
            lost: 0,
        }
    }

    /// Returns the file offset of a word of the block. In a packed block: where the packed bytes
    /// begin.
    fn offset(&self, word: usize) -> u64 {
        self.last.map_or(0, |last| {
            let word = if last.packed.is_some() { word.min(BLOCK_HEAD) } else { word };
            last.offset + 8 * word as u64
        })
    }

    /// Moves to the next event. Returns false at the end.
    fn advance(&mut self, file: &File<'_>, damage: &mut Vec<Damage>) -> bool {
        loop {
            if self.at >= self.words.len() || self.words[self.at] == 0 {
                if !self.next_block(file, damage) {
                    return false;
                }
                continue;
            }
            let at = self.at;
            let (low, length, number, _) = parts(self.words[at]);
            let Some(words) = self.words.get(at + 1..at + length).filter(|_| length > 0) else {
                let offset = self.offset(at);
                note(damage, Damage { offset, what: "no length of a record" });
                self.at = self.words.len();
                continue;
            };
            self.at += length;
            let time = self.time & !0xffff_ffff | low;
            self.time = if time < self.time { time.wrapping_add(1 << 32) } else { time };
            match (number, words) {
                (id::TIME, [time, ..]) if *time < LIMIT => self.time = self.time.max(*time),
                (id::THREAD, [thread, length, name @ ..]) => {
                    self.thread = *thread;
                    let name = &name[..name.len().min(format::MAX_THREAD_NAME / 8)];
                    let mut name: Vec<u8> = name.iter().flat_map(|w| w.to_le_bytes()).collect();
                    name.truncate(usize::try_from(*length).unwrap_or(0));
                    self.thread_name = String::from_utf8_lossy(&name).into_owned();
                }
                (id::TIME | id::THREAD, _) => {
                    let offset = self.offset(at);
                    note(damage, Damage { offset, what: "no length of a record" });
                }
                _ => {
                    let sequence = self.expected;
                    self.expected += 1;
                    if sequence < self.skip {
                        self.skipped += 1;
                        continue;
                    }
                    self.record = Found { at, length, number: number as u16, sequence };
                    return true;
                }
            }
        }
    }

    /// Reads the next block. Returns false if there is none.
    fn next_block(&mut self, file: &File<'_>, damage: &mut Vec<Damage>) -> bool {
        while let Some(info) = self.ring.blocks.get(self.next_block).copied() {
            self.next_block += 1;
            let mut head = Vec::new();
            let read = file.read(info, &mut self.words);
            let again = file.source.words(info.offset, 1, &mut head);
            if let Err(error) = read.and(again) {
                let found = error.get_ref().and_then(|error| error.downcast_ref::<Damage>());
                let unread = Damage { offset: info.offset, what: "can't be read" };
                note(damage, found.copied().unwrap_or(unread));
                continue;
            }
            let is_same = |words: &[u64]| words.first() == Some(&(info.sequence + 1));
            if !is_same(&self.words) || !is_same(&head) || self.words.len() < BLOCK_HEAD {
                self.is_overtaken = true;
                continue;
            }
            self.begin(info, damage);
            return true;
        }
        self.words = Vec::new();
        self.at = 0;
        false
    }

    /// Begins a block, and accounts for events between the last block and this one.
    fn begin(&mut self, info: BlockInfo, damage: &mut Vec<Damage>) {
        let base = self.words[block::BASE];
        if base < self.time || info.first < self.expected || info.first < info.lost {
            let what = "a sub-buffer that goes back";
            note(damage, Damage { offset: info.offset, what });
        }
        let gap = info.first.saturating_sub(self.expected);
        self.lost += match self.last {
            // Everything before the first remaining block was overwritten.
            None if info.sequence > 0 => gap,
            Some(last) if info.sequence > last.sequence + 1 && self.is_overtaken => gap,
            last => gap.min(info.lost.saturating_sub(last.map_or(0, |last| last.lost))),
        };
        self.expected = self.expected.max(info.first);
        self.time = self.time.max(base);
        if self.thread != self.words[block::THREAD] {
            self.thread = self.words[block::THREAD];
            self.thread_name.clear();
        }
        self.is_overtaken = false;
        self.at = BLOCK_HEAD;
        self.last = Some(info);
    }

    /// Adds this ring's counts to the account. Called at the ring's end.
    fn add_to(&self, account: &mut Account) {
        let after = self.ring.lost.saturating_sub(self.last.map_or(0, |last| last.lost));
        let merged = self.merged + self.skipped;
        let lost = self.lost.saturating_add(after).saturating_add(self.ring.reentrant);
        let numbered = self.expected.saturating_add(after).max(self.ring.produced);
        let produced =
            numbered.saturating_add(self.ring.reentrant).max(merged.saturating_add(lost));
        account.produced = account.produced.saturating_add(produced);
        account.merged = account.merged.saturating_add(merged);
        account.lost = account.lost.saturating_add(lost);
        account.missing =
            account.missing.saturating_add(produced - merged.saturating_add(lost).min(produced));
    }
}
