//! The report: counts by object, the hottest first.

use super::{Counts, Kept, Key, Label};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::time::Duration;

/// The waits of a program's threads: see [`read`](super::read).
///
/// See [the module](super) for an example.
#[doc(alias = "contention")]
#[doc(alias = "lock profiler")]
#[derive(Debug, Clone)]
pub struct Profile {
    objects: Vec<HotObject>,
    time: Duration,
    uncounted: u64,
}

/// An object that was waited for, or that counts its operations.
///
/// See [the module](super) for an example.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HotObject {
    /// The name that it was [given](super::name).
    pub name: Option<&'static str>,
    /// Name of the object's type, or of what uses the lock that was waited for.
    pub kind: &'static str,
    /// Address of the object; for an object with a name, its beginning.
    pub address: usize,
    /// How often a thread found the object taken and waited.
    pub waits: u64,
    /// The time that they waited, all together.
    pub time: Duration,
    /// The longest single wait.
    pub longest: Duration,
    /// How often the object went from one holder to the next while a thread waited, including the
    /// hand-over to that thread. Counts what the waiting threads saw (a parked thread sees fewer).
    pub handoffs: u64,
    /// Updates, if the object counts them, else zero. They may lag by some thousands.
    pub updates: u64,
    /// Reads, if the object counts them, else zero.
    pub reads: u64,
    /// The source lines that waited, the most expensive first. A line within the library stands for
    /// a type that does not pass on its caller.
    pub call_sites: Vec<CallSite>,
}

/// A line of code that waited for an object.
///
/// See [the module](super) for an example.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallSite {
    /// The line.
    pub location: Option<&'static Location<'static>>,
    /// How often it waited.
    pub waits: u64,
    /// How long it waited, all together.
    pub time: Duration,
}

/// Returns where the object begins that contains this address, and its name.
fn owner(address: usize, labels: &[Label]) -> (usize, Option<&'static str>) {
    // The last given name wins, and a narrower object's before a wider one's.
    let around = labels.iter().rev().filter(|l| address.wrapping_sub(l.start) < l.bytes);
    match around.min_by_key(|label| label.bytes) {
        Some(label) => (label.start, Some(label.name)),
        None => (address, None),
    }
}

impl Profile {
    pub(super) fn new(kept: Kept, labels: &[Label], time: Duration) -> Self {
        let mut objects: HashMap<usize, HotObject> = HashMap::new();
        for (Key { kind, address, location }, counts) in kept.counts {
            let (address, name) = owner(address, labels);
            let hot = objects.entry(address).or_insert_with(|| HotObject::new(name, kind, address));
            hot.add(kind, location, counts);
        }
        let mut objects: Vec<_> = objects.into_values().collect();
        let operations = |hot: &HotObject| hot.updates.saturating_add(hot.reads);
        objects.sort_by_key(|hot| Reverse((hot.time, hot.waits, operations(hot), hot.address)));
        for hot in &mut objects {
            hot.call_sites.sort_by_key(|site| Reverse((site.time, site.waits)));
        }
        Self { objects, time, uncounted: kept.uncounted }
    }

    /// Returns the objects that cost their threads most time, at most `n`.
    #[must_use]
    pub fn hottest(&self, n: usize) -> &[HotObject] {
        &self.objects[..n.min(self.objects.len())]
    }

    /// Returns how long was counted.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Returns the number of waits that were not counted one by one for lack of room (profile.F3 of
    /// the module).
    #[must_use]
    pub fn uncounted(&self) -> u64 {
        self.uncounted
    }
}

impl HotObject {
    fn new(name: Option<&'static str>, kind: &'static str, address: usize) -> Self {
        let (waits, handoffs, updates, reads) = (0, 0, 0, 0);
        let (time, longest, call_sites) = (Duration::ZERO, Duration::ZERO, Vec::new());
        Self { name, kind, address, waits, time, longest, handoffs, updates, reads, call_sites }
    }

    fn add(
        &mut self,
        kind: &'static str,
        location: Option<&'static Location<'static>>,
        add: Counts,
    ) {
        // An object that counts its operations knows best what it is.
        if location.is_none() {
            self.kind = kind;
        }
        self.waits += add.waits;
        self.time += add.time;
        self.longest = self.longest.max(add.longest);
        self.handoffs += add.handoffs;
        self.updates += add.updates;
        self.reads += add.reads;
        if add.waits == 0 {
            return;
        }
        // One line may have several addresses.
        match self.call_sites.iter_mut().find(|known| known.location == location) {
            Some(known) => {
                known.waits += add.waits;
                known.time += add.time;
            }
            None => self.call_sites.push(CallSite { location, waits: add.waits, time: add.time }),
        }
    }
}

/// Prints the ten hottest objects as a table.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, time, uncounted } = self;
        writeln!(f, "{} objects in {time:.1?}, {uncounted} waits left out", objects.len())?;
        writeln!(
            f,
            "{:>10} {:>9} {:>9} {:>6} {:>9} {:>9}  object",
            "waited", "waits", "longest", "queue", "updates", "reads"
        )?;
        for hot in self.hottest(10) {
            let queue = hot.handoffs as f64 / hot.waits.max(1) as f64;
            write!(
                f,
                "{:>10} {:>9} {:>9} {queue:>6.1} {:>9} {:>9}  ",
                format!("{:.1?}", hot.time),
                hot.waits,
                format!("{:.1?}", hot.longest),
                hot.updates,
                hot.reads
            )?;
            match hot.name {
                Some(name) => write!(f, "{name} ({})", hot.kind)?,
                None => write!(f, "{} at {:#x}", hot.kind, hot.address)?,
            }
            match hot.call_sites.first().and_then(|site| site.location) {
                Some(location) => writeln!(f, ", {location}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}
