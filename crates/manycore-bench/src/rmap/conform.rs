//! Checks that a reverse map reports which processes map a file, and that a load removes what it
//! added.

use std::{
    collections::HashSet,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use super::{
    Load, ReverseMap,
    worker::{Choices, FILES, MAPPINGS, PAGES, Worker},
};
use crate::{
    conform::on_threads,
    workload::{ReadEvery, Shape},
};

/// Threads of each test.
const THREADS: usize = 3;

/// Operations of each thread of a load.
const OPERATIONS: usize = 3;

/// The reverse map by itself, and under a load.
pub(super) fn conform<R: ReverseMap, L: Load>() -> Result<(), String> {
    knows_who_maps::<R>()?;
    removes_what_it_added::<R, L>()
}

/// Three threads map one file; a question finds exactly the thread's own mappings among its own.
fn knows_who_maps<R: ReverseMap>() -> Result<(), String> {
    let file = &R::new();
    on_threads(THREADS, |thread| {
        let mut choices = Choices::new(thread);
        let first = (thread * MAPPINGS) as u32;
        for _ in 0..300 {
            let ids = first..first + MAPPINGS as u32;
            let process: Vec<_> = ids.clone().map(|id| file.add(choices.pages(), id)).collect();
            let mut seen = Vec::new();
            file.for_overlapping(0..PAGES, |id| seen.push(id));
            seen.retain(|id| ids.contains(id));
            seen.sort_unstable();
            if !seen.iter().copied().eq(ids) {
                return Err(format!("thread {thread} found {seen:?} of its own"));
            }
            process.into_iter().for_each(|mapping| file.remove(mapping));
        }
        Ok(())
    })?;
    is_unmapped(file)
}

/// Three threads work; each mapping that is removed was there, and none is left at the end.
fn removes_what_it_added<R: ReverseMap, L: Load>() -> Result<(), String> {
    let files: Vec<Checked<R>> = (0..FILES).map(|_| Checked::new()).collect();
    let shape = Shape { threads: THREADS, read_every: ReadEvery::Updates(3), spin: 0 };
    on_threads(THREADS, |thread| {
        let mut worker = Worker::new(&files, shape, thread, L::PROCESSES);
        let mut load = L::new(thread);
        (0..OPERATIONS).for_each(|_| load.run(&mut worker));
        Ok(())
    })?;
    let mut added = 0;
    for file in &files {
        let books = file.books.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wrong) = &books.wrong {
            return Err(wrong.clone());
        }
        if !books.present.is_empty() {
            return Err(format!("a load left {:?}", books.present));
        }
        added += books.added;
        is_unmapped(&file.map)?;
    }
    let made = added / MAPPINGS;
    let asked = OPERATIONS * THREADS * L::MAKES;
    if made == asked { Ok(()) } else { Err(format!("{made} processes were made, not {asked}")) }
}

fn is_unmapped<R: ReverseMap>(file: &R) -> Result<(), String> {
    let mut left = 0;
    file.for_overlapping(0..PAGES, |_| left += 1);
    if left == 0 { Ok(()) } else { Err(format!("{left} mappings were left at the end")) }
}

/// What a checked map has been told.
#[derive(Default)]
struct Books {
    present: HashSet<u32>,
    added: usize,
    wrong: Option<String>,
}

/// A reverse map that keeps books.
struct Checked<R> {
    map: R,
    books: Mutex<Books>,
}

/// A mapping of a checked map. It cannot be removed from another one.
struct CheckedMapping<'a, R: ReverseMap> {
    inner: R::Mapping<'a>,
    id: u32,
}

impl<R: ReverseMap> Checked<R> {
    fn note(&self, what: impl FnOnce(&mut Books) -> Option<String>) {
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = what(&mut books);
        books.wrong = books.wrong.take().or(wrong);
    }
}

impl<R: ReverseMap> ReverseMap for Checked<R> {
    type Mapping<'a> = CheckedMapping<'a, R>;

    fn new() -> Self {
        Self { map: R::new(), books: Mutex::default() }
    }

    fn add(&self, pages: Range<u64>, id: u32) -> Self::Mapping<'_> {
        self.note(|books| {
            books.added += 1;
            (!books.present.insert(id)).then(|| format!("{id} was added twice"))
        });
        CheckedMapping { inner: self.map.add(pages, id), id }
    }

    fn remove(&self, mapping: Self::Mapping<'_>) {
        self.map.remove(mapping.inner);
        self.note(|books| {
            (!books.present.remove(&mapping.id)).then(|| format!("{} was not there", mapping.id))
        });
    }

    fn for_overlapping(&self, pages: Range<u64>, mut f: impl FnMut(u32)) {
        self.map.for_overlapping(pages, &mut f);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::{
        super::{Fork, Load, ReverseMap, Worker, rivals},
        conform,
    };

    type Tree = rivals::Locked<rivals::StdMutex>;

    /// Keeps every mapping of one process.
    struct Leaky(Tree);

    impl ReverseMap for Leaky {
        type Mapping<'a> = (u64, u32);

        fn new() -> Self {
            Self(Tree::new())
        }

        fn add(&self, pages: Range<u64>, id: u32) -> (u64, u32) {
            self.0.add(pages, id)
        }

        fn remove(&self, mapping: (u64, u32)) {
            if mapping.1 != 3 {
                self.0.remove(mapping);
            }
        }

        fn for_overlapping(&self, pages: Range<u64>, f: impl FnMut(u32)) {
            self.0.for_overlapping(pages, f);
        }
    }

    /// Makes processes that never end.
    struct Immortal;

    impl Load for Immortal {
        const PROCESSES: usize = 1;
        const MAKES: usize = 1;

        fn new(_: usize) -> Self {
            Self
        }

        fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
            drop(worker.create(0, 0));
        }
    }

    /// Makes none.
    struct Idle;

    impl Load for Idle {
        const PROCESSES: usize = 1;
        const MAKES: usize = 1;

        fn new(_: usize) -> Self {
            Self
        }

        fn run<R: ReverseMap>(&mut self, _: &mut Worker<'_, R>) {}
    }

    #[test]
    fn a_map_that_forgets_to_remove_is_found() {
        conform::<Leaky, Fork>().unwrap_err();
    }

    #[test]
    fn a_load_that_leaves_mappings_or_makes_none_is_found() {
        let left = conform::<Tree, Immortal>().unwrap_err();
        assert!(left.contains("twice") || left.contains("left"), "{left}");
        let none = conform::<Tree, Idle>().unwrap_err();
        assert!(none.contains("0 processes"), "{none}");
    }
}
