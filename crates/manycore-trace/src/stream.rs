//! Copies of rings: the snapshot, and the thread that writes a stream.

use crate::busy;
use crate::format::{BLOCK, HEAD, SCHEMA, TOTAL, block, copied, head, ring, schema, total};
#[cfg(feature = "lz4")]
use crate::format::{BLOCK_HEAD, PACKED, packed};
use crate::ring::{Copied, Ring};
use crate::session::{self, Session};
use crate::sync::{AtomicU64, Ordering};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long the thread sleeps if it found nothing, and at most if it finds nothing for long.
const NAP: Duration = Duration::from_millis(1);
const LONG_NAP: Duration = Duration::from_millis(16);

/// Writes chunks of copied sub-buffers.
struct Copier<W> {
    to: W,
    generation: u64,
    /// Bytes of the schema that are written already.
    described: usize,
    /// For each ring: the number of the next sub-buffer to copy.
    next: Vec<u64>,
    words: Vec<u64>,
    #[cfg(feature = "lz4")]
    packer: Option<crate::pack::Packer>,
}

fn over() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the recording is over")
}

pub(crate) fn put(to: &mut impl Write, words: &[u64]) -> io::Result<()> {
    words.iter().try_for_each(|word| to.write_all(&word.to_le_bytes()))
}

impl<W: Write> Copier<W> {
    fn new(to: W, generation: u64) -> Self {
        Self {
            to,
            generation,
            described: 0,
            next: Vec::new(),
            words: Vec::new(),
            #[cfg(feature = "lz4")]
            packer: None,
        }
    }

    /// Calls `f` with the recording, under its lock.
    fn ask<R>(&self, f: impl FnOnce(&mut Session) -> R) -> io::Result<R> {
        session::lock().session_of(self.generation).map(f).ok_or_else(over)
    }

    fn write_head(&mut self) -> io::Result<()> {
        let mut words: Vec<u64> = self.ask(|session| {
            session.note_refused();
            // ORDER: Relaxed; stored under the lock.
            session.head()[..head::WORDS].iter().map(|word| word.load(Ordering::Relaxed)).collect()
        })?;
        words[..2].copy_from_slice(&[HEAD, 8 * head::WORDS as u64]);
        put(&mut self.to, &words)
    }

    /// Writes the new schema entries (session.S1). They come before the sub-buffers that use them.
    fn write_schema(&mut self) -> io::Result<()> {
        let from = self.described;
        let entries = self.ask(|session| session.schema[from..].to_vec())?;
        if entries.is_empty() {
            return Ok(());
        }
        let mut words = [0; schema::WORDS];
        words[..2].copy_from_slice(&[SCHEMA, (8 * schema::WORDS + entries.len()) as u64]);
        words[schema::COMMITTED] = entries.len() as u64;
        put(&mut self.to, &words)?;
        self.described += entries.len();
        self.to.write_all(&entries)
    }

    /// Copies the complete sub-buffers of all rings, and also the newest if `is_last`. Returns how
    /// many it copied.
    fn copy(&mut self, is_last: bool) -> io::Result<usize> {
        let rings = self.ask(|session| session.rings.clone())?;
        let mut count = 0;
        for ring in &rings {
            count += self.copy_ring(ring, is_last)?;
        }
        Ok(count)
    }

    fn copy_ring(&mut self, ring: &Arc<Ring>, is_last: bool) -> io::Result<usize> {
        let number = ring.number as usize;
        self.next.resize(self.next.len().max(number + 1), 0);
        let Some(newest) = ring.newest() else { return Ok(0) };
        let end = if is_last { newest + 1 } else { newest };
        let mut count = 0;
        for sequence in self.next[number]..end {
            let mut words = std::mem::take(&mut self.words);
            if ring.copy(sequence, &mut words) == Copied::Whole {
                self.write_block(ring, &words)?;
                count += 1;
            }
            self.words = words;
            ring.consume(sequence + 1);
        }
        self.next[number] = end;
        Ok(count)
    }

    fn write_block(&mut self, ring: &Ring, words: &[u64]) -> io::Result<()> {
        self.write_schema()?;
        #[cfg(feature = "lz4")]
        if let Some((packed, length)) =
            self.packer.as_mut().and_then(|it| it.pack(&words[BLOCK_HEAD..]))
        {
            let bytes = 8 * (packed::WORDS + BLOCK_HEAD) + packed.len();
            put(&mut self.to, &[PACKED, bytes as u64, ring.number.into(), length as u64])?;
            put(&mut self.to, &words[..BLOCK_HEAD])?;
            return self.to.write_all(packed);
        }
        let bytes = 8 * (copied::WORDS + words.len()) as u64;
        put(&mut self.to, &[BLOCK, bytes, ring.number.into(), 0])?;
        put(&mut self.to, words)
    }

    fn write_totals(&mut self) -> io::Result<()> {
        let rings = self.ask(|session| session.rings.clone())?;
        let head = self.ask(|session| {
            session.note_refused();
            // ORDER: Relaxed; stored under the lock.
            [head::REFUSED, head::END_TICKS, head::END_NANOS]
                .map(|at| session.head()[at].load(Ordering::Relaxed))
        })?;
        let bytes = 8 * (total::WORDS + total::EACH * rings.len()) as u64;
        put(&mut self.to, &[TOTAL, bytes, head[0], head[1], head[2]])?;
        for found in &rings {
            let words = found.words();
            // ORDER: Relaxed; counts.
            let count = |word: &AtomicU64| word.load(Ordering::Relaxed);
            let counts = [ring::PRODUCED, ring::LOST, ring::REENTRANT].map(|at| count(&words[at]));
            put(&mut self.to, &[u64::from(found.number), counts[0], counts[1], counts[2]])?;
        }
        Ok(())
    }
}

/// Returns what the rings of a recording hold now.
pub(crate) fn snapshot(generation: u64) -> io::Result<Vec<u8>> {
    let mut copier = Copier::new(Vec::new(), generation);
    copier.write_head()?;
    // Does not consume: the rings go on as they are.
    let rings = copier.ask(|session| session.rings.clone())?;
    let mut words = Vec::new();
    for ring in &rings {
        let Some(newest) = ring.newest() else { continue };
        let oldest = (newest + 1).saturating_sub(ring.blocks());
        // Newest first: if the writer overwrites some meanwhile, these are the oldest, and the rest
        // has no gap.
        for sequence in (oldest..=newest).rev() {
            if ring.copy(sequence, &mut words) == Copied::Gone {
                break;
            }
            debug_assert_eq!(words[block::SEQUENCE], sequence + 1, "ring.R2: a torn copy");
            copier.write_block(ring, &words)?;
        }
    }
    copier.write_totals()?;
    Ok(copier.to)
}

/// The thread that writes a stream.
#[derive(Debug)]
pub(crate) struct Stream {
    thread: JoinHandle<io::Result<()>>,
}

impl Stream {
    pub(crate) fn start(file: File, generation: u64, packs: bool) -> io::Result<Self> {
        let body = move || busy::quietly(|| run(file, generation, packs));
        let thread = thread::Builder::new().name("manycore-trace".into()).spawn(body)?;
        Ok(Self { thread })
    }

    /// Waits until the thread has written the rest. Called when the recording is over.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the stream's thread panicked")))
    }
}

fn run(file: File, generation: u64, packs: bool) -> io::Result<()> {
    let mut copier = Copier::new(BufWriter::with_capacity(1 << 18, file), generation);
    #[cfg(feature = "lz4")]
    if packs {
        copier.packer = Some(crate::pack::Packer::default());
    }
    #[cfg(not(feature = "lz4"))]
    let _ = packs;
    copier.write_head()?;
    let mut nap = NAP;
    while crate::class::generation() == generation {
        if copier.copy(false)? > 0 {
            nap = NAP;
            continue;
        }
        copier.to.flush()?;
        thread::park_timeout(nap);
        nap = (2 * nap).min(LONG_NAP);
    }
    copier.copy(true)?;
    copier.write_schema()?;
    copier.write_totals()?;
    copier.to.flush()
}
