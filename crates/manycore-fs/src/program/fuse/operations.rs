//! The kernel's requests, each a few calls of the library.
//!
//! Some requests are refused as "not implemented" once, so that the kernel never sends them again.
//! Opening is one: each file can be read and written without a handle, and its pages stay in the
//! kernel's cache. Flushing is another: what is written is in memory at once. So is synchronizing,
//! if nothing is kept on disk.

use super::control_thread::Job;
use super::node::Node;
use super::shared::{FOREVER, Shared, attributes, errno};
use super::{bytes, directory, hidden, names};
use fuser::{
    CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use manycore_fs::{Content, Error, SetTime};
use nix::libc;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, SystemTime};

/// The bytes of one request to write. The kernel's own limit is about the same.
const MAX_WRITE: u32 = 1 << 20;
/// Requests in the background, such as reading ahead.
const MAX_BACKGROUND: u16 = 64;
/// The kernel never uses a number anew while it knows it.
const GENERATION: Generation = Generation(0);

/// What answers the kernel.
pub struct Operations {
    shared: Arc<Shared>,
    control: Sender<Job>,
    /// None if nothing is kept on disk.
    sync: Option<Sender<ReplyEmpty>>,
}

impl Operations {
    /// Starts the threads for the control file, and for the disk.
    pub fn new(shared: Arc<Shared>) -> io::Result<Operations> {
        let control = super::control_thread::start(shared.clone())?;
        let sync = match shared.options.keep {
            Some(_) => Some(super::sync_thread::start(shared.clone())?),
            None => None,
        };
        Ok(Operations { shared, control, sync })
    }

    /// Replies when everything is on disk. If nothing is kept there, refuses: the kernel then does
    /// not ask again.
    fn sync(&self, reply: ReplyEmpty) {
        match &self.sync {
            // The thread ends after this. If it has panicked, the reply is an error by itself.
            Some(sync) => drop(sync.send(reply)),
            None => reply.error(Errno::ENOSYS),
        }
    }

    fn tell(&self, job: Job) {
        // The thread ends after this. If it has panicked, a reply in the job is an error by itself.
        let _ = self.control.send(job);
    }

    fn attributes(&self, node: Node) -> Result<FileAttr, Errno> {
        match node {
            Node::File(id, ino) => {
                let found = self.shared.branch(id)?.attributes(ino).map_err(errno)?;
                Ok(attributes(id, &found))
            }
            hidden => Ok(hidden::attributes_of(&self.shared, hidden)),
        }
    }
}

/// Sends one of two replies.
macro_rules! answer {
    ($reply:expr, $done:expr, $value:pat => $send:ident($($argument:expr),*)) => {
        match $done {
            Ok($value) => $reply.$send($($argument),*),
            Err(error) => $reply.error(error),
        }
    };
}

impl Filesystem for Operations {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            // Without it the kernel asks for an extended attribute before each write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        for flag in wanted {
            // An older kernel is slower, but not wrong.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(MAX_WRITE);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = match Node::of(parent) {
            Node::File(branch, ino) => names::lookup(&self.shared, branch, ino, name),
            folder => hidden::lookup(&self.shared, folder, name).map(|attr| (attr, Duration::ZERO)),
        };
        match done {
            Ok((attr, known)) => {
                // Attributes of a branch's root are as lasting as others; its name is not.
                reply.entry_with_ttls(&FOREVER, &known, &attr, GENERATION);
            }
            // The kernel keeps in mind that the name is not there.
            Err(error) if error == Errno::ENOENT && names::is_of_file(parent) => {
                reply.entry(&FOREVER, &names::nothing(), GENERATION);
            }
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, node: INodeNo, count: u64) {
        hidden::forget(&self.shared, Node::of(node), count);
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.attributes(Node::of(node)), attr => attr(&FOREVER, &attr));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let time = |time| match time {
            TimeOrNow::Now => SetTime::Now,
            TimeOrNow::SpecificTime(time) => SetTime::At(time),
        };
        let mut set = manycore_fs::SetAttributes {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            accessed: accessed.map(time),
            modified: modified.map(time),
        };
        let node = Node::of(node);
        // The shell opens the control file with O_TRUNC, for which the kernel sets the size.
        if matches!(node, Node::Session(_)) {
            return reply.attr(&FOREVER, &hidden::attributes_of(&self.shared, node));
        }
        let done = self.shared.file(node).and_then(|(branch, ino)| {
            bytes::drop_privileges_for(&branch, ino, request, &mut set)?;
            let found = branch.set_attributes(ino, &set).map_err(errno)?;
            Ok(attributes(branch.id(), &found))
        });
        answer!(reply, done, attr => attr(&FOREVER, &attr));
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let node = Node::of(node);
        if node == Node::MainLink {
            return reply.data(hidden::MAIN_TARGET.as_bytes());
        }
        let done = self.shared.file(node);
        let done = done.and_then(|(branch, ino)| branch.read_link(ino).map_err(errno));
        answer!(reply, done, target => data(target.as_bytes()));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let done = names::content_of_mode(mode, device)
            .and_then(|content| names::create(&self.shared, request, parent, name, mode, content));
        answer!(reply, done, attr => entry(&FOREVER, &attr, GENERATION));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let done = names::create(&self.shared, request, parent, name, mode, Content::Directory);
        answer!(reply, done, attr => entry(&FOREVER, &attr, GENERATION));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let content = Content::Symlink(target.as_os_str());
        let done = names::create(&self.shared, request, parent, name, 0o777, content);
        answer!(reply, done, attr => entry(&FOREVER, &attr, GENERATION));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = names::directory(&self.shared, parent, name)
            .and_then(|(branch, ino)| branch.unlink(ino, name).map_err(errno));
        answer!(reply, done, () => ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = names::directory(&self.shared, parent, name)
            .and_then(|(branch, ino)| branch.remove_directory(ino, name).map_err(errno));
        answer!(reply, done, () => ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = names::rename(&self.shared, (parent, name), (new_parent, new_name), flags);
        answer!(reply, done, () => ok());
    }

    fn link(&self, _: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = names::link(&self.shared, node, parent, name);
        answer!(reply, done, attr => entry(&FOREVER, &attr, GENERATION));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // The kernel then keeps lists of directories, too.
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        if let Node::Folder(_) = Node::of(parent) {
            if name != hidden::CONTROL {
                return reply.error(Errno::EPERM);
            }
            let number = hidden::begin_session(&self.shared);
            let attr = hidden::attributes_of(&self.shared, Node::Session(number));
            let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_STREAM;
            let handle = FileHandle(number);
            return reply.created(&Duration::ZERO, &attr, GENERATION, handle, flags);
        }
        let done = names::create(&self.shared, request, parent, name, mode, Content::File);
        let flags = FopenFlags::FOPEN_KEEP_CACHE;
        answer!(reply, done, attr => created(&FOREVER, &attr, GENERATION, FileHandle(0), flags));
    }

    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Node::Session(_) = Node::of(node) {
            hidden::end_session(&self.shared, handle.0);
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let node = Node::of(node);
        if let Node::Session(_) = node {
            let done = hidden::session(&self.shared, handle.0);
            let done = done.and_then(|session| hidden::read(&session, size as usize));
            return answer!(reply, done, bytes => data(&bytes));
        }
        match self.shared.file(node) {
            Ok((branch, ino)) => bytes::read(&branch, ino, offset, size as usize, reply),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let node = Node::of(node);
        if let Node::Session(_) = node {
            return match hidden::session(&self.shared, handle.0) {
                Ok(session) => {
                    self.tell(Job::Written { session, bytes: data.to_vec(), reply });
                }
                Err(error) => reply.error(error),
            };
        }
        let done = self.shared.file(node).and_then(|(branch, ino)| {
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                bytes::drop_privileges(&branch, ino)?;
            }
            // What comes from the kernel's cache has its place already.
            let cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
            if flags.0 & libc::O_APPEND == 0 || cached {
                return bytes::patiently(|| branch.write(ino, offset, data));
            }
            let place = bytes::patiently(|| branch.append(ino, data))?;
            if place != offset {
                // A commit has changed the size, and the kernel did not know it.
                self.tell(Job::Forget(node));
            }
            Ok(data.len())
        });
        answer!(reply, done, count => written(count as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync(reply);
    }

    fn readdir(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let done = directory::read(&self.shared, Node::of(node), offset, &mut reply);
        answer!(reply, done, () => ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let done = directory::read_plus(&self.shared, Node::of(node), offset, &mut reply);
        answer!(reply, done, () => ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        const BLOCK: u64 = 4096;
        let usage = self.shared.files.main().usage();
        let blocks = self.shared.options.memory / BLOCK;
        let free = blocks.saturating_sub(usage.used.div_ceil(BLOCK));
        // As many files as can be numbered.
        let files = 1 << 40;
        let free_files = files - usage.files;
        reply.statfs(blocks, free, free, files, free_files, BLOCK as u32, 255, BLOCK as u32);
    }

    fn setxattr(
        &self,
        _: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let done = self.shared.has_xattrs().and_then(|()| self.shared.file(Node::of(node)));
        let done = done.and_then(|(branch, ino)| {
            let how = names::xattr_flags(name, flags)?;
            branch.set_xattr(ino, name, value, how).map_err(errno)
        });
        answer!(reply, done, () => ok());
    }

    fn getxattr(&self, _: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let done = match Node::of(node) {
            Node::File(id, ino) => names::known_xattr(name)
                .and_then(|()| self.shared.branch(id)?.xattr(ino, name).map_err(errno)),
            _ => Err(errno(Error::NoAttribute)),
        };
        send_xattr(reply, self.shared.has_xattrs().and(done), size);
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let done = match Node::of(node) {
            Node::File(id, ino) => self.shared.branch(id).and_then(|branch| {
                let list = branch.xattrs(ino).map_err(errno)?;
                Ok(list.iter().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect())
            }),
            _ => Ok(Vec::new()),
        };
        send_xattr(reply, self.shared.has_xattrs().and(done), size);
    }

    fn removexattr(&self, _: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.shared.has_xattrs().and_then(|()| self.shared.file(Node::of(node)));
        let done = done.and_then(|(branch, ino)| {
            names::known_xattr(name)?;
            branch.remove_xattr(ino, name).map_err(errno)
        });
        answer!(reply, done, () => ok());
    }

    fn fallocate(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.shared.file(Node::of(node)).and_then(|(branch, ino)| {
            let how = bytes::allocation(mode)?;
            branch.allocate(ino, how, offset, length).map_err(errno)
        });
        answer!(reply, done, () => ok());
    }

    fn lseek(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let done = self.shared.file(Node::of(node)).and_then(|(branch, ino)| {
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            branch.seek(ino, offset, bytes::whence(whence)?).map_err(errno)
        });
        answer!(reply, done, place => offset(place as i64));
    }

    fn copy_file_range(
        &self,
        _: &Request,
        from: INodeNo,
        _: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let done = self.shared.file(Node::of(from)).and_then(|from| {
            let to = self.shared.file(Node::of(to))?;
            bytes::copy((from, from_offset), (to, to_offset), length)
        });
        answer!(reply, done, count => written(count));
    }
}

/// Sends a value, or its size if the kernel asks for that by 0.
fn send_xattr(reply: ReplyXattr, done: Result<Vec<u8>, Errno>, size: u32) {
    match done {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(error),
    }
}
