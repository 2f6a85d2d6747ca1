//! A reserve of the system's mapping entries, for taking mappings back.
//!
//! This module owns [`Spare`]. Linux allows a process 65,530 mappings, and counts each part of a
//! mapping that differs from its neighbours. So taking a mapping back may need one entry or two. At
//! the limit, every `mmap` fails.
//!
//! Laws:
//! - spare.E1 A mapping is made, or gets other rights, only while the spare entries are kept. So at
//!   the limit, making a mapping is refused, not taking one back.
//! - spare.E2 Taking mappings back mostly needs no spare entries. If the system refuses it, the
//!   spare entries are released and it is tried again. A refused making releases them too. The rest
//!   of the process (a larger heap, a thread's stack) can use them until the next making finds
//!   room.
//! - spare.E3 One entry then stays. Splitting a mapping can leave the process one entry above the
//!   limit. There Linux refuses each `mmap`, even one that takes away a thousand mappings.
//!   Releasing the last entry brings the process down to the limit: splitting is refused there, and
//!   taking back whole mappings works.

use super::{Run, Span};
use crate::sync::{AtomicUsize, Ordering};
use crate::{Error, PAGE_BYTES, Rights, sys};

/// How many entries are kept: a mapping of as many pages, each with other rights than its
/// neighbours.
const ENTRIES: usize = 32;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Spare {
    /// The address of the reserve, or 0 if there is none.
    at: AtomicUsize,
    /// The address of the entry that stays (spare.E3), or 0 if there is none.
    last: AtomicUsize,
}

impl Spare {
    /// Makes sure that the entries are kept. Called before an operation on `span` that may take
    /// some (spare.E1).
    ///
    /// # Errors
    /// If there are not enough entries.
    #[inline]
    pub(super) fn keep(&self, span: Span) -> Result<(), Error> {
        // ORDER: Relaxed; only whether there is a reserve matters.
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
            // SAFETY: reserved above, for this value alone.
            unsafe { sys::protect(page, 1, Rights::READ) }
        });
        // ORDER: AcqRel, for `let_go`; Relaxed on failure: only whether there is a reserve matters.
        let placed = made.is_ok()
            && self.at.compare_exchange(0, at, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !placed {
            // SAFETY: reserved above, and nothing leads to it.
            let _ = unsafe { sys::release(at, ENTRIES) };
        }
        made
    }

    /// Gives the entries back to the process, except for the last one (spare.E3). Returns true if
    /// there were entries.
    fn let_go(&self) -> bool {
        // ORDER: AcqRel; one thread gets the reserve, after it was made.
        let at = self.at.swap(0, Ordering::AcqRel);
        if at == 0 {
            return false;
        }
        let last = at + (ENTRIES - 1) * PAGE_BYTES;
        // ORDER: AcqRel, for `let_go_of_last`; Relaxed on failure: there is a last entry already.
        let stays =
            self.last.compare_exchange(0, last, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        // SAFETY: `make` reserved it, and the swap has taken it. The last page is a mapping of its
        // own, because it differs from its neighbour.
        unsafe { sys::release(at, ENTRIES - usize::from(stays)) }.is_ok()
    }

    /// Gives the last entry back. Returns true if there was one.
    fn let_go_of_last(&self) -> bool {
        // ORDER: AcqRel; one thread gets the entry, after it was kept.
        let last = self.last.swap(0, Ordering::AcqRel);
        // SAFETY: `let_go` kept this page, and the exchange has taken it.
        last != 0 && unsafe { sys::release(last, 1) }.is_ok()
    }

    /// Calls `map` for each run (spare.E1).
    ///
    /// # Errors
    /// Those of `map`; also if the entries cannot be kept.
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

    /// Makes a call that must not fail for lack of an entry (spare.E2).
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
