//! Checks that the changes of a log fit the tree to which they are applied. A log comes from
//! outside: it may be forged even if its checksums hold.
//!
//! ```text
//! changes of one record --> touched: names got and lost, entries, what was before --> check
//! ```
//!
//! - fit.T1 After each batch of changes, a branch is a tree: each name leads to a file of its kind,
//!   a file has as many links as names, and a directory has one name. From each directory, homes
//!   (the directories above) lead up to the root. So nothing that walks a tree runs in circles or
//!   meets a name without a file. (Of a file of the base, the host may know more names than have
//!   been read.)
//! - fit.T2 A batch is checked by what it touched, never by the whole tree.

use crate::bucket::Named;
use crate::directory;
use crate::files::{Files, leads_to_root};
use crate::inode::{Body, Inode};
use crate::page::PAGE;
use crate::tree::radix;
use crate::{Error, Ino, Kind};
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// Why something does not fit.
pub(crate) struct Misfit(pub(crate) String);

impl From<Error> for Misfit {
    fn from(error: Error) -> Misfit {
        Misfit(format!("the change does not fit: {error}"))
    }
}

pub(crate) type Fits<T = ()> = Result<T, Misfit>;

fn misfit<T>(ino: Ino, words: impl AsRef<str>) -> Fits<T> {
    Err(Misfit(format!("file {} {}", ino.0, words.as_ref())))
}

/// Numbers of files that were handed out: a bit each, 64 in an entry.
#[derive(Default)]
pub(crate) struct Used(HashMap<u64, u64>);

impl Used {
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.0.get(&(ino.0 / 64)).is_some_and(|bits| bits & 1 << (ino.0 % 64) != 0)
    }

    /// Returns false if the number was used before.
    pub(crate) fn insert(&mut self, ino: Ino) -> bool {
        let bits = self.0.entry(ino.0 / 64).or_insert(0);
        let before = *bits;
        *bits |= 1 << (ino.0 % 64);
        *bits != before
    }
}

/// What a file was before the batch.
#[derive(Clone, Copy)]
struct Before {
    kind: Kind,
    links: u32,
    size: u64,
}

/// What a batch has done to a file.
#[derive(Default)]
struct Touched {
    before: Option<Before>,
    /// Of the last name that it got.
    kind: Option<Kind>,
    /// Names that it got, less those that it lost.
    names: i64,
    /// The same of the entries of a directory, and of those that are directories.
    entries: i64,
    directories: i64,
}

/// The batch of changes that goes on, all of one branch.
#[derive(Default)]
pub(crate) struct Batch(HashMap<Ino, Touched>);

impl Batch {
    /// Notes what a file is, before it is changed.
    pub(crate) fn touch(&mut self, files: Files<'_>, ino: Ino) {
        self.touched(files, ino);
    }

    fn touched(&mut self, files: Files<'_>, ino: Ino) -> &mut Touched {
        self.0.entry(ino).or_insert_with(|| {
            let before = files.get(ino).ok().map(|inode| Before {
                kind: inode.kind,
                links: inode.links(),
                size: inode.size.load(Ordering::Relaxed),
            });
            Touched { before, ..Touched::default() }
        })
    }

    /// Notes that a name of a directory leads to another file now.
    pub(crate) fn entry(
        &mut self,
        files: Files<'_>,
        directory: Ino,
        old: Option<(Ino, Kind)>,
        new: Option<(Ino, Kind)>,
    ) {
        for (file, more) in [(old, -1), (new, 1)] {
            let Some((ino, kind)) = file else { continue };
            let named = self.touched(files, ino);
            named.names += more;
            if more > 0 {
                named.kind = Some(kind);
            }
            let within = self.touched(files, directory);
            within.entries += more;
            within.directories += if kind == Kind::Directory { more } else { 0 };
        }
    }

    /// Notes that a directory goes, with the names in it.
    pub(crate) fn gone(&mut self, files: Files<'_>, ino: Ino, inode: &Inode) {
        let Some(entries) = inode.entries() else { return };
        let mut lost = Vec::new();
        let word = entries.load(files.section);
        directory::for_each(word, files.section, &mut |entry: Named<'_>| {
            lost.push((entry.ino, entry.kind));
        });
        lost.into_iter().for_each(|old| self.entry(files, ino, Some(old), None));
    }

    /// Checks all that the batch has touched (fit.T1), and begins another one.
    pub(crate) fn check(&mut self, files: Files<'_>) -> Fits {
        let touched = std::mem::take(&mut self.0);
        for (ino, touched) in &touched {
            match files.get(*ino) {
                Ok(inode) => touched.check_file(files, *ino, inode)?,
                Err(Error::NotFound) => touched.check_gone(files, *ino)?,
                Err(error) => return Err(error.into()),
            }
        }
        let is_moved = |touched: &Touched| touched.before.is_some() && touched.is_named_directory();
        let has_moved = touched.values().any(is_moved);
        let up = |ino: Ino| {
            let is_new = touched.get(&ino).is_some_and(|touched| touched.before.is_none());
            if !has_moved && !is_new {
                return Some(Ino::ROOT); // as before
            }
            files.get(ino).ok().map(|inode| inode.home().0)
        };
        let mut known = HashMap::new();
        for (ino, _) in touched.iter().filter(|(_, touched)| touched.is_named_directory()) {
            if !leads_to_root(*ino, &mut known, up) {
                return misfit(*ino, "is a directory that the root does not lead to");
            }
        }
        Ok(())
    }
}

impl Touched {
    fn is_named_directory(&self) -> bool {
        self.kind == Some(Kind::Directory)
    }

    fn before(&self) -> (i64, i64) {
        self.before.map_or((0, 0), |before| (i64::from(before.links), before.size as i64))
    }

    fn check_gone(&self, files: Files<'_>, ino: Ino) -> Fits {
        let (links, size) = self.before();
        let is_of_base = files.core.base.as_ref().is_some_and(|b| b.has(ino, files.section));
        let fits = match self.before.map(|before| before.kind) {
            None => self.names == 0,
            Some(Kind::Directory) => self.names == -1 && size + self.entries == 0,
            Some(_) if is_of_base => self.names < 0,
            Some(_) => links + self.names == 0,
        };
        if fits { Ok(()) } else { misfit(ino, "is gone, and has names or entries") }
    }

    fn check_file(&self, files: Files<'_>, ino: Ino, inode: &Inode) -> Fits {
        if self.kind.is_some_and(|kind| kind != inode.kind) {
            return misfit(ino, "is of another kind than its name says");
        }
        if inode.kind == Kind::Directory {
            return self.check_directory(files, ino, inode);
        }
        let (links, _) = self.before();
        if inode.backing.is_none() && i64::from(inode.links()) != links + self.names {
            let (has, names) = (inode.links(), links + self.names);
            return misfit(ino, format!("has {has} links, and {names} names"));
        }
        check_pages(files, ino, inode)
    }

    fn check_directory(&self, files: Files<'_>, ino: Ino, inode: &Inode) -> Fits {
        let (links, size) = self.before();
        let names = i64::from(self.before.is_none() && ino != Ino::ROOT);
        if self.names != names {
            return misfit(ino, "is a directory without a name, or with several");
        }
        if inode.size.load(Ordering::Relaxed) as i64 != size + self.entries {
            return misfit(ino, "is a directory whose size is not that of its entries");
        }
        let links = if self.before.is_some() { links } else { 2 };
        if inode.backing.is_none() && i64::from(inode.links()) != links + self.directories {
            return misfit(ino, "is a directory whose links are not its subdirectories");
        }
        if self.kind.is_none() {
            return Ok(());
        }
        let (home, cookie) = inode.home();
        let entries = files.get(home).ok().and_then(Inode::entries);
        let named =
            entries.and_then(|entries| directory::at_cookie(entries, cookie, files.section));
        if named.is_some_and(|named| named.ino == ino) {
            return Ok(());
        }
        misfit(ino, "is a directory that is not where its name is")
    }
}

/// Checks that a file has nothing behind its end (bytes.Y1).
fn check_pages(files: Files<'_>, ino: Ino, inode: &Inode) -> Fits {
    let Body::File(pages) = &inode.body else { return Ok(()) };
    let size = inode.size.load(Ordering::Relaxed);
    let (last, within) = (size / PAGE as u64, (size % PAGE as u64) as usize);
    let is_behind = radix::next(pages, size.div_ceil(PAGE as u64), files.section).is_some();
    let tail = radix::get_direct(pages, last, files.section).filter(|_| within > 0);
    let has_tail = tail.is_some_and(|page| {
        let mut bytes = [0; PAGE];
        page.read(within, &mut bytes[within..]);
        bytes != [0; PAGE]
    });
    if is_behind || has_tail { misfit(ino, "has bytes behind its end") } else { Ok(()) }
}
