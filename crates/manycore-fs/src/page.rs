//! Pages: 4 KiB of a file's content. This file owns their words and what they are charged.
//!
//! - page.P1 A page is written in place only by a branch with the page's token, under the lock of
//!   the file's inode. Readers copy it word by word meanwhile: they may see parts of a write, never
//!   bytes that nobody wrote.
//! - page.P2 A page is charged before it is made, and released when it is freed.

use crate::memory::{AccountRef, Counted, Head, Object};
use crate::{Error, Result};
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

const WORDS: usize = PAGE / 8;

/// Words that are copied in one step of a loop, which then costs a few instructions a word less.
const GROUP: usize = 8;

/// Copies words to as many bytes.
#[inline]
fn load(words: &[AtomicU64], into: &mut [u8]) {
    for (word, chunk) in words.iter().zip(into.chunks_exact_mut(8)) {
        // ORDER: Relaxed; the link orders a new page, and page.P1 allows torn reads.
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
}

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
        let layout = Layout::new::<Self>();
        // SAFETY: the layout is not empty.
        let page = unsafe { alloc_zeroed(layout) }.cast::<Self>();
        if page.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: just allocated, and nobody else's. Its words are zeros, which are values of their
        // type; the other fields are written here. The layout is that of a box.
        unsafe {
            (&raw mut (*page).head).write(Head::new(token, account));
            (&raw mut (*page).is_charged).write(is_charged);
            Counted::of_box(Box::from_raw(page))
        }
    }

    pub(crate) fn token(&self) -> u64 {
        self.head.token
    }

    pub(crate) fn is_hole(&self) -> bool {
        !self.is_charged
    }

    /// Copies bytes from `offset` on.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) {
        let (at, skip, last) = (offset / 8, offset % 8, (offset + into.len()) / 8);
        let head = if skip == 0 { 0 } else { into.len().min(8 - skip) };
        let (head, rest) = into.split_at_mut(head);
        if !head.is_empty() {
            head.copy_from_slice(&self.word(at)[skip..skip + head.len()]);
        }
        let words = &self.words[at + usize::from(skip != 0)..];
        let (whole, tail) = rest.split_at_mut(rest.len() / 8 * 8);
        let words = &words[..whole.len() / 8];
        let (mut blocks, mut groups) =
            (whole.chunks_exact_mut(8 * GROUP), words.chunks_exact(GROUP));
        for (block, group) in (&mut blocks).zip(&mut groups) {
            load(group, block);
        }
        load(groups.remainder(), blocks.into_remainder());
        if !tail.is_empty() {
            tail.copy_from_slice(&self.word(last)[..tail.len()]);
        }
    }

    /// Writes bytes from `offset` on. The caller may write the page (page.P1).
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let (at, skip) = (offset / 8, offset % 8);
        let head = if skip == 0 { 0 } else { bytes.len().min(8 - skip) };
        let (head, rest) = bytes.split_at(head);
        if !head.is_empty() {
            self.change_word(at, skip, head);
        }
        let at = at + usize::from(skip != 0);
        let chunks = rest.chunks_exact(8);
        let tail = chunks.remainder();
        for (chunk, word) in chunks.zip(&self.words[at..]) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(chunk);
            // ORDER: Relaxed; the size of the file, stored afterwards, publishes what extends it.
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        if !tail.is_empty() {
            self.change_word((offset + bytes.len()) / 8, 0, tail);
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

    fn word(&self, at: usize) -> [u8; 8] {
        // ORDER: Relaxed; as in `read`.
        self.words[at].load(Ordering::Relaxed).to_ne_bytes()
    }

    /// Writes a part of a word.
    fn change_word(&self, at: usize, from: usize, bytes: &[u8]) {
        let mut word = self.word(at);
        word[from..from + bytes.len()].copy_from_slice(bytes);
        // ORDER: Relaxed; as in `write`.
        self.words[at].store(u64::from_ne_bytes(word), Ordering::Relaxed);
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
