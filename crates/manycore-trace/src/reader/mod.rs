//! Reading of recordings: of whole, cut, damaged or foreign files, and of files still being
//! written.
//!
//! ```text
//! file --scan--> chunks, schema, sub-buffers --one cursor a ring--> Merge --> Record
//!                     | damage                      | gaps            |
//!                     +-----------------------------+-----------------+--> Account
//! ```
//!
//! # Laws
//!
//! This module owns the meaning of a file's bytes. It has no `unsafe`, and trusts no byte.
//!
//! - reader.T1 Records come in the order of (time, slot, sequence), whatever the file's order is.
//!   Two merges of one file are equal.
//! - reader.T2 Each event that a thread produced is merged, or counted as lost by the writer, or
//!   counted as missing here.
//! - reader.T3 Damage has an offset. It costs at most the rest of its sub-buffer or chunk.
//! - reader.T4 Memory: for each ring one sub-buffer, as far as it has records, and 64 bytes for
//!   each sub-buffer. Records have at most [`FOLD`](crate::format::packed::FOLD) times their bytes
//!   in the file. So a reader takes at most 48 bytes for each byte of the file, and 1 MiB. A hole
//!   of a sparse file counts as no bytes. No length that the file states is trusted before the
//!   bytes are read.
//! - reader.T5 Time: each byte is read a fixed number of times. No two sub-buffers share a byte,
//!   and after 64 empty sub-buffers of a ring the search ends.

mod merge;
mod record;
mod scan;
mod source;

pub use merge::{Account, Merge};
pub use record::{Fields, Record, Value};
pub use scan::Damage;

use crate::schema::EventInfo;
use scan::RingInfo;
use source::Source;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

/// A recording that is open for reading.
///
/// ```
/// use manycore_trace::{Class, FieldType, Kind, Recorder, Trace, Value, span};
///
/// const QUERIES: Class = Class::new(3, "queries");
/// let recording = Recorder::new().start()?;
/// drop(span!(QUERIES, Query { id: u32 = 17 }));
/// let mut trace = Trace::from_bytes(recording.finish()?)?;
///
/// let mut merge = trace.merge();
/// let begin = merge.next().unwrap();
/// assert_eq!((begin.info.kind, begin.info.name.as_str()), (Kind::Begin, "Query"));
/// assert_eq!(begin.info.fields, [("id".to_owned(), FieldType::Unsigned(4))]);
/// assert_eq!(begin.fields().next(), Some(("id", Value::Unsigned(17))));
/// let began = begin.time;
/// assert!(merge.next().unwrap().time >= began);
/// assert!(merge.next().is_none());
/// assert!(trace.account().is_closed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A file can be read while a process still writes it. What the process overwrites during the read
/// is counted as lost.
///
/// A file may come from a stranger. Reading takes at most 48 bytes of memory for each byte of the
/// file, and 1 MiB, and time in proportion to the file's bytes. (A recording that is not crafted
/// takes much less: one sub-buffer for each thread.) Holes of a sparse file take no memory,
/// whatever length the file states.
#[derive(Debug)]
pub struct Trace {
    source: Source,
    head: Head,
    events: BTreeMap<u16, EventInfo>,
    rings: BTreeMap<u32, RingInfo>,
    damage: Vec<Damage>,
}

/// The contents of the first chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    ticks_per_second: u64,
    start: (u64, u64),
    block_words: usize,
    process: u64,
    refused: u64,
    end: Option<(u64, u64)>,
}

impl Trace {
    /// Opens a file.
    ///
    /// # Errors
    /// If the file can't be read. If it is not a recording, the error contains a [`Damage`]. A file
    /// that is damaged further on is opened: see [`Account::damage`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_file(File::open(path)?)
    }

    /// Reads from an open file, such as [`crate::Recording::descriptor`].
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn from_file(file: File) -> io::Result<Self> {
        Self::from_source(Source::of_file(file, |start| scan::read_head(start).map(drop))?)
    }

    /// Reads from the bytes of a file.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn from_bytes(bytes: Vec<u8>) -> io::Result<Self> {
        Self::from_source(Source::Bytes(bytes))
    }

    fn from_source(source: Source) -> io::Result<Self> {
        scan::scan(source)
    }

    /// Returns all records, in the order of (time, slot, sequence).
    pub fn merge(&mut self) -> Merge<'_> {
        Merge::new(self, &BTreeMap::new())
    }

    /// Like [`merge`](Self::merge), but skips the records before these sequence numbers of the
    /// slots. So it returns what is new since the last time.
    pub fn merge_from(&mut self, first: &BTreeMap<u32, u64>) -> Merge<'_> {
        Merge::new(self, first)
    }

    /// Merges all records and returns the account.
    pub fn account(&mut self) -> Account {
        let mut merge = self.merge();
        while merge.next().is_some() {}
        merge.into_account()
    }

    /// Returns the events in the schema.
    pub fn events(&self) -> impl Iterator<Item = &EventInfo> {
        self.events.values()
    }

    /// Returns the number of the process that wrote the recording.
    #[must_use]
    pub fn process(&self) -> u64 {
        self.head.process
    }

    /// Returns the number of slots that have a ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.rings.len()
    }

    /// Returns the ticks in a second.
    #[must_use]
    pub fn ticks_per_second(&self) -> u64 {
        self.head.ticks_per_second
    }

    /// Returns nanoseconds from the start of the recording to this time. Negative before the start.
    #[must_use]
    pub fn nanos(&self, time: u64) -> i64 {
        self.head.nanos(time)
    }

    /// Returns nanoseconds from 1970 to the start of the recording.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.head.start.1
    }

    /// Returns how much faster the system's clock ran than the recording's, in parts per million.
    ///
    /// Returns `None` if the recording was not ended.
    #[must_use]
    pub fn drift(&self) -> Option<f64> {
        let (ticks, nanos) = self.head.end?;
        let real = nanos.checked_sub(self.head.start.1)? as f64;
        let own = self.head.nanos(ticks) as f64;
        (own > 0.0).then(|| (real / own - 1.0) * 1e6)
    }
}

impl Head {
    fn nanos(&self, time: u64) -> i64 {
        let ticks = i128::from(time) - i128::from(self.start.0);
        let nanos = ticks * 1_000_000_000 / i128::from(self.ticks_per_second.max(1));
        i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
    }
}
