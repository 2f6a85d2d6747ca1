//! Requests about the bytes of a file, and the privileges that a file loses when they change.

use super::shared::errno;
use fuser::{Errno, ReplyData, Request};
use manycore_fs::{Branch, Error, Fallocate, Ino, Kind, SetAttributes, Whence};
use nix::libc;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::thread;
use std::time::Duration;

const SET_USER: u32 = 0o4000;
const SET_GROUP: u32 = 0o2000;
const GROUP_EXECUTES: u32 = 0o010;
/// The extended attribute with the privileges of a program.
const CAPABILITIES: &str = "security.capability";

thread_local! {
    /// What is read goes through it to the kernel. As large as the largest request so far.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads and replies.
pub fn read(branch: &Branch, file: Ino, offset: u64, size: usize, reply: ReplyData) {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < size {
            buffer.resize(size, 0);
        }
        match read_whole(branch, file, offset, &mut buffer[..size]) {
            Ok(count) => reply.data(&buffer[..count]),
            Err(error) => reply.error(error),
        }
    });
}

/// Reads until the buffer is full or the file ends: the kernel takes less for the end.
fn read_whole(branch: &Branch, file: Ino, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match branch.read(file, offset + done as u64, &mut buffer[done..]).map_err(errno)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// Writes, and if there is no memory waits a moment for some: that of a file that has just been
/// removed is free as soon as the kernel has said that it forgets the file, and no reader is left.
pub fn patiently<T>(mut write: impl FnMut() -> manycore_fs::Result<T>) -> Result<T, Errno> {
    const TRIES: u32 = 20;
    const MOMENT: Duration = Duration::from_millis(5);
    for _ in 0..TRIES {
        match write() {
            Err(Error::NoSpace) => thread::sleep(MOMENT),
            done => return done.map_err(errno),
        }
    }
    write().map_err(errno)
}

/// Copies within the daemon, at most some megabytes at a time: the caller asks for the rest.
pub fn copy(
    ((from, from_file), from_offset): ((Branch, Ino), u64),
    ((to, to_file), to_offset): ((Branch, Ino), u64),
    length: u64,
) -> Result<u32, Errno> {
    const AT_ONCE: usize = 1 << 20;
    const AT_MOST: u64 = 8 << 20;
    let length = length.min(AT_MOST);
    let mut buffer = vec![0; AT_ONCE.min(length as usize)];
    let mut done = 0;
    while done < length {
        let size = buffer.len().min((length - done) as usize);
        let count = read_whole(&from, from_file, from_offset + done, &mut buffer[..size])?;
        let mut written = 0;
        while written < count {
            let place = to_offset + done + written as u64;
            match patiently(|| to.write(to_file, place, &buffer[written..count])) {
                Ok(more) => written += more,
                Err(_) if done + written as u64 > 0 => return Ok((done + written as u64) as u32),
                Err(error) => return Err(error),
            }
        }
        done += count as u64;
        if count < size {
            break;
        }
    }
    Ok(done as u32)
}

/// The bits of a mode that stay if the file changes hands or content.
fn without_privileges(mode: u32) -> u32 {
    // Without the right to execute, the bit of the group means a lock.
    let group = if mode & GROUP_EXECUTES != 0 { SET_GROUP } else { 0 };
    mode & !(SET_USER | group)
}

/// Takes a file's privileges, because somebody without rights of its own has written to it.
pub fn drop_privileges(branch: &Branch, file: Ino) -> Result<(), Errno> {
    let found = branch.attributes(file).map_err(errno)?;
    let mode = without_privileges(found.mode);
    if mode != found.mode {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        branch.set_attributes(file, &set).map_err(errno)?;
    }
    drop_capabilities(branch, file);
    Ok(())
}

/// Takes the privileges that a file loses with a change of attributes: of a regular file those of
/// the mode go with its owner, and with its size, unless root changes that.
pub fn drop_privileges_for(
    branch: &Branch,
    file: Ino,
    request: &Request,
    set: &mut SetAttributes,
) -> Result<(), Errno> {
    let changes_owner = set.uid.is_some() || set.gid.is_some();
    let changes_size = set.size.is_some() && request.uid() != 0;
    if !(changes_owner || changes_size) {
        return Ok(());
    }
    let found = branch.attributes(file).map_err(errno)?;
    if found.kind == Kind::Directory {
        return Ok(());
    }
    if set.mode.is_none() && without_privileges(found.mode) != found.mode {
        set.mode = Some(without_privileges(found.mode));
    }
    drop_capabilities(branch, file);
    Ok(())
}

fn drop_capabilities(branch: &Branch, file: Ino) {
    // Mostly there is none.
    let _ = branch.remove_xattr(file, OsStr::new(CAPABILITIES));
}

pub fn allocation(mode: i32) -> Result<Fallocate, Errno> {
    const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | KEEP_SIZE;
    match mode {
        0 => Ok(Fallocate::Extend),
        KEEP_SIZE => Ok(Fallocate::KeepSize),
        PUNCH => Ok(Fallocate::PunchHole),
        ZERO => Ok(Fallocate::ZeroRange(false)),
        ZERO_KEEP => Ok(Fallocate::ZeroRange(true)),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

pub fn whence(whence: i32) -> Result<Whence, Errno> {
    match whence {
        libc::SEEK_DATA => Ok(Whence::Data),
        libc::SEEK_HOLE => Ok(Whence::Hole),
        _ => Err(Errno::EINVAL),
    }
}
