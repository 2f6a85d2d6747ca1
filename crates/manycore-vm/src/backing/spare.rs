//! Entries of the system's table of mappings that are kept for taking mappings back.
//!
//! Owns: [`Spare`]. Linux allows a process 65,530 mappings, and counts each part of a mapping that
//! is not like its neighbours. So what takes a mapping back may need an entry, or two, and at the
//! limit no `mmap` goes through at all.
//!
//! Laws:
//! - spare.E1 A mapping is made, or given other rights, while the spare entries are kept, or not at
//!   all. So at the limit it is the making that is refused.
//! - spare.E2 What takes mappings back needs no spare entries as a rule. Where the system refuses
//!   it, they are released, and it is tried again. A refused making releases them, too: the rest of
//!   the process (a larger heap, a thread's stack) has them until the next making finds room.
//! - spare.E3 One entry stays then. What divides a mapping can leave the process with one entry
//!   more than the limit, and then Linux refuses each `mmap`, also one that takes away a thousand
//!   mappings. Without the last entry the process is at the limit itself: dividing is refused, and
//!   taking whole mappings back goes through.

use super::{Run, Span};
use crate::sync::{AtomicUsize, Ordering};
use crate::{Error, PAGE_BYTES, Rights, sys};

/// How many entries are kept: a mapping of so many pages, of which each is unlike its neighbours.
const ENTRIES: usize = 32;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// The address of the mapping; 0 if there is none.
    at: AtomicUsize,
    /// That of the entry that stays (spare.E3); 0 if there is none.
    last: AtomicUsize,
}

impl Spare {
    /// Keeps the entries, before something is done to `span` that may take some (spare.E1).
    ///
    /// # Errors
    /// If there are not as many.
    #[inline]
    pub(super) fn keep(&self, span: Span) -> Result<(), Error> {
        // ORDER: Relaxed; only whether there is one counts.
        if self.at.load(Ordering::Relaxed) != 0 {
            return Ok(());
        }
        self.make().map_err(|error| error.about(span.address, span.pages as usize))
    }

    #[cold]
    fn make(&self) -> Result<(), Error> {
        let at = sys::reserve(ENTRIES)?.expose_provenance();
        let mut pages = (at..).step_by(PAGE_BYTES).take(ENTRIES).skip(1).step_by(2);
        let made = pages.try_for_each(|page| {
            // SAFETY: reserved above, for this alone.
            unsafe { sys::protect(page, 1, Rights::READ) }
        });
        // ORDER: AcqRel, for `let_go`; Relaxed on failure: only whether there is one counts.
        let placed = made.is_ok()
            && self.at.compare_exchange(0, at, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !placed {
            // SAFETY: reserved above, and nothing leads to it.
            let _ = unsafe { sys::release(at, ENTRIES) };
        }
        made
    }

    /// Gives the entries back to the process, but for the last one (spare.E3). Returns whether
    /// there were some.
    fn let_go(&self) -> bool {
        // ORDER: AcqRel; one thread gets it, after it was made.
        let at = self.at.swap(0, Ordering::AcqRel);
        if at == 0 {
            return false;
        }
        let last = at + (ENTRIES - 1) * PAGE_BYTES;
        // ORDER: AcqRel, for `let_go_of_last`; Relaxed on failure: there is one already.
        let stays =
            self.last.compare_exchange(0, last, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        // SAFETY: `make` reserved it, and the exchange has taken it. The last page is a mapping of
        // its own, because it is unlike its neighbour.
        unsafe { sys::release(at, ENTRIES - usize::from(stays)) }.is_ok()
    }

    /// Gives the last entry back. Returns whether there was one.
    fn let_go_of_last(&self) -> bool {
        // ORDER: AcqRel; one thread gets it, after it was kept.
        let last = self.last.swap(0, Ordering::AcqRel);
        // SAFETY: `let_go` kept this page, and the exchange has taken it.
        last != 0 && unsafe { sys::release(last, 1) }.is_ok()
    }

    /// Maps the runs by `map`, one by one (spare.E1).
    ///
    /// # Errors
    /// Those of `map`, and if there are no entries to keep.
    pub(super) fn map_each(
        &self,
        runs: &[Run],
        map: impl Fn(&Run) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(first) = runs.first() else { return Ok(()) };
        self.keep(first.span())?;
        let mapped = runs.iter().try_for_each(map);
        if mapped.is_err() {
            self.let_go(); // spare.E2
        }
        mapped
    }

    /// Does what must not fail for want of an entry (spare.E2).
    pub(super) fn with(&self, call: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
        let mut done = call();
        for let_go in [Self::let_go, Self::let_go_of_last] {
            if done.as_ref().is_err_and(Error::is_shortage) && let_go(self) {
                done = call();
            }
        }
        done
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.let_go();
        self.let_go_of_last();
    }
}
