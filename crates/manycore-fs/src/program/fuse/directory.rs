//! Lists of directories. Offset 1 is the place after `.`, and offset 2 the place after `..`; the
//! library's offsets are greater.

use super::hidden;
use super::node::Node;
use super::shared::{FOREVER, Shared, attributes, errno, file_type};
use fuser::{Errno, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use manycore_fs::{Branch, Ino};
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::time::Duration;

/// The largest number of entries that a reply of a page has room for is about this. More are not
/// read ahead, because what does not fit is read again.
const BATCH: usize = 128;

/// An entry that has been read, before it is known whether it fits.
struct Row {
    ino: Ino,
    kind: FileType,
    name: OsString,
    next: u64,
}

/// Reads up to `BATCH` entries. They are collected first, because what is done with each of them is
/// better not done inside of the library's reading.
fn batch(branch: &Branch, directory: Ino, offset: u64) -> Result<Vec<Row>, Errno> {
    let mut rows = Vec::with_capacity(BATCH);
    let next = if offset > 2 { offset } else { 0 };
    let read = branch.read_directory(directory, next, &mut |entry| {
        rows.push(Row {
            ino: entry.ino,
            kind: file_type(entry.kind),
            name: entry.name.to_owned(),
            next: entry.next,
        });
        if rows.len() < BATCH { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    read.map_err(errno)?;
    Ok(rows)
}

/// The entries `.` and `..` from a place on, each with the place after it.
fn dots(
    node: Node,
    parent: Node,
    offset: u64,
) -> impl Iterator<Item = (INodeNo, &'static str, u64)> {
    [(node, ".", 1), (parent, "..", 2)]
        .into_iter()
        .filter(move |(_, _, place)| *place > offset)
        .map(|(node, name, place)| (node.number(), name, place))
}

fn parent(branch: &Branch, directory: Ino) -> Node {
    // Of a directory that is gone, any will do.
    Node::File(branch.id(), branch.parent(directory).unwrap_or(directory))
}

/// Calls `add` with the entries after a place, but for `.` and `..`, until it says that the reply
/// is full.
fn walk(
    branch: &Branch,
    directory: Ino,
    mut offset: u64,
    add: &mut dyn FnMut(Row) -> bool,
) -> Result<(), Errno> {
    loop {
        let rows = batch(branch, directory, offset)?;
        let Some(last) = rows.last() else { return Ok(()) };
        offset = last.next;
        let is_end = rows.len() < BATCH;
        if rows.into_iter().any(&mut *add) || is_end {
            return Ok(());
        }
    }
}

/// Names and kinds of files.
pub fn read(
    shared: &Shared,
    node: Node,
    offset: u64,
    reply: &mut ReplyDirectory,
) -> Result<(), Errno> {
    let Node::File(branch, directory) = node else {
        return read_hidden(shared, node, offset, &mut |number, place, kind, name| {
            reply.add(number, place, kind, name)
        });
    };
    let branch = shared.branch(branch)?;
    for (number, name, place) in dots(node, parent(&branch, directory), offset) {
        if reply.add(number, place, FileType::Directory, name) {
            return Ok(());
        }
    }
    walk(&branch, directory, offset, &mut |row| {
        let number = Node::File(branch.id(), row.ino).number();
        reply.add(number, row.next, row.kind, row.name)
    })
}

/// Names with attributes: each entry that fits counts as a look-up.
pub fn read_plus(
    shared: &Shared,
    node: Node,
    offset: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Result<(), Errno> {
    let Node::File(branch, directory) = node else {
        return read_hidden(shared, node, offset, &mut |number, place, _, name| {
            let place_of = Node::of(number);
            let Ok(attr) = hidden::kept_attributes(shared, place_of) else { return false };
            let is_full = reply.add(number, place, name, &Duration::ZERO, &attr, Generation(0));
            let is_dot = name == "." || name == "..";
            if is_full || is_dot {
                hidden::forget(shared, place_of, 1);
            }
            is_full
        });
    };
    let branch = shared.branch(branch)?;
    let own = branch.attributes(directory).map_err(errno)?;
    for (number, name, place) in dots(node, parent(&branch, directory), offset) {
        let attr = fuser::FileAttr { ino: number, ..attributes(branch.id(), &own) };
        // The kernel takes no attributes from these two entries.
        if reply.add(number, place, name, &Duration::ZERO, &attr, Generation(0)) {
            return Ok(());
        }
    }
    walk(&branch, directory, offset, &mut |row| {
        // What has gone in the meantime is left out.
        let Ok(()) = branch.keep(row.ino) else { return false };
        let found = branch.attributes(row.ino);
        let is_full = found.as_ref().is_ok_and(|found| {
            let attr = attributes(branch.id(), found);
            reply.add(attr.ino, row.next, row.name, &FOREVER, &attr, Generation(0))
        });
        // What the kernel has not got is not looked up.
        if is_full || found.is_err() {
            branch.forget(row.ino, 1);
        }
        is_full
    })
}

/// Entries of a hidden directory, with their places in the list as offsets.
fn read_hidden(
    shared: &Shared,
    node: Node,
    offset: u64,
    add: &mut dyn FnMut(INodeNo, u64, FileType, &OsStr) -> bool,
) -> Result<(), Errno> {
    for (number, name, place) in dots(node, node, offset) {
        if add(number, place, FileType::Directory, OsStr::new(name)) {
            return Ok(());
        }
    }
    let rows = hidden::list(shared, node);
    for (index, (node, kind, name)) in rows.into_iter().enumerate() {
        let place = index as u64 + 3;
        if place > offset && add(node.number(), place, kind, OsStr::new(&name)) {
            return Ok(());
        }
    }
    Ok(())
}
