//! File caches: contents, forms, policies, and what sources and closures can do to them.

use crate::sources::{Mood, Moody};
use crate::{env, rng::Rng};
use manycore::collections::BudgetTree;
use manycore_vm::{Error, ErrorKind, FileCache, FileForm, MemoryFile, PAGE_BYTES, PageManager};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

const PAGE: u64 = PAGE_BYTES as u64;

/// Bytes of so many pages, each with its number.
fn numbered(pages: u64) -> Vec<u8> {
    (0..pages).flat_map(|page| vec![page as u8; PAGE_BYTES]).collect()
}

fn manager(pages: u64) -> PageManager {
    PageManager::new(BudgetTree::with_batch(pages * PAGE, 0))
}

#[test]
fn page_is_read_once_for_all_threads() {
    let source = Arc::new(Moody::new(numbered(8)));
    let file = FileCache::new(Arc::clone(&source)).unwrap();
    let barrier = Barrier::new(4);
    thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                barrier.wait();
                for page in 0..8 {
                    let mut byte = [9];
                    file.read(page * PAGE + 77, &mut byte).unwrap();
                    assert_eq!(byte, [page as u8]);
                }
            });
        }
    });
    assert_eq!((source.reads.load(SeqCst), file.pages()), (8, 8));
}

#[test]
fn changes_reach_the_source_up_to_its_end() {
    let source = Arc::new(MemoryFile::new(vec![1; 5000]));
    let file = FileCache::new(Arc::clone(&source)).unwrap();
    file.write(4090, &[7; 12]).unwrap();
    assert_eq!(file.flush().unwrap(), 2);
    assert_eq!(file.flush().unwrap(), 0, "nothing was changed since");
    let mut expected = vec![1; 5000];
    expected[4090..4102].fill(7);
    assert!(source.bytes() == expected, "bytes, or the length, differ");
    file.extend(9000);
    file.write(8999, &[3]).unwrap();
    assert_eq!(file.reclaim(10).unwrap(), 3);
    expected.resize(9000, 0);
    expected[8999] = 3;
    assert!(source.bytes() == expected, "what was added differs");
}

#[test]
fn file_that_grows_in_memory_becomes_large_and_small_again() {
    let file = FileCache::new(MemoryFile::new(numbered(200))).unwrap();
    let touch = |pages: std::ops::Range<u64>| {
        pages.for_each(|page| {
            file.with_page(page, |memory| memory.write(5, &[page as u8 + 1])).unwrap();
        })
    };
    touch(0..60);
    assert_eq!((file.form(), file.swaps()), (FileForm::Small, 0));
    touch(60..200);
    assert_eq!((file.form(), file.swaps(), file.pages()), (FileForm::Large, 1, 200));
    let mut bytes = [0; 2];
    for page in 0..200 {
        file.read(page * PAGE + 4, &mut bytes).unwrap();
        assert_eq!(bytes, [page as u8, page as u8 + 1], "page {page} was lost in the move");
    }
    assert_eq!(file.flush().unwrap(), 200, "dirty marks were lost in the move");
    assert_eq!(file.reclaim(195).unwrap(), 195);
    assert_eq!((file.form(), file.swaps(), file.pages()), (FileForm::Small, 2, 5));
    touch(0..200);
    assert_eq!(file.form(), FileForm::Large);
}

/// Threads count in pages while the file grows, shrinks, is flushed and changes its form.
#[test]
fn nothing_is_lost_while_forms_are_exchanged() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let memory = manager(160);
    let source = Arc::new(MemoryFile::new(vec![0; 200 * PAGE_BYTES]));
    let counts: Vec<AtomicU32> = (0..200).map(|_| AtomicU32::new(0)).collect();
    // Caches one after the other: one in which threads wait for each other stays large. More on a
    // machine where few exchanges come about.
    let (begin, mut swaps, mut round) = (Instant::now(), 0, 0);
    while begin.elapsed() < Duration::from_millis(700)
        || (swaps <= 2 && begin.elapsed() < Duration::from_secs(60))
    {
        round += 1;
        let file = FileCache::builder(Arc::clone(&source)).within(&memory).build().unwrap();
        count_in_pages(&file, &counts, Duration::from_millis(200), seed ^ round);
        swaps += file.swaps();
        assert_eq!(memory.budget().used(), file.pages() as u64 * PAGE);
        file.flush().unwrap();
        drop(file);
        assert_eq!((memory.budget().used(), memory.files()), (0, 0));
    }
    assert!(swaps > 2, "the form was exchanged {swaps} times");
    let bytes = source.bytes();
    for (page, count) in counts.iter().enumerate() {
        let at = page * PAGE_BYTES + page * 37 % 512 * 8;
        let found = u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(found, u64::from(count.load(Relaxed)), "page {page}, seed {seed:#x}");
    }
}

/// Three threads add to a word of each page, and to `counts` beside it.
fn count_in_pages(file: &FileCache, counts: &[AtomicU32], time: Duration, seed: u64) {
    let begin = Instant::now();
    thread::scope(|s| {
        for thread in 0..3_u64 {
            s.spawn(move || {
                let mut rng = Rng::new(seed ^ thread.wrapping_mul(0x9E37_79B9));
                while begin.elapsed() < time {
                    // Now all pages, now few: both forms are outgrown.
                    let pages = if rng.below(4) == 0 { 200 } else { 40 };
                    for _ in 0..300 {
                        let page = rng.below(pages) as u64;
                        let word = (page * 37 % 512) as usize;
                        let touched = file.with_page(page, |memory| {
                            memory.words()[word].fetch_add(1, Relaxed);
                            memory.mark_dirty();
                        });
                        match touched {
                            Ok(()) => _ = counts[page as usize].fetch_add(1, Relaxed),
                            Err(error) => panic!("seed {seed:#x}: {error}"),
                        }
                    }
                    match rng.below(3) {
                        0 => _ = file.reclaim(rng.below(250)).unwrap(),
                        1 => _ = file.flush().unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
}

/// Beside a plain vector: reads, writes, reclaims, flushes, growth.
#[test]
fn random_calls_do_what_a_vector_does() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let mut rng = Rng::new(seed);
    for page_bytes in [4096, 16384] {
        let source = Arc::new(MemoryFile::new(vec![0; 300_001]));
        let builder = FileCache::builder(Arc::clone(&source)).page_bytes(page_bytes);
        let file = builder.pages_max(9).read_ahead(3).build().unwrap();
        let mut model = vec![0; 300_001];
        for step in 0..3_000 {
            let (at, count) = (rng.below(340_000), rng.below(9_000));
            match rng.below(10) {
                0..4 => {
                    let bytes: Vec<u8> = (0..count).map(|byte| (byte ^ step) as u8).collect();
                    let written = file.write(at as u64, &bytes);
                    if at + count <= model.len() {
                        written.unwrap();
                        model[at..at + count].copy_from_slice(&bytes);
                    } else {
                        assert_eq!(written.unwrap_err().kind(), ErrorKind::OutsideFile);
                    }
                }
                4..8 => {
                    let mut bytes = vec![1; count];
                    let read = file.read(at as u64, &mut bytes);
                    if at + count <= model.len() {
                        read.unwrap();
                        assert!(bytes == model[at..at + count], "step {step}, seed {seed:#x}");
                    } else {
                        assert_eq!(read.unwrap_err().kind(), ErrorKind::OutsideFile);
                    }
                }
                8 => _ = file.reclaim(rng.below(9)).unwrap(),
                _ => {
                    let longer = model.len() + rng.below(40);
                    file.extend(longer as u64);
                    model.resize(longer, 0);
                }
            }
            assert!(file.pages() <= 9);
        }
        file.flush().unwrap();
        let mut stored = source.bytes();
        assert!(stored.len() <= model.len());
        stored.resize(model.len(), 0);
        assert!(stored == model, "seed {seed:#x}");
    }
}

#[test]
fn bad_input_is_refused_by_name_and_changes_nothing() {
    let file = FileCache::new(MemoryFile::new(vec![0; 10_000])).unwrap();
    let is = |refused: Result<(), Error>, kind, at, pages| {
        let error = refused.unwrap_err();
        let range = error.range();
        assert_eq!((error.kind(), range.at, range.pages), (kind, at, pages), "{error}");
    };
    is(file.with_page(3, |_| ()), ErrorKind::OutsideFile, 12_288, 1);
    is(file.with_page(u64::MAX, |_| ()), ErrorKind::OutsideFile, usize::MAX, 1);
    is(file.read(9_999, &mut [0; 2]), ErrorKind::OutsideFile, 9_999, 1);
    is(file.write(u64::MAX, &[0; 5000]), ErrorKind::OutsideFile, usize::MAX, 2);
    assert_eq!(file.pages(), 0);
    for bytes in [0, 1, 2048, 4097, 12_288] {
        let refused = FileCache::builder(MemoryFile::default()).page_bytes(bytes).build();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unaligned, "{bytes}");
    }
    let refused = FileCache::builder(MemoryFile::default()).pages_max(0).build();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ZeroPages);
    file.with_page(2, |page| {
        assert!(catch_unwind(AssertUnwindSafe(|| page.write(4095, &[1, 2]))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| page.read(usize::MAX, &mut [0]))).is_err());
    })
    .unwrap();
    assert_eq!(file.flush().unwrap(), 0);
}

#[test]
fn all_pages_in_use_is_an_error_and_no_wait() {
    let file = FileCache::builder(MemoryFile::new(numbered(9))).pages_max(2).build().unwrap();
    let third = file.with_page(0, |_| file.with_page(1, |_| file.with_page(2, |_| ())));
    assert_eq!(third.unwrap().unwrap().unwrap_err().kind(), ErrorKind::NoMemory);
    let memory = manager(2);
    let file = FileCache::builder(MemoryFile::new(numbered(9))).within(&memory).build().unwrap();
    let third = file.with_page(0, |_| file.with_page(1, |_| file.with_page(2, |_| ())));
    let error = third.unwrap().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.range().at), (ErrorKind::NoMemory, 2 * PAGE_BYTES));
    file.with_page(2, |_| ()).unwrap();
    assert_eq!(memory.budget().used(), 2 * PAGE);
}

#[test]
fn source_that_fails_panics_or_lies_leaves_no_page_and_no_charge() {
    let mood = Arc::new(std::sync::Mutex::new(Mood::Fails));
    let memory = manager(4);
    let moods = || {
        let mood = Arc::clone(&mood);
        move |_| *mood.lock().unwrap()
    };
    let source = Arc::new(Moody::with(numbered(4), moods(), moods()));
    let file = FileCache::builder(Arc::clone(&source)).within(&memory).build().unwrap();
    let error = file.with_page(1, |_| ()).unwrap_err();
    assert_eq!((error.kind(), error.range().at), (ErrorKind::System("read"), PAGE_BYTES));
    *mood.lock().unwrap() = Mood::Lies;
    let text = file.with_page(1, |_| ()).unwrap_err().to_string();
    assert!(text.contains("more than was asked for"), "{text}");
    *mood.lock().unwrap() = Mood::Panics;
    assert!(catch_unwind(AssertUnwindSafe(|| file.with_page(1, |_| ()))).is_err());
    assert_eq!((file.pages(), memory.budget().used()), (0, 0));
    *mood.lock().unwrap() = Mood::Works;
    file.write(PAGE, &[5]).unwrap();
    for bad in [Mood::Fails, Mood::Panics] {
        *mood.lock().unwrap() = bad;
        let flushed = catch_unwind(AssertUnwindSafe(|| file.flush()));
        assert!(!matches!(flushed, Ok(Ok(_))), "{bad:?}");
        let reclaimed = catch_unwind(AssertUnwindSafe(|| file.reclaim(4)));
        assert!(!matches!(reclaimed, Ok(Ok(_))), "{bad:?}");
        assert_eq!((file.pages(), memory.budget().used()), (1, PAGE));
    }
    *mood.lock().unwrap() = Mood::Works;
    assert_eq!(file.flush().unwrap(), 1, "the page stayed dirty");
    assert_eq!(source.file.bytes()[PAGE_BYTES], 5);
    // A panic of a closure.
    assert!(catch_unwind(AssertUnwindSafe(|| file.with_page(0, |_| panic!("closure")))).is_err());
    assert_eq!(file.reclaim(9).unwrap(), 2, "a page stayed pinned");
}

#[test]
fn page_that_the_source_does_not_take_back_leaves_its_memory_to_others() {
    let memory = manager(4);
    let refuse = Arc::new(AtomicBool::new(true));
    let source = {
        let refuse = Arc::clone(&refuse);
        let on_write = move |_| if refuse.load(SeqCst) { Mood::Fails } else { Mood::Works };
        Arc::new(Moody::with(numbered(4), |_| Mood::Works, on_write))
    };
    let bad = FileCache::builder(Arc::clone(&source)).within(&memory).build().unwrap();
    let good = FileCache::builder(MemoryFile::new(numbered(9))).within(&memory).build().unwrap();
    bad.write(0, &[1]).unwrap();
    bad.with_page(1, |_| ()).unwrap();
    for page in 0..9 {
        good.with_page(page, |_| ()).unwrap();
    }
    assert_eq!((bad.pages(), good.pages()), (1, 3), "the dirty page stays, the clean one went");
    refuse.store(false, SeqCst);
    assert_eq!(bad.reclaim(1).unwrap(), 1);
    assert_eq!(source.file.bytes()[0], 1);
}

#[test]
fn source_may_use_other_pages_and_files_but_not_the_page_that_it_reads() {
    let below = FileCache::new(MemoryFile::new(numbered(4))).unwrap();
    let own: Arc<OnceLock<Weak<FileCache>>> = Arc::default();
    let on_read = {
        let (below, own) = (Arc::clone(&below), Arc::clone(&own));
        move |offset| {
            below.with_page(offset / PAGE, |_| ()).unwrap();
            let own = own.get().unwrap().upgrade().unwrap();
            match offset / PAGE {
                0 => own.with_page(1, |_| ()).unwrap(),
                2 => own.with_page(2, |_| ()).unwrap(),
                _ => {}
            }
            Mood::Works
        }
    };
    let source = Moody::with(numbered(4), on_read, |_| Mood::Works);
    let file = FileCache::new(source).unwrap();
    own.set(Arc::downgrade(&file)).unwrap();
    file.with_page(0, |_| ()).unwrap();
    assert_eq!((file.pages(), below.pages()), (2, 2));
    let refused = catch_unwind(AssertUnwindSafe(|| file.with_page(2, |_| ())));
    assert!(refused.is_err(), "a page was read for its own read");
    file.with_page(3, |_| file.with_page(1, |_| file.with_page(3, |_| ())))
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(file.pages(), 3);
}

/// A closure that blocks keeps the form as it is; others go on, and the form changes afterwards.
#[test]
fn closure_that_blocks_delays_an_exchange_and_nothing_else() {
    let file = FileCache::new(MemoryFile::new(numbered(200))).unwrap();
    let (unblock, blocked) = channel::<()>();
    let (is_in, entered) = channel();
    thread::scope(|s| {
        s.spawn(|| {
            let (is_in, blocked) = (is_in, blocked);
            file.with_page(0, |_| {
                is_in.send(()).unwrap();
                blocked.recv().unwrap();
            })
            .unwrap();
        });
        entered.recv().unwrap();
        let started = Instant::now();
        for round in 0..10 {
            (0..200).for_each(|page| file.with_page(page, |_| ()).unwrap());
            assert!(round > 0 || file.pages() == 200);
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        assert_eq!((file.form(), file.swaps()), (FileForm::Small, 0));
        unblock.send(()).unwrap();
    });
    file.reclaim(200).unwrap();
    let started = Instant::now();
    while file.form() == FileForm::Small {
        (0..200).for_each(|page| file.with_page(page, |_| ()).unwrap());
        file.reclaim(100).unwrap();
        assert!(started.elapsed() < Duration::from_secs(20), "the form is never exchanged");
    }
}

/// A source that blocks holds up its own page, and no other.
#[test]
fn source_that_blocks_holds_up_its_page_alone() {
    let (unblock, blocked) = channel::<()>();
    let blocked = std::sync::Mutex::new(blocked);
    let (is_in, entered) = channel();
    let is_in = std::sync::Mutex::new(is_in);
    let on_read = move |offset| {
        if offset == 0 {
            is_in.lock().unwrap().send(()).unwrap();
            blocked.lock().unwrap().recv().unwrap();
        }
        Mood::Works
    };
    let memory = manager(3);
    let source = Moody::with(numbered(9), on_read, |_| Mood::Works);
    let file = FileCache::builder(source).within(&memory).build().unwrap();
    thread::scope(|s| {
        s.spawn(|| file.with_page(0, |_| ()).unwrap());
        entered.recv().unwrap();
        for page in 1..9 {
            file.with_page(page, |_| ()).unwrap(); // with what is left, two pages
        }
        assert_eq!(file.pages(), 3);
        unblock.send(()).unwrap();
    });
    assert_eq!(file.flush().unwrap(), 0);
}

#[test]
fn sequential_reader_is_announced_and_a_random_one_is_not() {
    let source = Arc::new(Moody::new(numbered(40)));
    let file = FileCache::builder(Arc::clone(&source)).read_ahead(8).build().unwrap();
    for page in [5, 30, 2, 17] {
        file.with_page(page, |_| ()).unwrap();
    }
    assert!(source.announced.lock().unwrap().is_empty());
    file.reclaim(9).unwrap();
    (0..40).for_each(|page| file.with_page(page, |_| ()).unwrap());
    let announced = std::mem::take(&mut *source.announced.lock().unwrap());
    assert!(!announced.is_empty() && announced.len() < 16, "{announced:?}");
    let total: u64 = announced.iter().map(|(_, bytes)| bytes).sum();
    assert!((38 * PAGE..=40 * PAGE).contains(&total), "{announced:?}");
    let quiet = FileCache::builder(Arc::clone(&source)).read_ahead(0).build().unwrap();
    (0..40).for_each(|page| quiet.with_page(page, |_| ()).unwrap());
    assert!(source.announced.lock().unwrap().is_empty());
}

#[cfg(unix)]
#[test]
fn file_of_the_system_is_read_and_written() {
    let path = std::env::temp_dir().join(format!("manycore-vm-files-{}", std::process::id()));
    std::fs::write(&path, numbered(20)).unwrap();
    let opened = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let file = FileCache::builder(opened).page_bytes(8192).pages_max(3).build().unwrap();
    assert_eq!(file.length(), 20 * PAGE);
    for page in 0..20_u64 {
        let mut bytes = [0; 6];
        file.read(page * PAGE + 100, &mut bytes).unwrap();
        assert_eq!(bytes, [page as u8; 6]);
        file.write(page * PAGE + 103, &[99]).unwrap();
    }
    file.flush().unwrap();
    let stored = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let mut expected = numbered(20);
    expected.chunks_mut(PAGE_BYTES).for_each(|page| page[103] = 99);
    assert!(stored == expected);
    let closed = std::fs::File::open(std::env::temp_dir()).unwrap(); // a folder cannot be read
    let folder = FileCache::new(closed).unwrap();
    if folder.length() > 0 {
        assert_eq!(folder.with_page(0, |_| ()).unwrap_err().kind(), ErrorKind::System("read"));
    }
}

/// Of two files of a manager, and of two managers, the cold one gives.
#[test]
fn cold_file_gives_to_the_hot_one() {
    let file = |manager: &PageManager, pages| {
        let file = FileCache::builder(MemoryFile::new(numbered(pages))).within(manager);
        file.build().unwrap()
    };
    let all = BudgetTree::with_batch(100 * PAGE, 0);
    let managers = [(); 2].map(|()| PageManager::new(all.child_with_batch(u64::MAX, 0)));
    for (own, other) in [(0, 0), (0, 1)] {
        let (cold, hot) = (file(&managers[other], 60), file(&managers[own], 80));
        (0..60).for_each(|page| cold.with_page(page, |_| ()).unwrap());
        (0..40).for_each(|page| hot.with_page(page, |_| ()).unwrap());
        for _ in 0..500 {
            (0..40).for_each(|page| hot.with_page(page, |_| ()).unwrap());
        }
        let mut cold_before = cold.pages();
        for page in 40..80 {
            hot.with_page(page, |_| ()).unwrap();
            (0..40).for_each(|page| hot.with_page(page, |_| ()).unwrap());
            assert!(cold.pages() < cold_before, "page {page} was taken from the hot file");
            cold_before = cold.pages();
        }
        assert_eq!((cold.pages(), hot.pages()), (20, 80));
        drop((cold, hot));
        assert_eq!(all.used(), 0);
    }
}

#[test]
fn lowered_limit_takes_pages_back() {
    let memory = manager(50);
    let file = FileCache::builder(MemoryFile::new(numbered(50))).within(&memory).build().unwrap();
    (0..50).for_each(|page| file.write(page * PAGE, &[1]).unwrap());
    assert_eq!(memory.budget().set_limit(10 * PAGE), 0);
    assert_eq!((file.pages(), memory.budget().used()), (10, 10 * PAGE));
}

/// Files come and go in threads while others need memory.
#[test]
fn files_that_come_and_go_leave_nothing_charged() {
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let memory = PageManager::new(BudgetTree::with_batch(64 * PAGE, 4 * PAGE));
    let source = Arc::new(MemoryFile::new(numbered(100)));
    thread::scope(|s| {
        for thread in 0..4_u64 {
            let (memory, source) = (&memory, &source);
            s.spawn(move || {
                let mut rng = Rng::new(seed ^ thread.wrapping_mul(0x9E37_79B9));
                for _ in 0..60 {
                    let file = FileCache::builder(Arc::clone(source)).within(memory);
                    let file = file.build().unwrap();
                    for _ in 0..rng.below(100) {
                        let page = rng.below(100) as u64;
                        let read = file.with_page(page, |page| page.words()[0].load(Relaxed) as u8);
                        match read {
                            Ok(byte) => assert_eq!(u64::from(byte), page),
                            // All that others have may be in use, or asked for.
                            Err(error) => assert_eq!(error.kind(), ErrorKind::NoMemory),
                        }
                    }
                    assert!(memory.budget().used() <= 64 * PAGE);
                }
            });
        }
    });
    assert_eq!((memory.budget().used(), memory.files()), (0, 0), "seed {seed:#x}");
}
