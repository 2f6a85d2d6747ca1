//! Warm restart (`-e`): the format of the file with all items, from a graceful shutdown to the next
//! start. Names, locks and system calls are in `server::memory_file`.
//!
//! Why a file that is written at shutdown, and not a mapping that holds the items: after a kill a
//! mapping holds whatever was written by then, so it must be refused anyway; at run time it would
//! have the cost of tmpfs pages (no huge pages by default), and the layout of items in memory would
//! be a format that later versions have to read. The file costs two copies instead, seconds for
//! each million items, and memory for one part in sixteen of the items twice (`Store::take_all`
//! gives memory back as it goes, and the reader's side of the file is cut off as it is read).
//!
//! A file is a header of [`HEADER`] bytes, and blocks of up to [`BLOCK`] bytes, each behind its
//! length and checksum. The blocks together are a stream of records, one for each item. All numbers
//! are little-endian.
//!
//! Laws:
//! - restart.W1 The header is written last: without it there is no file. It says how long the file
//!   is, how many blocks and items it has, and a number of the file's own. A block's checksum
//!   covers that number, the block's place and its content: a block of another file, or of another
//!   place, is as wrong as one with a flipped bit.
//! - restart.W2 A file that is wrong anywhere is refused whole: what was read of it before is
//!   dropped with its store.
//! - restart.W3 No length is believed beyond what was read and checked, nor beyond the limit of an
//!   item.
//! - restart.W4 The new store's clock begins above the old one's stamps, and as much later as the
//!   calendar says; so stamps, deadlines and uses keep their meaning (law store.D1). A calendar
//!   that was set back while the server was away refuses the file, as memcached does it: how long
//!   items had to live is not known.
//! - restart.W5 If there is less memory than before, the items that were used last are restored:
//!   the header has their bytes by the time since their use.

mod ages;
mod read;
mod record;
mod refusal;
mod write;

pub use read::{Loaded, load};
pub use refusal::Refusal;
pub use write::{Saved, save};

use crate::store::Beginning;
use ages::Ages;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of the header.
pub const HEADER: usize = 4096;
/// Bytes of a block's content, at most.
pub const BLOCK: usize = 64 << 10;

/// What a file begins with: `\xff`, so that it is no text, and a return and a line feed, which what
/// is no copy of bytes changes.
const MAGIC: [u8; 8] = *b"\xffmanyc\r\n";
/// The form that this page describes.
const VERSION: u32 = 1;
/// Bytes before a block's content: its length and its checksum.
const FRAME: usize = 8;
/// A calendar may go back by so much between end and start: what a time server's correction does.
const SET_BACK: Duration = Duration::from_secs(5);
/// The longest time for which stores' clocks may go on from each other: half of what a deadline can
/// say.
const CLOCK_MAX: Duration = Duration::from_secs(8 * 365 * 24 * 60 * 60);

/// What the header says.
#[derive(Debug, Clone)]
pub struct Header {
    /// The file's own number.
    id: u64,
    /// When it was begun, in milliseconds of the calendar.
    saved_at: u64,
    beginning: Beginning,
    /// No item has a stamp above this.
    last_stamp: u64,
    /// The file's parts.
    items: u64,
    blocks: u64,
    bytes: u64,
    ages: Ages,
}

/// CRC-32 finds each error of up to three bits, and each burst of up to 32, in a block of this
/// size; of others it misses one in four billion. The crate is the one that most archives are read
/// with, and uses the processor's own multiplication: a stronger checksum would cost what the copy
/// does.
fn checksum(parts: &[&[u8]]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    parts.iter().for_each(|part| sum.update(part));
    sum.finalize()
}

fn block_checksum(id: u64, place: u64, content: &[u8]) -> u32 {
    checksum(&[&id.to_le_bytes(), &place.to_le_bytes(), content])
}

fn millis(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Header {
    /// How many items it says there are.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// The second of the old store's end, on its clock.
    fn second(&self) -> u32 {
        (self.beginning.clock / 1_000_000_000) as u32
    }

    /// How long the file is that it belongs to.
    fn file_len(&self) -> Option<u64> {
        let frames = self.blocks.checked_mul(FRAME as u64)?;
        frames.checked_add(self.bytes)?.checked_add(HEADER as u64)
    }

    fn numbers(&self) -> [u64; 10] {
        let Beginning { clock, flush_at, entries } = self.beginning;
        let (id, saved_at, last_stamp) = (self.id, self.saved_at, self.last_stamp);
        let (items, blocks, bytes) = (self.items, self.blocks, self.bytes);
        // The last is for later versions.
        [id, saved_at, clock, flush_at, entries, last_stamp, items, blocks, bytes, 0]
    }

    /// As it stands in the file.
    #[must_use]
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        self.numbers().iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        self.ages.encode(&mut out);
        out.resize(HEADER - 4, 0);
        out.extend_from_slice(&checksum(&[&out]).to_le_bytes());
        out
    }

    /// Reads it, of a file of this length.
    ///
    /// # Errors
    /// It is another program's file, or damaged.
    pub fn decode(bytes: &[u8], file_len: u64) -> Result<Self, Refusal> {
        // restart.W3: each length is compared with the length of the file before it is used.
        let Some((magic, rest)) = bytes.split_first_chunk() else { return Err(Refusal::Foreign) };
        if *magic != MAGIC {
            return Err(Refusal::Foreign);
        }
        let short = || Refusal::Damaged("it ends within its header".into());
        let (rest, sum) = rest.split_last_chunk().ok_or_else(short)?;
        let (version, mut rest) = rest.split_first_chunk().ok_or_else(short)?;
        if bytes.len() != HEADER {
            return Err(short());
        }
        if u32::from_le_bytes(*sum) != checksum(&[&bytes[..HEADER - 4]]) {
            return Err(Refusal::Damaged("the header's checksum is wrong".into()));
        }
        match u32::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(Refusal::Unfit(format!("it has version {other}, not {VERSION}"))),
        }
        let mut next = || {
            let (number, more) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
            rest = more;
            u64::from_le_bytes(*number)
        };
        let [id, saved_at, clock, flush_at, entries, last_stamp, items, blocks, bytes, _] =
            std::array::from_fn(|_| next());
        let beginning = Beginning { clock, flush_at, entries };
        let ages = Ages::decode(next);
        let header = Self { id, saved_at, beginning, last_stamp, items, blocks, bytes, ages };
        if header.file_len() != Some(file_len) {
            let words = format!("it has {file_len} bytes, which is not what its header says");
            return Err(Refusal::Damaged(words));
        }
        Ok(header)
    }

    /// What a store begins with that takes the file's items now (restart.W4).
    ///
    /// # Errors
    /// The calendar contradicts the file.
    pub fn beginning(&self, now: SystemTime) -> Result<Beginning, Refusal> {
        let now = millis(now);
        let back = self.saved_at.saturating_sub(now);
        if u128::from(back) > SET_BACK.as_millis() {
            let words = format!("the system's time is {} s before the file's", back / 1000);
            return Err(Refusal::Unfit(words));
        }
        let away = now.saturating_sub(self.saved_at).saturating_mul(1_000_000);
        let clock = self.beginning.clock.saturating_add(away);
        if u128::from(clock) > CLOCK_MAX.as_nanos() {
            return Err(Refusal::Unfit("its items are older than eight years".into()));
        }
        Ok(Beginning { clock, ..self.beginning })
    }
}

#[cfg(test)]
mod tests;
