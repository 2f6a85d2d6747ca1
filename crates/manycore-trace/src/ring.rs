//! A ring of sub-buffers with one writer.
//!
//! This module owns the protocol between the writer and the readers, in this process or in another.
//! It does not own where the words lie (`memory`) and which thread writes (`local`).
//!
//! ```text
//! one sub-buffer:  | SEQUENCE  COMMITTED  ... | THREAD | record | record | ... | free |
//!                    n + 1     words done                                ^ COMMITTED
//! writer: SEQUENCE = 0; fence; head; SEQUENCE = n + 1; record, COMMITTED; record, ...
//! reader: SEQUENCE is n + 1? copy COMMITTED words; fence; SEQUENCE still n + 1? keep : discard
//! ```
//!
//! # Laws
//!
//! - ring.R1 A record lies in one sub-buffer. The count of complete words is stored (Release) after
//!   the record's words. So all words below the count can be read, even if the writer was killed
//!   between any two instructions.
//! - ring.R2 Before the writer refills a sub-buffer, it stores 0 in the sequence word, followed by
//!   a fence. A reader copies, and after a fence reads the sequence word again. If the word is the
//!   same, no copied word is of a later round.
//! - ring.R3 If readers consume, the writer refills a sub-buffer only after the count of consumed
//!   sub-buffers covers it (Acquire). The reader stores the count with Release after its copy.
//! - ring.R4 Events are numbered, including the dropped ones. Each sub-buffer has the number of its
//!   first event and the count of earlier drops, so a reader knows what is missing.
//! - ring.R5 Times do not go back within a ring.
//! - ring.R6 A sub-buffer can be read alone: it begins with the full time, and with a record that
//!   names the thread. So every event that is left has both, whatever was overwritten or dropped.
//!
//! Source: [K42](crate#sources), section 3.5; the commit counts are those of its tracing facility.

use crate::format::{BLOCK_HEAD, MAX_RECORD, MAX_THREAD_NAME, block, id, ring, tag};
use crate::memory::Words;
use crate::sync::{AtomicBool, AtomicU64, Ordering, fence, pause, seeded_bug};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A writer's action when its ring is full.
///
/// ```
/// use manycore_trace::{Policy, Recorder};
///
/// // The last events before a crash or a snapshot.
/// assert_eq!(Policy::default(), Policy::Overwrite);
/// let recording = Recorder::new().policy(Policy::Drop).start()?;
/// recording.stop()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Overwrites the oldest sub-buffer: a flight recorder.
    #[default]
    Overwrite,
    /// Drops the new event and counts it.
    Drop,
    /// Waits until the recording's thread has copied a sub-buffer. For traces that must be
    /// complete. The program then runs at the speed of the file. Needs [`crate::Recorder::stream`].
    Block,
}

/// The sizes of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) block_words: usize,
    pub(crate) blocks: usize,
}

impl Sizes {
    pub(crate) fn words(self) -> usize {
        ring::WORDS + self.blocks * self.block_words
    }
}

/// The words of a ring; see [`Writer`] and [`Ring::copy`].
pub(crate) struct Ring {
    words: Words,
    sizes: Sizes,
    pub(crate) number: u32,
    policy: Policy,
    /// True once no reader will consume any more.
    pub(crate) is_closed: AtomicBool,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("number", &self.number).finish_non_exhaustive()
    }
}

/// The result of [`Ring::copy`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    /// The sub-buffer was overwritten, or was never filled.
    Gone,
    /// The sub-buffer's words are in the buffer.
    Whole,
}

impl Ring {
    /// Makes a new ring of words that are all 0.
    pub(crate) fn new(words: Words, sizes: Sizes, number: u32, policy: Policy) -> Self {
        assert!(words.len() >= sizes.words(), "ring.R1: a ring of {} words", words.len());
        // ORDER: Relaxed; the caller stores the chunk's mark with Release.
        words[ring::NUMBER].store(u64::from(number), Ordering::Relaxed);
        words[ring::BLOCK_WORDS].store(sizes.block_words as u64, Ordering::Relaxed);
        words[ring::BLOCKS].store(sizes.blocks as u64, Ordering::Relaxed);
        Self { words, sizes, number, policy, is_closed: AtomicBool::new(false) }
    }

    /// Returns the ring's own words, followed by those of its sub-buffers.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Returns the words of the sub-buffer with this number.
    fn block(&self, sequence: u64) -> &[AtomicU64] {
        let at = ring::WORDS + self.at(sequence) * self.sizes.block_words;
        &self.words[at..at + self.sizes.block_words]
    }

    fn at(&self, sequence: u64) -> usize {
        (sequence % self.sizes.blocks as u64) as usize
    }

    /// Returns the number of sub-buffers.
    #[cfg(not(manycore_loom))]
    pub(crate) fn blocks(&self) -> u64 {
        self.sizes.blocks as u64
    }

    /// Returns how many sub-buffers a reader has consumed.
    pub(crate) fn consumed(&self) -> u64 {
        // ORDER: Acquire; pairs with Release in `consume`: the reader's copy is complete (ring.R3).
        self.words[ring::CONSUMED].load(Ordering::Acquire)
    }

    /// Releases the sub-buffers before `sequence`: the reader does not need them any more.
    pub(crate) fn consume(&self, sequence: u64) {
        // ORDER: Release; see `consumed`.
        self.words[ring::CONSUMED].store(sequence, Ordering::Release);
    }

    /// Returns the number of the newest sub-buffer that was begun, if any. A hint.
    pub(crate) fn newest(&self) -> Option<u64> {
        let sequences = (0..self.sizes.blocks as u64).map(|at| {
            // ORDER: Acquire; pairs with Release in `Writer::begin`.
            self.block(at)[block::SEQUENCE].load(Ordering::Acquire)
        });
        sequences.max()?.checked_sub(1)
    }

    /// Copies the complete words of the sub-buffer with this number.
    pub(crate) fn copy(&self, sequence: u64, to: &mut Vec<u64>) -> Copied {
        let words = self.block(sequence);
        to.clear();
        // ORDER: Acquire; pairs with Release in `Writer::begin`: the head is of this round.
        if words[block::SEQUENCE].load(Ordering::Acquire) != sequence + 1 {
            return Copied::Gone;
        }
        // ORDER: Acquire; pairs with Release in `Writer::commit` (ring.R1).
        let committed = words[block::COMMITTED].load(Ordering::Acquire) as usize;
        // ORDER: Relaxed; the fence below puts these loads before the second look.
        to.extend(words.iter().take(committed).map(|word| word.load(Ordering::Relaxed)));
        // ORDER: Acquire; pairs with the fence in `Writer::begin`: whoever copied a word of a later
        // round also sees that round's sequence word (ring.R2).
        fence(Ordering::Acquire);
        let again = words[block::SEQUENCE].load(Ordering::Relaxed);
        // BUG: a reader trusts its copy without a second look (ring.R2).
        if again != sequence + 1 && !seeded_bug!("trace-one-look") {
            return Copied::Gone;
        }
        // The count may have grown since its own word was copied.
        if let Some(count) = to.get_mut(block::COMMITTED) {
            *count = committed as u64;
        }
        Copied::Whole
    }
}

/// Returns a pointer to the start of a slice, valid for the whole slice.
fn first(words: &[AtomicU64]) -> NonNull<AtomicU64> {
    NonNull::new(words.as_ptr().cast_mut()).expect("a slice is at an address")
}

/// The one writer of a ring.
#[derive(Debug)]
pub(crate) struct Writer {
    /// The first word of the sub-buffer that is being filled. `ring` keeps it alive.
    block: NonNull<AtomicU64>,
    block_words: usize,
    /// Words of the sub-buffer that are used.
    used: usize,
    /// The last record's time (ring.R5).
    last: u64,
    events: u64,
    /// The number of the next sub-buffer.
    next: u64,
    lost: u64,
    /// The record that names the thread: its number, the length of its name, the name. Empty if
    /// none.
    naming: Vec<u64>,
    ring: Arc<Ring>,
}

// SAFETY: the pointer leads into words that `ring` keeps alive, and `ring` moves along. They are
// atomics.
unsafe impl Send for Writer {}

impl Writer {
    /// Creates the writer of a new ring. Its first record begins the first sub-buffer.
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        let words = ring.block(0);
        let (block, block_words) = (first(words), words.len());
        assert!(block_words >= BLOCK_HEAD, "ring.R6: a sub-buffer of {block_words} words");
        Self {
            block,
            block_words,
            used: block_words,
            last: 0,
            events: 0,
            next: 0,
            lost: 0,
            naming: Vec::new(),
            ring,
        }
    }

    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    #[inline(always)]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `block` is the start of a slice of that many words (`first`). `ring` keeps them
        // as long as this writer, and only shared references lead to them.
        unsafe { std::slice::from_raw_parts(self.block.as_ptr(), self.block_words) }
    }

    /// Records an event of `length` words. `fill` stores all words except the first.
    ///
    /// Returns true if the event was recorded, false if it was dropped.
    #[inline(always)]
    pub(crate) fn record(
        &mut self,
        tag: u64,
        length: usize,
        now: u64,
        fill: impl FnOnce(&[AtomicU64]),
    ) -> bool {
        let is_near = now.wrapping_sub(self.last) >> 32 == 0;
        // The length is mostly a constant, so only the last comparison remains.
        if is_near && length <= MAX_RECORD && self.used + length <= self.block_words {
            self.last = now;
        } else if !self.make_room(length, now) {
            return false;
        }
        self.events += 1;
        // SAFETY: there is room, by the comparison above or by `make_room`.
        unsafe { self.append(tag, length, fill) };
        true
    }

    /// Stores a record behind the last one.
    ///
    /// # Safety
    /// The sub-buffer has room for the record.
    #[inline(always)]
    unsafe fn append(&mut self, tag: u64, length: usize, fill: impl FnOnce(&[AtomicU64])) {
        let end = self.used + length;
        debug_assert!(end <= self.block_words, "ring.R1: a record beyond its sub-buffer");
        // SAFETY: the range ends within the sub-buffer (# Safety), which `words` has as a slice.
        let record = unsafe { self.words().get_unchecked(self.used..end) };
        // BUG: the count is stored before the record (ring.R1).
        if seeded_bug!("trace-early-commit") {
            self.commit(end);
        }
        // ORDER: Relaxed, like the stores of `fill`; the commit publishes them.
        let first = self.last & 0xffff_ffff | (length as u64) << 32 | tag;
        record[0].store(first, Ordering::Relaxed);
        fill(&record[1..]);
        self.commit(end);
        self.used = end;
    }

    #[inline(always)]
    fn commit(&self, words: usize) {
        debug_assert!(self.block_words >= BLOCK_HEAD, "ring.R6: a sub-buffer without a head");
        // SAFETY: a sub-buffer has at least the words of its head (`new`).
        let committed = unsafe { self.words().get_unchecked(block::COMMITTED) };
        // ORDER: Release; pairs with Acquire in `Ring::copy` (ring.R1).
        committed.store(words as u64, Ordering::Release);
    }

    /// Makes room for an event of `length` words, or counts the event as dropped.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, length: usize, now: u64) -> bool {
        let has_room = self.has_room(length, now);
        if !has_room {
            self.count_lost();
        }
        has_room
    }

    /// Returns true if there is room for a record of `length` words. Begins a new sub-buffer if
    /// necessary.
    fn has_room(&mut self, length: usize, now: u64) -> bool {
        if length > MAX_RECORD {
            return false;
        }
        let now = now.max(self.last); // ring.R5
        let is_far = (now - self.last) >> 32 != 0;
        let needed = length + if is_far { 2 } else { 0 };
        if needed > self.block_words - self.used {
            let front = BLOCK_HEAD + self.naming_length();
            return length <= self.block_words.saturating_sub(front) && self.begin(now);
        }
        self.last = now;
        if is_far {
            // SAFETY: `needed` includes these two words.
            unsafe {
                self.append(tag(id::TIME, 0), 2, |words| words[0].store(now, Ordering::Relaxed));
            }
        }
        true
    }

    /// Counts one more event that is not in the ring.
    pub(crate) fn count_lost(&mut self) {
        self.lost += 1;
        // ORDER: Relaxed; a count.
        self.ring.words[ring::LOST].store(self.lost, Ordering::Relaxed);
    }

    /// Ends the sub-buffer and begins the next one, with this time and the thread's name.
    ///
    /// Returns false if the next sub-buffer is not consumed yet.
    fn begin(&mut self, now: u64) -> bool {
        if self.used < self.block_words {
            // ORDER: Relaxed; the commit publishes it. The word is the filler.
            self.words()[self.used].store(0, Ordering::Relaxed);
            self.commit(self.block_words);
            self.used = self.block_words;
        }
        let ring = Arc::clone(&self.ring);
        if !self.is_free(&ring) {
            return false;
        }
        let words = ring.block(self.next);
        // BUG: a sub-buffer is filled again under its old sequence word (ring.R2).
        if !seeded_bug!("trace-open-rewrite") {
            // ORDER: Relaxed; the fence puts it before all words of this round.
            words[block::SEQUENCE].store(0, Ordering::Relaxed);
        }
        // ORDER: Release; pairs with the fence in `Ring::copy` (ring.R2).
        fence(Ordering::Release);
        let head = [
            (block::BASE, now),
            (block::COMMITTED, BLOCK_HEAD as u64),
            (block::FIRST, self.events + self.lost),
            (block::LOST, self.lost),
            (block::THREAD, self.naming.first().copied().unwrap_or(0)),
        ];
        // ORDER: Relaxed; the sequence word publishes them.
        head.iter().for_each(|(at, value)| words[*at].store(*value, Ordering::Relaxed));
        self.next += 1;
        // ORDER: Release; pairs with Acquire in `Ring::copy` and `Ring::newest`.
        words[block::SEQUENCE].store(self.next, Ordering::Release);
        self.block = first(words);
        self.used = BLOCK_HEAD;
        self.last = now;
        self.name_thread();
        true
    }

    /// Returns the length of the record that names the thread, or 0 without a name.
    fn naming_length(&self) -> usize {
        self.naming.len() + usize::from(!self.naming.is_empty())
    }

    /// Appends the record that names the thread (ring.R6).
    fn name_thread(&mut self) {
        if self.naming.is_empty() {
            return;
        }
        let length = self.naming_length();
        assert!(self.used + length <= self.block_words, "ring.R6: no room for the thread's name");
        let naming = std::mem::take(&mut self.naming);
        // SAFETY: there is room, as asserted.
        unsafe {
            self.append(tag(id::THREAD, 0), length, |words| {
                let stores = words.iter().zip(&naming);
                // ORDER: Relaxed; the commit publishes them.
                stores.for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
            });
        }
        self.naming = naming;
    }

    /// Returns true if the next sub-buffer may be filled (ring.R3). Waits for that if the policy
    /// says so.
    fn is_free(&self, ring: &Ring) -> bool {
        let mut step = 0;
        // BUG: the writer does not check what is consumed (ring.R3).
        while ring.policy != Policy::Overwrite && !seeded_bug!("trace-unconsumed") {
            if self.next < ring.consumed() + ring.sizes.blocks as u64 {
                return true;
            }
            // ORDER: Relaxed; a hint to give up.
            if ring.policy == Policy::Drop || ring.is_closed.load(Ordering::Relaxed) {
                return false;
            }
            pause(&mut step);
        }
        true
    }

    /// Makes this thread the writer from now on.
    pub(crate) fn change_thread(&mut self, thread: u64, name: &[u8], now: u64) {
        let name = &name[..name.len().min(MAX_THREAD_NAME)];
        self.naming.clear();
        self.naming.extend([thread, name.len() as u64]);
        self.naming.extend(name.chunks(8).map(|bytes| {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(all)
        }));
        let sub_buffers = self.next;
        // A new sub-buffer has named the thread already. Without room, the next sub-buffer will.
        if self.has_room(self.naming_length(), now) && self.next == sub_buffers {
            self.name_thread();
        }
    }

    /// Stores the number of events in the ring's own words.
    pub(crate) fn finish(&self) {
        // ORDER: Relaxed; a count.
        let produced = self.events + self.lost;
        self.ring.words[ring::PRODUCED].store(produced, Ordering::Relaxed);
    }
}
