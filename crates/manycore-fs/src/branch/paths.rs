//! Paths, for programs without a mount.
//!
//! Paths are relative to the root of the branch, with or without a slash in front. Symbolic links
//! are followed; a target that begins with a slash starts at the root of the branch.

use super::Branch;
use crate::{Attributes, Content, Error, Ino, Kind, New, Result, SetAttributes};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Symbolic links on the way, as on Linux.
const MOST_LINKS: usize = 40;

/// What a path leads to.
struct Reached {
    /// The last directory, and the name in it; none if the path ends with `..` or at the root.
    place: Option<(Ino, OsString)>,
    /// What is there.
    found: Option<Attributes>,
}

fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec)
}

impl Branch {
    fn walk(&self, path: &Path, follows_last: bool) -> Result<Reached> {
        let mut left: VecDeque<Vec<u8>> = components(path.as_os_str().as_bytes()).collect();
        let mut links = 0;
        let mut reached = Reached { place: None, found: Some(self.attributes(Ino::ROOT)?) };
        while let Some(part) = left.pop_front() {
            let directory = reached.found.ok_or(Error::NotFound)?;
            if directory.kind != Kind::Directory {
                return Err(Error::NotDirectory);
            }
            if part == b"." {
                continue;
            }
            if part == b".." {
                let parent = self.attributes(self.parent(directory.ino)?)?;
                reached = Reached { place: None, found: Some(parent) };
                continue;
            }
            let name = OsString::from_vec(part);
            let found = match self.lookup(directory.ino, &name) {
                Ok(found) => Some(found),
                Err(Error::NotFound) => None,
                Err(error) => return Err(error),
            };
            let link = found.filter(|f| f.kind == Kind::Symlink);
            if let Some(link) = link.filter(|_| follows_last || !left.is_empty()) {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Error::TooManyLinks);
                }
                let target = self.read_link(link.ino)?.into_vec();
                components(&target).rev().for_each(|part| left.push_front(part));
                if target.starts_with(b"/") {
                    let root = self.attributes(Ino::ROOT)?;
                    reached = Reached { place: None, found: Some(root) };
                }
                continue;
            }
            reached = Reached { place: Some((directory.ino, name)), found };
        }
        Ok(reached)
    }

    /// Returns the attributes of what a path leads to. The last symbolic link is followed, too.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`NotDirectory`](Error::NotDirectory),
    /// [`TooManyLinks`](Error::TooManyLinks).
    pub fn resolve(&self, path: impl AsRef<Path>) -> Result<Attributes> {
        self.walk(path.as_ref(), true)?.found.ok_or(Error::NotFound)
    }

    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// As for [`resolve`](Branch::resolve) and [`read`](Branch::read).
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.resolve(path)?;
        let mut bytes = vec![0; usize::try_from(file.size).map_err(|_| Error::TooLarge)?];
        let count = self.read(file.ino, 0, &mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Makes the file, or replaces its content. A new file has mode 644, and belongs to whom its
    /// directory belongs.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound) if a directory on the way is missing,
    /// [`IsDirectory`](Error::IsDirectory), [`NoSpace`](Error::NoSpace) after some bytes were
    /// written.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let path = path.as_ref();
        let file = loop {
            let reached = self.walk(path, true)?;
            if let Some(file) = reached.found {
                let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
                break self.set_attributes(file.ino, &set)?;
            }
            let (directory, name) = reached.place.ok_or(Error::NotFound)?;
            match self.make(directory, &name, Content::File, 0o644) {
                Err(Error::Exists) => {} // another thread was faster
                made => break made?,
            }
        };
        let mut done = 0;
        while done < bytes.len() {
            done += self.write(file.ino, done as u64, &bytes[done..])?;
        }
        Ok(())
    }

    fn make(
        &self,
        directory: Ino,
        name: &OsStr,
        content: Content<'_>,
        mode: u32,
    ) -> Result<Attributes> {
        let Attributes { uid, gid, .. } = self.attributes(directory)?;
        self.create(directory, name, &New { content, mode, uid, gid })
    }

    /// Makes a directory and those above it, unless they are there. New ones have mode 755, and
    /// belong to whom their directory belongs.
    ///
    /// # Errors
    /// [`NotDirectory`](Error::NotDirectory) if a file is in the way.
    pub fn create_directories(&self, path: impl AsRef<Path>) -> Result<Ino> {
        let mut at = Ino::ROOT;
        let mut path_so_far = Vec::new();
        for part in components(path.as_ref().as_os_str().as_bytes()) {
            path_so_far.push(b'/');
            path_so_far.extend_from_slice(&part);
            let path = Path::new(OsStr::from_bytes(&path_so_far));
            at = loop {
                let reached = self.walk(path, true)?;
                match (reached.found, reached.place) {
                    (Some(found), _) if found.kind == Kind::Directory => break found.ino,
                    (Some(_), _) => return Err(Error::NotDirectory),
                    (None, None) => return Err(Error::NotFound),
                    (None, Some((directory, name))) => {
                        match self.make(directory, &name, Content::Directory, 0o755) {
                            Err(Error::Exists) => {} // another thread was faster
                            made => break made?.ino,
                        }
                    }
                }
            };
        }
        Ok(at)
    }

    /// Removes a file, or a directory with all that is in it. The last symbolic link is not
    /// followed. What others make in it meanwhile is removed, too.
    ///
    /// # Errors
    /// [`NotFound`](Error::NotFound), [`Busy`](Error::Busy) for the root.
    pub fn remove_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let reached = self.walk(path.as_ref(), false)?;
        let found = reached.found.ok_or(Error::NotFound)?;
        let (directory, name) = reached.place.ok_or(Error::Busy)?;
        if found.kind != Kind::Directory {
            return self.unlink(directory, &name);
        }
        // Depth first, without recursion: (directory, its name in the one above).
        let mut open = vec![(directory, name, found.ino)];
        while let Some((above, name, directory)) = open.pop() {
            let mut entries = Vec::new();
            match self.read_directory(directory, 0, &mut |entry| {
                entries.push((entry.name.to_owned(), entry.ino, entry.kind));
                ControlFlow::Continue(())
            }) {
                Err(Error::NotFound) => continue, // somebody else has removed it
                read => read?,
            }
            let mut below = Vec::new();
            for (name, ino, kind) in entries {
                if kind == Kind::Directory {
                    below.push((directory, name, ino));
                } else {
                    ignore_missing(self.unlink(directory, &name))?;
                }
            }
            if below.is_empty() {
                match self.remove_directory(above, &name) {
                    Err(Error::NotEmpty) => open.push((above, name, directory)),
                    removed => ignore_missing(removed)?,
                }
            } else {
                open.push((above, name, directory));
                open.append(&mut below);
            }
        }
        Ok(())
    }
}

fn ignore_missing(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::NotFound) => Ok(()),
        other => other,
    }
}
