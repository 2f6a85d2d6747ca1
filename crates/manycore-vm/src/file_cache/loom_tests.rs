//! Models of changes beside write-backs and exchanges of the form (file_cache.F2, file_cache.F4),
//! and of requests beside the drop of a file (page_manager.N2).

use super::*;
use crate::loom_models::{model, must_catch, unexplored};
use loom::thread;
use manycore::collections::BudgetTree;

/// Returns a file of one page, which is in memory and dirty, and its source.
fn dirty_file() -> (Arc<MemoryFile>, Arc<FileCache>) {
    unexplored(|| {
        let source = Arc::new(MemoryFile::new(vec![0; 16]));
        let file = FileCache::builder(Arc::clone(&source)).read_ahead(0).build().unwrap();
        file.write(0, &[1]).unwrap();
        (source, file)
    })
}

#[test]
fn loom_change_beside_a_flush_survives_a_later_move() {
    model(2, || {
        let (source, file) = dirty_file();
        let other = {
            let file = Arc::clone(&file);
            thread::spawn(move || file.flush().unwrap())
        };
        file.write(0, &[2]).unwrap();
        other.join().unwrap();
        unexplored(|| {
            file.change_form(FileForm::Large, false);
            assert_eq!(file.form(), FileForm::Large, "the form was not exchanged");
            file.flush().unwrap();
            assert_eq!(source.bytes()[0], 2, "a marked change is lost");
        });
    });
}

#[test]
fn loom_page_that_counts_as_clean_too_late_is_caught() {
    let test = "file_cache::loom_tests::loom_change_beside_a_flush_survives_a_later_move";
    must_catch("late-clean", test, &["a marked change is lost"]);
}

#[test]
fn loom_change_beside_an_exchange_reaches_the_source() {
    model(2, || {
        let (source, file) = dirty_file();
        let other = {
            let file = Arc::clone(&file);
            thread::spawn(move || file.change_form(FileForm::Large, false))
        };
        file.with_page(0, |page| {
            assert_eq!(page.words()[0].load(Ordering::Relaxed).to_ne_bytes()[0], 1);
            page.write(1, &[2]);
        })
        .unwrap();
        other.join().unwrap();
        unexplored(|| {
            assert_eq!((file.form(), file.pages()), (FileForm::Large, 1));
            file.flush().unwrap();
            assert_eq!(source.bytes()[..2], [1, 2], "a marked change is lost");
        });
    });
}

#[test]
fn loom_page_that_moves_without_its_mark_is_caught() {
    let test = "file_cache::loom_tests::loom_change_beside_an_exchange_reaches_the_source";
    must_catch("clean-move", test, &["a marked change is lost"]);
}

/// A thread drops a file while the charge of another file asks for its page.
#[test]
fn loom_request_beside_the_drop_of_a_file_ends_and_loses_nothing() {
    model(2, || {
        let page = PAGE_BYTES as u64;
        let (memory, old, new) = unexplored(|| {
            let memory = PageManager::new(BudgetTree::with_batch(page, 0));
            let file = || {
                let source = MemoryFile::new(vec![0; 16]);
                FileCache::builder(source).read_ahead(0).within(&memory).build().unwrap()
            };
            let (old, new) = (file(), file());
            old.with_page(0, |_| ()).unwrap();
            (memory, old, new)
        });
        let other = thread::spawn(move || drop(old));
        let touched = new.with_page(0, |_| ());
        other.join().unwrap();
        unexplored(|| {
            assert_eq!(memory.budget().used(), new.pages() as u64 * page, "a charge is lost");
            assert_eq!((memory.files(), new.pages()), (1, usize::from(touched.is_ok())));
            new.with_page(0, |_| ()).unwrap();
        });
    });
}

#[test]
fn loom_file_that_is_dropped_under_the_lock_of_its_home_is_caught() {
    let test =
        "file_cache::loom_tests::loom_request_beside_the_drop_of_a_file_ends_and_loses_nothing";
    must_catch("drop-under-lock", test, &["deadlock"]);
}
