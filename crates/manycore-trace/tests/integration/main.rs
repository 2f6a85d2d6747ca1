//! Tests of recordings, from outside.

mod bombs;
#[path = "../../../../fuzz/src/bounds.rs"]
mod bounds;
mod convert;
mod crafted;
#[cfg(target_os = "linux")]
mod crash;
mod damage;
#[cfg(target_os = "linux")]
mod fork;
mod fuzzed;
mod policies;
mod recording;
#[cfg(target_os = "linux")]
mod signals;

use manycore_trace::{Class, Trace};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[global_allocator]
static ALLOCATOR: bounds::Counting = bounds::Counting;

/// The class of all events here.
const TEST: Class = Class::new(1, "test");

/// A process has one recording at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the flag when it is dropped, also by a test that fails: threads wait for it.
struct AtEnd<'a>(&'a AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A file's name that is removed with this.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        let name = format!("manycore-trace-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl AsRef<Path> for Temporary {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// All records as lines, the sequence first.
fn lines(trace: &mut Trace) -> Vec<String> {
    let mut merge = trace.merge();
    let mut all = Vec::new();
    while let Some(record) = merge.next() {
        all.push(format!("{} {} {} {record}", record.time, record.slot, record.sequence));
    }
    all
}

/// The field of this name in each record.
fn numbers(trace: &mut Trace, field: &str) -> Vec<u64> {
    let mut merge = trace.merge();
    let mut all = Vec::new();
    while let Some(record) = merge.next() {
        if let Some(manycore_trace::Value::Unsigned(number)) = record.field(field) {
            all.push(number);
        }
    }
    all
}
