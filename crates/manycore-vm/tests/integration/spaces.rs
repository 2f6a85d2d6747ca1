//! Address spaces of files.

use crate::sources::{Mood, Moody};
use crate::{env, rng::Rng};
use manycore_vm::{AddressSpace, Error, ErrorKind, FileCache, MemoryFile, PAGE_BYTES};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;

fn numbered(pages: usize) -> Vec<u8> {
    (0..pages).flat_map(|page| vec![page as u8; PAGE_BYTES]).collect()
}

#[test]
fn bad_input_is_refused_by_name_and_changes_nothing() {
    let space = AddressSpace::new();
    let view = space.enter();
    let file = FileCache::new(MemoryFile::new(vec![0; 10_000])).unwrap();
    let is = |refused: Result<(), Error>, kind, at, pages| {
        let error = refused.unwrap_err();
        let range = error.range();
        assert_eq!((error.kind(), range.at, range.pages), (kind, at, pages), "{error}");
    };
    let last = usize::MAX - (PAGE_BYTES - 1);
    is(view.map(0, 0, &file, 0), ErrorKind::ZeroPages, 0, 0);
    is(view.map(5, 1, &file, 0), ErrorKind::Unaligned, 5, 1);
    is(view.map(0, 1, &file, 5), ErrorKind::Unaligned, 0, 1);
    is(view.map(last, 2, &file, 0), ErrorKind::Wraps, last, 2);
    is(view.map(8192, usize::MAX, &file, 0), ErrorKind::Wraps, 8192, usize::MAX);
    is(view.map(0, 4, &file, 0), ErrorKind::OutsideFile, 0, 4);
    is(view.map(0, 1, &file, 12_288), ErrorKind::OutsideFile, 0, 1);
    is(view.map(0, 1, &file, !4095), ErrorKind::OutsideFile, 0, 1);
    view.map(8192, 3, &file, 0).unwrap();
    is(view.map(0, 3, &file, 0), ErrorKind::Overlaps, 0, 3);
    is(view.unmap(0, 2).map(drop), ErrorKind::NotMapped, 0, 2);
    is(view.unmap(1, 2).map(drop), ErrorKind::Unaligned, 1, 2);
    is(view.unmap(0, 0).map(drop), ErrorKind::ZeroPages, 0, 0);
    is(view.touch(4096, |_, _| ()), ErrorKind::NotMapped, 4096, 1);
    is(view.read(last, &mut vec![0; 8192]), ErrorKind::Wraps, last, 2);
    // The file's own end, in its last page, and the file's name for a page behind it.
    view.write(8192 + 9_999, &[1]).unwrap();
    view.map(last, 1, &file, 0).unwrap();
    view.read(last, &mut [0; PAGE_BYTES - 1]).unwrap();
    assert_eq!(view.unmap(last, 1).unwrap(), 1);
    assert_eq!(view.unmap(0, 100).unwrap(), 3);
}

/// Maps and unmaps ranges of two files at random, and compares each byte with a table of pages.
#[test]
fn random_mappings_do_what_a_table_does() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let mut rng = Rng::new(seed);
    let files = [4096, 16_384].map(|bytes| {
        let file = FileCache::builder(MemoryFile::new(numbered(64))).page_bytes(bytes);
        file.pages_max(5).build().unwrap()
    });
    let space = AddressSpace::new();
    let mut table: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for step in 0..4_000 {
        let (page, count) = (rng.below(100), 1 + rng.below(12));
        let at = page * PAGE_BYTES;
        let view = space.enter();
        match rng.below(4) {
            0 => {
                let (which, from) = (rng.below(2), rng.below(52));
                let mapped = view.map(at, count, &files[which], (from * PAGE_BYTES) as u64);
                let is_free = table.range(page..page + count).next().is_none();
                assert_eq!(mapped.is_ok(), is_free, "step {step}, seed {seed:#x}");
                if is_free {
                    table.extend((0..count).map(|n| (page + n, (which, from + n))));
                }
            }
            1 => {
                let before = table.len();
                table.retain(|own, _| !(page..page + count).contains(own));
                let unmapped = view.unmap(at, count).unwrap_or(0);
                assert_eq!(unmapped, before - table.len(), "step {step}, seed {seed:#x}");
            }
            _ => {
                let inside = rng.below(PAGE_BYTES);
                let mut byte = [255];
                let read = view.read(at + inside, &mut byte);
                let file = view.file(at + inside);
                match table.get(&page) {
                    Some((which, number)) => {
                        read.unwrap();
                        assert_eq!(byte, [*number as u8], "step {step}, seed {seed:#x}");
                        let (file, offset) = file.unwrap();
                        assert!(Arc::ptr_eq(&file, &files[*which]));
                        assert_eq!(offset, (number * PAGE_BYTES + inside) as u64);
                    }
                    None => assert_eq!(read.unwrap_err().kind(), ErrorKind::NotMapped),
                }
            }
        }
    }
}

#[test]
fn touch_beside_an_unmap_ends_on_its_file_and_the_file_goes_afterwards() {
    let (unblock, blocked) = channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let (is_in, entered) = channel();
    let is_in = std::sync::Mutex::new(is_in);
    let on_read = move |_| {
        is_in.lock().unwrap().send(()).unwrap();
        blocked.lock().unwrap().recv().unwrap();
        Mood::Works
    };
    let source = Arc::new(Moody::with(numbered(2), on_read, |_| Mood::Works));
    let space = AddressSpace::new();
    let file = FileCache::new(Arc::clone(&source)).unwrap();
    let weak = Arc::downgrade(&file);
    space.enter().map(0, 2, &file, 0).unwrap();
    drop(file);
    thread::scope(|s| {
        s.spawn(|| {
            let mut byte = [9];
            space.enter().read(PAGE_BYTES + 1, &mut byte).unwrap();
            assert_eq!(byte, [1]);
        });
        entered.recv().unwrap();
        assert_eq!(space.enter().unmap(0, 2).unwrap(), 2);
        let again = space.enter().read(0, &mut [0]);
        assert_eq!(again.unwrap_err().kind(), ErrorKind::NotMapped);
        unblock.send(()).unwrap();
    });
    drop(space);
    assert!(weak.upgrade().is_none(), "the file is kept for ever");
}

#[test]
fn threads_that_map_touch_and_unmap_their_own_do_not_meet() {
    let space = AddressSpace::new();
    thread::scope(|s| {
        for thread in 0..4 {
            let space = &space;
            s.spawn(move || {
                let file = FileCache::new(MemoryFile::new(numbered(16))).unwrap();
                let at = (thread * 64 + 1) * PAGE_BYTES;
                for _ in 0..200 {
                    let view = space.enter();
                    view.map(at, 16, &file, 0).unwrap();
                    for page in 0..16 {
                        let mut byte = [0];
                        view.read(at + page * PAGE_BYTES, &mut byte).unwrap();
                        assert_eq!(byte, [page as u8]);
                    }
                    assert_eq!(view.unmap(at, 16).unwrap(), 16);
                }
            });
        }
    });
    assert!(format!("{space:?}").contains("regions: 0"));
}
