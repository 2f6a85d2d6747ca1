//! Frames in a memory file, mapped at the addresses where they are needed.

use super::spare::Spare;
use super::{Backing, Frames, Run, Span};
use crate::{Error, ErrorKind, PAGE_BYTES, Rights, sys};
use std::io;
use std::mem::{MaybeUninit, size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;

/// Frames in a memory file (`memfd_create`), mapped at fixed addresses of a reserved window.
///
/// What for: memory that is shared at several addresses or with other processes, such as buffers
/// that a parser may read, blocks with a common prefix, a ring mapped twice in a row. When not: for
/// memory with one owner at a time use a [`PagePool`](crate::PagePool), which makes no system call.
///
/// ```
/// use manycore::section;
/// use manycore_vm::{MappingDb, Memfd, Rights};
///
/// let db = MappingDb::new(Memfd::new(16)?, section::global());
/// let space = db.space(16)?;
/// let page = db.grant(space, 1, Rights::WRITE)?;
/// let twin = page + 4096;
/// db.alias(space, page, space, twin, 1, Rights::READ)?;
/// let (page, twin) = (page as *mut u8, twin as *const u8);
/// // SAFETY: both are mapped to one frame, and only this thread uses them.
/// unsafe {
///     page.write(7);
///     assert_eq!(twin.read(), 7);
/// }
/// # Ok::<(), manycore_vm::Error>(())
/// ```
///
/// - *Cost*: mapping takes one `mmap` for each run of pages with consecutive frames. A flush takes
///   one `mmap` for each span of adjacent pages, and one `fallocate` for each run of frames that it
///   frees, which gives their memory back to the system.
/// - *Memory*: a frame has memory once it is touched. The limit is the file's size. If a touch
///   finds the system out of memory, it raises SIGBUS, as for every file.
/// - *Limits*: Linux allows a process 65,530 mappings (`vm.max_map_count`). Spans count separately
///   unless both addresses and frames continue. At the limit, a new mapping is refused with the
///   system's reason, and nothing has changed. Unmapped pages can still be given back there,
///   because 32 mappings are kept in reserve. The first refusal releases the reserve to the rest of
///   the process, which at the limit gets no memory for a larger heap or a thread. A span from the
///   middle of a larger mapping needs two of them. If none are left, it waits until others were
///   given back.
/// - *Other processes*: [`send`](Self::send) passes the file on. The database does not have the
///   other process's own mappings, so revoking does not reach them: they see zeros, and later what
///   the frame's next owner writes. Share only with processes that you trust that far.
#[derive(Debug)]
pub struct Memfd {
    file: FrameFile,
    spare: Spare,
}

/// A memory file, local or received from another process.
///
/// ```
/// use manycore::section;
/// use manycore_vm::{FrameFile, Frames, MappingDb, Memfd, Rights};
/// use std::os::unix::net::UnixStream;
///
/// // The other end of the socket is another process, usually.
/// let (here, there) = UnixStream::pair()?;
/// let memory = Memfd::new(16)?;
/// memory.send(&here)?;
/// let received = FrameFile::receive(&there)?;
/// assert_eq!(received.frames(), 16);
///
/// let db = MappingDb::new(memory, section::global());
/// let space = db.space(16)?;
/// let page = db.grant(space, 1, Rights::WRITE)?;
/// let frame = db.resolve(space, page, &section::enter()).unwrap().frame;
/// // SAFETY: mapped just now, and no other thread has the address.
/// unsafe { (page as *mut u8).write(7) };
/// let view = received.view(Frames::new(frame, 1), Rights::READ)?;
/// // SAFETY: the view's first byte, which no thread is writing.
/// assert_eq!(unsafe { view.as_ptr().read() }, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FrameFile {
    file: OwnedFd,
    frames: u32,
}

/// Frames of a file that are mapped outside a database. Dropping it unmaps them.
///
/// See [`FrameFile`] for an example.
#[derive(Debug)]
pub struct View {
    address: usize,
    pages: usize,
}

impl Memfd {
    /// Creates a file with this many frames, without memory yet.
    ///
    /// # Errors
    /// If `frames` is zero, the system's pages do not have 4,096 bytes, or the system refuses.
    pub fn new(frames: u32) -> Result<Self, Error> {
        let refused = |call| sys::last_error(call, 0, frames as usize);
        if frames == 0 {
            return Err(Error::new(ErrorKind::ZeroPages, 0, 0));
        }
        sys::check_page_size()?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name ends with a zero.
        let fd = unsafe { libc::memfd_create(c"manycore-vm".as_ptr(), flags) };
        if fd < 0 {
            return Err(refused("memfd_create"));
        }
        // SAFETY: opened just now, and owned by nothing else.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let bytes = u64::from(frames) * PAGE_BYTES as u64;
        // SAFETY: takes no pointer.
        if unsafe { libc::ftruncate(fd, bytes as libc::off_t) } != 0 {
            return Err(refused("ftruncate"));
        }
        // Sealed: if a receiver shrank the file, every touch would fail.
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: takes no pointer.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
            return Err(refused("fcntl"));
        }
        Ok(Self { file: FrameFile { file, frames }, spare: Spare::default() })
    }

    /// Sends the file to another process, which receives it with [`FrameFile::receive`].
    ///
    /// # Errors
    /// Those of a write to the socket.
    pub fn send(&self, to: &UnixStream) -> io::Result<()> {
        let count = self.file.frames.to_ne_bytes();
        let mut message = Message::new(count);
        message.with(|header| {
            // SAFETY: the header's buffer has room for one message with one descriptor.
            unsafe {
                header.msg_controllen = libc::CMSG_SPACE(size_of::<i32>() as u32) as _;
                let control = &mut *libc::CMSG_FIRSTHDR(header);
                control.cmsg_level = libc::SOL_SOCKET;
                control.cmsg_type = libc::SCM_RIGHTS;
                control.cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as _;
                libc::CMSG_DATA(control).cast::<i32>().write_unaligned(self.as_fd().as_raw_fd());
                done(libc::sendmsg(to.as_raw_fd(), header, libc::MSG_NOSIGNAL), count.len())
            }
        })
    }

    /// Returns the file, for other ways to share it.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.file.as_fd()
    }
}

impl FrameFile {
    /// Receives the file that [`Memfd::send`] sent.
    ///
    /// # Errors
    /// Those of a read from the socket. `InvalidData` if the message has no file or more than one;
    /// all received files are closed then.
    pub fn receive(from: &UnixStream) -> io::Result<Self> {
        let mut message = Message::new([0; 4]);
        let (read, files, flags) = message.with(|header| {
            // SAFETY: the header's buffers live as long as the call.
            let read = unsafe { libc::recvmsg(from.as_raw_fd(), header, libc::MSG_CMSG_CLOEXEC) };
            let read = done(read, size_of::<u32>());
            // SAFETY: as the call left the header, whose control data was empty before.
            (read, unsafe { files(header) }, header.msg_flags)
        });
        read?;
        match <[OwnedFd; 1]>::try_from(files) {
            // If more files came than there is room for, the system has closed the rest.
            Ok([file]) if flags & libc::MSG_CTRUNC == 0 => {
                Ok(Self { file, frames: u32::from_ne_bytes(message.bytes) })
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Maps some of its frames.
    ///
    /// # Errors
    /// If the file does not have these frames, `frames` is empty, or the system refuses.
    pub fn view(&self, frames: Frames, rights: Rights) -> Result<View, Error> {
        let pages = frames.count as usize;
        let end = u64::from(frames.first) + u64::from(frames.count);
        if pages == 0 {
            return Err(Error::new(ErrorKind::ZeroPages, 0, 0));
        }
        if end > u64::from(self.frames) {
            return Err(Error::new(ErrorKind::NoFrames, 0, pages));
        }
        let at = (self.file.as_raw_fd(), frames.first as usize * PAGE_BYTES);
        // SAFETY: the address is free to choose, so nothing is replaced.
        let address = unsafe { sys::map_file(0, pages, rights, at) }?;
        Ok(View { address: address.expose_provenance(), pages })
    }
}

impl Frames {
    /// Creates a range of `count` frames from `first`.
    pub const fn new(first: u32, count: u32) -> Self {
        Self { first, count }
    }
}

impl View {
    /// Returns the address of the first byte. Others change it at any time, so there is no
    /// reference.
    pub fn as_ptr(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.address)
    }

    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.pages * PAGE_BYTES
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: `view` made the mapping for this value alone.
        let _ = unsafe { sys::release(self.address, self.pages) };
    }
}

/// Returns the files in a message. From now on this process owns each of them.
///
/// # Safety
/// The header is as `recvmsg` left it, and this is called once for it.
#[allow(clippy::unnecessary_cast, reason = "a length has another type with another C library")]
unsafe fn files(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut files = Vec::new();
    // SAFETY: the kernel wrote the control messages and their lengths. It opened each descriptor in
    // them for this process, and nothing else owns it (# Safety).
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = control.as_ref() {
            if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = message.cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(control).cast::<i32>();
                let file = |at| OwnedFd::from_raw_fd(data.add(at).read_unaligned());
                files.extend((0..bytes / size_of::<i32>()).map(file));
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    files
}

/// Four bytes and room for some control messages.
struct Message {
    bytes: [u8; 4],
    /// Words, for the alignment of a control message.
    control: [u64; 16],
}

impl Message {
    fn new(bytes: [u8; 4]) -> Self {
        Self { bytes, control: [0; 16] }
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut libc::msghdr) -> R) -> R {
        let base = self.bytes.as_mut_ptr().cast();
        let mut part = libc::iovec { iov_base: base, iov_len: self.bytes.len() };
        // SAFETY: zeros are a message without name, parts and control data.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&self.control) as _;
        f(&mut header)
    }
}

/// Converts the result of a socket call that should have moved `bytes` bytes.
fn done(moved: isize, bytes: usize) -> io::Result<()> {
    match usize::try_from(moved) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(moved) if moved == bytes => Ok(()),
        Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Backing for Memfd {
    fn frames(&self) -> u32 {
        self.file.frames
    }

    fn reserve(&self, pages: usize) -> Result<usize, Error> {
        Ok(sys::reserve(pages)?.expose_provenance())
    }

    fn release(&self, address: usize, pages: usize) {
        // SAFETY: backing.G2 - reserved by `reserve`, and its space has ended.
        let _ = self.spare.with(|| unsafe { sys::release(address, pages) });
    }

    fn map(&self, runs: &[Run]) -> Result<(), Error> {
        let file = self.as_fd().as_raw_fd();
        self.spare.map_each(runs, |run| {
            let from = (file, run.frame as usize * PAGE_BYTES);
            // SAFETY: backing.G2 - within a reserved window, and the database claimed the pages for
            // this call.
            unsafe { sys::map_file(run.address, run.pages as usize, run.rights, from) }.map(|_| ())
        })
    }

    fn unmap(&self, spans: &[Span]) -> Result<(), Error> {
        // SAFETY: backing.G2 - within reserved windows; users of raw pointers to revoked pages are
        // warned that they fault.
        self.spare.with(|| unsafe { sys::unmap(spans) })
    }

    fn protect(&self, span: Span, rights: Rights) -> Result<(), Error> {
        self.spare.keep(span)?; // spare.E1
        // SAFETY: backing.G2 - within a reserved window; the mapping's owner asked for it.
        self.spare.with(|| unsafe { sys::protect(span.address, span.pages as usize, rights) })
    }

    fn flush(&self, frames: &[Frames]) -> Result<(), Error> {
        frames.iter().try_for_each(|run| {
            let (start, length) = (u64::from(run.first), u64::from(run.count));
            // SAFETY: takes no pointer; backing.G4 - the frames are mapped nowhere.
            let punched = unsafe {
                libc::fallocate(
                    self.as_fd().as_raw_fd(),
                    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                    (start * PAGE_BYTES as u64) as libc::off_t,
                    (length * PAGE_BYTES as u64) as libc::off_t,
                )
            };
            if punched == 0 {
                Ok(())
            } else {
                Err(sys::last_error("fallocate", 0, run.count as usize))
            }
        })
    }
}
