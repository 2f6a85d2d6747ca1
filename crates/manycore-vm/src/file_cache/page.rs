//! A page of a file in memory. Laws file_cache.F3 and file_cache.F4.

use super::File;
use crate::sync::{AtomicBool, Ordering, Word, seeded_bug};
use crate::{Error, ErrorKind};
use std::io;
use std::slice;
use std::sync::Arc;

const WORD: usize = size_of::<u64>();

/// A page's memory. While it lives, its file counts it and the file's page manager has its charge
/// (file_cache.F3).
pub(super) struct Frame {
    words: Box<[Word]>,
    /// True if the source does not have the page's changes (file_cache.F4).
    is_dirty: AtomicBool,
    file: Arc<File>,
    /// Shows loom the accesses to the words, which are not loom's.
    #[cfg(manycore_loom)]
    accesses: crate::sync::AtomicUsize,
}

impl Frame {
    /// Makes a page of zeros. The caller has made its charge.
    pub(super) fn charged(file: &Arc<File>) -> Self {
        file.count(1);
        let words = (0..file.page_bytes / WORD).map(|_| Word::new(0)).collect();
        Self {
            words,
            is_dirty: AtomicBool::new(false),
            file: Arc::clone(file),
            #[cfg(manycore_loom)]
            accesses: crate::sync::AtomicUsize::new(0),
        }
    }

    /// Reads a page that no other thread has yet.
    pub(super) fn fill(&mut self, offset: u64) -> Result<(), Error> {
        let bytes = self.words.len() * WORD;
        // SAFETY: file_cache.F3 - the words are this frame's alone while it is mutably borrowed,
        // and any bytes are valid words.
        let into = unsafe { slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), bytes) };
        match self.file.source.read(offset, into) {
            Ok(read) if read <= bytes => Ok(()),
            Ok(_) => {
                let lie = io::Error::other("the source says it read more than was asked for");
                Err(self.file.error(ErrorKind::System("read"), offset, Some(lie)))
            }
            Err(reason) => Err(self.file.error(ErrorKind::System("read"), offset, Some(reason))),
        }
    }

    /// Writes the page's contents, up to the file's end, to the source.
    pub(super) fn write_back(&self, offset: u64) -> Result<(), Error> {
        // Marks the page dirty again, unless the write-back succeeds.
        struct Failed<'f>(&'f AtomicBool, bool);
        impl Drop for Failed<'_> {
            fn drop(&mut self) {
                if self.1 {
                    // ORDER: Relaxed; the end of the write-back is under the table's locks.
                    self.0.store(true, Ordering::Relaxed);
                }
            }
        }
        // BUG: a page counts as clean when its write-back ends, even if it was changed after the
        // copy (file_cache.F4).
        let is_late = seeded_bug!("late-clean");
        if !is_late {
            // ORDER: Acquire; pairs with the Release in `mark`: if this swap takes a mark, the copy
            // below has the change before that mark.
            self.is_dirty.swap(false, Ordering::Acquire);
        }
        let mut failed = Failed(&self.is_dirty, true);
        let left = self.file.length().saturating_sub(offset);
        let count = usize::try_from(left).map_or(self.len(), |left| left.min(self.len()));
        let mut bytes = vec![0; count];
        self.read(0, &mut bytes);
        let told = self.file.source.write(offset, &bytes);
        told.map_err(|reason| self.file.error(ErrorKind::System("write"), offset, Some(reason)))?;
        failed.1 = false;
        if is_late {
            self.is_dirty.swap(false, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn is_dirty(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in `mark`.
        self.is_dirty.load(Ordering::Acquire)
    }

    pub(super) fn mark(&self) {
        // A read-modify-write, even if the mark is set. A mark after a write-back's swap stays; a
        // write-back sees a mark before its swap.
        // ORDER: Release; pairs with the Acquire in `write_back`: the change before its mark.
        self.is_dirty.swap(true, Ordering::Release);
    }

    pub(super) fn words(&self) -> &[Word] {
        &self.words
    }

    pub(super) fn len(&self) -> usize {
        self.words.len() * WORD
    }

    #[inline(always)]
    fn show_access(&self) {
        #[cfg(manycore_loom)]
        self.accesses.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, at: usize, into: &mut [u8]) {
        self.show_access();
        let mut words = self.words[at / WORD..].iter();
        // ORDER: Relaxed, here and in `write`; the callers order accesses to the contents.
        let mut next = || words.next().expect("within the page").load(Ordering::Relaxed);
        let head = (WORD - at % WORD) % WORD;
        let (head, rest) = into.split_at_mut(head.min(into.len()));
        if !head.is_empty() {
            head.copy_from_slice(&next().to_ne_bytes()[at % WORD..][..head.len()]);
        }
        let mut whole = rest.chunks_exact_mut(WORD);
        for bytes in &mut whole {
            bytes.copy_from_slice(&next().to_ne_bytes());
        }
        let tail = whole.into_remainder();
        if !tail.is_empty() {
            tail.copy_from_slice(&next().to_ne_bytes()[..tail.len()]);
        }
    }

    pub(super) fn write(&self, at: usize, from: &[u8]) {
        self.show_access();
        let mut words = self.words[at / WORD..].iter();
        let mut next = || words.next().expect("within the page");
        let part = |word: &Word, at: usize, from: &[u8]| {
            let merged = |old: u64| {
                let mut bytes = old.to_ne_bytes();
                bytes[at..at + from.len()].copy_from_slice(from);
                Some(u64::from_ne_bytes(bytes))
            };
            let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, merged);
        };
        let head = (WORD - at % WORD) % WORD;
        let (head, rest) = from.split_at(head.min(from.len()));
        if !head.is_empty() {
            part(next(), at % WORD, head);
        }
        let whole = rest.chunks_exact(WORD);
        let tail = whole.remainder();
        for bytes in whole {
            let bytes = bytes.try_into().expect("eight bytes");
            next().store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            part(next(), 0, tail);
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.file.release();
    }
}
