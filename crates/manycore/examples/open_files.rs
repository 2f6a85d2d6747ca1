//! A program's list of open files (OpLog, section 7.4): every open and close changes it, and a walk
//! over all of them is rare. Twice: with the library, and with a list per core by hand, as Linux
//! had it.

use std::thread;

/// What the list knows of an open file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    path: String,
}

// begin: open_files
use manycore::collections::{Entry, Registry};
static OPEN_FILES: std::sync::LazyLock<Registry<File>> = std::sync::LazyLock::new(Registry::new);
fn open(path: String) -> Entry<'static, File> {
    OPEN_FILES.register(File { path }) // dropping the entry closes the file
}
fn open_files() -> Vec<File> {
    OPEN_FILES.snapshot()
}
// end: open_files

/// The same by hand: a slab per core, each behind a lock on a line of its own. A walk locks them
/// all, for otherwise it could see a file that was opened later and miss one opened earlier.
mod by_hand {
    use super::File;

    // begin: open_files by hand
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

    #[repr(align(128))]
    #[derive(Default)]
    struct Shard(Mutex<Slab>);

    #[derive(Default)]
    struct Slab {
        files: Vec<Option<File>>,
        free: Vec<usize>,
    }

    impl Shard {
        fn lock(&self) -> MutexGuard<'_, Slab> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    static SHARDS: LazyLock<Vec<Shard>> = LazyLock::new(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (0..cores.next_power_of_two()).map(|_| Shard::default()).collect()
    });
    static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static OWN_SHARD: usize = NEXT_SHARD.fetch_add(1, Ordering::Relaxed) % SHARDS.len();
    }

    pub struct Handle {
        file: File,
        shard: usize,
        place: usize,
    }

    pub fn open(path: String) -> Handle {
        let file = File { path };
        let shard = OWN_SHARD.with(|shard| *shard);
        let mut slab = SHARDS[shard].lock();
        let place = match slab.free.pop() {
            Some(place) => {
                slab.files[place] = Some(file.clone());
                place
            }
            None => {
                slab.files.push(Some(file.clone()));
                slab.files.len() - 1
            }
        };
        Handle { file, shard, place }
    }

    impl Drop for Handle {
        fn drop(&mut self) {
            // Not the own shard: a file may be closed on another core.
            let mut slab = SHARDS[self.shard].lock();
            slab.files[self.place] = None;
            slab.free.push(self.place);
        }
    }

    impl std::ops::Deref for Handle {
        type Target = File;
        fn deref(&self) -> &File {
            &self.file
        }
    }

    pub fn open_files() -> Vec<File> {
        let slabs: Vec<_> = SHARDS.iter().map(Shard::lock).collect();
        slabs.iter().flat_map(|slab| slab.files.iter().flatten().cloned()).collect()
    }
    // end: open_files by hand
}

/// Threads open and close; one file of each stays open.
fn work<H>(name: &str, open: fn(String) -> H, open_files: fn() -> Vec<File>)
where
    H: std::ops::Deref<Target = File> + Send,
{
    let kept: Vec<H> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    for number in 0..20_000 {
                        assert_eq!(open(format!("cache/{number}")).path, format!("cache/{number}"));
                    }
                    open(format!("log/{thread}"))
                })
            })
            .collect();
        assert!(open_files().len() <= 8); // a concurrent walk: at most two of each thread
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut files = open_files();
    files.sort();
    println!("{name}: 80,000 files came and went; open now: {files:?}");
    assert!(files.iter().map(|file| &*file.path).eq(["log/0", "log/1", "log/2", "log/3"]));
    drop(kept); // closed by another thread than opened them
    assert!(open_files().is_empty());
}

fn main() {
    work("library", open, open_files);
    work("by hand", by_hand::open, by_hand::open_files);
}
