//! The attributes of a file: what is known of it besides its bytes.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

/// The number of a file in its branch. A fork keeps the numbers; the root is [`Ino::ROOT`]. Less
/// than 2^40, so that a mount can put the number of the branch above it. A number is not used
/// again.
///
/// ```
/// use manycore_fs::{FileSystem, Ino};
///
/// assert_eq!(FileSystem::new().main().resolve("/").unwrap().ino, Ino::ROOT);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory of each branch.
    pub const ROOT: Ino = Ino(1);
}

/// What a file is. See [`Content`] for an example.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::CharDevice,
        Kind::BlockDevice,
        Kind::Fifo,
        Kind::Socket,
    ];

    /// The kind in three bits.
    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Kind {
        Self::ALL[usize::from(code)]
    }

    pub(crate) fn is_device(self) -> bool {
        matches!(self, Kind::CharDevice | Kind::BlockDevice)
    }
}

/// The attributes of a file, as `stat` has them. All are of one moment.
///
/// Times are kept in nanoseconds, from the year 1677 to 2262; other times become the nearest of
/// these. Reading a file does not change the time of its last access.
///
/// ```
/// use manycore_fs::{FileSystem, Ino, Kind};
///
/// let root = FileSystem::new().main().attributes(Ino::ROOT).unwrap();
/// assert_eq!((root.kind, root.links), (Kind::Directory, 2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Attributes {
    pub ino: Ino,
    pub kind: Kind,
    /// The twelve bits of permissions, set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of a device, its number.
    pub device: u64,
    /// In bytes.
    pub size: u64,
    /// Memory, in units of 512 bytes.
    pub blocks: u64,
    pub accessed: SystemTime,
    pub modified: SystemTime,
    pub changed: SystemTime,
    pub created: SystemTime,
}

/// A new file. See [`Content`] for an example.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct New<'a> {
    pub content: Content<'a>,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// What a new file is.
///
/// ```
/// use manycore_fs::{Content, FileSystem, Ino, Kind, New};
///
/// let main = FileSystem::new().main();
/// let new = New { content: Content::Directory, mode: 0o755, uid: 0, gid: 0 };
/// let made = main.create(Ino::ROOT, "src".as_ref(), &new).unwrap();
/// assert_eq!(made.kind, Kind::Directory);
/// ```
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Content<'a> {
    File,
    Directory,
    Symlink(&'a OsStr),
    CharDevice(u64),
    BlockDevice(u64),
    Fifo,
    Socket,
}

impl Content<'_> {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Content::File => Kind::File,
            Content::Directory => Kind::Directory,
            Content::Symlink(_) => Kind::Symlink,
            Content::CharDevice(_) => Kind::CharDevice,
            Content::BlockDevice(_) => Kind::BlockDevice,
            Content::Fifo => Kind::Fifo,
            Content::Socket => Kind::Socket,
        }
    }
}

/// What to change of the attributes; what is `None` stays.
///
/// ```
/// use manycore_fs::{FileSystem, SetAttributes};
///
/// let main = FileSystem::new().main();
/// main.write_file("/log", b"one two").unwrap();
/// let log = main.resolve("/log").unwrap().ino;
/// let set = SetAttributes { size: Some(3), mode: Some(0o600), ..Default::default() };
/// assert_eq!(main.set_attributes(log, &set).unwrap().mode, 0o600);
/// assert_eq!(main.read_file("/log").unwrap(), b"one");
/// ```
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs)]
pub struct SetAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Cuts the file, or extends it by a hole.
    pub size: Option<u64>,
    pub accessed: Option<SetTime>,
    pub modified: Option<SetTime>,
}

/// A time to set. See [`SetAttributes`] for an example of setting.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum SetTime {
    Now,
    At(SystemTime),
}

/// Nanoseconds since 1970; the nearest that can be kept.
pub(crate) fn nanoseconds(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => {
            i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanoseconds| -nanoseconds)
        }
    }
}

/// The time of so many nanoseconds since 1970.
pub(crate) fn time(nanoseconds: i64) -> SystemTime {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 {
        SystemTime::UNIX_EPOCH - distance
    } else {
        SystemTime::UNIX_EPOCH + distance
    }
}
