//! Sources of files that do what a test says, and count.

use manycore_vm::{FileSource, MemoryFile};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// What a source does with its next calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Works,
    Fails,
    Panics,
    Lies,
}

type Moods = Box<dyn Fn(u64) -> Mood + Send + Sync>;

/// A file in memory whose calls are decided by closures, which may do anything.
pub struct Moody {
    pub file: MemoryFile,
    on_read: Moods,
    on_write: Moods,
    pub reads: AtomicUsize,
    pub writes: AtomicUsize,
    pub announced: Mutex<Vec<(u64, u64)>>,
}

impl Moody {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self::with(bytes, |_| Mood::Works, |_| Mood::Works)
    }

    pub fn with(
        bytes: Vec<u8>,
        on_read: impl Fn(u64) -> Mood + Send + Sync + 'static,
        on_write: impl Fn(u64) -> Mood + Send + Sync + 'static,
    ) -> Self {
        let (on_read, on_write) = (Box::new(on_read), Box::new(on_write));
        let (reads, writes, announced) = Default::default();
        Self { file: MemoryFile::new(bytes), on_read, on_write, reads, writes, announced }
    }
}

impl FileSource for Moody {
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.reads.fetch_add(1, SeqCst);
        match (self.on_read)(offset) {
            Mood::Works => self.file.read(offset, into),
            Mood::Fails => Err(io::ErrorKind::TimedOut.into()),
            Mood::Panics => panic!("the source panics"),
            Mood::Lies => Ok(into.len() + 1),
        }
    }

    fn write(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.writes.fetch_add(1, SeqCst);
        match (self.on_write)(offset) {
            Mood::Works | Mood::Lies => self.file.write(offset, from),
            Mood::Fails => Err(io::ErrorKind::StorageFull.into()),
            Mood::Panics => panic!("the source panics"),
        }
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        self.announced.lock().unwrap().push((offset, bytes));
    }
}
