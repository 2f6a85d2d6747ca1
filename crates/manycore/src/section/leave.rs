//! Leaving: the end of a section, and of a thread that had sections (section.S5, section.S9).

use super::domain_list;
use super::home::{HOME, NO_DOMAIN, NOWHERE};
use super::local::{COUNT, FULL, Local, SPARE, URGENT};
use super::state::State;
use crate::percpu::{self, Slot};
use crate::slab::classes;

/// Passes everything that an ending thread has in any domain to other threads (section.S9).
pub(super) fn unregister(slot: Slot) -> bool {
    let _ = HOME.try_with(|home| {
        home.slot.set(NOWHERE);
        home.last.set(NO_DOMAIN);
    });
    let mut is_free = true;
    domain_list::for_each_part(slot.index(), |state, local| {
        if !state.orphan(local) {
            is_free = false;
            local.extra.set(local.extra.get() | SPARE); // its close gives the slot back
        }
    });
    State::trim_before_exit(slot);
    classes::trim_before_exit(slot);
    is_free
}

/// Closes an inner section, or the outermost one if there is more to do. (Not a method: then the
/// section would have to be in memory, each time.)
#[cold]
#[inline(never)]
pub(super) fn close_slow(state: &State, local: &Local, extra: u32) {
    if extra & COUNT != 0 {
        local.extra.set(extra - 1);
        return;
    }
    local.leave();
    // SPARE stays until the slot is given back: user code that runs before may close another
    // domain's section on this slot.
    local.extra.set(extra & SPARE);
    let _spare = (extra & SPARE != 0).then(|| GiveBack { state, local });
    if extra & (FULL | URGENT) != 0 {
        state.seal_after(local, extra & (FULL | URGENT));
    }
}

/// Reopens, when dropped, a section that was closed for a while.
pub(super) struct Reopen<'a> {
    pub(super) state: &'a State,
    pub(super) local: &'a Local,
}

impl Drop for Reopen<'_> {
    fn drop(&mut self) {
        if self.local.is_inside() {
            self.local.nest(); // a section that was opened in between is the outermost now
        } else {
            self.state.open(self.local);
        }
    }
}

/// Gives back the slot of a thread that has ended. If the thread has a section of another domain on
/// the slot that is open, being refreshed, or being closed, the last of these sections gives it
/// back.
struct GiveBack<'a> {
    state: &'a State,
    local: &'a Local,
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        self.state.orphan(self.local);
        self.local.extra.set(self.local.extra.get() & !SPARE);
        let slot = self.local.slot;
        let mut is_free = true;
        domain_list::for_each_part(slot, |_, local| is_free &= !local.is_spare());
        if is_free {
            percpu::give_back(slot);
        }
    }
}
