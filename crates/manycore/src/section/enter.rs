//! Entering: a section is announced on the thread's own line (section.S1, section.S4, section.S6).

use super::domain_list;
use super::guard::Section;
use super::home::{HOME, NOWHERE};
use super::leave::unregister;
use super::local::{Local, SPARE};
use super::report;
use super::state::State;
use crate::percpu::{self, barrier};
use crate::sync::{Ordering, seeded_bug};

/// Opens a section if the thread entered the domain of this number last, and is not inside it now.
/// `made` returns the domain's state, which a thread that has entered the domain has seen.
#[inline(always)]
pub(super) fn enter_last<'d>(number: u64, made: impl FnOnce() -> &'d State) -> Option<Section<'d>> {
    let (last, local) = HOME.with(|home| (home.last.get(), home.local.get()));
    if last != number {
        return None;
    }
    // SAFETY: no two domains have the same number, so this is the thread's part of the domain,
    // which lives as long as the domain's state.
    let (state, local) = (made(), unsafe { &*local });
    if local.is_inside() {
        return None;
    }
    state.open_light(local);
    Some(Section::opened(state, local))
}

/// Opens an inner section, or a section of another domain than the last.
pub(super) fn enter_again(state: &State) -> Section<'_> {
    let slot = HOME.with(|home| home.slot.get());
    let Some(local) = Some(slot).filter(|slot| *slot != NOWHERE).and_then(|slot| state.local(slot))
    else {
        return enter_first(state);
    };
    if local.is_inside() {
        local.nest();
    } else {
        state.open(local);
    }
    if state.light {
        HOME.with(|home| home.remember(state.number, local));
    }
    Section::opened(state, local)
}

/// Returns true if the calling thread has a section open.
pub(super) fn is_inside(state: &State) -> bool {
    let slot = HOME.with(|home| home.slot.get());
    if slot != NOWHERE {
        return state.local(slot).is_some_and(Local::is_inside);
    }
    // Before its first section, or after its destructors.
    // ORDER: Relaxed; other threads' words do not count, and this thread's are its own stores.
    let inside = state.locals().filter(|(_, local)| local.lower.load(Ordering::Relaxed) != 0);
    inside.map(|(slot, _)| slot).any(report::is_own)
}

/// Opens the first section of a thread, or of a domain that has no part for its slot yet. A thread
/// that opens a section after its destructors have run gets a separate slot for it.
#[cold]
fn enter_first(state: &State) -> Section<'_> {
    let (slot, flags) = match percpu::home_slot(unregister) {
        Ok(home) => {
            if HOME.with(|own| own.slot.replace(home.index())) == NOWHERE {
                report::introduce(home.index());
            }
            (home, 0)
        }
        Err(spare) => {
            report::introduce(spare.index());
            (spare, SPARE)
        }
    };
    let local = make_local(state, slot.index());
    if local.is_inside() {
        local.nest();
    } else {
        local.extra.set(local.extra.get() | flags);
        state.register(local);
        state.open(local);
    }
    Section::opened(state, local)
}

/// Opens a section that belongs to no thread, on a separate slot, which is given back when the
/// section is closed.
#[cold]
pub(super) fn enter_owned(state: &State) -> Section<'_> {
    let slot = percpu::spare_slot();
    report::introduce_owned(slot.index());
    let local = make_local(state, slot.index());
    debug_assert!(!local.is_inside(), "section.S4: a slot was given back with a section open");
    local.extra.set(local.extra.get() | SPARE);
    state.register(local);
    state.open(local);
    Section::opened(state, local)
}

/// Returns the slot's part of the domain; lists a new part for the thread's end.
fn make_local(state: &State, slot: usize) -> &Local {
    state.make_local(slot, |local| domain_list::add_part(state, local))
}

impl State {
    /// Opens the outermost section of `local`'s owner.
    ///
    /// This does not use [`crate::percpu::gate`], although the barriers are the same. A section is
    /// never turned away, so there is no word to look at afterwards, and no leader waits. A leader
    /// reads *when* each section was opened, from an `AtomicU64` that holds an era.
    #[inline(always)]
    pub(super) fn open(&self, local: &Local) {
        debug_assert!(!local.is_inside(), "section.S4: a section is opened inside of another");
        if self.light || seeded_bug!("plain-publish") {
            self.open_light(local);
        } else {
            self.open_fenced(local);
        }
    }

    /// As [`open`](Self::open), where readers pay no fence.
    #[inline(always)]
    pub(super) fn open_light(&self, local: &Local) {
        // ORDER: Release; pairs with Acquire in `look`: the sections before this one are over.
        // Later loads stay behind by the light barrier (barrier.B1 with `heavy` in `start`;
        // section.E1).
        local.lower.store(self.era(), Ordering::Release);
        // BUG: a section is announced by a plain store with no barrier behind it (section.S6).
        if !seeded_bug!("plain-publish") {
            barrier::light();
        }
    }

    #[inline(never)]
    fn open_fenced(&self, local: &Local) {
        // ORDER: SeqCst and a full fence; pairs with the fence in `start` (section.E1).
        local.lower.swap(self.era(), Ordering::SeqCst);
        barrier::full_after_rmw();
    }

    /// Sets `raised` to the present era (section.E4): later loads come after it.
    #[cold]
    pub(super) fn catch_up(&self, local: &Local) {
        let era = self.era();
        debug_assert!(
            local.is_inside() && era >= local.upper(),
            "section.E4: the era falls, or a thread outside catches up with it"
        );
        if self.light {
            // ORDER: Release and a light barrier; pairs with `heavy` in `start` (section.E4).
            local.raised.store(era, Ordering::Release);
            // BUG: a section that raises its era loads again with no barrier between (section.E4).
            if !seeded_bug!("unfenced-raise") {
                barrier::light();
            }
        } else if seeded_bug!("unfenced-raise") {
            local.raised.store(era, Ordering::Release);
        } else {
            // ORDER: SeqCst and a full fence; pairs with the fence in `start` (section.E4).
            local.raised.swap(era, Ordering::SeqCst);
            barrier::full_after_rmw();
        }
    }
}
