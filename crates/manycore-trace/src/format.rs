//! The file's layout: words of 64 bits, the low byte first.
//!
//! Owns: the positions of words. A file is a row of *chunks*; a chunk begins with its mark and its
//! length in bytes.
//!
//! | Chunk | Contents |
//! |---|---|
//! | [`HEAD`] | the first: version, clock, sizes |
//! | [`SCHEMA`] | entries for events, see `schema` |
//! | [`RING`] | a ring: a page of its own words, then all its sub-buffers |
//! | [`BLOCK`] | one sub-buffer that was copied out of a ring |
//! | [`PACKED`] | the same, its records compressed (`pack`) |
//! | [`TOTAL`] | at the end of a copied recording: the words of each ring's page |
//!
//! A sub-buffer begins with [`BLOCK_HEAD`] words, then come records:
//!
//! | Bits of a record's first word | |
//! |---|---|
//! | 0 to 31 | the low half of the time in ticks |
//! | 32 to 39 | its length in words, with this one |
//! | 40 to 55 | the event's number in the schema |
//! | 56 to 63 | the class |
//!
//! A first word of 0 is the filler: nothing follows in this sub-buffer.

/// The marks of chunks, as they read in a file.
pub(crate) const HEAD: u64 = u64::from_le_bytes(*b"MCTRACE1");
pub(crate) const SCHEMA: u64 = u64::from_le_bytes(*b"MCSCHEMA");
pub(crate) const RING: u64 = u64::from_le_bytes(*b"MCTRRING");
pub(crate) const BLOCK: u64 = u64::from_le_bytes(*b"MCTBLOCK");
pub(crate) const PACKED: u64 = u64::from_le_bytes(*b"MCTPACKD");
pub(crate) const TOTAL: u64 = u64::from_le_bytes(*b"MCTTOTAL");

/// The version of the layout that this crate writes, and reads.
pub(crate) const VERSION: u64 = 1;
/// Chunks of a mapped file begin at a multiple of this: a page, also where pages have 64 KiB.
pub(crate) const ALIGN: usize = 64 << 10;

/// Words of the first chunk, after mark and length.
pub(crate) mod head {
    pub(crate) const VERSION: usize = 2;
    pub(crate) const TICKS_PER_SECOND: usize = 3;
    /// A moment in ticks, and the same in nanoseconds since 1970.
    pub(crate) const START_TICKS: usize = 4;
    pub(crate) const START_NANOS: usize = 5;
    pub(crate) const BLOCK_WORDS: usize = 6;
    pub(crate) const PROCESS: usize = 7;
    /// Events that no ring took: the thread had ended, or there was no memory.
    pub(crate) const REFUSED: usize = 8;
    /// Another pair of ticks and nanoseconds, from the end of the recording; 0 without an end.
    pub(crate) const END_TICKS: usize = 9;
    pub(crate) const END_NANOS: usize = 10;
    pub(crate) const WORDS: usize = 16;
}

/// Words of a schema's chunk, after mark and length.
pub(crate) mod schema {
    /// Bytes of entries behind the head.
    pub(crate) const COMMITTED: usize = 2;
    pub(crate) const WORDS: usize = 4;
}

/// Words of a ring's page, after mark and length. What different threads write is apart.
pub(crate) mod ring {
    pub(crate) const NUMBER: usize = 2;
    pub(crate) const BLOCK_WORDS: usize = 3;
    pub(crate) const BLOCKS: usize = 4;
    /// Sub-buffers that the reader has copied; written by it.
    pub(crate) const CONSUMED: usize = 32;
    /// Events that were dropped, as the writer counts.
    pub(crate) const LOST: usize = 64;
    /// Events of a signal's handler that interrupted an event.
    pub(crate) const REENTRANT: usize = 65;
    /// Events with a number, at the end of the recording.
    pub(crate) const PRODUCED: usize = 66;
    /// Words before the first sub-buffer.
    pub(crate) const WORDS: usize = 512;
}

/// Words of a copied sub-buffer's chunk, after mark and length.
pub(crate) mod copied {
    pub(crate) const RING: usize = 2;
    pub(crate) const WORDS: usize = 4;
}

/// Words of a packed sub-buffer's chunk, after mark and length. Behind them the sub-buffer's head
/// as it was, then what is packed, then [`FILLER`](packed::FILLER).
pub(crate) mod packed {
    pub(crate) const RING: usize = 2;
    /// Bytes that are packed.
    pub(crate) const BYTES: usize = 3;
    pub(crate) const WORDS: usize = 4;
    /// Bytes of records for each byte in the file, at most. Records that are packed more tightly
    /// are filled up, so that what a reader holds follows from the length of the file.
    pub(crate) const FOLD: usize = 16;
    /// The bytes to the end of the chunk. Not 0, which a hole in a file reads as.
    #[cfg_attr(not(feature = "lz4"), allow(dead_code))]
    pub(crate) const FILLER: u8 = 0xff;

    /// Bytes in the file for so many words, of which `packed` bytes are left.
    #[cfg_attr(not(feature = "lz4"), allow(dead_code))]
    pub(crate) fn area(words: usize, packed: usize) -> usize {
        packed.max((8 * words).div_ceil(FOLD))
    }
}

/// Words of the chunk [`TOTAL`], after mark and length: what the head has of the end, then four
/// for each ring.
pub(crate) mod total {
    // Refused events, then ticks and nanoseconds of the end, as in `head`.
    pub(crate) const WORDS: usize = 5;
    pub(crate) const EACH: usize = 4;
}

/// Words at the start of a sub-buffer.
pub(crate) mod block {
    /// One more than the number of the sub-buffer in its ring, counted from the start; 0 while it
    /// is being made ready.
    pub(crate) const SEQUENCE: usize = 0;
    /// The time of its first record.
    pub(crate) const BASE: usize = 1;
    /// Words that are complete, with these.
    pub(crate) const COMMITTED: usize = 2;
    /// The number of its first event: all that were recorded or dropped before, in this ring.
    pub(crate) const FIRST: usize = 3;
    /// Events dropped before, in this ring.
    pub(crate) const LOST: usize = 4;
    /// The thread that it begins with.
    pub(crate) const THREAD: usize = 5;
}
pub(crate) const BLOCK_HEAD: usize = 8;

/// The smallest sub-buffer that has room for each record, and the largest.
pub(crate) const MIN_BLOCK_WORDS: usize = 512;
pub(crate) const MAX_BLOCK_WORDS: usize = 1 << 20;

/// The longest record, in words.
pub(crate) const MAX_RECORD: usize = 255;
/// Bytes of a thread's name that are kept.
pub(crate) const MAX_THREAD_NAME: usize = 64;
/// Bytes of the names of events, classes and fields that are kept; of modules and files.
pub(crate) const MAX_NAME: usize = 255;
pub(crate) const MAX_PATH: usize = 4095;
/// The longest entry of a schema in bytes: with 255 fields, and room for later versions.
pub(crate) const MAX_ENTRY: usize = 128 << 10;
/// Bytes of a string that a record keeps, and the mark on the length of one that was longer.
pub(crate) const MAX_TEXT: usize = 480;
pub(crate) const TRUNCATED: u64 = 1 << 15;

/// Numbers of records that are no events.
pub(crate) mod id {
    /// The full time, where the low half does not say it.
    pub(crate) const TIME: u64 = 1;
    /// The thread that writes from here on: its number, and its name. The first record of each
    /// sub-buffer, and where another thread goes on (ring.R6).
    pub(crate) const THREAD: u64 = 2;
    /// The first that is an event's.
    pub(crate) const FIRST: u64 = 16;
    pub(crate) const LAST: u64 = 0xffff;
}

/// A first word without the time and the length.
pub(crate) const fn tag(id: u64, class: u8) -> u64 {
    id << 40 | (class as u64) << 56
}

/// The parts of a first word: time, length, number, class.
#[inline]
pub(crate) fn parts(word: u64) -> (u64, usize, u64, u8) {
    (word & 0xffff_ffff, (word >> 32 & 0xff) as usize, word >> 40 & 0xffff, (word >> 56) as u8)
}
