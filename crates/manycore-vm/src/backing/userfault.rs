//! Pages that a handler of the user makes when they are first touched.

use super::spare::Spare;
use super::{Backing, Frames, Operation, Run, Span};
use crate::{Error, PAGE_BYTES, Rights, sys};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

/// Makes the page at an address: fills the given page, which holds zeros.
type Handler = dyn Fn(usize, &mut [u8]) + Send + Sync;

// The kernel's interface (linux/userfaultfd.h).
const API: u64 = 0xAA;
const IOCTL_API: u64 = 0xC018_AA3F;
const IOCTL_REGISTER: u64 = 0xC020_AA00;
const IOCTL_WAKE: u64 = 0x8010_AA02;
const IOCTL_COPY: u64 = 0xC028_AA03;
const REGISTER_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;

#[repr(C)]
struct ApiCall {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RegisterCall {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct WakeCall {
    start: u64,
    length: u64,
}

#[repr(C)]
struct CopyCall {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct Event {
    event: u8,
    _reserved: [u8; 7],
    _flags: u64,
    address: u64,
    _feature: u64,
}

/// Pages that a handler makes when they are first touched (Linux's `userfaultfd`).
///
/// What for: memory with contents that are elsewhere until they are needed, such as a compressed or
/// remote file, a snapshot of a virtual machine, an instance's initial image. When not: for pages
/// that are all touched soon. A page costs two switches to the handler's thread, which take some
/// microseconds.
///
/// ```
/// use manycore::section;
/// use manycore_vm::{MappingDb, Rights, Userfault};
///
/// let made = match Userfault::new(100, |address, page| page.fill((address >> 12) as u8)) {
///     Ok(made) => made,
///     Err(error) => return Ok(println!("{error}")), // this process does not have the permission
/// };
/// let db = MappingDb::new(made, section::global());
/// let space = db.space(100)?;
/// let page = db.grant(space, 1, Rights::WRITE)?;
/// // SAFETY: mapped just now, and no other thread has the address.
/// assert_eq!(unsafe { (page as *const u8).read() }, (page >> 12) as u8);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
///
/// - A thread of the backing calls the handler, for one page at a time, with the page's address and
///   4,096 zeros to fill. The thread that touched the page waits.
/// - The handler must not touch unmade pages of the same backing: it would wait for itself. If it
///   panics, the process aborts, because the waiting thread could never go on.
/// - A frame has only one address: [`alias`](crate::MappingDb::alias) is refused before anything
///   has changed.
/// - *Permission*: Linux requires `CAP_SYS_PTRACE`, or `vm.unprivileged_userfaultfd` = 1, or the
///   right to open `/dev/userfaultfd`. Otherwise [`new`](Self::new) fails with the system's reason
///   and names the call.
pub struct Userfault {
    faults: OwnedFd,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
    frames: u32,
    spare: Spare,
}

impl Userfault {
    /// Creates a backing with this many frames. `handler` makes the pages.
    ///
    /// # Errors
    /// If the kernel does not permit it, with its reason.
    pub fn new(
        frames: u32,
        handler: impl Fn(usize, &mut [u8]) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let pages = frames as usize;
        sys::check_page_size()?;
        let faults = open(pages)?;
        // SAFETY: takes no pointer.
        let stop = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if stop < 0 {
            return Err(sys::last_error("eventfd", 0, pages));
        }
        // SAFETY: opened just now, and owned by nothing else.
        let stop = unsafe { OwnedFd::from_raw_fd(stop) };
        let clones = faults.try_clone().and_then(|faults| Ok((faults, stop.try_clone()?)));
        let spawned = clones.and_then(|(faults, stop)| {
            let handler: Box<Handler> = Box::new(handler);
            let thread = std::thread::Builder::new().name("manycore-vm-faults".into());
            thread.spawn(move || serve(&faults, &stop, &*handler))
        });
        let thread = spawned.map_err(|reason| Error::system("a thread", 0, pages, reason))?;
        Ok(Self { faults, stop, thread: Some(thread), frames, spare: Spare::default() })
    }

    fn register(&self, run: &Run) -> Result<(), Error> {
        let mut call = RegisterCall {
            start: run.address as u64,
            length: u64::from(run.pages) * PAGE_BYTES as u64,
            mode: REGISTER_MISSING,
            ioctls: 0,
        };
        ioctl(&self.faults, IOCTL_REGISTER, &mut call).map_err(|reason| {
            Error::system("UFFDIO_REGISTER", run.address, run.pages as usize, reason)
        })
    }
}

/// Opens a descriptor for faults.
fn open(pages: usize) -> Result<OwnedFd, Error> {
    // Only a non-blocking descriptor can be polled.
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if fd < 0 {
        return Err(sys::last_error(
            "userfaultfd (needs CAP_SYS_PTRACE, or vm.unprivileged_userfaultfd = 1)",
            0,
            pages,
        ));
    }
    // SAFETY: opened just now, and owned by nothing else.
    let faults = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut call = ApiCall { api: API, features: 0, ioctls: 0 };
    ioctl(&faults, IOCTL_API, &mut call)
        .map_err(|reason| Error::system("UFFDIO_API", 0, pages, reason))?;
    Ok(faults)
}

fn ioctl<T>(fd: &OwnedFd, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: each request is called with the structure that the kernel's interface names for it.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, &raw mut *argument) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs the loop of the handler's thread.
fn serve(faults: &OwnedFd, stop: &OwnedFd, handler: &Handler) {
    let mut page = vec![0_u8; PAGE_BYTES];
    loop {
        let wait =
            |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut fds = [wait(faults), wait(stop)];
        // SAFETY: the array has two entries.
        unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
        if fds[1].revents != 0 {
            return;
        }
        if fds[0].revents == 0 {
            continue;
        }
        let mut event = MaybeUninit::<Event>::zeroed();
        // SAFETY: the buffer is an event long.
        let read = unsafe {
            libc::read(faults.as_raw_fd(), event.as_mut_ptr().cast(), size_of::<Event>())
        };
        // SAFETY: any bytes are an event.
        let event = unsafe { event.assume_init() };
        if read != size_of::<Event>() as isize || event.event != EVENT_PAGEFAULT {
            continue;
        }
        let address = event.address as usize & !(PAGE_BYTES - 1);
        page.fill(0);
        if catch_unwind(AssertUnwindSafe(|| handler(address, &mut page))).is_err() {
            eprintln!("manycore-vm: the handler of page {address:#x} panicked; its reader waits");
            std::process::abort();
        }
        supply(faults, address, &page);
    }
}

/// Puts a page at the address where a thread waits for it.
fn supply(faults: &OwnedFd, address: usize, page: &[u8]) {
    loop {
        let mut call = CopyCall {
            to: address as u64,
            from: page.as_ptr().expose_provenance() as u64,
            length: PAGE_BYTES as u64,
            mode: 0,
            copied: 0,
        };
        match ioctl(faults, IOCTL_COPY, &mut call) {
            Ok(()) => return,
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
            // Unmapped meanwhile, or present already: the thread tries again.
            Err(_) => break,
        }
    }
    let mut call = WakeCall { start: address as u64, length: PAGE_BYTES as u64 };
    let _ = ioctl(faults, IOCTL_WAKE, &mut call);
}

impl Backing for Userfault {
    fn frames(&self) -> u32 {
        self.frames
    }

    fn supports(&self, operation: Operation) -> Result<(), &'static str> {
        match operation {
            Operation::Alias => Err("pages that are made on first touch have one address each"),
            Operation::Protect => Ok(()),
        }
    }

    fn reserve(&self, pages: usize) -> Result<usize, Error> {
        Ok(sys::reserve(pages)?.expose_provenance())
    }

    fn release(&self, address: usize, pages: usize) {
        // SAFETY: backing.G2 - reserved by `reserve`, and its space has ended.
        let _ = self.spare.with(|| unsafe { sys::release(address, pages) });
    }

    fn map(&self, runs: &[Run]) -> Result<(), Error> {
        self.spare.map_each(runs, |run| {
            // SAFETY: backing.G2 - within a reserved window, and the database claimed the pages for
            // this call.
            unsafe { sys::anonymous_at(run.address, run.pages as usize, run.rights) }?;
            self.register(run)
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

    /// Does nothing: the memory went away with the mapping.
    fn flush(&self, _frames: &[Frames]) -> Result<(), Error> {
        Ok(())
    }
}

impl Drop for Userfault {
    fn drop(&mut self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes, as an eventfd takes them.
        unsafe { libc::write(self.stop.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Userfault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Userfault").field("frames", &self.frames).finish_non_exhaustive()
    }
}
