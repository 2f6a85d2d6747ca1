//! Rewrites a log in its shortest form. For each branch, the new log has the states at the forks of
//! its child branches and the present state, each as a difference from the state before. So content
//! that branches share is written once, and is shared again when the log is read.
//!
//! ```text
//! main     nothing --changes--> fork of a --changes--> fork of b --changes--> now
//! a                                 |--changes--> now
//! b                                                        |--changes--> now
//! ```
//!
//! - snapshot.N1 All branches are taken at one moment: with all gates held exclusively, and under
//!   the lock of names (fork.F3). The gate of a branch is taken after the gates of its child
//!   branches (commit.C1).

use crate::attributes::nanoseconds;
use crate::files::Files;
use crate::inode::{Body, Inode};
use crate::journal::disk::LogFile;
use crate::journal::record::{self, Change};
use crate::journal::{Cut, Folder};
use crate::system::{Core, Inner, lock};
use crate::tree::compare::differences;
use crate::tree::{Held, View, Word};
use crate::version::Version;
use crate::{BranchId, Ino, Kind};
use manycore::section::Section;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

/// Bytes of a record, about.
const RECORD: usize = 256 << 10;

/// A branch as of the moment.
pub(crate) struct Taken {
    inner: Arc<Inner>,
    start: Held<Inode>,
    now: Held<Inode>,
}

/// All branches as of one moment, and this moment in the log.
pub(crate) struct Snapshot {
    branches: Vec<Taken>,
    chunk: u64,
    branch: u32,
}

impl Snapshot {
    /// Takes all branches (snapshot.N1), and what `cut` returns at that moment.
    pub(crate) fn take<T>(core: &Core, cut: impl FnOnce() -> T) -> (Snapshot, T) {
        let names = lock(&core.names);
        let mut inners: Vec<_> = names.values().cloned().collect();
        inners.sort_by_key(|inner| inner.id);
        // The youngest first: a branch is younger than its parent.
        let mut gates: Vec<_> = inners.iter().rev().map(|inner| inner.gate.write()).collect();
        let section = core.domain.enter();
        let mut branches = Vec::new();
        for (inner, gate) in inners.iter().zip(gates.iter_mut().rev()) {
            if !gate.has_ended {
                gate.token = core.token(); // version.V1
                let (start, now) = (inner.snapshot.load(&section), inner.table.load(&section));
                let (start, now) = (start.hold(), now.hold());
                branches.push(Taken { inner: Arc::clone(inner), start, now });
            }
        }
        let snapshot = Snapshot { branches, chunk: core.chunks.peek(), branch: core.peek_id() };
        (snapshot, cut())
    }

    /// Writes a whole log with this state. Returns the file and its length.
    pub(crate) fn write(
        &self,
        core: &Core,
        folder: &Folder,
        cut: Cut,
    ) -> io::Result<(LogFile, u64)> {
        let mut out = Out {
            to: BufWriter::with_capacity(RECORD, folder.create()?),
            cut,
            length: record::START,
        };
        out.to.write_all(&record::start(cut.salt))?;
        let base = core.base.as_ref().map(|base| (base.path_bytes(), base.host_number()));
        out.put(&record::base(base))?;
        self.write_base(core, &mut out)?;
        let mut forks: HashMap<BranchId, Vec<&Taken>> = HashMap::new();
        for taken in &self.branches {
            if let Some(parent) = taken.inner.parent {
                forks.entry(parent).or_default().push(taken);
            }
        }
        for taken in &self.branches {
            let forks = forks.remove(&taken.inner.id).unwrap_or_default();
            self.write_branch(core, taken, &forks, &mut out)?;
        }
        out.put(&record::ready(self.chunk, self.branch))?;
        let length = out.length;
        let file = out.to.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((file, length))
    }

    /// Writes the numbers of the base's files that have some, directories after those above them.
    fn write_base(&self, core: &Core, out: &mut Out) -> io::Result<()> {
        let Some(base) = &core.base else { return Ok(()) };
        let mut left = vec![Ino::ROOT];
        while let Some(ino) = left.pop() {
            let section = core.domain.enter();
            let Some(entries) = base.read_entries(ino, &section) else { continue };
            let directories = entries.iter().filter(|entry| entry.kind == Kind::Directory);
            left.extend(directories.map(|entry| entry.ino));
            let files = entries.iter().map(|entry| (entry.ino, entry.name));
            out.put(&record::directory(ino, files))?;
        }
        Ok(())
    }

    /// Writes a branch and the forks of its own branches.
    fn write_branch(
        &self,
        core: &Core,
        taken: &Taken,
        forks: &[&Taken],
        out: &mut Out,
    ) -> io::Result<()> {
        let id = taken.inner.id;
        let mut at = &taken.start;
        for fork in forks {
            self.write_changes(core, id, (at, &fork.start), out)?;
            let Inner { created, name, id: forked, .. } = &*fork.inner;
            out.put(&record::fork(id, *forked, nanoseconds(*created), name))?;
            at = &fork.start;
        }
        self.write_changes(core, id, (at, &taken.now), out)
    }

    /// Writes how a branch gets from one of its versions to a later one.
    fn write_changes(
        &self,
        core: &Core,
        id: BranchId,
        (old, new): (&Held<Inode>, &Held<Inode>),
        out: &mut Out,
    ) -> io::Result<()> {
        let section = core.domain.enter();
        let table = &self.branches[0].inner.table; // versions have roots of their own
        let files = Files { core, table, section: &section, token: 0 };
        let old = Version { files, root: old.word() };
        let new = Version { files, root: new.word() };
        let changes = old.changes(new);
        let mut change = Change::new(id);
        for file in &changes {
            match file.new {
                None => change.gone(file.ino),
                Some(inode) => {
                    change.inode(file.ino, inode);
                    let before = file.old.map_or(Word::EMPTY, |old| old.xattrs.load(&section));
                    let after = inode.xattrs.load(&section);
                    match after.view() {
                        _ if before == after => {}
                        View::Value(xattrs) => change.xattrs(file.ino, &xattrs.list),
                        View::Empty => change.xattrs(file.ino, &[]),
                        View::Dead | View::Node(_) => {}
                    }
                }
            }
            out.put_if_large(&mut change, id)?;
        }
        for file in changes.iter().filter(|file| file.new.is_some()) {
            for name in old.names(file.old, file.new) {
                let is_home = name.new.is_some_and(|entry| {
                    let named = new.get(entry.ino);
                    named.is_some_and(|named| named.home() == (file.ino, entry.cookie))
                });
                let entry = name.new.map(|entry| (entry.ino, entry.kind));
                change.entry(file.ino, name.name, entry, is_home);
                out.put_if_large(&mut change, id)?;
            }
        }
        for file in &changes {
            let Some(inode) = file.new else { continue };
            write_pages(file.ino, file.old, inode, &section, &mut |add| {
                add(&mut change);
                out.put_if_large(&mut change, id)
            })?;
        }
        out.put_rest(&change, id)
    }
}

/// What is to be added to a change.
type Add<'a> = &'a dyn Fn(&mut Change);

/// Writes the pages that two versions of a file do not share.
fn write_pages(
    ino: Ino,
    old: Option<&Inode>,
    new: &Inode,
    section: &Section<'_>,
    put: &mut dyn FnMut(Add<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let Body::File(pages) = &new.body else { return Ok(()) };
    let before = match old.map(|old| &old.body) {
        Some(Body::File(pages)) => pages.load(section),
        _ => Word::EMPTY,
    };
    let mut done = Ok(());
    differences(before, pages.load(section), section, &mut |at| {
        if done.is_err() {
            return;
        }
        done = match at.new.view() {
            View::Value(page) if page.is_hole() => put(&|change| change.hole(ino, at.first)),
            View::Value(page) => put(&|change| {
                let mut bytes = [0; crate::page::PAGE];
                page.read(0, &mut bytes);
                change.bytes(ino, at.first * bytes.len() as u64, bytes.len());
                change.0.extend_from_slice(&bytes);
            }),
            _ => put(&|change| change.clear(ino, at.first, at.first + at.count)),
        };
    });
    done
}

/// A log that is written anew. All its records have the number of the cut.
struct Out {
    to: BufWriter<LogFile>,
    cut: Cut,
    length: u64,
}

impl Out {
    fn put(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let (sum, number) = (record::checksum(&[payload]), self.cut.number);
        self.to.write_all(&record::header(self.cut.salt, length, sum, number, number))?;
        self.to.write_all(payload)?;
        self.length += (record::HEADER + payload.len()) as u64;
        Ok(())
    }

    fn put_if_large(&mut self, change: &mut Change, id: BranchId) -> io::Result<()> {
        if change.0.len() < RECORD {
            return Ok(());
        }
        self.put(&std::mem::replace(change, Change::new(id)).0)
    }

    fn put_rest(&mut self, change: &Change, id: BranchId) -> io::Result<()> {
        if change.0.len() == Change::new(id).0.len() { Ok(()) } else { self.put(&change.0) }
    }
}
