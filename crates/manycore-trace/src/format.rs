//! The file's layout: words of 64 bits, low byte first.
//!
//! This module owns the positions of words. A file is a row of *chunks*. A chunk begins with its
//! mark and its length in bytes.
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
//! A sub-buffer begins with [`BLOCK_HEAD`] words. Records follow:
//!
//! | Bits of a record's first word | |
//! |---|---|
//! | 0 to 31 | the low half of the time in ticks |
//! | 32 to 39 | its length in words, with this one |
//! | 40 to 55 | the event's number in the schema |
//! | 56 to 63 | the class |
//!
//! A first word of 0 is the filler: nothing follows in this sub-buffer.

/// The marks of chunks, as they appear in a file.
pub(crate) const HEAD: u64 = u64::from_le_bytes(*b"MCTRACE1");
pub(crate) const SCHEMA: u64 = u64::from_le_bytes(*b"MCSCHEMA");
pub(crate) const RING: u64 = u64::from_le_bytes(*b"MCTRRING");
pub(crate) const BLOCK: u64 = u64::from_le_bytes(*b"MCTBLOCK");
pub(crate) const PACKED: u64 = u64::from_le_bytes(*b"MCTPACKD");
pub(crate) const TOTAL: u64 = u64::from_le_bytes(*b"MCTTOTAL");

/// The version of the layout that this crate writes and reads.
pub(crate) const VERSION: u64 = 1;
/// Chunks of a mapped file begin at a multiple of this: a page, even on systems with 64 KiB pages.
pub(crate) const ALIGN: usize = 64 << 10;

/// Words of the first chunk, after mark and length.
pub(crate) mod head {
    pub(crate) const VERSION: usize = 2;
    pub(crate) const TICKS_PER_SECOND: usize = 3;
    /// A moment in ticks, and the same moment in nanoseconds since 1970.
    pub(crate) const START_TICKS: usize = 4;
    pub(crate) const START_NANOS: usize = 5;
    pub(crate) const BLOCK_WORDS: usize = 6;
    pub(crate) const PROCESS: usize = 7;
    /// Events that no ring took, because the thread had ended or there was no memory.
    pub(crate) const REFUSED: usize = 8;
    /// The same two values at the end of the recording. 0 if the recording did not end.
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

/// Words of a ring's page, after mark and length. Words of different threads lie on different
/// lines.
pub(crate) mod ring {
    pub(crate) const NUMBER: usize = 2;
    pub(crate) const BLOCK_WORDS: usize = 3;
    pub(crate) const BLOCKS: usize = 4;
    /// Sub-buffers that the reader has copied. The reader writes this word.
    pub(crate) const CONSUMED: usize = 32;
    /// Events that were dropped, counted by the writer.
    pub(crate) const LOST: usize = 64;
    /// Events of signal handlers that interrupted another event.
    pub(crate) const REENTRANT: usize = 65;
    /// Numbered events, stored at the end of the recording.
    pub(crate) const PRODUCED: usize = 66;
    /// Words before the first sub-buffer.
    pub(crate) const WORDS: usize = 512;
}

/// Words of a copied sub-buffer's chunk, after mark and length.
pub(crate) mod copied {
    pub(crate) const RING: usize = 2;
    pub(crate) const WORDS: usize = 4;
}

/// Words of a packed sub-buffer's chunk, after mark and length. The sub-buffer's unpacked head
/// follows, then the packed bytes, then [`FILLER`](packed::FILLER).
pub(crate) mod packed {
    pub(crate) const RING: usize = 2;
    /// The number of packed bytes.
    pub(crate) const BYTES: usize = 3;
    pub(crate) const WORDS: usize = 4;
    /// Upper bound of record bytes for each byte in the file. Records that pack more tightly are
    /// padded, so the length of the file limits a reader's memory.
    pub(crate) const FOLD: usize = 16;
    /// Pads the chunk. Not 0, because a hole in a file reads as 0.
    #[cfg_attr(not(feature = "lz4"), allow(dead_code))]
    pub(crate) const FILLER: u8 = 0xff;

    /// Returns the bytes in the file for `words` words that were packed into `packed` bytes.
    #[cfg_attr(not(feature = "lz4"), allow(dead_code))]
    pub(crate) fn area(words: usize, packed: usize) -> usize {
        packed.max((8 * words).div_ceil(FOLD))
    }
}

/// Words of the chunk [`TOTAL`], after mark and length: the head's words about the end, then four
/// words for each ring.
pub(crate) mod total {
    // Refused events, then ticks and nanoseconds of the end, as in `head`.
    pub(crate) const WORDS: usize = 5;
    pub(crate) const EACH: usize = 4;
}

/// Words at the start of a sub-buffer.
pub(crate) mod block {
    /// The number of the sub-buffer in its ring, counted from 1. 0 while the writer prepares it.
    pub(crate) const SEQUENCE: usize = 0;
    /// The time of its first record.
    pub(crate) const BASE: usize = 1;
    /// Complete words, including the head.
    pub(crate) const COMMITTED: usize = 2;
    /// The number of its first event: how many events this ring recorded or dropped before.
    pub(crate) const FIRST: usize = 3;
    /// Events that this ring dropped before.
    pub(crate) const LOST: usize = 4;
    /// The thread that writes at its beginning.
    pub(crate) const THREAD: usize = 5;
}
pub(crate) const BLOCK_HEAD: usize = 8;

/// The smallest sub-buffer that has room for every record, and the largest sub-buffer.
pub(crate) const MIN_BLOCK_WORDS: usize = 512;
pub(crate) const MAX_BLOCK_WORDS: usize = 1 << 20;

/// The longest record, in words.
pub(crate) const MAX_RECORD: usize = 255;
/// Bytes that are kept of a thread's name.
pub(crate) const MAX_THREAD_NAME: usize = 64;
/// Bytes that are kept of the names of events, classes and fields; and of modules and files.
pub(crate) const MAX_NAME: usize = 255;
pub(crate) const MAX_PATH: usize = 4095;
/// The longest entry of a schema in bytes: 255 fields, and room for later versions.
pub(crate) const MAX_ENTRY: usize = 128 << 10;
/// Bytes that a record keeps of a string, and the flag on the length of a truncated string.
pub(crate) const MAX_TEXT: usize = 480;
pub(crate) const TRUNCATED: u64 = 1 << 15;

/// Numbers of records that are not events.
pub(crate) mod id {
    /// The full time. Used when the low half is not enough.
    pub(crate) const TIME: u64 = 1;
    /// The thread that writes from here on: its number and its name. It is the first record of each
    /// sub-buffer, and also follows each change of the thread (ring.R6).
    pub(crate) const THREAD: u64 = 2;
    /// The first number of an event.
    pub(crate) const FIRST: u64 = 16;
    pub(crate) const LAST: u64 = 0xffff;
}

/// Returns a first word without the time and the length.
pub(crate) const fn tag(id: u64, class: u8) -> u64 {
    id << 40 | (class as u64) << 56
}

/// Splits a first word into time, length, number and class.
#[inline]
pub(crate) fn parts(word: u64) -> (u64, usize, u64, u8) {
    (word & 0xffff_ffff, (word >> 32 & 0xff) as usize, word >> 40 & 0xffff, (word >> 56) as u8)
}
