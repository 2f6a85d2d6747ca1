//! The systems: one built from this library's parts, and others with locks.

use std::{
    collections::{BTreeMap, HashMap, hash_map},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dashmap::DashMap;
use manycore::collections::{self, BudgetTree, Registry};
use manycore_vm::{FileCache, FileSource, PageManager};

use super::{Name, System};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where files get their pages.
pub(super) trait Allocator: Default + Send + Sync + 'static {
    /// An empty file.
    fn file(&self) -> Arc<FileCache>;
}

/// A file that is in memory alone, and empty at first. Its pages are never asked back: there is
/// memory enough.
struct InMemory;

impl FileSource for InMemory {
    fn length(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        // A file that is gone has nothing to keep.
        Ok(())
    }
}

/// The library's page manager.
pub(super) struct Pages(PageManager);

impl Default for Pages {
    fn default() -> Self {
        Self(PageManager::new(BudgetTree::new(1 << 40)))
    }
}

impl Allocator for Pages {
    fn file(&self) -> Arc<FileCache> {
        let file = FileCache::builder(InMemory).within(&self.0).build();
        file.expect("the source knows its length")
    }
}

/// Free pages, by one lock.
#[derive(Default)]
struct Free {
    pages: Vec<u32>,
    fresh: u32,
}

/// A file whose pages are taken from such a list when they are first used, and go back with it.
struct Counted {
    taken: Mutex<Vec<u32>>,
    free: Arc<Mutex<Free>>,
}

impl FileSource for Counted {
    fn length(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        let page = {
            let mut free = lock(&self.free);
            free.pages.pop().unwrap_or_else(|| {
                free.fresh += 1;
                free.fresh
            })
        };
        lock(&self.taken).push(page);
        Ok(0)
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        for page in std::mem::take(&mut *lock(&self.taken)) {
            // A page at a time, as files give them back.
            lock(&self.free).pages.push(page);
        }
    }
}

/// Free pages under one lock.
#[derive(Default)]
pub(super) struct LockedPages(Arc<Mutex<Free>>);

impl Allocator for LockedPages {
    fn file(&self) -> Arc<FileCache> {
        let source = Counted { taken: Mutex::default(), free: Arc::clone(&self.0) };
        FileCache::new(source).expect("the source knows its length")
    }
}

/// The library's table of files and list of processes.
pub(super) struct Collections<A> {
    files: collections::HashMap<Name, Arc<FileCache>>,
    processes: Registry<u32>,
    pages: A,
}

/// All of the library.
pub(super) type Own = Collections<Pages>;
/// The library's, but for the pages.
pub(super) type OneAllocator = Collections<LockedPages>;

impl<A: Allocator> System for Collections<A> {
    type Process<'s> = collections::Entry<'s, u32>;

    fn new() -> Self {
        let (files, processes) = (collections::HashMap::new(), Registry::new());
        Self { files, processes, pages: A::default() }
    }

    fn start(&self, program: u32) -> Self::Process<'_> {
        self.processes.register(program)
    }

    fn create(&self, name: Name) -> bool {
        self.files.enter().try_insert(name, self.pages.file()).is_ok()
    }

    fn with<R>(&self, name: Name, f: impl FnOnce(&FileCache) -> R) -> Option<R> {
        self.files.enter().get(&name).map(|file| f(file))
    }

    fn remove(&self, name: Name) -> bool {
        self.files.enter().remove(&name).is_some()
    }

    fn processes(&self) -> usize {
        self.processes.len()
    }
}

/// Processes by number, under one lock.
#[derive(Default)]
pub(super) struct Processes(Mutex<(u64, BTreeMap<u64, u32>)>);

impl Processes {
    fn start(&self, program: u32) -> Process<'_> {
        let mut list = lock(&self.0);
        list.0 += 1;
        let number = list.0;
        list.1.insert(number, program);
        Process { list: self, number }
    }

    fn len(&self) -> usize {
        lock(&self.0).1.len()
    }
}

/// A process in such a list.
pub(super) struct Process<'s> {
    list: &'s Processes,
    number: u64,
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        lock(&self.list.0).1.remove(&self.number);
    }
}

/// A lock for each table.
#[derive(Default)]
pub(super) struct OneLock {
    files: Mutex<HashMap<Name, Arc<FileCache>, foldhash::fast::RandomState>>,
    processes: Processes,
    pages: LockedPages,
}

impl System for OneLock {
    type Process<'s> = Process<'s>;

    fn new() -> Self {
        Self::default()
    }

    fn start(&self, program: u32) -> Process<'_> {
        self.processes.start(program)
    }

    fn create(&self, name: Name) -> bool {
        match lock(&self.files).entry(name) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(place) => {
                place.insert(self.pages.file());
                true
            }
        }
    }

    fn with<R>(&self, name: Name, f: impl FnOnce(&FileCache) -> R) -> Option<R> {
        let file = lock(&self.files).get(&name).cloned();
        file.map(|file| f(&file))
    }

    fn remove(&self, name: Name) -> bool {
        // The file ends outside of the lock.
        let removed = lock(&self.files).remove(&name);
        removed.is_some()
    }

    fn processes(&self) -> usize {
        self.processes.len()
    }
}

/// Files in shards, the rest as in [`OneLock`].
#[derive(Default)]
pub(super) struct Sharded {
    files: DashMap<Name, Arc<FileCache>, foldhash::fast::RandomState>,
    processes: Processes,
    pages: LockedPages,
}

impl System for Sharded {
    type Process<'s> = Process<'s>;

    fn new() -> Self {
        Self::default()
    }

    fn start(&self, program: u32) -> Process<'_> {
        self.processes.start(program)
    }

    fn create(&self, name: Name) -> bool {
        match self.files.entry(name) {
            dashmap::Entry::Occupied(_) => false,
            dashmap::Entry::Vacant(place) => {
                place.insert(self.pages.file());
                true
            }
        }
    }

    fn with<R>(&self, name: Name, f: impl FnOnce(&FileCache) -> R) -> Option<R> {
        let file = self.files.get(&name).map(|file| Arc::clone(&file));
        file.map(|file| f(&file))
    }

    fn remove(&self, name: Name) -> bool {
        self.files.remove(&name).is_some()
    }

    fn processes(&self) -> usize {
        self.processes.len()
    }
}
