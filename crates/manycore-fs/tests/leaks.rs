//! Nothing is left when a file system is dropped: the allocator counts.

use manycore_fs::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicIsize, Ordering};

struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
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
