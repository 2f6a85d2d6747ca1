//! Renaming.
//!
//! - rename.R1 A directory moves to another parent only under the branch's lock for moves. So the
//!   way from a directory up to the root does not change while a mover looks at it, and no
//!   directory becomes its own descendant.

use super::{Branch, Locked, Rename, check_name};
use crate::bucket::Named;
use crate::directory;
use crate::files::Files;
use crate::inode::now;
use crate::system::lock;
use crate::{Error, Ino, Kind, Result};
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

/// A name in a directory.
#[derive(Clone, Copy)]
struct Place<'n> {
    directory: Ino,
    name: &'n [u8],
    hash: u64,
}

/// What both names are.
#[derive(Clone, Copy, PartialEq)]
struct Found {
    moved: (Ino, Kind),
    target: Option<(Ino, Kind)>,
}

/// What an attempt came to.
enum Attempt {
    Done,
    /// The names are others by now.
    Again,
    /// A directory moves: with the lock for moves.
    AgainAsMove,
}

fn is_directory(file: (Ino, Kind)) -> bool {
    file.1 == Kind::Directory
}

impl Branch {
    /// Renames a file or directory, as `renameat2` does.
    ///
    /// [`Rename::Replace`] replaces a file by a file and an empty directory by a directory.
    /// [`Rename::Exchange`] lets both names change places. If both names are of the same file,
    /// nothing happens.
    ///
    /// # Errors
    /// [`Exists`](Error::Exists) with [`Rename::NoReplace`], [`IsDirectory`](Error::IsDirectory)
    /// for a file onto a directory, [`NotDirectory`](Error::NotDirectory) for the opposite,
    /// [`NotEmpty`](Error::NotEmpty), [`Invalid`](Error::Invalid) for a directory into itself.
    pub fn rename(&self, from: (Ino, &OsStr), to: (Ino, &OsStr), how: Rename) -> Result<()> {
        let from = self.place(from)?;
        let to = self.place(to)?;
        self.core.journal()?;
        let gate = self.inner.enter()?;
        let mut is_move = false;
        loop {
            let moves = is_move.then(|| lock(&self.inner.moves));
            let section = self.core.domain.enter();
            let files = self.files_of(&gate, &section);
            match self.try_rename(files, from, to, how, is_move)? {
                Attempt::Done => return Ok(()),
                Attempt::Again => std::hint::spin_loop(),
                Attempt::AgainAsMove => is_move = true,
            }
            drop(section);
            drop(moves);
        }
    }

    fn place<'n>(&self, (directory, name): (Ino, &'n OsStr)) -> Result<Place<'n>> {
        let name = check_name(name)?;
        Ok(Place { directory, name, hash: self.core.hash.of(name) })
    }

    fn try_rename(
        &self,
        files: Files<'_>,
        from: Place<'_>,
        to: Place<'_>,
        how: Rename,
        is_move: bool,
    ) -> Result<Attempt> {
        let short = |entry: Named<'_>| (entry.ino, entry.kind);
        let target = match files.find(to.directory, to.name) {
            Ok(entry) => Some(short(entry)),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        let moved = short(files.find(from.directory, from.name)?);
        let found = Found { moved, target };
        files.get(to.directory)?;
        match (how, target) {
            (Rename::NoReplace, Some(_)) => return Err(Error::Exists),
            (Rename::Exchange, None) => return Err(Error::NotFound),
            (_, Some(target)) if target.0 == moved.0 => return Ok(Attempt::Done),
            _ => {}
        }
        let swaps = target.filter(|_| how == Rename::Exchange);
        if from.directory != to.directory {
            let moves = is_directory(moved) || swaps.is_some_and(is_directory);
            if moves && !is_move {
                return Ok(Attempt::AgainAsMove);
            }
            // rename.R1
            if is_directory(moved) && files.is_below(to.directory, moved.0)? {
                return Err(Error::Invalid);
            }
            if let Some(target) = swaps.filter(|target| is_directory(*target)) {
                if files.is_below(from.directory, target.0)? {
                    return Err(Error::Invalid);
                }
            }
        }
        if let (Some(target), Rename::Replace) = (target, how) {
            match (is_directory(moved), is_directory(target)) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                _ => {}
            }
        }
        let mut inos = vec![from.directory, to.directory, moved.0];
        inos.extend(target.map(|target| target.0));
        let locked = match Locked::new(files, &inos) {
            Err(Error::NotFound) => {
                // names.N1, names.N2
                let again = |place: Place<'_>| files.find(place.directory, place.name).map(short);
                let is_same = again(from)? == moved && again(to).ok() == target;
                return if is_same { Err(Error::NotFound) } else { Ok(Attempt::Again) };
            }
            locked => locked?,
        };
        let (_, from_entries) = locked.directory(from.directory)?;
        let (_, to_entries) = locked.directory(to.directory)?;
        let now_there = |place: Place<'_>, entries| {
            directory::find(entries, place.hash, place.name, files.section).map(short)
        };
        if now_there(from, from_entries) != Some(found.moved)
            || now_there(to, to_entries) != found.target
        {
            return Ok(Attempt::Again);
        }
        match swaps {
            Some(target) => self.exchange(files, &locked, from, to, (moved, target))?,
            None => self.replace(files, &locked, from, to, found)?,
        }
        self.note_rename(&locked, from, to, found, how);
        Ok(Attempt::Done)
    }

    /// Writes down a rename (journal.J1).
    fn note_rename(
        &self,
        locked: &Locked<'_>,
        from: Place<'_>,
        to: Place<'_>,
        Found { moved, target }: Found,
        how: Rename,
    ) {
        self.note(&[], |change| {
            locked.inodes.iter().flatten().for_each(|(ino, inode)| change.inode(*ino, inode));
            let left = target.filter(|_| how == Rename::Exchange);
            change.entry(from.directory, from.name, left, left.is_some());
            change.entry(to.directory, to.name, Some(moved), true);
        });
    }

    fn replace(
        &self,
        files: Files<'_>,
        locked: &Locked<'_>,
        from: Place<'_>,
        to: Place<'_>,
        Found { moved, target }: Found,
    ) -> Result<()> {
        let (from_inode, from_entries) = locked.directory(from.directory)?;
        let (to_inode, to_entries) = locked.directory(to.directory)?;
        if let Some(target) = target.filter(|target| is_directory(*target)) {
            if locked.get(target.0).size.load(Ordering::Relaxed) != 0 {
                return Err(Error::NotEmpty);
            }
        }
        // The new name first, so that readers always find one.
        let cookie = match target {
            Some(_) => directory::change(to_entries, to.hash, to.name, moved, files.writer())?,
            None => directory::insert(to_entries, to.hash, to.name, moved, files.writer())?,
        };
        directory::remove(from_entries, from.hash, from.name, files.writer())?;
        let now = now();
        let moves_directory = i32::from(is_directory(moved));
        let change = from_inode.begin();
        change.add_size(-1);
        change.add_links(-moves_directory);
        change.modified(now);
        drop(change);
        let change = to_inode.begin();
        change.add_size(i64::from(target.is_none()));
        let replaced = i32::from(target.is_some_and(is_directory));
        change.add_links(moves_directory - replaced);
        change.modified(now);
        drop(change);
        let change = locked.get(moved.0).begin();
        change.set_home(to.directory, cookie);
        change.changed(now);
        drop(change);
        if let Some(target) = target {
            self.drop_link(files, target.0, locked.get(target.0), now);
        }
        Ok(())
    }

    fn exchange(
        &self,
        files: Files<'_>,
        locked: &Locked<'_>,
        from: Place<'_>,
        to: Place<'_>,
        (moved, target): ((Ino, Kind), (Ino, Kind)),
    ) -> Result<()> {
        let (from_inode, from_entries) = locked.directory(from.directory)?;
        let (to_inode, to_entries) = locked.directory(to.directory)?;
        let writer = files.writer();
        let to_cookie = directory::change(to_entries, to.hash, to.name, moved, writer)?;
        let from_cookie = directory::change(from_entries, from.hash, from.name, target, writer)?;
        let now = now();
        let more = i32::from(is_directory(moved)) - i32::from(is_directory(target));
        for (inode, links) in [(from_inode, -more), (to_inode, more)] {
            let change = inode.begin();
            change.add_links(links);
            change.modified(now);
        }
        let homes = [(moved.0, to.directory, to_cookie), (target.0, from.directory, from_cookie)];
        for (ino, home, cookie) in homes {
            let change = locked.get(ino).begin();
            change.set_home(home, cookie);
            change.changed(now);
        }
        Ok(())
    }
}
