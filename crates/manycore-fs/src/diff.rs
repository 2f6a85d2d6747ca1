//! The differences between two versions of a tree, by path and by number. The cost grows with the
//! changes and the paths to them.

use crate::directory::NameChange;
use crate::version::{Version, unknown_path};
use crate::{Change, Error, Ino, Kind, Result};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The differences of two versions.
#[derive(Default)]
pub(crate) struct Diff {
    /// By path, in order.
    pub(crate) changes: Vec<Change>,
    /// Files whose attributes or bytes are others.
    pub(crate) files: Vec<Ino>,
    /// Names that are others.
    pub(crate) names: Vec<(Ino, OsString)>,
}

/// Compares two versions.
///
/// # Errors
/// What the host says of files of the base.
pub(crate) fn diff<'s>(old: Version<'s>, new: Version<'s>) -> Result<Diff> {
    let mut diff = Diff::default();
    let changed = old.changes(new);
    // Files that have a name they had not before: no more is said of them.
    let mut named = BTreeSet::new();
    for file in &changed {
        for change in old.names(file.old, file.new) {
            diff.names.push((file.ino, OsStr::from_bytes(change.name).to_owned()));
            named.extend(change.new.map(|entry| entry.ino));
            diff.changes.extend(of_name((old, new), file.ino, &change)?);
        }
    }
    for file in changed {
        let (Some(before), Some(after)) = (file.old, file.new) else { continue };
        let same_content = old.same_content(before, after)?;
        let same_attributes = old.same_attributes(before, after)?;
        if same_content && same_attributes && before.links() == after.links() {
            continue;
        }
        diff.files.push(file.ino);
        if named.contains(&file.ino) || same_content && same_attributes {
            continue;
        }
        let path = match new.path(file.ino) {
            Err(Error::NotFound) => continue, // kept, but without a name
            path => path?,
        };
        diff.changes.push(match same_content {
            true => Change::Attributes(path, after.kind),
            false => Change::Modified(path, after.kind),
        });
    }
    diff.changes.sort_by(|a, b| (a.path(), a).cmp(&(b.path(), b)));
    Ok(diff)
}

/// Returns the changes that a name's other file means.
fn of_name(
    (old, new): (Version<'_>, Version<'_>),
    directory: Ino,
    change: &NameChange<'_>,
) -> Result<Vec<Change>> {
    let path = |version: Version<'_>| -> Result<PathBuf> {
        match version.path_of_name(directory, change.name) {
            Err(Error::NotFound) => Ok(unknown_path(directory)),
            path => path,
        }
    };
    let is_file = |kind| kind != Kind::Directory;
    Ok(match (change.old, change.new) {
        (Some(before), Some(after)) if is_file(before.kind) && is_file(after.kind) => {
            vec![Change::Modified(path(new)?, after.kind)]
        }
        (before, after) => {
            let removed = match before {
                Some(entry) => Some(Change::Removed(path(old)?, entry.kind)),
                None => None,
            };
            let added = match after {
                Some(entry) => Some(Change::Added(path(new)?, entry.kind)),
                None => None,
            };
            removed.into_iter().chain(added).collect()
        }
    })
}
