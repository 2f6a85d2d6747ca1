//! The configurations in use in this process, by number.
//!
//! Owns: the numbers. An object has three bytes for its configuration (law oplog.D8), so it keeps a
//! number instead of an `Arc`. Each [`ConfigId`] is one reference to that number.
//!
//! Laws:
//! - configurations.O1 A number stands for one configuration as long as a [`ConfigId`] with that
//!   number exists. The last `ConfigId` frees the configuration and makes the number free for
//!   another. The table and the clock in the configuration go with it, unless a hot state still
//!   uses them.
//! - configurations.O2 A configuration is freed with no lock of this module held: it may contain a
//!   user's clock, and the clock's destructor is user code.
//! - configurations.O3 Equal configurations have one number. So a program may build any number of
//!   objects; it may use 65,535 different configurations at a time.
//!
//! The lock is taken when an object is built, promoted or dropped, or finds its log full. It is
//! never taken for the default configuration, which is number zero.

use super::settings::{BuildError, Config, Logs};
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
use crate::percpu::AtFork;
use crate::sync;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of a configuration, and the part of it that a cold object needs: law oplog.D8 leaves
/// three bytes for them.
#[derive(Debug, Default)]
pub(crate) struct ConfigId {
    number: [u8; 2],
    flags: u8,
}

const NEVER: u8 = 1;
const ALWAYS: u8 = 2;
/// Readers of the object may enter through lanes (`readers`).
const READERS: u8 = 4;

/// A number in use, with its configuration and its references.
struct Entry {
    config: Arc<Config>,
    /// The number of its [`ConfigId`]s (configurations.O1).
    users: usize,
}

struct Configurations {
    numbers: HashMap<Arc<Config>, u16, BuildHasherDefault<DefaultHasher>>,
    /// Number n is at index n - 1.
    entries: Vec<Option<Entry>>,
    free: Vec<u16>,
    /// The configuration of every object that is built with default settings.
    default: Option<Arc<Config>>,
}

sync::global! {
    static CONFIGURATIONS: Mutex<Configurations> = Mutex::new(Configurations::new());
}

fn configurations() -> MutexGuard<'static, Configurations> {
    #[cfg(not(any(manycore_loom, manycore_shuttle)))]
    AT_FORK.list();
    lock()
}

/// Holds the lock over a fork, so that in the child it is not held by a thread that does not exist
/// there.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
static AT_FORK: AtFork = AtFork::new(|| Box::new(lock()), || ());

fn lock() -> MutexGuard<'static, Configurations> {
    CONFIGURATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Configurations {
    const fn new() -> Self {
        Self {
            numbers: HashMap::with_hasher(BuildHasherDefault::new()),
            entries: Vec::new(),
            free: Vec::new(),
            default: None,
        }
    }

    /// Returns the number of an equal configuration, or a new number, with one more reference.
    fn enter(&mut self, config: &Arc<Config>) -> Result<u16, BuildError> {
        if let Some(&number) = self.numbers.get(config) {
            self.entry(number).users += 1;
            return Ok(number);
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                let number = u16::try_from(self.entries.len() + 1)
                    .map_err(|_| BuildError::TooManyConfigurations)?;
                self.entries.push(None);
                number
            }
        };
        let entry = Entry { config: Arc::clone(config), users: 1 };
        let before = self.entries[usize::from(number) - 1].replace(entry);
        debug_assert!(
            before.is_none(),
            "configurations.O1: number {number} stands for two configurations"
        );
        self.numbers.insert(Arc::clone(config), number);
        Ok(number)
    }

    fn entry(&mut self, number: u16) -> &mut Entry {
        let entry = self.entries[usize::from(number) - 1].as_mut();
        entry.expect("configurations.O1: the number is in use")
    }

    /// Drops one reference. Returns what must be dropped without the lock (configurations.O2).
    fn leave(&mut self, number: u16) -> Option<Entry> {
        let entry = self.entry(number);
        debug_assert!(entry.users > 0, "configurations.O1: configuration {number} has no user");
        entry.users -= 1;
        if entry.users > 0 {
            return None;
        }
        let entry = self.entries[usize::from(number) - 1].take()?;
        let known = self.numbers.remove(&entry.config);
        debug_assert_eq!(known, Some(number), "configurations.O3: numbers and keys differ");
        self.free.push(number);
        Some(entry)
    }
}

impl ConfigId {
    /// Returns the number of this configuration.
    pub(super) fn of(config: Config) -> Result<Self, BuildError> {
        if config == Config::default() {
            return Ok(Self::new());
        }
        let logs = match config.logs {
            Logs::Auto => 0,
            Logs::Always => ALWAYS,
            Logs::Never => NEVER,
        };
        let config = Arc::new(config); // dropped without the lock (configurations.O2)
        let number = configurations().enter(&config)?;
        Ok(Self { number: number.to_le_bytes(), flags: logs })
    }

    #[inline(always)]
    pub(crate) fn never_logs(&self) -> bool {
        self.flags & NEVER != 0
    }

    #[inline(always)]
    pub(crate) const fn always_logs(&self) -> bool {
        self.flags & ALWAYS != 0
    }

    /// Returns the number of the default configuration.
    pub(super) const fn new() -> Self {
        Self { number: [0; 2], flags: 0 }
    }

    /// Returns the number of the default configuration, for an object with readers that may enter
    /// through lanes.
    pub(super) const fn with_readers() -> Self {
        Self { number: [0; 2], flags: READERS }
    }

    #[inline(always)]
    pub(super) fn has_readers(&self) -> bool {
        self.flags & READERS != 0
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        match u16::from_le_bytes(self.number) {
            0 => Arc::clone(configurations().default.get_or_insert_default()),
            number => Arc::clone(&configurations().entry(number).config),
        }
    }
}

impl Drop for ConfigId {
    #[inline]
    fn drop(&mut self) {
        let number = u16::from_le_bytes(self.number);
        if number != 0 && !sync::model_failed() {
            release(number);
        }
    }
}

#[cold]
fn release(number: u16) {
    let left = configurations().leave(number);
    drop(left);
}
