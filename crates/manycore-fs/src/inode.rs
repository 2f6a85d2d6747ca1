//! Inodes: what a branch knows of one file. This file owns their words, the sequence by which
//! readers see them consistent, and the lock of their writers.
//!
//! ```text
//! writer   lock -- version odd -- store words -- version even -- unlock
//! reader   version even? -- load words -- version the same? -- or again
//! ```
//!
//! - inode.I1 An inode of another token than the branch's is frozen. A writer copies it, and puts
//!   the copy into the branch's table, before it changes anything (`table`).
//! - inode.I2 All words that readers see together are written under the lock, between `begin` and
//!   the end of its guard.
//! - inode.I3 A count of links that is zero stays zero. So a writer that holds the lock and sees
//!   zero knows that the file has no name any more.

use crate::attributes::{nanoseconds, time};
use crate::backing::Backing;
use crate::bucket::Bucket;
use crate::memory::{AccountRef, Counted, Head, Object};
use crate::page::{PAGE, Page};
use crate::tree::Link;
use crate::xattrs::Xattrs;
use crate::{Attributes, Ino, Kind};
use manycore::section::Section;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a file consists of.
pub(crate) enum Body {
    File(Link<Page>),
    /// A dead link: the base's directory has not been read yet.
    Directory(Link<Bucket>),
    Symlink(Arc<[u8]>),
    Special,
}

/// Times of a file, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(crate) enum Time {
    Accessed,
    Modified,
    Changed,
    Created,
}

/// A file.
pub(crate) struct Inode {
    head: Head,
    version: AtomicU32,
    pub(crate) kind: Kind,
    lock: Mutex<()>,
    pub(crate) mode: AtomicU32,
    pub(crate) links: AtomicU32,
    pub(crate) uid: AtomicU32,
    pub(crate) gid: AtomicU32,
    /// Of a file, its bytes; of a directory, its entries; of a symbolic link, the target's bytes.
    pub(crate) size: AtomicU64,
    /// Of a file, its own pages; of a device, its number.
    pub(crate) extra: AtomicU64,
    times: [AtomicI64; 4],
    /// The directory that had the name by which this file was made or last renamed.
    pub(crate) home: AtomicU64,
    /// The cookie of that name. A hint, unless this is a directory.
    pub(crate) cookie: AtomicU64,
    pub(crate) body: Body,
    /// A dead link: the base has them.
    pub(crate) xattrs: Link<Xattrs>,
    /// The host's file.
    pub(crate) backing: Option<Arc<Backing>>,
    /// Of a file with a backing: bytes that the host's file still has for it.
    pub(crate) backed: AtomicU64,
}

impl Object for Inode {
    fn head(&self) -> &Head {
        &self.head
    }

    /// With its pages, so that many large files do not wait to be freed.
    fn weight(&self) -> usize {
        let pages = if self.kind == Kind::File { self.extra.load(Ordering::Relaxed) } else { 0 };
        size_of::<Self>() + pages as usize * PAGE
    }
}

/// What a new inode begins with.
pub(crate) struct Fresh {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) extra: u64,
    pub(crate) times: [i64; 4],
    pub(crate) home: (Ino, u64),
    pub(crate) body: Body,
}

impl Inode {
    pub(crate) fn new(token: u64, account: AccountRef, fresh: Fresh) -> Self {
        account.inodes.inc();
        Self {
            head: Head::new(token, account),
            version: AtomicU32::new(0),
            kind: fresh.kind,
            lock: Mutex::new(()),
            mode: AtomicU32::new(fresh.mode),
            links: AtomicU32::new(fresh.links),
            uid: AtomicU32::new(fresh.uid),
            gid: AtomicU32::new(fresh.gid),
            size: AtomicU64::new(fresh.size),
            extra: AtomicU64::new(fresh.extra),
            times: fresh.times.map(AtomicI64::new),
            home: AtomicU64::new(fresh.home.0.0),
            cookie: AtomicU64::new(fresh.home.1),
            body: fresh.body,
            xattrs: Link::empty(),
            backing: None,
            backed: AtomicU64::new(0),
        }
    }

    /// Copies a frozen inode (inode.I1): nobody writes it, so its words belong together.
    pub(crate) fn copy(&self, token: u64, section: &Section<'_>) -> Counted<Self> {
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let fresh = Fresh {
            kind: self.kind,
            mode: load(&self.mode),
            links: load(&self.links),
            uid: load(&self.uid),
            gid: load(&self.gid),
            size: self.size.load(Ordering::Relaxed),
            extra: self.extra.load(Ordering::Relaxed),
            times: std::array::from_fn(|at| self.times[at].load(Ordering::Relaxed)),
            home: self.home(),
            body: match &self.body {
                Body::File(pages) => Body::File(Link::new(pages.load(section).hold())),
                Body::Directory(entries) => {
                    Body::Directory(Link::new(entries.load(section).hold()))
                }
                Body::Symlink(target) => Body::Symlink(Arc::clone(target)),
                Body::Special => Body::Special,
            },
        };
        let mut copy = Self::new(token, self.head.account, fresh);
        copy.xattrs = Link::new(self.xattrs.load(section).hold());
        copy.backing = self.backing.clone();
        copy.backed = AtomicU64::new(self.backed.load(Ordering::Relaxed));
        Counted::new(copy)
    }

    pub(crate) fn token(&self) -> u64 {
        self.head.token
    }

    /// Waits until no other thread writes this inode.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.lock.try_lock().is_err()
    }

    /// Begins to change words that readers see together (inode.I2). The caller has the lock.
    pub(crate) fn begin(&self) -> Changing<'_> {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // ORDER: Release; pairs with the Acquire fence in `attributes`: a reader that sees a new
        // word sees the odd version.
        fence(Ordering::Release);
        Changing(self)
    }

    /// Returns the entries of a directory.
    pub(crate) fn entries(&self) -> Option<&Link<Bucket>> {
        match &self.body {
            Body::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn home(&self) -> (Ino, u64) {
        (Ino(self.home.load(Ordering::Relaxed)), self.cookie.load(Ordering::Relaxed))
    }

    pub(crate) fn links(&self) -> u32 {
        self.links.load(Ordering::Relaxed)
    }

    pub(crate) fn time(&self, which: Time) -> i64 {
        self.times[which as usize].load(Ordering::Relaxed)
    }

    /// Returns the attributes as of one moment. Takes no lock and writes nothing.
    pub(crate) fn attributes(&self, ino: Ino) -> Attributes {
        let mut tries = 0_u32;
        loop {
            // ORDER: Acquire; pairs with Release in the drop of `Changing`: the words of before.
            let version = self.version.load(Ordering::Acquire);
            if version % 2 == 0 {
                let found = self.attributes_once(ino);
                // ORDER: Acquire; pairs with the Release fence in `begin`.
                fence(Ordering::Acquire);
                if self.version.load(Ordering::Relaxed) == version {
                    return found;
                }
            }
            tries += 1;
            if tries % 64 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    fn attributes_once(&self, ino: Ino) -> Attributes {
        let size = self.size.load(Ordering::Relaxed);
        let extra = self.extra.load(Ordering::Relaxed);
        let (size, blocks) = match self.kind {
            Kind::File => (size, self.blocks(size, extra)),
            Kind::Directory => match &self.backing {
                // Whether the entries were read yet must not show.
                Some(backing) => (backing.size, backing.blocks),
                None => (size.saturating_add(2).saturating_mul(20), 0),
            },
            _ => (size, 0),
        };
        Attributes {
            ino,
            kind: self.kind,
            mode: self.mode.load(Ordering::Relaxed),
            links: self.links.load(Ordering::Relaxed),
            uid: self.uid.load(Ordering::Relaxed),
            gid: self.gid.load(Ordering::Relaxed),
            device: if self.kind.is_device() { extra } else { 0 },
            size,
            blocks,
            accessed: time(self.time(Time::Accessed)),
            modified: time(self.time(Time::Modified)),
            changed: time(self.time(Time::Changed)),
            created: time(self.time(Time::Created)),
        }
    }

    fn blocks(&self, size: u64, pages: u64) -> u64 {
        let Some(backing) = &self.backing else { return pages * (PAGE as u64 / 512) };
        let backed = self.backed.load(Ordering::Relaxed);
        if pages == 0 && backed == size {
            return backing.blocks;
        }
        (pages + backed.div_ceil(PAGE as u64)).min(size.div_ceil(PAGE as u64)) * (PAGE as u64 / 512)
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.head.account.inodes.dec();
    }
}

/// A change of an inode's words; ends when dropped.
pub(crate) struct Changing<'i>(&'i Inode);

impl Changing<'_> {
    pub(crate) fn set_time(&self, which: Time, nanoseconds: i64) {
        self.0.times[which as usize].store(nanoseconds, Ordering::Relaxed);
    }

    /// Notes a change of the content.
    pub(crate) fn modified(&self, now: i64) {
        self.set_time(Time::Modified, now);
        self.set_time(Time::Changed, now);
    }

    pub(crate) fn changed(&self, now: i64) {
        self.set_time(Time::Changed, now);
    }

    pub(crate) fn set_home(&self, home: Ino, cookie: u64) {
        self.0.home.store(home.0, Ordering::Relaxed);
        self.0.cookie.store(cookie, Ordering::Relaxed);
    }

    /// Adds to the links. One that counts no subdirectories (some hosts' directories) stays.
    pub(crate) fn add_links(&self, more: i32) {
        let links = self.0.links();
        if self.0.kind != Kind::Directory || links >= 2 {
            self.0.links.store(links.saturating_add_signed(more), Ordering::Relaxed);
        }
    }

    pub(crate) fn add_size(&self, more: i64) {
        let size = self.0.size.load(Ordering::Relaxed).saturating_add_signed(more);
        self.0.size.store(size, Ordering::Relaxed);
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.0.size.store(size, Ordering::Relaxed);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let version = self.0.version.load(Ordering::Relaxed);
        // ORDER: Release; pairs with Acquire in `attributes`: the words that were stored.
        self.0.version.store(version.wrapping_add(1), Ordering::Release);
    }
}

/// The present time.
pub(crate) fn now() -> i64 {
    nanoseconds(std::time::SystemTime::now())
}
