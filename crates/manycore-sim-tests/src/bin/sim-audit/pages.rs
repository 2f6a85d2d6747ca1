//! Paths of pages, files and recency, and what sections retire.

use std::{hint::black_box, sync::Arc, thread};

use manycore::{
    collections::{Lru, PageCache, PrivatePages, ScalableArc},
    oplog::Logs,
    section::{Atomic, Domain, Owned},
};
use manycore_vm::{AddressSpace, FileCache, FileForm, MemoryFile};

use super::{objects::Zeros, on_all_cores};

/// Pages of the file: enough for its large form.
const PAGES: u64 = 100;

/// Threads that touch one page, and how often each, until each has a table of its own.
const MEETING: usize = 3;
const TOUCHES: usize = 20_000;

/// Whether there is such a path; measures it.
pub(super) fn run(path: &str) -> bool {
    match path {
        "weak-upgrade" => {
            let value = ScalableArc::new(7);
            assert!(ScalableArc::promote(&value));
            let weak = ScalableArc::downgrade(&value);
            on_all_cores(|| drop(black_box(weak.upgrade())));
        }
        "lru-touch" => {
            let list = Lru::builder().logs(Logs::Always).build();
            let list = list.expect("the bounds are the defaults");
            on_all_cores(|| list.touch(black_box(7_u64)));
        }
        "retire" => retire(),
        "layer-read" => layer_read(),
        "file-touch" => {
            let file = large_file();
            on_all_cores(|| touch(&file));
            assert_eq!(file.form(), FileForm::Large);
        }
        "space-touch" => {
            let (file, space) = (large_file(), AddressSpace::new());
            space.enter().map(0, PAGES as usize, &file, 0).expect("free addresses");
            on_all_cores(|| {
                let view = space.enter();
                view.touch(7 * 4096, |page, _| black_box(page.number())).expect("it is mapped");
            });
        }
        _ => return false,
    }
    true
}

/// Replaces the node of a slot of each thread's own, and retires the old one.
fn retire() {
    thread_local! {
        static SLOT: Atomic<u64> = Atomic::new(7);
    }
    let domain = Domain::bounded();
    on_all_cores(|| {
        SLOT.with(|slot| {
            let section = domain.enter();
            let old = slot.swap(Owned::new(8), &section);
            // SAFETY: the swap took the node out of the only place that it was in, the thread's
            // own slot, and gave it to this call alone. It has no links.
            unsafe { section.retire(old) };
        });
    });
}

/// Reads a page that was written before the last fork.
fn layer_read() {
    let view = PrivatePages::new(Arc::new(PageCache::new(Zeros, 100)));
    view.with_mut(&7, |page| page[0] = 1).expect("zeros can be loaded");
    let _other = view.fork();
    on_all_cores(|| {
        black_box(view.read(&7).expect("it is in a layer")[0]);
    });
}

/// A file with all of its pages in memory, in which threads have met.
fn large_file() -> Arc<FileCache> {
    let file = FileCache::new(MemoryFile::new(vec![7; PAGES as usize * 4096]));
    let file = file.expect("a file in memory knows its length");
    for page in 0..PAGES {
        file.with_page(page, |_| ()).expect("the file has this page");
    }
    thread::scope(|scope| {
        for _ in 0..MEETING {
            scope.spawn(|| (0..TOUCHES).for_each(|_| touch(&file)));
        }
    });
    file
}

fn touch(file: &FileCache) {
    file.with_page(7, |page| black_box(page.number())).expect("the file has this page");
}
