//! Backings with real memory: aliases are one frame, revoked addresses fault, descriptors travel.

use crate::process::{in_child, in_own_process};
use manycore::section::Domain;
use manycore_vm::{ErrorKind, FrameFile, Frames, MappingDb, Memfd, PAGE_BYTES, Rights, Userfault};
use std::io::ErrorKind as ErrorKindOfIo;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Reads the byte at `at`; a bad address ends the process.
fn read(at: usize) -> u8 {
    // SAFETY: mapped with the right to read, or the test expects a fault in its child.
    unsafe { std::ptr::with_exposed_provenance::<u8>(at).read_volatile() }
}

fn write(at: usize, byte: u8) {
    // SAFETY: mapped with the right to write, or the test expects a fault in its child.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(at).write_volatile(byte) }
}

/// Whether `body` ends a child process by SIGSEGV. For tests in a process of their own.
fn faults(body: impl FnOnce()) -> bool {
    // SAFETY: the child touches memory and ends by `_exit`.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "fork failed: {}", std::io::Error::last_os_error());
    if process == 0 {
        body();
        // SAFETY: ends this process at once, without running what the parent is to run.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live integer, and the process is this one's child.
    assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV
}

#[test]
fn alias_is_the_same_frame_at_two_addresses() {
    let domain = Domain::new();
    let db = MappingDb::new(Memfd::new(64).unwrap(), &domain);
    let (one, other) = (db.space(64).unwrap(), db.space(64).unwrap());
    let page = db.grant(one, 4, Rights::WRITE).unwrap();
    let seen = db.alias_anywhere(one, page, other, 4, Rights::WRITE).unwrap();
    for index in 0..4 {
        write(page + index * PAGE_BYTES, index as u8 + 1);
    }
    assert_eq!(read(seen + 3 * PAGE_BYTES), 4);
    write(seen, 9);
    assert_eq!(read(page), 9);
    // The next owner of the frames reads zeros.
    db.unmap(one, page, 4).unwrap();
    db.flush().unwrap();
    let all = db.grant(one, 64, Rights::READ).unwrap();
    assert!((0..64).all(|index| read(all + index * PAGE_BYTES) == 0));
}

#[test]
fn revoked_addresses_fault_after_the_flush_and_read_no_other_page_before() {
    in_own_process("revoked_addresses_fault_after_the_flush_and_read_no_other_page_before", || {
        let domain = Domain::new();
        let db = MappingDb::new(Memfd::new(2).unwrap(), &domain);
        let (one, other) = (db.space(8).unwrap(), db.space(8).unwrap());
        let page = db.grant(one, 1, Rights::WRITE).unwrap();
        write(page, 1);
        let seen = db.alias_anywhere(one, page, other, 1, Rights::READ).unwrap();
        assert!(faults(|| write(seen, 2)), "the alias has no right to write");
        db.unmap(one, page, 1).unwrap();
        // Before the flush: the old frame, which has no other owner.
        let next = db.grant(one, 1, Rights::WRITE).unwrap();
        write(next, 7);
        assert_eq!((read(seen), read(page)), (1, 1));
        db.flush().unwrap();
        for at in [seen, page] {
            assert!(faults(|| _ = std::hint::black_box(read(at))), "{at:#x} reads something");
        }
        assert_eq!(read(next), 7);
        db.restrict(one, next, 1, Rights::READ).unwrap();
        assert!(faults(|| write(next, 2)), "the right to write is gone");
        assert_eq!(read(next), 7);
        db.end(one).unwrap();
        db.flush().unwrap();
        assert!(faults(|| _ = std::hint::black_box(read(next))), "the space has ended");
    });
}

#[test]
fn two_processes_share_frames_by_the_descriptor() {
    in_own_process("two_processes_share_frames_by_the_descriptor", || {
        let domain = Domain::new();
        let db = MappingDb::new(Memfd::new(8).unwrap(), &domain);
        let space = db.space(8).unwrap();
        let page = db.grant(space, 1, Rights::WRITE).unwrap();
        let frame = db.resolve(space, page, &domain.enter()).unwrap().frame;
        write(page, 5);
        let (here, there) = UnixStream::pair().unwrap();
        db.backing().send(&here).unwrap();
        let status = in_child(move || {
            let file = FrameFile::receive(&there).unwrap();
            assert_eq!(file.frames(), 8);
            assert!(file.view(Frames::new(8, 1), Rights::READ).is_err());
            let view = file.view(Frames::new(frame, 1), Rights::WRITE).unwrap();
            // SAFETY: mapped for writing, and the parent waits.
            unsafe {
                assert_eq!(view.as_ptr().read_volatile(), 5);
                view.as_ptr().write_volatile(6);
            }
            view.bytes() == PAGE_BYTES
        });
        assert_eq!(status, 0);
        assert_eq!(read(page), 6);
    });
}

#[test]
fn message_without_a_file_is_refused() {
    use std::io::Write;
    let (mut here, there) = UnixStream::pair().unwrap();
    here.write_all(&[1, 0, 0, 0]).unwrap();
    assert!(FrameFile::receive(&there).is_err());
}

/// Sends some bytes with so many descriptors.
fn send_with_descriptors(to: &UnixStream, bytes: &[u8], count: usize) {
    let null = std::fs::File::open("/dev/null").unwrap();
    let mut control = [0_u64; 300];
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: zeros are an empty message; the buffers outlive the call, and there is room in the
    // control buffer for 253 descriptors, the most that Linux sends.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE((count * 4) as u32) as _;
        let message = &mut *libc::CMSG_FIRSTHDR(&header);
        (message.cmsg_level, message.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        message.cmsg_len = libc::CMSG_LEN((count * 4) as u32) as _;
        let data = libc::CMSG_DATA(message).cast::<i32>();
        (0..count).for_each(|at| data.add(at).write_unaligned(null.as_raw_fd()));
        assert_eq!(libc::sendmsg(to.as_raw_fd(), &header, 0), bytes.len() as isize);
    }
}

#[test]
fn descriptors_of_refused_messages_are_closed() {
    in_own_process("descriptors_of_refused_messages_are_closed", || {
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        for (bytes, count) in [(4, 2), (4, 3), (4, 25), (4, 253), (2, 1), (2, 2)] {
            let (here, there) = UnixStream::pair().unwrap();
            let before = open();
            send_with_descriptors(&here, &[0; 4][..bytes], count);
            let kind = FrameFile::receive(&there).unwrap_err().kind();
            let expected =
                if bytes == 4 { ErrorKindOfIo::InvalidData } else { ErrorKindOfIo::UnexpectedEof };
            assert_eq!(kind, expected, "{bytes} bytes with {count} descriptors");
            assert_eq!(open(), before, "{bytes} bytes with {count} descriptors leave some open");
        }
        let (here, there) = UnixStream::pair().unwrap();
        let before = open();
        send_with_descriptors(&here, &[1, 0, 0, 0], 1);
        drop(FrameFile::receive(&there).unwrap());
        assert_eq!(open(), before);
    });
}

/// Mappings of this process that are of no use, as many as the system allows but for a few.
struct Filler {
    at: usize,
    pages: usize,
}

impl Filler {
    fn new(leave: usize) -> Option<Self> {
        let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        let pages = limit.trim().parse::<usize>().unwrap() + 2;
        if pages > 300_000 {
            println!("not on this machine, where a process may have {pages} mappings");
            return None;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (size, null) = (pages * PAGE_BYTES, std::ptr::null_mut());
        // SAFETY: new memory, of this alone.
        let start = unsafe { libc::mmap(null, size, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        let filler = Self { at: start.expose_provenance(), pages };
        // Every second page is unlike its neighbours.
        // SAFETY: within the memory above.
        let protect = |page: usize, kind| unsafe {
            let at = std::ptr::with_exposed_provenance_mut(filler.at + page * PAGE_BYTES);
            libc::mprotect(at, PAGE_BYTES, kind) == 0
        };
        let first = (1..pages).step_by(2).find(|page| !protect(*page, libc::PROT_READ));
        let first = first.expect("the limit is reached");
        let mut freed = (1..first).step_by(2).take(leave / 2);
        assert!(freed.all(|page| protect(page, libc::PROT_NONE)));
        Some(filler)
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let at = std::ptr::with_exposed_provenance_mut(self.at);
        // SAFETY: this value's own memory.
        unsafe { libc::munmap(at, self.pages * PAGE_BYTES) };
    }
}

#[test]
fn at_the_limit_of_mappings_grants_are_refused_and_pages_are_given_back() {
    const NAME: &str = "at_the_limit_of_mappings_grants_are_refused_and_pages_are_given_back";
    const PAGES: usize = 3000;
    in_own_process(NAME, || {
        let domain = Domain::new();
        let frames = PAGES as u32;
        let db = MappingDb::with_tick(Memfd::new(frames).unwrap(), &domain, Duration::MAX);
        let space = db.space(2 * PAGES).unwrap();
        let large = db.grant(space, 100, Rights::WRITE).unwrap(); // one mapping
        let mut pages = Vec::with_capacity(PAGES);
        let Some(filler) = Filler::new(1000) else { return };
        let refused = loop {
            // Neighbours with other rights are mappings of their own.
            let rights = if pages.len() % 2 == 0 { Rights::WRITE } else { Rights::READ };
            match db.grant(space, 1, rights) {
                Ok(page) => pages.push(page),
                Err(error) => break error,
            }
        };
        assert!(pages.len() > 800, "{} pages, then {refused}", pages.len());
        assert!(matches!(refused.kind(), ErrorKind::System(_)), "{refused}");
        assert_eq!((refused.range().pages, db.pending()), (1, 0));
        assert_eq!(db.free_frames(), PAGES - 100 - pages.len(), "the refusal took some");
        // The rest of the process is not left without any.
        std::thread::spawn(|| ()).join().unwrap();
        // Out of the middle of one mapping, which takes two more each.
        for page in (1..9).step_by(2) {
            db.unmap(space, large + page * PAGE_BYTES, 1).unwrap();
        }
        assert_eq!(db.flush().unwrap(), 4);
        for page in &pages {
            db.unmap(space, *page, 1).unwrap();
        }
        assert_eq!(db.flush().unwrap(), pages.len());
        assert_eq!((db.pending(), db.free_frames()), (0, PAGES - 96));
        assert!(faults(|| _ = std::hint::black_box(read(pages[0]))));
        // All of it again, and more of one mapping than there are entries: these wait.
        let count = pages.len();
        pages.clear();
        pages.extend((0..count).map_while(|at| {
            db.grant(space, 1, if at % 2 == 0 { Rights::WRITE } else { Rights::READ }).ok()
        }));
        assert!(pages.len() > 800);
        let mut rights = [Rights::WRITE, Rights::READ].into_iter().cycle();
        while db.grant(space, 1, rights.next().unwrap()).is_ok() {}
        for page in (11..99).step_by(2) {
            db.unmap(space, large + page * PAGE_BYTES, 1).unwrap();
        }
        let is_done = db.flush().is_ok();
        assert_eq!(is_done, db.pending() == 0, "what was refused waits, and nothing else does");
        for page in &pages {
            db.unmap(space, *page, 1).unwrap();
        }
        // What waits comes first, and is refused once more: then there are entries again.
        let _ = db.flush();
        let last = db.flush();
        assert!(last.is_ok() && db.pending() == 0, "{last:?}, {} wait", db.pending());
        drop(filler);
        db.end(space).unwrap();
        db.flush().unwrap();
        assert_eq!(db.free_frames(), PAGES);
    });
}

#[test]
fn empty_memory_files_are_refused() {
    assert_eq!(Memfd::new(0).unwrap_err().kind(), ErrorKind::ZeroPages);
}

/// Where the kernel permits it: else the error must say what was refused.
#[test]
fn handler_makes_each_page_once_when_it_is_touched() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    let backing = match Userfault::new(16, move |address, page| {
        count.fetch_add(1, Ordering::Relaxed);
        page.fill((address / PAGE_BYTES) as u8);
    }) {
        Ok(backing) => backing,
        Err(error) => {
            assert!(error.to_string().contains("the system refused userfaultfd"), "{error}");
            return;
        }
    };
    let domain = Domain::new();
    let db = MappingDb::new(backing, &domain);
    let space = db.space(16).unwrap();
    let pages = db.grant(space, 4, Rights::WRITE).unwrap();
    assert_eq!(made.load(Ordering::Relaxed), 0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for at in (0..4).map(|index| pages + index * PAGE_BYTES) {
                    assert_eq!(read(at + 17), (at / PAGE_BYTES) as u8);
                }
            });
        }
    });
    assert!((4..=8).contains(&made.load(Ordering::Relaxed)), "pages are made on touch");
    write(pages, 1);
    assert_eq!(read(pages), 1);
    let error = db.alias_anywhere(space, pages, space, 1, Rights::READ).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported(_)), "{error}");
    db.unmap(space, pages, 4).unwrap();
    db.flush().unwrap();
    assert_eq!(db.free_frames(), 16);
}
