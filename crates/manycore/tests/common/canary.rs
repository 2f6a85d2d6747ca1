//! Values that notice when they are used after they were dropped, and that are counted.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

const ALIVE: u64 = 0x5afe_5afe_5afe_5afe;
const POISON: u64 = 0xdead_dead_dead_dead;

/// Number of canaries that live.
#[derive(Debug, Default)]
pub struct Aviary {
    living: AtomicI64,
}

impl Aviary {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn hatch(self: &Arc<Self>, number: u32) -> Canary {
        self.living.fetch_add(1, Relaxed);
        Canary { life: AtomicU64::new(ALIVE), number, aviary: Arc::clone(self) }
    }

    pub fn living(&self) -> i64 {
        self.living.load(Relaxed)
    }
}

#[derive(Debug)]
pub struct Canary {
    life: AtomicU64,
    number: u32,
    aviary: Arc<Aviary>,
}

impl Canary {
    /// Its number.
    pub fn sing(&self) -> u32 {
        let life = self.life.load(Relaxed);
        assert_eq!(life, ALIVE, "used after it was freed: {life:#x}");
        self.number
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        assert_eq!(self.life.swap(POISON, Relaxed), ALIVE, "freed twice");
        self.aviary.living.fetch_sub(1, Relaxed);
    }
}

impl Clone for Canary {
    fn clone(&self) -> Self {
        self.aviary.hatch(self.sing())
    }
}
impl PartialEq for Canary {
    fn eq(&self, other: &Self) -> bool {
        self.sing() == other.sing()
    }
}
impl Eq for Canary {}
impl PartialOrd for Canary {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Canary {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sing().cmp(&other.sing())
    }
}
impl Hash for Canary {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.sing().hash(state);
    }
}
