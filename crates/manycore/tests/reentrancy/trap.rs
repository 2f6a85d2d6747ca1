//! Keys and values with a trap: a hook that runs the first time the library calls the trait for
//! which the trap is set.

use crate::probe::Hook;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

/// The places where a keyed collection runs user code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Hash,
    Eq,
    Ord,
    CloneKey,
    CloneValue,
    DropKey,
    DropValue,
    Closure,
    Load,
    WriteBack,
}

impl At {
    pub const ALL: [Self; 10] = [
        Self::Hash,
        Self::Eq,
        Self::Ord,
        Self::CloneKey,
        Self::CloneValue,
        Self::DropKey,
        Self::DropValue,
        Self::Closure,
        Self::Load,
        Self::WriteBack,
    ];

    pub fn title(self) -> &'static str {
        match self {
            Self::Hash => "`Hash`",
            Self::Eq => "`Eq`",
            Self::Ord => "`Ord`",
            Self::CloneKey => "a key's `Clone`",
            Self::CloneValue => "a value's `Clone`",
            Self::DropKey => "a key's `Drop`",
            Self::DropValue => "a value's `Drop`",
            Self::Closure => "a closure",
            Self::Load => "`PageStore::load`",
            Self::WriteBack => "`PageStore::write_back`",
        }
    }
}

pub struct Trap {
    at: At,
    hook: Mutex<Option<Hook>>,
}

impl Trap {
    pub fn set(at: At, hook: Hook) -> Arc<Self> {
        Arc::new(Self { at, hook: Mutex::new(Some(hook)) })
    }

    /// The hook is taken before it runs: what it calls may come here again.
    pub fn run_at(&self, at: At) {
        if self.at == at {
            let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(hook) = hook {
                hook();
            }
        }
    }
}

fn run(trap: &Option<Arc<Trap>>, at: At) {
    if let Some(trap) = trap {
        trap.run_at(at);
    }
}

/// A key. Every second key has the same hash, so that keys are compared.
pub struct Key {
    pub id: u32,
    pub trap: Option<Arc<Trap>>,
}

pub fn key(id: u32) -> Key {
    Key { id, trap: None }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        run(&self.trap, At::Hash);
        (self.id % 2).hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        run(&self.trap, At::Eq);
        run(&other.trap, At::Eq);
        self.id == other.id
    }
}

impl Eq for Key {}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        run(&self.trap, At::Ord);
        run(&other.trap, At::Ord);
        self.id.cmp(&other.id)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Clone for Key {
    fn clone(&self) -> Self {
        run(&self.trap, At::CloneKey);
        Self { id: self.id, trap: self.trap.clone() }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        run(&self.trap, At::DropKey);
    }
}

#[derive(Default)]
pub struct Value {
    pub trap: Option<Arc<Trap>>,
}

impl Clone for Value {
    fn clone(&self) -> Self {
        run(&self.trap, At::CloneValue);
        Self { trap: self.trap.clone() }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        run(&self.trap, At::DropValue);
    }
}
