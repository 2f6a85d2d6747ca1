//! Writing the file.

use super::{BLOCK, FRAME, HEADER, Header, ages::Ages, block_checksum, millis, record};
use crate::store::{Item, Store};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Seek, SeekFrom, Write};
use std::time::SystemTime;

/// The size of a written file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Items.
    pub items: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

struct Writer<'f, F> {
    file: &'f mut F,
    id: u64,
    /// The blocks and bytes behind the header, without the block that is being filled.
    blocks: u64,
    bytes: u64,
    /// Room for a frame, and content.
    block: Vec<u8>,
}

impl<F: Write> Writer<'_, F> {
    fn push(&mut self, mut part: &[u8]) -> io::Result<()> {
        while !part.is_empty() {
            let (now, later) = part.split_at(part.len().min(FRAME + BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            debug_assert!(self.block.len() <= FRAME + BLOCK, "restart.W1: a block is too long");
            part = later;
            if self.block.len() == FRAME + BLOCK {
                self.end_block()?;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) -> io::Result<()> {
        let (frame, content) = self.block.split_at_mut(FRAME);
        if content.is_empty() {
            return Ok(());
        }
        let sum = block_checksum(self.id, self.blocks, content);
        frame[..4].copy_from_slice(&(content.len() as u32).to_le_bytes());
        frame[4..].copy_from_slice(&sum.to_le_bytes());
        (self.blocks, self.bytes) = (self.blocks + 1, self.bytes + content.len() as u64);
        self.file.write_all(&self.block)?;
        self.block.truncate(FRAME);
        Ok(())
    }
}

/// Writes all items to an empty file, and takes them out of the store. No request to the store may
/// be under way. Until the last write, the bytes are no valid file (restart.W1).
///
/// # Errors
/// An error of the file. After an error, items are missing from both the store and the file.
pub fn save(store: &Store, file: &mut (impl Write + Seek), now: SystemTime) -> io::Result<Saved> {
    let beginning = store.end();
    let second = (beginning.clock / 1_000_000_000) as u32;
    file.seek(SeekFrom::Start(HEADER as u64))?;
    // `RandomState` has new keys in each process, which is enough.
    let id = RandomState::new().hash_one(millis(now));
    let block = Vec::from([0; FRAME]);
    let mut writer = Writer { file, id, blocks: 0, bytes: 0, block };
    let (mut items, mut last_stamp, mut ages) = (0, 0, Ages::default());
    let mut front = Vec::new();
    store.take_all(|item: &Item| {
        items += 1;
        last_stamp = item.stamp().max(last_stamp);
        ages.note(second.saturating_sub(item.used()), item.weight());
        front.clear();
        record::front(item, &mut front);
        writer.push(&front)?;
        item.value_parts().try_for_each(|part| writer.push(part))
    })?;
    writer.end_block()?;
    let (blocks, bytes, saved_at) = (writer.blocks, writer.bytes, millis(now));
    let header = Header { id, saved_at, beginning, last_stamp, items, blocks, bytes, ages };
    debug_assert!(
        !file.stream_position().is_ok_and(|at| Some(at) != header.file_len()),
        "restart.W1: the file has not the length that its header says"
    );
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&header.encode())?;
    Ok(Saved { items, bytes: header.file_len().unwrap_or_default() })
}
