//! The running recording: its rings, and what is written about them.
//!
//! This module owns the running recording, its rings and schema, and the lock around them. It does
//! not own when a thread uses its ring (`local`) and how a stream is written (`stream`).
//!
//! # Laws
//!
//! - session.S1 An event's schema is in the file before any thread knows the event's number. So
//!   each record that a crash leaves can be read.
//! - session.S2 A chunk's mark is stored after the rest of the chunk. Chunks are appended under the
//!   lock, so only the last chunk of a file can lack its mark.
//! - session.S3 An event of a thread that holds the lock never asks for the lock (an allocator may
//!   record events). It is refused and counted.

use crate::class::{self, Classes};
use crate::format::{self, ALIGN, HEAD, RING, SCHEMA, head, id, tag};
use crate::memory::Words;
use crate::ring::{Policy, Ring, Sizes, Writer};
use crate::sampling;
use crate::schema;
use crate::site::Event;
use crate::sync::{AtomicU64, Ordering};
use manycore::clock::Clock;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of entries in a mapped file's first schema chunk. The schema grows by as much.
const SCHEMA_BYTES: usize = ALIGN;

/// Returns the number of the event that was registered as the `at`th.
pub(crate) fn number_of(at: usize) -> u16 {
    (id::FIRST as usize + at) as u16
}

/// The process's state of all recordings.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) events: Vec<&'static Event>,
    pub(crate) session: Option<Session>,
}

impl State {
    /// Returns the recording with this number if it runs.
    pub(crate) fn session_of(&mut self, generation: u64) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.generation == generation)
    }
}

static STATE: Mutex<State> = Mutex::new(State { events: Vec::new(), session: None });

pub(crate) fn lock() -> MutexGuard<'static, State> {
    // No code of the program runs under the lock, so a poisoned lock is still sound.
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running recording.
pub(crate) struct Session {
    pub(crate) generation: u64,
    file: Option<File>,
    /// The length of the file.
    end: u64,
    pub(crate) sizes: Sizes,
    policy: Policy,
    head: Words,
    /// All entries. For a mapped file, `chunk` takes the next ones.
    pub(crate) schema: Vec<u8>,
    chunk: Option<Words>,
    pub(crate) rings: Vec<Arc<Ring>>,
    /// Writers that no thread uses.
    idle: Vec<Writer>,
}

/// Returns ticks, and nanoseconds since 1970, of one moment.
fn now() -> (u64, u64) {
    let ticks = Clock::system().ticks_now();
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    (ticks, nanos as u64)
}

impl Session {
    pub(crate) fn new(
        generation: u64,
        file: Option<File>,
        sizes: Sizes,
        policy: Policy,
    ) -> io::Result<Self> {
        let mut session = Self {
            generation,
            file,
            end: 0,
            sizes,
            policy,
            head: Words::on_heap(0),
            schema: Vec::new(),
            chunk: None,
            rings: Vec::new(),
            idle: Vec::new(),
        };
        let words = session.append(head::WORDS)?;
        let (ticks, nanos) = now();
        for (at, value) in [
            (head::VERSION, format::VERSION),
            (head::TICKS_PER_SECOND, Clock::system().ticks_per_second()),
            (head::START_TICKS, ticks),
            (head::START_NANOS, nanos),
            (head::BLOCK_WORDS, sizes.block_words as u64),
            (head::PROCESS, u64::from(std::process::id())),
        ] {
            // ORDER: Relaxed; the mark publishes it.
            words[at].store(value, Ordering::Relaxed);
        }
        mark(&words, HEAD);
        session.head = words;
        Ok(session)
    }

    /// Returns the words of a new chunk without its mark: on the heap, or at the end of the file.
    fn append(&mut self, words: usize) -> io::Result<Words> {
        let new = match &self.file {
            None => Words::on_heap(words),
            #[cfg(unix)]
            Some(file) => {
                let bytes = (words * 8).next_multiple_of(ALIGN);
                match crate::memory::mapped::Mapping::append(file, self.end, bytes) {
                    Ok(mapping) => {
                        self.end += bytes as u64;
                        Words::Mapped(mapping)
                    }
                    Err(error) => {
                        // session.S2: remove the chunk without a mark before another chunk follows
                        // it.
                        file.set_len(self.end)?;
                        return Err(error);
                    }
                }
            }
            #[cfg(not(unix))]
            Some(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        // ORDER: Relaxed; the mark publishes it.
        new[1].store(8 * new.len() as u64, Ordering::Relaxed);
        Ok(new)
    }

    /// Returns the words of the head.
    pub(crate) fn head(&self) -> &[AtomicU64] {
        &self.head
    }

    /// Adds an event's entry to the schema (session.S1).
    pub(crate) fn describe(&mut self, number: u16, event: &Event) -> io::Result<()> {
        let entry =
            schema::encode(number, event, event.fields, sampling::rate(event.class.number()));
        if self.file.is_some() {
            let has_room = self.chunk.as_ref().is_some_and(|words| {
                used(words) + entry.len() <= 8 * (words.len() - format::schema::WORDS)
            });
            if !has_room {
                let words = self.append(SCHEMA_BYTES.max(entry.len() + ALIGN) / 8)?;
                mark(&words, SCHEMA);
                self.chunk = Some(words);
            }
            if let Some(words) = &self.chunk {
                let used = used(words);
                let place = &words[format::schema::WORDS + used / 8..];
                for (word, bytes) in place.iter().zip(entry.chunks_exact(8)) {
                    let value = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                    // ORDER: Relaxed; the count publishes it.
                    word.store(value, Ordering::Relaxed);
                }
                // ORDER: Release; pairs with a reader's look at the file.
                let used = (used + entry.len()) as u64;
                words[format::schema::COMMITTED].store(used, Ordering::Release);
            }
        }
        self.schema.extend_from_slice(&entry);
        Ok(())
    }

    /// Returns a writer for a thread: an idle writer, that of the lowest ring, or else a new
    /// writer.
    fn writer(&mut self) -> io::Result<Writer> {
        let lowest = (0..self.idle.len()).min_by_key(|at| self.idle[*at].ring().number);
        if let Some(at) = lowest {
            return Ok(self.idle.swap_remove(at));
        }
        let words = self.append(self.sizes.words())?;
        let ring = Ring::new(words, self.sizes, self.rings.len() as u32, self.policy);
        mark(ring.words(), RING);
        let ring = Arc::new(ring);
        self.rings.push(Arc::clone(&ring));
        Ok(Writer::new(ring))
    }

    /// Stores what is known only at the end.
    pub(crate) fn finish(&mut self) {
        self.note_refused();
        let (ticks, nanos) = now();
        // ORDER: Relaxed; for readers of the file after the end.
        self.head[head::END_TICKS].store(ticks, Ordering::Relaxed);
        self.head[head::END_NANOS].store(nanos, Ordering::Relaxed);
    }

    /// Adds the events that were refused without the lock.
    pub(crate) fn note_refused(&mut self) {
        // ORDER: Relaxed; counts.
        let more = REFUSED.swap(0, Ordering::Relaxed);
        self.head[head::REFUSED].fetch_add(more, Ordering::Relaxed);
    }
}

/// Returns the bytes of entries in a schema's chunk.
fn used(words: &Words) -> usize {
    // ORDER: Relaxed; stored under the lock.
    words[format::schema::COMMITTED].load(Ordering::Relaxed) as usize
}

/// Marks a chunk as complete (session.S2).
fn mark(words: &[AtomicU64], mark: u64) {
    // ORDER: Release; pairs with a reader's look at the file.
    words[0].store(mark, Ordering::Release);
}

/// Refused events that are not in the file yet.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Counts a refused event without a lock. Signal handlers call it.
pub(crate) fn count_refused() {
    // ORDER: Relaxed; a count.
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// Counts an event that no ring takes, and stores the count in the file.
pub(crate) fn refuse_event() {
    count_refused();
    if let Some(session) = &mut lock().session {
        session.note_refused();
    }
}

/// Returns the tag of an event. Registers the event first if it has no number.
pub(crate) fn register(event: &'static Event) -> Option<u64> {
    let mut state = lock();
    // ORDER: Relaxed; stored under the lock.
    let known = event.tag.load(Ordering::Relaxed);
    if known != 0 {
        return Some(known);
    }
    let at = state.events.len();
    let session = state.session.as_mut()?;
    let is_described =
        at <= (id::LAST - id::FIRST) as usize && session.describe(number_of(at), event).is_ok();
    if !is_described {
        count_refused();
        session.note_refused();
        return None;
    }
    state.events.push(event);
    let tag = tag(u64::from(number_of(at)), event.class.number());
    // ORDER: Relaxed; a thread that reads it is this thread, or has taken the lock for its ring
    // since.
    event.tag.store(tag, Ordering::Relaxed);
    Some(tag)
}

/// Returns a writer for the calling thread, and the recording that the writer belongs to.
pub(crate) fn take_writer() -> Option<(u64, Writer)> {
    let mut state = lock();
    let session = state.session.as_mut()?;
    if session.generation != class::generation() {
        return None; // the recording is ending
    }
    if let Ok(writer) = session.writer() {
        return Some((session.generation, writer));
    }
    count_refused();
    session.note_refused();
    None
}

/// Takes back the writer of a thread that ends or writes for another recording.
pub(crate) fn give_back(generation: u64, writer: Writer) {
    writer.finish();
    let mut state = lock();
    if let Some(session) = state.session_of(generation) {
        session.idle.push(writer);
    } else {
        drop(state); // unmap after the lock is released
        drop(writer);
    }
}

#[cfg(unix)]
pub(crate) mod fork {
    //! A child of `fork` begins without a recording.

    use super::{Classes, class, lock};
    use crate::memory::mapped;
    use manycore::percpu::AtFork;

    /// Takes the recording's lock and then the mappings' lock, in the order of all threads.
    static AT_FORK: AtFork = AtFork::new(|| Box::new((lock(), mapped::list())), in_child);

    /// Installs the fork handler. Called before a recording starts.
    pub(crate) fn register() {
        AT_FORK.list();
    }

    fn in_child() {
        class::set_mask(Classes::NONE);
        class::next_generation();
        let mut state = lock();
        mapped::detach(&mapped::list());
        if let Some(mut session) = state.session.take() {
            drop(session.file.take());
            // The other threads do not exist in the child, so what they were changing must stay as
            // it is.
            std::mem::forget(session);
        }
    }
}
