//! Bytes: reading, writing, holes and sizes.
//!
//! ```text
//! page in the tree      its bytes
//! none, before `backed` the host's file
//! none, elsewhere       zeros
//! ```
//!
//! - bytes.Y1 The bytes of a page behind the end of its file are zero. When a page is copied, its
//!   bytes behind `backed` are zero, too. So an extended file shows zeros.

use super::{Branch, Fallocate, Locked, Whence};
use crate::files::Files;
use crate::inode::{Body, Inode, now};
use crate::journal::record::Change;
use crate::memory::Counted;
use crate::page::{PAGE, Page};
use crate::tree::radix;
use crate::tree::{Held, Link, View};
use crate::{Error, Ino, Kind, Result};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The largest size of a file.
pub(super) const LARGEST: u64 = 1 << 50;

const PAGE_U64: u64 = PAGE as u64;

/// The most bytes of one record.
const LONGEST_RECORD: usize = 1 << 30;

/// Returns the pages of a file.
fn pages(inode: &Inode) -> Result<&Link<Page>> {
    match &inode.body {
        Body::File(pages) => Ok(pages),
        Body::Directory(_) => Err(Error::IsDirectory),
        Body::Symlink(_) | Body::Special => Err(Error::Invalid),
    }
}

impl Branch {
    /// Reads bytes from `offset` on. Returns how many there were: fewer than asked for only at the
    /// end of the file.
    ///
    /// # Errors
    /// [`IsDirectory`](Error::IsDirectory), [`Invalid`](Error::Invalid) for other files without
    /// bytes, [`Host`](Error::Host).
    pub fn read(&self, file: Ino, offset: u64, into: &mut [u8]) -> Result<usize> {
        let section = self.core.domain.enter();
        let files = self.files(&section);
        let inode = files.get(file)?;
        let pages = pages(inode)?;
        // ORDER: Acquire; pairs with Release in `end_write`: the bytes before this size.
        let size = inode.size.load(Ordering::Acquire);
        let count = size.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let start = (at % PAGE_U64) as usize;
            let piece = (PAGE - start).min(count - done);
            let bytes = &mut into[done..done + piece];
            match radix::get_direct(pages, at / PAGE_U64, &section) {
                Some(page) => page.read(start, bytes),
                None => files.read_backing(inode, at, bytes)?,
            }
            done += piece;
        }
        Ok(count)
    }

    /// Writes bytes from `offset` on. Returns how many: fewer than all if the memory limit comes
    /// in between.
    ///
    /// # Errors
    /// [`NoSpace`](Error::NoSpace) if none could be written, [`TooLarge`](Error::TooLarge) beyond
    /// 2^50 bytes, [`IsDirectory`](Error::IsDirectory), [`Invalid`](Error::Invalid).
    pub fn write(&self, file: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let write = |done: usize| {
            let offset = offset.checked_add(done as u64).ok_or(Error::TooLarge)?;
            self.write_at(file, Some(offset), &bytes[done..]).map(|(_, count)| count)
        };
        let done = self.core.with_room(|| write(0))?;
        if done < bytes.len() {
            self.core.collect();
            return Ok(done + write(done).unwrap_or(0));
        }
        Ok(done)
    }

    /// Writes at the end, wherever another thread has moved it. Returns where. All or nothing.
    ///
    /// # Errors
    /// As for [`write`](Branch::write).
    pub fn append(&self, file: Ino, bytes: &[u8]) -> Result<u64> {
        self.core.with_room(|| self.write_at(file, None, bytes)).map(|(offset, _)| offset)
    }

    fn write_at(&self, file: Ino, offset: Option<u64>, bytes: &[u8]) -> Result<(u64, usize)> {
        let journal = self.core.journal()?;
        let gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        pages(files.get(file)?)?;
        let locked = Locked::new(files, &[file])?;
        let inode = locked.get(file);
        let size = inode.size.load(Ordering::Relaxed);
        let start = offset.unwrap_or(size);
        match start.checked_add(bytes.len() as u64) {
            Some(end) if end <= LARGEST => {}
            _ => return Err(Error::TooLarge),
        }
        let (done, wrote) = self.put_bytes(files, inode, start, bytes);
        if let Err(error) = wrote {
            if offset.is_none() && done > 0 {
                // What has been put behind the end is cleared again (bytes.Y1).
                let _ = self.cut(files, inode, size, start + done as u64);
            }
            if offset.is_none() || done == 0 {
                return Err(error);
            }
        }
        if done > 0 {
            let end = start + done as u64;
            let change = inode.begin();
            if end > size {
                // ORDER: Release; pairs with Acquire in `read`: the bytes before the size.
                inode.size.store(end, Ordering::Release);
            }
            change.modified(now());
            drop(change);
            if let Some(journal) = journal.filter(|_| inode.links() > 0) {
                // In pieces, for a record has a length of 32 bits.
                let mut at = start;
                for piece in bytes[..done].chunks(LONGEST_RECORD) {
                    let mut change = Change::new(self.inner.id);
                    change.inode(file, inode);
                    change.bytes(file, at, piece.len());
                    journal.append(&[&change.0, piece]);
                    at += piece.len() as u64;
                }
            }
        }
        Ok((start, done))
    }

    /// Writes bytes to pages of a file that is locked, up to the first error. Returns how many.
    pub(super) fn put_bytes(
        &self,
        files: Files<'_>,
        inode: &Inode,
        start: u64,
        bytes: &[u8],
    ) -> (usize, Result<()>) {
        let mut done = 0;
        while done < bytes.len() {
            let at = start + done as u64;
            let within = (at % PAGE_U64) as usize;
            let piece = (PAGE - within).min(bytes.len() - done);
            match self.page(files, inode, at / PAGE_U64, piece == PAGE) {
                Ok(page) => page.write(within, &bytes[done..done + piece]),
                Err(error) => return (done, Err(error)),
            }
            done += piece;
        }
        (done, Ok(()))
    }

    /// Returns a page that may be written in place, in the tree. Its bytes are those of the file,
    /// or anything if the caller overwrites it all. The caller has the inode's lock.
    fn page<'s>(
        &self,
        files: Files<'s>,
        inode: &'s Inode,
        index: u64,
        is_whole: bool,
    ) -> Result<&'s Page> {
        let section = files.section;
        let link = pages(inode)?;
        // Looks before it changes anything: a refused charge leaves all as it was.
        let old = radix::get_direct(link, index, section);
        if let Some(page) = old.filter(|page| page.token() == files.token) {
            return Ok(page);
        }
        let new = Page::zeroed(files.token, self.core.account())?;
        match old {
            _ if is_whole => {}
            Some(old) => new.copy_from(old),
            None => {
                let mut bytes = [0; PAGE];
                files.read_backing(inode, index * PAGE_U64, &mut bytes)?;
                if inode.backed.load(Ordering::Relaxed) > index * PAGE_U64 {
                    new.write(0, &bytes);
                }
            }
        }
        self.put_page(files, inode, index, new)
    }

    pub(super) fn put_page<'s>(
        &self,
        files: Files<'s>,
        inode: &'s Inode,
        index: u64,
        new: Counted<Page>,
    ) -> Result<&'s Page> {
        let slot =
            radix::slot(pages(inode)?, index, true, files.writer()).ok_or(Error::NotFound)?;
        if slot.load(files.section).is_empty() {
            inode.extra.fetch_add(1, Ordering::Relaxed);
        }
        slot.set(Held::value(new), files.section);
        match slot.load(files.section).view() {
            View::Value(page) => Ok(page),
            _ => Err(Error::NotFound),
        }
    }

    /// Sets the size of a file that is locked.
    pub(super) fn set_size(
        &self,
        files: Files<'_>,
        inode: &Inode,
        size: u64,
        now: i64,
    ) -> Result<()> {
        pages(inode)?;
        if size > LARGEST {
            return Err(Error::TooLarge);
        }
        let before = inode.size.load(Ordering::Relaxed);
        if size < before {
            self.shrink(files, inode, size)?;
        }
        if size != before {
            let change = inode.begin();
            change.set_size(size);
            change.modified(now);
        }
        Ok(())
    }

    /// Gives up what a file has behind a size that is less than its own.
    pub(super) fn shrink(&self, files: Files<'_>, inode: &Inode, size: u64) -> Result<()> {
        let (index, within) = (size / PAGE_U64, (size % PAGE_U64) as usize);
        let has_page = radix::get_direct(pages(inode)?, index, files.section);
        if within != 0 && has_page.is_some_and(|page| !page.is_hole()) {
            // May fail; nothing has changed until then.
            let page = self.page(files, inode, index, false)?;
            inode.begin().set_size(size);
            page.clear(within, PAGE);
        }
        inode.begin().set_size(size);
        if inode.backed.load(Ordering::Relaxed) > size {
            inode.backed.store(size, Ordering::Relaxed);
        }
        self.clear_pages(files, inode, size.div_ceil(PAGE_U64), LARGEST)
    }

    /// Removes pages, without regard to a backing.
    pub(super) fn clear_pages(
        &self,
        files: Files<'_>,
        inode: &Inode,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let cleared = radix::clear(pages(inode)?, from, to, files.writer());
        inode.extra.fetch_sub(cleared, Ordering::Relaxed);
        Ok(())
    }

    /// Makes zeros of bytes from `from` up to, and without, `to`.
    pub(super) fn cut(&self, files: Files<'_>, inode: &Inode, from: u64, to: u64) -> Result<()> {
        let (first, last) = (from.div_ceil(PAGE_U64), to / PAGE_U64);
        let mut edges = [(from / PAGE_U64, from, to.min(first * PAGE_U64)), (last, to, to)];
        edges[1].1 = from.max(last * PAGE_U64);
        if first > last {
            edges[1].1 = to; // all within one page
            edges[0].2 = to;
        }
        for (index, from, to) in edges {
            let is_zero = from >= to || self.is_zeros(files, inode, index);
            if !is_zero {
                let start = (from - index * PAGE_U64) as usize;
                let page = self.page(files, inode, index, false)?;
                page.clear(start, start + (to - from) as usize);
            }
        }
        if first < last {
            self.clear_pages(files, inode, first, last)?;
            let backed = inode.backed.load(Ordering::Relaxed).div_ceil(PAGE_U64);
            for index in first..last.min(backed) {
                self.put_page(files, inode, index, self.core.hole.clone())?;
            }
        }
        Ok(())
    }

    /// Returns true if a page is nothing but zeros without looking at bytes.
    fn is_zeros(&self, files: Files<'_>, inode: &Inode, index: u64) -> bool {
        let Ok(pages) = pages(inode) else { return true };
        match radix::get_direct(pages, index, files.section) {
            Some(page) => page.is_hole(),
            None => inode.backed.load(Ordering::Relaxed) <= index * PAGE_U64,
        }
    }

    /// Changes a range of a file, as `fallocate` does. Extending reserves no memory: it makes a
    /// hole.
    ///
    /// # Errors
    /// [`Invalid`](Error::Invalid) for an empty range, [`TooLarge`](Error::TooLarge),
    /// [`NoSpace`](Error::NoSpace), [`IsDirectory`](Error::IsDirectory).
    pub fn allocate(&self, file: Ino, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.core.with_room(|| self.try_allocate(file, how, offset, length))
    }

    fn try_allocate(&self, file: Ino, how: Fallocate, offset: u64, length: u64) -> Result<()> {
        self.core.journal()?;
        let gate = self.inner.enter()?;
        let section = self.core.domain.enter();
        let files = self.files_of(&gate, &section);
        pages(files.get(file)?)?;
        if length == 0 {
            return Err(Error::Invalid);
        }
        let end = offset.checked_add(length).filter(|end| *end <= LARGEST);
        let end = end.ok_or(Error::TooLarge)?;
        let locked = Locked::new(files, &[file])?;
        let inode = locked.get(file);
        let size = inode.size.load(Ordering::Relaxed);
        let zeros = matches!(how, Fallocate::PunchHole | Fallocate::ZeroRange(_));
        let zeros = zeros.then_some((offset, end.min(size.max(offset))));
        if let Some((from, to)) = zeros {
            self.cut(files, inode, from, to)?;
        }
        let extends = matches!(how, Fallocate::Extend | Fallocate::ZeroRange(false));
        let change = inode.begin();
        if extends && end > size {
            change.set_size(end);
        }
        change.modified(now());
        drop(change);
        if inode.links() > 0 {
            self.note(&[(file, inode)], |change| {
                if let Some((from, to)) = zeros {
                    change.cut(file, from, to);
                }
            });
        }
        Ok(())
    }

    /// Returns where the next data or hole begins, at `offset` or after it. The end of the file
    /// counts as a hole. Unmodified bytes of the base count as data.
    ///
    /// # Errors
    /// [`NoData`](Error::NoData) if there is none, or `offset` is not before the end.
    pub fn seek(&self, file: Ino, offset: u64, whence: Whence) -> Result<u64> {
        let section = self.core.domain.enter();
        let inode = self.files(&section).get(file)?;
        let pages = pages(inode)?;
        let size = inode.size.load(Ordering::Acquire);
        if offset >= size {
            return Err(Error::NoData);
        }
        let backed = inode.backed.load(Ordering::Relaxed).div_ceil(PAGE_U64);
        let mut index = offset / PAGE_U64;
        let found = loop {
            if index * PAGE_U64 >= size {
                break None;
            }
            let own = radix::get_direct(pages, index, &section);
            let is_data = own.map_or(index < backed, |page| !page.is_hole());
            if is_data == (whence == Whence::Data) {
                break Some(offset.max(index * PAGE_U64));
            }
            index = if !is_data && index >= backed {
                match radix::next(pages, index, &section) {
                    Some((next, _)) => next.max(index + 1),
                    None => break None,
                }
            } else {
                index + 1
            };
        };
        match (found, whence) {
            (Some(at), _) if at < size => Ok(at),
            (_, Whence::Hole) => Ok(size),
            (_, Whence::Data) => Err(Error::NoData),
        }
    }

    /// Returns the host's file, while this branch has not changed its bytes: for reading, and for a
    /// mount's passthrough.
    pub fn backing(&self, file: Ino) -> Option<Arc<File>> {
        let section = self.core.domain.enter();
        let inode = self.files(&section).get(file).ok()?;
        let is_whole = inode.kind == Kind::File
            && pages(inode).ok()?.load(&section).is_empty()
            && inode.backed.load(Ordering::Relaxed) == inode.size.load(Ordering::Relaxed);
        if !is_whole {
            return None;
        }
        self.core.base.as_ref()?.file(inode.backing.as_ref()?).ok()
    }
}
