//! Pages: 4 KiB of a file's content. This file owns their words and what they are charged.
//!
//! - page.P1 A page is written in place only by a branch with the page's token, under the lock of
//!   the file's inode. Readers copy it word by word meanwhile: they may see parts of a write, never
//!   bytes that nobody wrote.
//! - page.P2 A page is charged before it is made, and released when it is freed.

use crate::memory::{AccountRef, Counted, Head, Object};
use crate::{Error, Result};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

const WORDS: usize = PAGE / 8;

/// A page. Its bytes are in words in the order of memory.
pub(crate) struct Page {
    head: Head,
    words: [AtomicU64; WORDS],
    /// False for the one page of zeros that stands for all holes over a base.
    is_charged: bool,
}

impl Object for Page {
    fn head(&self) -> &Head {
        &self.head
    }
}

impl Page {
    /// Makes a page of zeros and charges it.
    pub(crate) fn zeroed(token: u64, account: AccountRef) -> Result<Counted<Self>> {
        account.budget.try_charge(PAGE as u64).map_err(|_| Error::NoSpace)?;
        Ok(Self::make(token, account, true))
    }

    /// Makes the page that stands for holes over a base.
    pub(crate) fn hole(account: AccountRef) -> Counted<Self> {
        Self::make(0, account, false)
    }

    fn make(token: u64, account: AccountRef, is_charged: bool) -> Counted<Self> {
        account.pages.inc();
        let words = [const { AtomicU64::new(0) }; WORDS];
        Counted::new(Self { head: Head::new(token, account), words, is_charged })
    }

    pub(crate) fn token(&self) -> u64 {
        self.head.token
    }

    pub(crate) fn is_hole(&self) -> bool {
        !self.is_charged
    }

    /// Copies bytes from `offset` on.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let (mut at, mut rest) = (offset / 8, into);
        let skip = offset % 8;
        if skip != 0 {
            let bytes = self.word(at);
            let count = rest.len().min(8 - skip);
            rest[..count].copy_from_slice(&bytes[skip..skip + count]);
            rest = &mut rest[count..];
            at += 1;
        }
        let mut chunks = rest.chunks_exact_mut(8);
        for chunk in &mut chunks {
            chunk.copy_from_slice(&self.word(at));
            at += 1;
        }
        let tail = chunks.into_remainder();
        if !tail.is_empty() {
            tail.copy_from_slice(&self.word(at)[..tail.len()]);
        }
    }

    /// Writes bytes from `offset` on. The caller may write the page (page.P1).
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let (mut at, mut rest) = (offset / 8, bytes);
        let skip = offset % 8;
        if skip != 0 {
            let mut word = self.word(at);
            let count = rest.len().min(8 - skip);
            word[skip..skip + count].copy_from_slice(&rest[..count]);
            self.set_word(at, word);
            rest = &rest[count..];
            at += 1;
        }
        let mut chunks = rest.chunks_exact(8);
        for chunk in &mut chunks {
            let mut word = [0; 8];
            word.copy_from_slice(chunk);
            self.set_word(at, word);
            at += 1;
        }
        let tail = chunks.remainder();
        if !tail.is_empty() {
            let mut word = self.word(at);
            word[..tail.len()].copy_from_slice(tail);
            self.set_word(at, word);
        }
    }

    /// Writes zeros. The caller may write the page (page.P1).
    pub(crate) fn clear(&self, from: usize, to: usize) {
        const ZEROS: [u8; 256] = [0; 256];
        let mut at = from;
        while at < to {
            let count = (to - at).min(ZEROS.len());
            self.write(at, &ZEROS[..count]);
            at += count;
        }
    }

    /// Copies another page. The caller may write this one (page.P1).
    pub(crate) fn copy_from(&self, other: &Page) {
        for (to, from) in self.words.iter().zip(&other.words) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Returns true if both have the same bytes.
    pub(crate) fn equals(&self, other: &Page) -> bool {
        let pairs = self.words.iter().zip(&other.words);
        pairs.into_iter().all(|(a, b)| a.load(Ordering::Relaxed) == b.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn word(&self, at: usize) -> [u8; 8] {
        // ORDER: Relaxed; the link orders a new page, and page.P1 allows torn reads.
        self.words[at].load(Ordering::Relaxed).to_ne_bytes()
    }

    #[inline(always)]
    fn set_word(&self, at: usize, bytes: [u8; 8]) {
        // ORDER: Relaxed; the size of the file, stored afterwards, publishes what extends it.
        self.words[at].store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.head.account.pages.dec();
        if self.is_charged {
            self.head.account.budget.release(PAGE as u64);
        }
    }
}
