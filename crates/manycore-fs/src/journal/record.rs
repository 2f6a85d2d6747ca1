//! Records of the log: how they are written, and how they are read back from bytes that may be
//! damaged.
//!
//! ```text
//! file     magic, salt, checksum | record | record | ...
//! record   length, checksum of the payload, number, synced, checksum of these and salt | payload
//! ```
//!
//! - record.E1 A record is whole if both checksums hold and its number is the next. Each folder has
//!   its own salt. So if a file of the file system contains a log, its bytes within this log are
//!   not taken for records.
//! - record.E2 `synced` is the number of a record that was on disk, with all records before it,
//!   when this record was made. This tells damage from a torn tail: a record behind a damaged place
//!   says that the place was on disk.
//! - record.E3 Reading never looks beyond the end of the bytes, and allocates no more than their
//!   length.

use crate::inode::{Body, Inode, Time};
use crate::xattrs::Pair;
use crate::{BranchId, Ino, Kind};
use std::io::{self, Read};
use std::sync::atomic::Ordering;

const MAGIC: &[u8; 8] = b"mcfslog1";
/// Bytes of it that each version has.
const NAME: usize = 7;
/// Bytes before the first record.
pub(crate) const START: u64 = 20;
/// Bytes of a record without its payload.
pub(crate) const HEADER: usize = 28;

/// Returns what a file begins with.
pub(crate) fn start(salt: u64) -> Vec<u8> {
    let mut bytes = [MAGIC.as_slice(), &salt.to_le_bytes()].concat();
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Returns the checksum of a payload in parts.
pub(crate) fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Returns what stands before a payload of this length and checksum.
pub(crate) fn header(salt: u64, length: u32, sum: u32, number: u64, synced: u64) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..24].copy_from_slice(&synced.to_le_bytes());
    let own = checksum(&[&salt.to_le_bytes(), &bytes[..24]]);
    bytes[24..].copy_from_slice(&own.to_le_bytes());
    bytes
}

/// What stands before a payload.
#[derive(Clone, Copy)]
struct Header {
    length: u32,
    sum: u32,
    number: u64,
    synced: u64,
}

impl Header {
    /// Reads a header, if its checksum holds (record.E1).
    fn parse(bytes: &[u8], salt: u64) -> Option<Header> {
        let found = Header::guess(bytes)?;
        let Header { length, sum, number, synced } = found;
        (header(salt, length, sum, number, synced)[24..] == bytes[24..HEADER]).then_some(found)
    }

    /// Reads a header without its checksum.
    fn guess(bytes: &[u8]) -> Option<Header> {
        let mut from = Cursor(bytes.get(..HEADER)?);
        let (length, sum) = (from.u32()?, from.u32()?);
        Some(Header { length, sum, number: from.u64()?, synced: from.u64()? })
    }
}

/// What comes next in a log.
pub(crate) enum Step {
    /// A whole record; its payload is in the reader.
    Record { number: u64 },
    /// The log ends here.
    End,
    /// What follows is no whole record.
    Broken,
}

/// Reads a log from its start.
pub(crate) struct Reader<R> {
    from: R,
    left: u64,
    /// Where the next record begins.
    pub(crate) at: u64,
    pub(crate) salt: u64,
    pub(crate) payload: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Begins to read a log of this many bytes. An inner error says why this is no log.
    pub(crate) fn new(mut from: R, length: u64) -> io::Result<Result<Self, &'static str>> {
        let mut bytes = [0; START as usize];
        from.read_exact(&mut bytes[..length.min(START) as usize])?;
        let salt = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        Ok(if bytes[..NAME] != MAGIC[..NAME] {
            Err("this is no log of manycore-fs")
        } else if bytes[NAME] != MAGIC[NAME] {
            Err("the log is of another version of manycore-fs")
        } else if length < START || start(salt) != bytes {
            Err("the beginning of the log is damaged")
        } else {
            Ok(Self { from, left: length - START, at: START, salt, payload: Vec::new() })
        })
    }

    /// Reads the next record (record.E3). An error is one of the disk.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        if self.left == 0 {
            return Ok(Step::End);
        }
        if self.left < HEADER as u64 {
            return Ok(Step::Broken);
        }
        let mut bytes = [0; HEADER];
        self.from.read_exact(&mut bytes)?;
        let Some(header) = Header::parse(&bytes, self.salt) else { return Ok(Step::Broken) };
        if u64::from(header.length) > self.left - HEADER as u64 {
            return Ok(Step::Broken);
        }
        self.payload.resize(header.length as usize, 0);
        self.from.read_exact(&mut self.payload)?;
        if checksum(&[&self.payload]) != header.sum {
            return Ok(Step::Broken);
        }
        let length = HEADER as u64 + u64::from(header.length);
        (self.left, self.at) = (self.left - length, self.at + length);
        Ok(Step::Record { number: header.number })
    }
}

/// What is behind the last whole record of a log.
#[derive(Debug, PartialEq)]
pub(crate) enum Behind {
    /// No whole record.
    Nothing,
    /// Whole records, none of which says that the place between was on disk.
    Unsynced,
    /// The place between was on disk once (record.E2).
    Synced,
    /// Headers whose records lie one over the other.
    Forged,
}

/// Looks for whole records in what follows the last whole one, whose number was `last`.
pub(crate) fn behind(bytes: &[u8], salt: u64, last: u64) -> Behind {
    let mut found = Behind::Nothing;
    let mut at = 0;
    // Records do not overlap, so the payloads of all that are real are not more than all bytes. Of
    // a log within a log, each byte may be in a few.
    let mut left = 8 * bytes.len();
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= HEADER) {
        // Most places are ruled out without a checksum.
        let most = last.saturating_add(1 + bytes.len() as u64);
        let is_plausible = |header: &Header| {
            let room = (rest.len() - HEADER) as u64;
            header.number > last && header.number <= most && u64::from(header.length) <= room
        };
        let header = Header::guess(rest).filter(is_plausible);
        let header = header.and_then(|_| Header::parse(rest, salt));
        let Some(header) = header else {
            at += 1;
            continue;
        };
        let Some(after) = left.checked_sub(header.length as usize) else {
            return Behind::Forged;
        };
        left = after;
        if checksum(&[&rest[HEADER..HEADER + header.length as usize]]) != header.sum {
            at += 1;
            continue;
        }
        if header.synced > last {
            return Behind::Synced;
        }
        found = Behind::Unsynced;
        at += HEADER + header.length as usize;
    }
    found
}

const BASE: u8 = 0;
const CHANGE: u8 = 1;
const FORK: u8 = 2;
const COMMIT: u8 = 3;
const ABORT: u8 = 4;
const DIRECTORY: u8 = 5;
const READY: u8 = 6;

const INODE: u8 = 0;
const ENTRY: u8 = 1;
const BYTES: u8 = 2;
const SHRINK: u8 = 3;
const CUT: u8 = 4;
const XATTRS: u8 = 5;
const HOLE: u8 = 6;
const CLEAR: u8 = 7;

/// What a record says.
#[derive(Debug)]
pub(crate) enum Record<'a> {
    /// The base directory, its path and the host's number of it. The first record.
    Base(Option<(&'a [u8], u64)>),
    Change(BranchId, Vec<Item<'a>>),
    Fork {
        parent: BranchId,
        id: BranchId,
        created: i64,
        name: &'a str,
    },
    Commit(BranchId),
    Abort(BranchId),
    /// The numbers that the files of a directory of the base have got.
    Directory(Ino, Vec<(Ino, &'a [u8])>),
    /// The end of what was written at once: from here on the log grows. The next numbers.
    Ready {
        chunk: u64,
        branch: u32,
    },
}

/// A part of a change.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Inode(Words<'a>),
    Entry {
        directory: Ino,
        name: &'a [u8],
        file: Option<(Ino, Kind)>,
        is_home: bool,
    },
    Bytes {
        file: Ino,
        offset: u64,
        bytes: &'a [u8],
    },
    Shrink {
        file: Ino,
        size: u64,
    },
    Cut {
        file: Ino,
        from: u64,
        to: u64,
    },
    Xattrs {
        file: Ino,
        pairs: Vec<Pair>,
    },
    /// A page of zeros over bytes of the base.
    Hole {
        file: Ino,
        page: u64,
    },
    /// Pages that are no more.
    Clear {
        file: Ino,
        from: u64,
        to: u64,
    },
}

/// The words of an inode. Without a link, it is gone.
#[derive(Debug)]
pub(crate) struct Words<'a> {
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) device: u64,
    pub(crate) backed: u64,
    pub(crate) times: [i64; 4],
    pub(crate) target: &'a [u8],
}

const TIMES: [Time; 4] = [Time::Accessed, Time::Modified, Time::Changed, Time::Created];

fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend((bytes.len() as u32).to_le_bytes());
    into.extend_from_slice(bytes);
}

/// A change that is being written down.
pub(crate) struct Change(pub(crate) Vec<u8>);

impl Change {
    pub(crate) fn new(branch: BranchId) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.push(CHANGE);
        bytes.extend(branch.0.to_le_bytes());
        Self(bytes)
    }

    fn item(&mut self, tag: u8, words: &[u64]) {
        self.0.push(tag);
        words.iter().for_each(|word| self.0.extend(word.to_le_bytes()));
    }

    /// Adds the words of an inode. The caller has its lock, or it is frozen.
    pub(crate) fn inode(&mut self, ino: Ino, inode: &Inode) {
        let extra = inode.extra.load(Ordering::Relaxed);
        let device = if inode.kind.is_device() { extra } else { 0 };
        let size = inode.size.load(Ordering::Relaxed);
        let backed = inode.backed.load(Ordering::Relaxed);
        self.item(INODE, &[ino.0, size, device, backed]);
        for time in TIMES {
            self.0.extend(inode.time(time).to_le_bytes());
        }
        for word in [&inode.mode, &inode.links, &inode.uid, &inode.gid] {
            self.0.extend(word.load(Ordering::Relaxed).to_le_bytes());
        }
        self.0.push(inode.kind.code());
        let target = if let Body::Symlink(target) = &inode.body { target } else { &[][..] };
        put_bytes(&mut self.0, target);
    }

    /// Says that an inode is gone.
    pub(crate) fn gone(&mut self, ino: Ino) {
        self.item(INODE, &[ino.0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.0.push(Kind::File.code());
        put_bytes(&mut self.0, &[]);
    }

    /// Adds what a directory has for a name now. `is_home`: by this name the file was made or last
    /// renamed.
    pub(crate) fn entry(
        &mut self,
        directory: Ino,
        name: &[u8],
        file: Option<(Ino, Kind)>,
        is_home: bool,
    ) {
        let (ino, kind) = file.unwrap_or((Ino(0), Kind::File));
        self.item(ENTRY, &[directory.0, ino.0]);
        self.0.extend([kind.code(), u8::from(is_home)]);
        put_bytes(&mut self.0, name);
    }

    /// Adds the beginning of bytes, `count` of which the caller adds.
    pub(crate) fn bytes(&mut self, file: Ino, offset: u64, count: usize) {
        self.item(BYTES, &[file.0, offset]);
        self.0.extend((count as u32).to_le_bytes());
    }

    pub(crate) fn shrink(&mut self, file: Ino, size: u64) {
        self.item(SHRINK, &[file.0, size]);
    }

    pub(crate) fn cut(&mut self, file: Ino, from: u64, to: u64) {
        self.item(CUT, &[file.0, from, to]);
    }

    pub(crate) fn xattrs(&mut self, file: Ino, pairs: &[Pair]) {
        self.item(XATTRS, &[file.0, pairs.len() as u64]);
        for (name, value) in pairs {
            put_bytes(&mut self.0, name);
            put_bytes(&mut self.0, value);
        }
    }

    pub(crate) fn hole(&mut self, file: Ino, page: u64) {
        self.item(HOLE, &[file.0, page]);
    }

    pub(crate) fn clear(&mut self, file: Ino, from: u64, to: u64) {
        self.item(CLEAR, &[file.0, from, to]);
    }
}

/// Returns the record of a base directory.
pub(crate) fn base(base: Option<(&[u8], u64)>) -> Vec<u8> {
    let mut bytes = vec![BASE, u8::from(base.is_some())];
    if let Some((path, number)) = base {
        bytes.extend(number.to_le_bytes());
        put_bytes(&mut bytes, path);
    }
    bytes
}

/// Returns the record of a fork.
pub(crate) fn fork(parent: BranchId, id: BranchId, created: i64, name: &str) -> Vec<u8> {
    let mut bytes = vec![FORK];
    bytes.extend(parent.0.to_le_bytes());
    bytes.extend(id.0.to_le_bytes());
    bytes.extend(created.to_le_bytes());
    put_bytes(&mut bytes, name.as_bytes());
    bytes
}

fn of_branch(tag: u8, id: BranchId) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend(id.0.to_le_bytes());
    bytes
}

/// Returns the record of a commit.
pub(crate) fn commit(id: BranchId) -> Vec<u8> {
    of_branch(COMMIT, id)
}

/// Returns the record of an abort.
pub(crate) fn abort(id: BranchId) -> Vec<u8> {
    of_branch(ABORT, id)
}

/// Returns the record of a directory of the base that was read.
pub(crate) fn directory<'a>(ino: Ino, files: impl Iterator<Item = (Ino, &'a [u8])>) -> Vec<u8> {
    let mut bytes = vec![DIRECTORY];
    bytes.extend(ino.0.to_le_bytes());
    for (number, name) in files {
        bytes.extend(number.0.to_le_bytes());
        put_bytes(&mut bytes, name);
    }
    bytes
}

/// Returns the record after which the log grows.
pub(crate) fn ready(chunk: u64, branch: u32) -> Vec<u8> {
    let mut bytes = vec![READY];
    bytes.extend(chunk.to_le_bytes());
    bytes.extend(branch.to_le_bytes());
    bytes
}

/// Bytes that are being read.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn i64(&mut self) -> Option<i64> {
        Some(self.u64()? as i64)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()?;
        self.take(count as usize)
    }

    /// A number of a file.
    fn ino(&mut self) -> Option<Ino> {
        self.u64().filter(|number| *number < 1 << 40).map(Ino)
    }

    fn kind(&mut self) -> Option<Kind> {
        self.u8().filter(|code| *code <= Kind::Socket.code()).map(Kind::from_code)
    }

    fn branch(&mut self) -> Option<BranchId> {
        self.u32().filter(|number| *number < 1 << 24).map(BranchId)
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        self.bytes().filter(|name| crate::directory::is_name(name))
    }

    fn item(&mut self) -> Option<Item<'a>> {
        Some(match self.u8()? {
            INODE => {
                let (ino, size) = (self.ino()?, self.u64()?);
                let (device, backed) = (self.u64()?, self.u64()?);
                let times = [self.i64()?, self.i64()?, self.i64()?, self.i64()?];
                let (mode, links) = (self.u32()?, self.u32()?);
                let (uid, gid) = (self.u32()?, self.u32()?);
                let (kind, target) = (self.kind()?, self.bytes()?);
                Item::Inode(Words {
                    ino,
                    kind,
                    mode,
                    links,
                    uid,
                    gid,
                    size,
                    device,
                    backed,
                    times,
                    target,
                })
            }
            ENTRY => {
                let (directory, ino) = (self.ino()?, self.ino()?);
                let (kind, is_home) = (self.kind()?, self.u8()? != 0);
                let file = (ino.0 != 0).then_some((ino, kind));
                Item::Entry { directory, name: self.name()?, file, is_home }
            }
            BYTES => Item::Bytes { file: self.ino()?, offset: self.u64()?, bytes: self.bytes()? },
            SHRINK => Item::Shrink { file: self.ino()?, size: self.u64()? },
            CUT => Item::Cut { file: self.ino()?, from: self.u64()?, to: self.u64()? },
            XATTRS => {
                let (file, count) = (self.ino()?, self.u64()?);
                let mut pairs = Vec::new();
                for _ in 0..count {
                    pairs.push((self.bytes()?.into(), self.bytes()?.into()));
                }
                Item::Xattrs { file, pairs }
            }
            HOLE => Item::Hole { file: self.ino()?, page: self.u64()? },
            CLEAR => Item::Clear { file: self.ino()?, from: self.u64()?, to: self.u64()? },
            _ => return None,
        })
    }

    fn record(&mut self) -> Option<Record<'a>> {
        Some(match self.u8()? {
            BASE => Record::Base(match self.u8()? {
                0 => None,
                _ => {
                    let number = self.u64()?;
                    Some((self.bytes()?, number))
                }
            }),
            CHANGE => {
                let branch = self.branch()?;
                let mut items = Vec::new();
                while !self.0.is_empty() {
                    items.push(self.item()?);
                }
                Record::Change(branch, items)
            }
            FORK => Record::Fork {
                parent: self.branch()?,
                id: self.branch()?,
                created: self.i64()?,
                name: std::str::from_utf8(self.bytes()?).ok()?,
            },
            COMMIT => Record::Commit(self.branch()?),
            ABORT => Record::Abort(self.branch()?),
            DIRECTORY => {
                let ino = self.ino()?;
                let mut files = Vec::new();
                while !self.0.is_empty() {
                    files.push((self.ino()?, self.name()?));
                }
                Record::Directory(ino, files)
            }
            READY => Record::Ready {
                chunk: self.u64().filter(|chunk| *chunk < 1 << 34)?,
                branch: self.u32().filter(|id| *id <= 1 << 24)?,
            },
            _ => return None,
        })
    }
}

/// Reads a payload. `None`: it is none of this version.
pub(crate) fn decode(payload: &[u8]) -> Option<Record<'_>> {
    let mut from = Cursor(payload);
    from.record().filter(|_| from.0.is_empty())
}

#[cfg(test)]
mod tests;
