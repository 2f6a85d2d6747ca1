//! Cache lines: copies, waiters, and the table that finds a line by its number.

use super::{
    Access,
    cores::{CoreSet, NO_CORE},
    sharing::Sharing,
};

/// One request for a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) thread: u32,
    pub(super) core: u16,
    pub(super) write: bool,
    pub(super) kind: Access,
    /// True for a store that its core does not wait for.
    pub(super) buffered: bool,
    pub(super) arrived: u64,
    pub(super) pc: usize,
}

/// State of one line.
pub(super) struct Line {
    /// The one core that may write, or `NO_CORE`.
    pub(super) owner: u16,
    /// The core that answers the next request, which is the last owner.
    pub(super) supplier: u16,
    /// Threads with buffered stores on their way.
    pub(super) stores: u16,
    /// The complex whose shared cache has the line if no core has it, or `NO_CORE`.
    pub(super) shared_in: u16,
    /// When the current transfer ends.
    pub(super) busy_until: u64,
    /// When other cores can see the last buffered store that arrived.
    pub(super) visible_at: u64,
    /// State of a line that several cores have used. Most lines never need it.
    traffic: Option<Box<Traffic>>,
}

/// The copies, the past holders and the waiters of a line.
#[derive(Default)]
struct Traffic {
    /// Cores with a copy to read. Used when there is no owner.
    copies: CoreSet,
    past_owner: Option<u16>,
    past_copies: CoreSet,
    /// Until when the past holders may still use the line.
    linger_until: u64,
    /// The waiters of this round in order of arrival, and the requests that came after it began.
    waiting: Vec<Request>,
    late: Vec<Request>,
    /// Which cores use which parts of the line. Kept once a core has taken the line from another.
    sharing: Option<Box<Sharing>>,
}

impl Line {
    const NEW: Line = Line {
        owner: NO_CORE,
        supplier: NO_CORE,
        stores: 0,
        shared_in: NO_CORE,
        busy_until: 0,
        visible_at: 0,
        traffic: None,
    };

    /// Returns the cores with a copy to read. Used when there is no owner.
    pub(super) fn copies(&self) -> &CoreSet {
        const NONE: &CoreSet = &CoreSet::EMPTY;
        self.traffic.as_ref().map_or(NONE, |traffic| &traffic.copies)
    }

    /// Returns which cores use which parts of the line, if that is tracked.
    #[inline]
    pub(super) fn sharing(&self) -> Option<&Sharing> {
        self.traffic.as_ref()?.sharing.as_deref()
    }

    pub(super) fn sharing_mut(&mut self) -> Option<&mut Sharing> {
        self.traffic.as_mut()?.sharing.as_deref_mut()
    }

    /// Starts to track the cores' parts of the line.
    pub(super) fn keep_sharing(&mut self, new: Sharing) {
        self.traffic.get_or_insert_default().sharing = Some(Box::new(new));
    }

    /// Turns the owner's line into copies of the owner and of one more core. The old owner answers
    /// the next request.
    pub(super) fn share(&mut self, owner: u16, core: u16) {
        debug_assert_eq!(self.owner, owner, "only the owner shares a line");
        debug_assert_ne!(owner, core, "a core shares a line with itself");
        self.add_copy(owner);
        self.add_copy(core);
        self.supplier = owner;
        self.owner = NO_CORE;
    }

    /// Gives one more core a copy to read.
    pub(super) fn add_copy(&mut self, core: u16) {
        self.traffic.get_or_insert_default().copies.add(core);
    }

    /// Makes the core the only holder of the line.
    pub(super) fn own(&mut self, core: u16) {
        self.owner = core;
        self.supplier = core;
        if let Some(traffic) = &mut self.traffic {
            traffic.copies.clear();
        }
    }

    /// Drops the core's copy. Returns true if no core has the line afterwards.
    pub(super) fn drop_by(&mut self, core: u16) -> bool {
        if let Some(sharing) = self.traffic.as_mut().and_then(|traffic| traffic.sharing.as_mut()) {
            sharing.give_up(core);
        }
        if self.owner == core {
            self.owner = NO_CORE;
            return true;
        }
        let Some(traffic) = self.traffic.as_mut().filter(|traffic| traffic.copies.has(core)) else {
            return false;
        };
        traffic.copies.remove(core);
        traffic.copies.is_empty()
    }

    /// Returns true if the line's state alone lets the core use its copy.
    #[inline]
    pub(super) fn holds(&self, core: u16, write: bool) -> bool {
        self.owner == core || !write && self.copies().has(core)
    }

    /// Returns true if the core lost the line so recently that it may still use it.
    #[inline]
    pub(super) fn lingers(&self, core: u16, write: bool, now: u64) -> bool {
        self.traffic.as_ref().is_some_and(|traffic| {
            let held = traffic.past_owner == Some(core);
            now < traffic.linger_until && (held || !write && traffic.past_copies.has(core))
        })
    }

    /// Lets the present holders use the line until then, whichever core gets it.
    pub(super) fn linger(&mut self, until: u64) {
        let owner = (self.owner != NO_CORE).then_some(self.owner);
        if owner.is_none() && self.traffic.is_none() {
            return; // the line comes from memory
        }
        let traffic = self.traffic.get_or_insert_default();
        traffic.past_owner = owner;
        let Traffic { copies, past_copies, .. } = &mut **traffic;
        past_copies.copy_from(copies);
        traffic.linger_until = until;
    }

    pub(super) fn is_contended(&self) -> bool {
        let idle = |traffic: &Traffic| traffic.waiting.is_empty() && traffic.late.is_empty();
        !self.traffic.as_deref().is_none_or(idle)
    }

    /// Queues a request for the next round.
    pub(super) fn enqueue(&mut self, request: Request) {
        self.traffic.get_or_insert_default().late.push(request);
    }

    /// Admits all late requests to this round. Returns true if the round is a new one.
    pub(super) fn admit_late(&mut self) -> bool {
        let traffic = self.traffic.get_or_insert_default();
        let new = traffic.waiting.is_empty();
        traffic.waiting.append(&mut traffic.late);
        new
    }

    /// Returns the waiters of this round.
    pub(super) fn round(&mut self) -> &mut Vec<Request> {
        &mut self.traffic.get_or_insert_default().waiting
    }

    /// All waiters.
    #[cfg(test)]
    pub(super) fn all_waiting(&self) -> impl Iterator<Item = &Request> {
        let traffic = self.traffic.iter();
        traffic.flat_map(|traffic| traffic.waiting.iter().chain(&traffic.late))
    }
}

/// Lines of one group. Neighbouring lines are mostly used together, and the entry that finds them
/// takes more memory than they do.
const GROUP: usize = 8;

/// Neighbouring lines.
struct Group {
    /// The first line's number divided by [`GROUP`].
    number: u64,
    lines: [Line; GROUP],
}

/// Locates a group. With many lines each access to another place is a cache miss, so the slot has
/// everything that is needed to find a line.
#[derive(Clone, Copy)]
struct Slot {
    /// The group's number.
    number: u64,
    group: u32,
    /// The lines of the group that were ever touched, one bit each.
    touched: u8,
}

const FREE: Slot = Slot { number: 0, group: u32::MAX, touched: 0 };

/// All lines ever touched. The index of a line never changes.
pub(super) struct Lines {
    groups: Vec<Group>,
    /// Open addressing.
    slots: Vec<Slot>,
    touched: usize,
}

fn hash_of(group: u64) -> u64 {
    let mixed = group.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { groups: Vec::new(), slots: vec![FREE; 1 << 10], touched: 0 }
    }

    /// Returns the index of the line and marks the line as touched.
    pub(super) fn index_of(&mut self, number: u64) -> u32 {
        let slot = self.slot_of(number / GROUP as u64);
        let place = number as usize % GROUP;
        let slot = &mut self.slots[slot];
        self.touched += usize::from(slot.touched >> place & 1 == 0);
        slot.touched |= 1 << place;
        slot.group * GROUP as u32 + place as u32
    }

    /// Returns the slot of the group with that number. Creates the group if there is none.
    #[inline]
    fn slot_of(&mut self, number: u64) -> usize {
        let at = self.search(number);
        if self.slots[at].group == FREE.group { self.insert(number) } else { at }
    }

    /// Returns the slot with that number, or the free slot where it belongs.
    #[inline]
    fn search(&self, number: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (hash_of(number) >> 32) as usize & mask;
        while self.slots[at].group != FREE.group && self.slots[at].number != number {
            at = (at + 1) & mask;
        }
        at
    }

    #[cold]
    fn insert(&mut self, number: u64) -> usize {
        if (self.groups.len() + 1) * 2 > self.slots.len() {
            let larger = vec![FREE; self.slots.len() * 2];
            for slot in std::mem::replace(&mut self.slots, larger) {
                if slot.group != FREE.group {
                    let at = self.search(slot.number);
                    self.slots[at] = slot;
                }
            }
        }
        let group = self.groups.len() as u32;
        self.groups.push(Group { number, lines: [Line::NEW; GROUP] });
        let at = self.search(number);
        self.slots[at] = Slot { number, group, touched: 0 };
        at
    }

    /// Returns the number of the line with that index: its address divided by the line size.
    pub(super) fn number(&self, at: u32) -> u64 {
        let group = &self.groups[at as usize / GROUP];
        group.number * GROUP as u64 + (at as usize % GROUP) as u64
    }

    /// Returns how many lines were ever touched.
    pub(super) fn len(&self) -> usize {
        self.touched
    }

    /// Returns the indices of all lines that were ever touched.
    #[cfg(test)]
    pub(super) fn indices(&self) -> impl Iterator<Item = u32> {
        let touched = |slot: &Slot| {
            let (first, touched) = (slot.group.wrapping_mul(GROUP as u32), slot.touched);
            (0..GROUP as u32).filter(move |place| touched >> place & 1 == 1).map(move |p| first + p)
        };
        self.slots.iter().flat_map(touched)
    }
}

impl std::ops::Index<u32> for Lines {
    type Output = Line;
    #[inline]
    fn index(&self, at: u32) -> &Line {
        &self.groups[at as usize / GROUP].lines[at as usize % GROUP]
    }
}

impl std::ops::IndexMut<u32> for Lines {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut Line {
        &mut self.groups[at as usize / GROUP].lines[at as usize % GROUP]
    }
}
