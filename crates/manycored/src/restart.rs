//! Warm restart (`-e`): the format of the file that keeps all items from a graceful shutdown to the
//! next start. Names, locks and system calls are in `server::memory_file`.
//!
//! Why a file that is written at shutdown, and not a mapping that holds the items? After a kill, a
//! mapping would be in an unknown state, so the next start would have to refuse it anyway. At run
//! time it would cost tmpfs pages (no huge pages by default), and later versions would have to read
//! the layout of items in memory. The file costs two copies instead: seconds for each million
//! items, and twice the memory for one sixteenth of the items. (`Store::take_all` returns memory
//! step by step, and the reader returns the file's pages as it reads them.)
//!
//! A file is a header of [`HEADER`] bytes, and blocks of up to [`BLOCK`] bytes. The blocks together
//! are a stream of records, one for each item. All numbers are little-endian.
//!
//! ```text
//! | header, 4096 B | length, checksum | block 0 | length, checksum | block 1 | ...
//!                                     <---- record, record, record, ... ---->
//! ```
//!
//! Laws:
//! - restart.W1 The header is written last; without it there is no file. It has the length of the
//!   file, the numbers of blocks and items, and an id of the file. A block's checksum covers the
//!   id, the block's place and its content. So a block of another file or another place is as wrong
//!   as a block with a flipped bit.
//! - restart.W2 A file that is wrong anywhere is refused whole. Items that were read before are
//!   dropped with their store.
//! - restart.W3 The reader trusts no length beyond the bytes that it has read and checked, nor
//!   beyond the limit of an item.
//! - restart.W4 The new store's clock begins above the old clock's stamps, and as much later as
//!   the calendar says. So stamps, deadlines and uses keep their meaning (law store.D1). If the
//!   calendar was set back while the server was away, the file is refused, as in memcached, because
//!   the items' remaining times are not known.
//! - restart.W5 If there is less memory than before, the most recently used items are restored.
//!   For that, the header has the bytes of items by the time since their last use.

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

/// The first bytes of a file. `\xff` makes it no text; a return and a line feed show whether a
/// transfer has changed line ends.
const MAGIC: [u8; 8] = *b"\xffmanyc\r\n";
/// The version of the format that this module describes.
const VERSION: u32 = 1;
/// Bytes before a block's content: its length and its checksum.
const FRAME: usize = 8;
/// The calendar may go back by this much between end and start, because of a time server's
/// correction.
const SET_BACK: Duration = Duration::from_secs(5);
/// The longest time for which stores' clocks may continue one another: half of a deadline's range.
const CLOCK_MAX: Duration = Duration::from_secs(8 * 365 * 24 * 60 * 60);

/// The header of a file.
#[derive(Debug, Clone)]
pub struct Header {
    /// The file's id.
    id: u64,
    /// The calendar time when the file was begun, in milliseconds.
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

/// Returns a CRC-32. In a block of this size it finds each error of up to three bits and each burst
/// of up to 32 bits; it misses one in four billion other errors. The crate is widely used for
/// archives, and uses the processor's own multiplication. A stronger checksum would cost as much as
/// the copy.
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
    /// Returns the number of items.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the second of the old store's end, on its clock.
    fn second(&self) -> u32 {
        (self.beginning.clock / 1_000_000_000) as u32
    }

    /// Returns the length of its file.
    fn file_len(&self) -> Option<u64> {
        let frames = self.blocks.checked_mul(FRAME as u64)?;
        frames.checked_add(self.bytes)?.checked_add(HEADER as u64)
    }

    fn numbers(&self) -> [u64; 10] {
        let Beginning { clock, flush_at, entries } = self.beginning;
        let (id, saved_at, last_stamp) = (self.id, self.saved_at, self.last_stamp);
        let (items, blocks, bytes) = (self.items, self.blocks, self.bytes);
        // The last field is for later versions.
        [id, saved_at, clock, flush_at, entries, last_stamp, items, blocks, bytes, 0]
    }

    /// Returns its bytes in the file.
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

    /// Reads the header of a file of this length.
    ///
    /// # Errors
    /// The file is another program's, or damaged.
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

    /// Returns the initial state of a store that takes the file's items now (restart.W4).
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
