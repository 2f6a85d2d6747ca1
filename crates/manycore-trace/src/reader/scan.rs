//! Finds a file's chunks and their sub-buffers.

use super::source::Source;
use super::{Head, Trace};
use crate::format::{self, BLOCK, BLOCK_HEAD, HEAD, PACKED, RING, SCHEMA, TOTAL};
use crate::format::{block, copied, head, packed, ring, schema as schema_chunk, total};
use crate::schema;
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// A damaged place in a file.
///
/// ```
/// use manycore_trace::{Damage, Trace};
///
/// let error = Trace::from_bytes(b"{\"traceEvents\": []}".to_vec()).unwrap_err();
/// let damage = error.get_ref().unwrap().downcast_ref::<Damage>().unwrap();
/// assert_eq!(damage.offset, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Damage {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The fault that was found there.
    pub what: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.what)
    }
}

impl std::error::Error for Damage {}

impl From<Damage> for io::Error {
    fn from(damage: Damage) -> Self {
        Self::new(io::ErrorKind::InvalidData, damage)
    }
}

/// Maximal damaged places that are listed.
const LISTED: usize = 1000;

/// Lists a damaged place. Once the list is full, adds one entry that says that there are more.
pub(super) fn note(list: &mut Vec<Damage>, damage: Damage) {
    match list.len() {
        ..LISTED => list.push(damage),
        LISTED => list.push(Damage { what: "more damage, which is not listed", ..damage }),
        _ => {}
    }
}

/// After this many empty sub-buffers in a row the rest of a ring is empty too. The first round
/// begins sub-buffers in order. Later rounds have at most the next one empty. (A fast writer may
/// prepare a few while they are read.)
const EMPTY: u64 = 64;

/// No valid time and no valid count of events reaches this.
pub(crate) const LIMIT: u64 = 1 << 62;

/// A sub-buffer's head and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockInfo {
    pub(crate) offset: u64,
    pub(crate) sequence: u64,
    pub(crate) committed: usize,
    pub(crate) first: u64,
    pub(crate) lost: u64,
    /// If packed: the bytes of its records after the head.
    pub(crate) packed: Option<usize>,
}

/// A ring's sub-buffers and counts.
#[derive(Debug, Default)]
pub(crate) struct RingInfo {
    /// Sorted by sequence.
    pub(crate) blocks: Vec<BlockInfo>,
    pub(crate) produced: u64,
    pub(crate) lost: u64,
    pub(crate) reentrant: u64,
}

/// Reads everything in a file except the records.
pub(crate) fn scan(source: Source) -> io::Result<Trace> {
    let head = read_head(&source)?;
    let mut scan = Scan {
        length: source.length()?,
        head,
        source,
        events: BTreeMap::new(),
        rings: BTreeMap::new(),
        damage: Vec::new(),
    };
    scan.chunks()?;
    for found in scan.rings.values_mut() {
        found.blocks.sort_by_key(|block| (block.sequence, block.offset));
        found.blocks.dedup_by_key(|block| block.sequence);
    }
    let Scan { source, events, rings, damage, head, .. } = scan;
    Ok(Trace { source, head, events, rings, damage })
}

pub(super) fn read_head(source: &Source) -> io::Result<Head> {
    let mut words = Vec::new();
    source.words(0, head::WORDS, &mut words)?;
    let wrong = |word: usize, what| Err(Damage { offset: 8 * word as u64, what }.into());
    if words.first() != Some(&HEAD) {
        return wrong(0, "no recording begins here");
    }
    if words.len() < head::WORDS {
        return wrong(words.len(), "the file is cut within its head");
    }
    if words[head::VERSION] != format::VERSION {
        return wrong(head::VERSION, "another version of the format");
    }
    let is_size = |words: u64| {
        (format::MIN_BLOCK_WORDS as u64..=format::MAX_BLOCK_WORDS as u64).contains(&words)
    };
    if !is_size(words[head::BLOCK_WORDS]) {
        return wrong(head::BLOCK_WORDS, "no size of sub-buffers");
    }
    if words[head::TICKS_PER_SECOND] == 0 {
        return wrong(head::TICKS_PER_SECOND, "a clock that stands still");
    }
    let end = (words[head::END_TICKS], words[head::END_NANOS]);
    Ok(Head {
        ticks_per_second: words[head::TICKS_PER_SECOND],
        start: (words[head::START_TICKS], words[head::START_NANOS]),
        block_words: words[head::BLOCK_WORDS] as usize,
        process: words[head::PROCESS],
        refused: words[head::REFUSED],
        end: (end != (0, 0)).then_some(end),
    })
}

struct Scan {
    source: Source,
    length: u64,
    head: Head,
    events: BTreeMap<u16, schema::EventInfo>,
    rings: BTreeMap<u32, RingInfo>,
    damage: Vec<Damage>,
}

/// The place of a chunk.
#[derive(Clone, Copy)]
struct Chunk {
    offset: u64,
    /// The chunk's stated length, at most to the end of the file.
    bytes: u64,
}

impl Scan {
    fn note(&mut self, offset: u64, what: &'static str) {
        note(&mut self.damage, Damage { offset, what });
    }

    fn chunks(&mut self) -> io::Result<()> {
        let mut words = Vec::new();
        let mut offset = 0;
        while offset < self.length {
            self.source.words(offset, 2, &mut words)?;
            let [mark, bytes] = words[..] else {
                self.note(offset, "the file is cut between chunks");
                break;
            };
            if mark == 0 {
                break; // a chunk that was not finished (session.S2)
            }
            let left = self.length - offset;
            if ![HEAD, SCHEMA, RING, BLOCK, PACKED, TOTAL].contains(&mark)
                || (mark == HEAD) != (offset == 0)
            {
                self.note(offset, "no chunk begins here");
                break;
            }
            if bytes < 16 || bytes % 8 != 0 {
                self.note(offset + 8, "no length of a chunk");
                break;
            }
            let is_cut = bytes > left;
            let chunk = Chunk { offset, bytes: bytes.min(left) };
            match mark {
                SCHEMA => self.schema(chunk)?,
                RING => self.ring(chunk)?,
                BLOCK | PACKED => self.copied(chunk, mark == PACKED)?,
                TOTAL => self.totals(chunk)?,
                _ => {}
            }
            if is_cut {
                self.note(self.length, "the file is cut within a chunk");
                break;
            }
            offset += bytes;
        }
        Ok(())
    }

    fn schema(&mut self, chunk: Chunk) -> io::Result<()> {
        let mut words = Vec::new();
        self.source.words(chunk.offset, schema_chunk::WORDS, &mut words)?;
        let start = chunk.offset + 8 * schema_chunk::WORDS as u64;
        let room = chunk.bytes.saturating_sub(8 * schema_chunk::WORDS as u64);
        let committed = words.get(schema_chunk::COMMITTED).copied().unwrap_or(0);
        if committed > room {
            self.note(
                chunk.offset + 8 * schema_chunk::COMMITTED as u64,
                "a schema beyond its chunk",
            );
        }
        let (mut at, end) = (start, start + committed.min(room));
        while at < end {
            let most = (end - at).min(format::MAX_ENTRY as u64) as usize;
            let bytes = self.source.bytes(at, most)?;
            let mut rest = &bytes[..];
            while let Some((number, info, length)) = schema::decode(rest) {
                self.events.entry(number).or_insert(info);
                rest = &rest[length..];
            }
            let used = bytes.len() - rest.len();
            if used == 0 {
                self.note(at, "no entry of a schema");
                break;
            }
            at += used as u64;
        }
        Ok(())
    }

    fn ring(&mut self, chunk: Chunk) -> io::Result<()> {
        let mut words = Vec::new();
        self.source.words(chunk.offset, ring::WORDS, &mut words)?;
        if words.len() < ring::WORDS || chunk.bytes < 8 * ring::WORDS as u64 {
            return Ok(()); // the caller reports the cut
        }
        let (number, blocks) = (words[ring::NUMBER], words[ring::BLOCKS]);
        let Ok(number) = u32::try_from(number) else {
            self.note(chunk.offset + 8 * ring::NUMBER as u64, "no number of a ring");
            return Ok(());
        };
        if words[ring::BLOCK_WORDS] != self.head.block_words as u64 {
            self.note(chunk.offset + 8 * ring::BLOCK_WORDS as u64, "another size of sub-buffers");
            return Ok(());
        }
        let found = self.rings.entry(number).or_default();
        found.produced = words[ring::PRODUCED];
        found.lost = words[ring::LOST];
        found.reentrant = words[ring::REENTRANT];
        let start = chunk.offset + 8 * ring::WORDS as u64;
        let block_bytes = 8 * self.head.block_words as u64;
        let end = chunk.offset + chunk.bytes;
        let (mut offset, mut empty) = (start, 0);
        for at in 0..blocks {
            if offset >= end || empty == EMPTY {
                break;
            }
            // No sub-buffer reaches into the next chunk.
            let place = Chunk { offset, bytes: block_bytes.min(end - offset) };
            let is_begun = self.block(number, place, Some((at, blocks)), None)?;
            empty = if is_begun { 0 } else { empty + 1 };
            offset += block_bytes;
        }
        Ok(())
    }

    /// Reads a sub-buffer that was copied, and perhaps packed.
    fn copied(&mut self, chunk: Chunk, is_packed: bool) -> io::Result<()> {
        const { assert!(copied::WORDS == packed::WORDS && copied::RING == packed::RING) };
        let mut words = Vec::new();
        self.source.words(chunk.offset, copied::WORDS, &mut words)?;
        let [_, _, number, length] = words[..] else { return Ok(()) };
        let Ok(number) = u32::try_from(number) else {
            self.note(chunk.offset + 8 * copied::RING as u64, "no number of a ring");
            return Ok(());
        };
        let front = 8 * copied::WORDS as u64;
        let place =
            Chunk { offset: chunk.offset + front, bytes: chunk.bytes.saturating_sub(front) };
        if is_packed && length > place.bytes.saturating_sub(8 * BLOCK_HEAD as u64) {
            let offset = chunk.offset + 8 * packed::BYTES as u64;
            self.note(offset, "a packed sub-buffer beyond its chunk");
            return Ok(());
        }
        self.block(number, place, None, is_packed.then_some(length))?;
        Ok(())
    }

    /// Reads a sub-buffer's head. Returns true if the sub-buffer was begun.
    ///
    /// `at` is its position in a ring, and the ring's number of sub-buffers. `packed` is the number
    /// of bytes of its packed records.
    fn block(
        &mut self,
        number: u32,
        place: Chunk,
        at: Option<(u64, u64)>,
        packed: Option<u64>,
    ) -> io::Result<bool> {
        let mut words = Vec::new();
        self.source.words(place.offset, BLOCK_HEAD, &mut words)?;
        if words.len() < BLOCK_HEAD || place.bytes < 8 * BLOCK_HEAD as u64 {
            return Ok(false); // the caller reports the cut
        }
        let Some(sequence) = words[block::SEQUENCE].checked_sub(1) else {
            if at.is_none() {
                self.note(place.offset, "a copied sub-buffer without a sequence");
            }
            return Ok(false); // empty, or being prepared
        };
        if at.is_some_and(|(at, blocks)| sequence % blocks != at) {
            self.note(place.offset, "a sub-buffer at a wrong place of its ring");
            return Ok(true);
        }
        let limit = self.head.block_words as u64;
        let room = if packed.is_some() { limit } else { limit.min(place.bytes / 8) };
        let committed = words[block::COMMITTED];
        if committed < BLOCK_HEAD as u64 || committed > self.head.block_words as u64 {
            self.note(place.offset + 8 * block::COMMITTED as u64, "no count of complete words");
            return Ok(true);
        }
        let numbers = [sequence, words[block::BASE], words[block::FIRST], words[block::LOST]];
        if numbers.iter().any(|number| *number >= LIMIT) {
            self.note(place.offset, "a number that no recording reaches");
            return Ok(true);
        }
        let front = 8 * BLOCK_HEAD as u64;
        if let Some(bytes) = packed {
            let unpacked = 8 * committed - front;
            if bytes > unpacked {
                self.note(place.offset + front, "a packed sub-buffer that is longer than unpacked");
                return Ok(true);
            }
            if unpacked > (place.bytes - front).saturating_mul(packed::FOLD as u64) {
                self.note(place.offset + front, "a packed sub-buffer that unfolds over 16-fold");
                return Ok(true);
            }
        }
        let info = BlockInfo {
            offset: place.offset,
            sequence,
            committed: committed.min(room) as usize,
            first: words[block::FIRST],
            lost: words[block::LOST],
            packed: packed.map(|bytes| bytes as usize),
        };
        self.rings.entry(number).or_default().blocks.push(info);
        Ok(true)
    }

    fn totals(&mut self, chunk: Chunk) -> io::Result<()> {
        /// Rings that are read at a time.
        const ROWS: usize = 1024;
        let mut words = Vec::new();
        let left = |at: u64| ((chunk.offset + chunk.bytes).saturating_sub(at) / 8) as usize;
        self.source.words(chunk.offset, left(chunk.offset).min(total::WORDS), &mut words)?;
        if let [_, _, refused, ticks, nanos] = words[..] {
            self.head.refused = refused;
            self.head.end = (ticks != 0).then_some((ticks, nanos));
        }
        let (mut at, mut next) = (chunk.offset + 8 * total::WORDS as u64, 0);
        loop {
            self.source.words(at, left(at).min(total::EACH * ROWS), &mut words)?;
            let rows = words.chunks_exact(total::EACH);
            if rows.len() == 0 {
                return Ok(());
            }
            for row in rows {
                // Each ring once and in order, so that a hole does not look like endless rings.
                let number = u32::try_from(row[0]).ok().filter(|number| *number >= next);
                let Some(number) = number.filter(|number| *number < u32::MAX) else {
                    self.note(at, "no number of a ring");
                    return Ok(());
                };
                next = number + 1;
                let found = self.rings.entry(number).or_default();
                (found.produced, found.lost, found.reentrant) = (row[1], row[2], row[3]);
                at += 8 * total::EACH as u64;
            }
        }
    }
}
