//! Requests about names: look-ups, new files, links, renames, and names of extended attributes.

use super::hidden;
use super::node::Node;
use super::shared::{FOREVER, Shared, attributes, errno};
use fuser::{Errno, FileAttr, INodeNo, RenameFlags, Request};
use manycore_fs::{Attributes, Branch, BranchId, Content, Ino, New, Rename, SetXattr};
use nix::libc;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, UNIX_EPOCH};

/// New files of a directory that has this bit get the directory's group.
const SET_GROUP: u32 = 0o2000;

fn is_hidden(directory: Ino, name: &OsStr) -> bool {
    directory == Ino::ROOT && name == hidden::FOLDER
}

/// Whether this number is a file of a branch.
pub fn is_of_file(number: INodeNo) -> bool {
    matches!(Node::of(number), Node::File(..))
}

/// Attributes that say "there is no such name, and you may remember that".
pub fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The kernel knows one more name of the file: it is kept until the kernel forgets it.
fn kept(branch: &Branch, found: &Attributes) -> Result<FileAttr, Errno> {
    branch.keep(found.ino).map_err(errno)?;
    Ok(attributes(branch.id(), found))
}

/// The file of this name, and how long the kernel may keep the name.
pub fn lookup(
    shared: &Shared,
    id: BranchId,
    directory: Ino,
    name: &OsStr,
) -> Result<(FileAttr, Duration), Errno> {
    let branch = shared.branch(id)?;
    if is_hidden(directory, name) {
        return Ok((hidden::attributes_of(shared, Node::Folder(id)), FOREVER));
    }
    let found = branch.lookup(directory, name).map_err(errno)?;
    Ok((kept(&branch, &found)?, FOREVER))
}

/// The branch and the directory in which a name is to be changed.
pub fn directory(shared: &Shared, parent: INodeNo, name: &OsStr) -> Result<(Branch, Ino), Errno> {
    let (branch, ino) = shared.file(Node::of(parent))?;
    if is_hidden(ino, name) { Err(Errno::EPERM) } else { Ok((branch, ino)) }
}

/// Makes a file, which belongs to who asks for it.
pub fn create(
    shared: &Shared,
    request: &Request,
    parent: INodeNo,
    name: &OsStr,
    mode: u32,
    content: Content<'_>,
) -> Result<FileAttr, Errno> {
    let (branch, directory) = directory(shared, parent, name)?;
    let above = branch.attributes(directory).map_err(errno)?;
    let mut new = New { content, mode: mode & 0o7777, uid: request.uid(), gid: request.gid() };
    if above.mode & SET_GROUP != 0 {
        new.gid = above.gid;
        if matches!(content, Content::Directory) {
            new.mode |= SET_GROUP;
        }
    }
    let made = branch.create(directory, name, &new).map_err(errno)?;
    kept(&branch, &made)
}

/// What `mknod` is to make.
pub fn content_of_mode(mode: u32, device: u32) -> Result<Content<'static>, Errno> {
    match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => Ok(Content::File),
        libc::S_IFCHR => Ok(Content::CharDevice(device.into())),
        libc::S_IFBLK => Ok(Content::BlockDevice(device.into())),
        libc::S_IFIFO => Ok(Content::Fifo),
        libc::S_IFSOCK => Ok(Content::Socket),
        _ => Err(Errno::EINVAL),
    }
}

/// Renames within a branch. Between two branches a file has to be copied, as between two mounts.
pub fn rename(
    shared: &Shared,
    from: (INodeNo, &OsStr),
    to: (INodeNo, &OsStr),
    flags: RenameFlags,
) -> Result<(), Errno> {
    let (branch, directory_of_old) = directory(shared, from.0, from.1)?;
    let (other, directory_of_new) = directory(shared, to.0, to.1)?;
    if branch.id() != other.id() {
        return Err(Errno::EXDEV);
    }
    let how = match flags {
        _ if flags.is_empty() => Rename::Replace,
        RenameFlags::RENAME_NOREPLACE => Rename::NoReplace,
        RenameFlags::RENAME_EXCHANGE => Rename::Exchange,
        _ => return Err(Errno::EINVAL),
    };
    branch.rename((directory_of_old, from.1), (directory_of_new, to.1), how).map_err(errno)
}

pub fn link(
    shared: &Shared,
    node: INodeNo,
    parent: INodeNo,
    name: &OsStr,
) -> Result<FileAttr, Errno> {
    let (branch, file) = shared.file(Node::of(node))?;
    let (other, directory) = directory(shared, parent, name)?;
    if branch.id() != other.id() {
        return Err(Errno::EXDEV);
    }
    let found = branch.link(file, directory, name).map_err(errno)?;
    kept(&branch, &found)
}

/// Refuses the names of access lists, which the kernel would not obey here.
pub fn known_xattr(name: &OsStr) -> Result<(), Errno> {
    let is_list = name.as_bytes().starts_with(b"system.");
    if is_list { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

pub fn xattr_flags(name: &OsStr, flags: i32) -> Result<SetXattr, Errno> {
    known_xattr(name)?;
    match flags {
        0 => Ok(SetXattr::Either),
        libc::XATTR_CREATE => Ok(SetXattr::Create),
        libc::XATTR_REPLACE => Ok(SetXattr::Replace),
        _ => Err(Errno::EINVAL),
    }
}
