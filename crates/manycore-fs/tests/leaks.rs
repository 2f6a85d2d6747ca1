//! Nothing is left when a file system is dropped, and a log that is read takes memory as it is
//! long: the allocator counts.

use manycore_fs::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, PoisonError};

struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);
/// The most bytes that were live since this was set.
static PEAK: AtomicIsize = AtomicIsize::new(0);
/// All count together: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size() as isize;
        PEAK.fetch_max(LIVE.fetch_add(size, Ordering::Relaxed) + size, Ordering::Relaxed);
        // SAFETY: the layout is what the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: made by `alloc` with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Makes a tree with branches, and drops it in the middle of everything.
fn live_and_drop(ends_branches: bool) -> isize {
    let before = LIVE.load(Ordering::Relaxed);
    let files = FileSystem::new();
    let main = files.main();
    for number in 0..2_000 {
        main.create_directories(format!("/d{}", number % 50)).unwrap();
        main.write_file(format!("/d{}/f{number}", number % 50), &[1; 6_000]).unwrap();
    }
    let branches: Vec<Branch> = (0..50)
        .map(|number| {
            let branch = main.fork(&format!("b{number}")).unwrap();
            let path = format!("/d{number}/f{number}");
            branch.write_file(&path, &[2; 9_000]).unwrap();
            let file = branch.resolve(&path).unwrap().ino;
            branch.set_xattr(file, OsStr::new("user.x"), &[1; 900], SetXattr::Either).unwrap();
            branch.remove_all(format!("/d{}", (number + 1) % 50)).unwrap();
            branch.fork(&format!("below{number}")).unwrap().write_file("/x", b"x").unwrap();
            branch
        })
        .collect();
    let held = LIVE.load(Ordering::Relaxed) - before;
    if ends_branches {
        for branch in &branches {
            files.branch(&branch.name().replace('b', "below")).unwrap().abort().unwrap();
        }
        branches[0].commit().unwrap();
        branches[1..].iter().for_each(|branch| branch.abort().unwrap());
    }
    held
}

#[test]
fn dropped_file_systems_leave_nothing() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // What the library and the thread keep for next time is there after the first rounds.
    live_and_drop(true);
    live_and_drop(false);
    let before = LIVE.load(Ordering::Relaxed);
    for round in 0..4 {
        let held = live_and_drop(round % 2 == 0);
        assert!(held > 16_000_000, "{held} bytes are no tree");
    }
    let left = LIVE.load(Ordering::Relaxed) - before;
    assert!(left < 100_000, "{left} bytes are left");
}

/// A commit tells what has changed by paths, which together are as long as the square of the depth.
/// Nobody reads them when the log is read.
#[cfg(not(miri))] // the host's files
#[test]
fn log_of_a_deep_tree_is_read_in_memory_of_its_length() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let open = || FileSystem::builder().keep(folder.path()).build().unwrap();
    let files = open();
    let branch = files.main().fork("deep").unwrap();
    let (depth, name, mut at) = (1_500_usize, "directory".repeat(5), Ino::ROOT);
    for _ in 0..depth {
        let new = New { content: Content::Directory, mode: 0o755, uid: 0, gid: 0 };
        at = branch.create(at, OsStr::new(&name), &new).unwrap().ino;
    }
    assert_eq!(branch.commit().unwrap().changes.len(), depth);
    files.sync().unwrap();
    drop((branch, files));
    let length = std::fs::metadata(folder.path().join("log")).unwrap().len() as isize;
    let paths = (depth * depth / 2 * name.len()) as isize;
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let files = open();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    assert!(peak < 16 * length && 16 * length < paths / 2, "{peak} bytes for {length}");
    assert_eq!(files.main().attributes(at).unwrap().links, 2);
}
