//! Backings with real memory: aliases are one frame, revoked addresses fault, descriptors travel.

use crate::process::{in_child, in_own_process};
use manycore::section::Domain;
use manycore_vm::{ErrorKind, FrameFile, Frames, MappingDb, Memfd, PAGE_BYTES, Rights, Userfault};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
