//! Statistics of a domain: its backlog, and stalled readers.

use super::local::Pace;
use crate::config::IDLE_MILLIS;
use crate::percpu;
use crate::sync::{self, thread};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What waits to be freed in a domain, and why.
///
/// ```
/// use manycore::section::{Atomic, Domain, Shared};
/// use std::time::Duration;
///
/// let domain = Domain::new();
/// let link = Atomic::new(7);
/// let section = domain.enter();
/// let unlinked = link.swap(Shared::null(), &section);
/// // SAFETY: unlinked just now; nothing else leads to it.
/// unsafe { section.retire(unlinked) };
/// assert_eq!(domain.backlog(Duration::ZERO).nodes, 1); // the section is open
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// Nodes retired and not freed yet, of all threads. Exact when no thread retires.
    pub nodes: usize,
    /// Weight of these nodes (see [`Weight`](super::Weight)).
    pub bytes: usize,
    /// Threads with open sections that hold something back, the longest first.
    pub stalled: Vec<Stalled>,
}

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes of {} bytes wait to be freed", self.nodes, self.bytes)?;
        self.stalled.iter().try_for_each(|stalled| write!(f, "; {stalled}"))
    }
}

/// A thread that has been in one section for a while.
///
/// See [`Domain::backlog`](super::Domain::backlog) for an example; its report lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalled {
    /// The thread's name, if it has one.
    pub name: Option<String>,
    /// The thread's number in the operating system, where there is one.
    pub os_id: Option<u64>,
    /// The thread's slot.
    pub slot: usize,
    /// How long rounds have seen the thread in this section. This is a lower bound, because a
    /// section is first seen by the round after it was opened.
    pub at_least: Duration,
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name.as_deref().unwrap_or("a thread without a name");
        write!(f, "{name} (slot {}", self.slot)?;
        if let Some(id) = self.os_id {
            write!(f, ", thread id {id}")?;
        }
        write!(f, ") has been in a section for at least {:?}", self.at_least)
    }
}

/// An open section that a round met.
struct Sighting {
    slot: usize,
    lower: u64,
    since: Instant,
    /// The last round that met it.
    round: u64,
}

/// What leaders remember: the open sections that the last round met, and how much waited in each
/// slot at the last look for idle threads.
#[derive(Default)]
pub(super) struct Sightings {
    open: Vec<Sighting>,
    waited: Vec<(usize, usize)>,
    waited_at: Option<Instant>,
    /// Paces the rounds that threads lead although they would otherwise leave them to others.
    early: Pace,
}

impl Sightings {
    pub(super) fn see(&mut self, slot: usize, lower: u64, round: u64) {
        match self.open.iter_mut().find(|old| old.slot == slot && old.lower == lower) {
            Some(old) => old.round = round,
            None => self.open.push(Sighting { slot, lower, since: Instant::now(), round }),
        }
    }

    pub(super) fn forget_before(&mut self, round: u64) {
        self.open.retain(|sighting| sighting.round >= round);
    }

    /// Returns true if the domain allows one more early round: a few in a row, and one in 100 us in
    /// the long run, however many threads there are (section.S6).
    pub(super) fn may_lead_early(&self, now: Instant) -> bool {
        let may = self.early.may_seal(now);
        if may {
            self.early.sealed(now, false);
        }
        may
    }

    /// Returns true if it is time to look for idle threads. (Never in models, which have no time.)
    pub(super) fn looks_for_idle(&mut self) -> bool {
        if cfg!(any(manycore_loom, manycore_shuttle)) {
            return false;
        }
        let now = Instant::now();
        let pause = Duration::from_millis(IDLE_MILLIS);
        if self.waited_at.is_some_and(|last| now.duration_since(last) < pause) {
            return false;
        }
        self.waited_at = Some(now);
        true
    }

    /// Returns true if the same amount waited in this slot at the last look.
    pub(super) fn is_idle(&mut self, slot: usize, waits: (usize, usize)) -> bool {
        if self.waited.len() <= slot {
            self.waited.resize(slot + 1, (0, 0));
        }
        std::mem::replace(&mut self.waited[slot], waits) == waits
    }

    /// Returns the slots and stamps of sections that rounds have met for `patience` or longer, so
    /// that no thread waits for them. (In models, which have no time, all sections.)
    pub(super) fn stalled(&self, patience: Duration) -> impl Iterator<Item = (usize, u64)> + '_ {
        let has_time = cfg!(not(any(manycore_loom, manycore_shuttle)));
        let is_young = move |seen: &&Sighting| has_time && seen.since.elapsed() < patience;
        self.open.iter().filter(move |seen| !is_young(seen)).map(|seen| (seen.slot, seen.lower))
    }

    /// Returns the sections met for at least `time`, the longest first.
    pub(super) fn at_least(&self, time: Duration) -> Vec<Stalled> {
        let mut stalled: Vec<Stalled> = self
            .open
            .iter()
            .map(|seen| Stalled::new(seen.slot, seen.since.elapsed()))
            .filter(|stalled| stalled.at_least >= time)
            .collect();
        stalled.sort_by_key(|stalled| std::cmp::Reverse(stalled.at_least));
        stalled
    }
}

impl Stalled {
    fn new(slot: usize, at_least: Duration) -> Self {
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let name = names.get(slot).cloned().flatten().unwrap_or_default();
        Self { name: name.name, os_id: name.os_id, slot, at_least }
    }
}

/// The name and number of a slot's thread.
#[derive(Clone, Default)]
struct Name {
    name: Option<String>,
    os_id: Option<u64>,
}

/// The threads that have opened a section, by slot. A plain lock: model checkers need not see it,
/// and it is taken once per thread.
static NAMES: Mutex<Vec<Option<Name>>> = Mutex::new(Vec::new());

/// Holds the names' lock over a fork.
#[cfg(not(any(manycore_loom, manycore_shuttle)))]
pub(super) fn hold_names() -> Box<dyn std::any::Any> {
    Box::new(NAMES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Returns true if the calling thread has `slot`, on systems where threads have numbers.
pub(super) fn is_own(slot: usize) -> bool {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let os_id = names.get(slot).and_then(|name| name.as_ref()?.os_id);
    os_id.is_some() && os_id == sync::os_id()
}

/// Returns the calling thread's name, unless its destructors have run: then a thread that Rust did
/// not start no longer has a handle, and asking for one panics.
fn own_name() -> Option<String> {
    if cfg!(not(any(manycore_loom, manycore_shuttle))) {
        percpu::own_slot()?;
    }
    thread::current().name().map(str::to_string)
}

/// Notes that the calling thread owns `slot`.
pub(super) fn introduce(slot: usize) {
    note(slot, Name { name: own_name(), os_id: sync::os_id() });
}

/// Notes that an owned section that the calling thread opens owns `slot`.
pub(super) fn introduce_owned(slot: usize) {
    let opener = own_name();
    let opener = opener.as_deref().unwrap_or("a thread without a name");
    note(slot, Name { name: Some(format!("an owned section that {opener} opened")), os_id: None });
}

fn note(slot: usize, name: Name) {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if names.len() <= slot {
        names.resize(slot + 1, None);
    }
    names[slot] = Some(name);
}
