//! Cache lines: who has a copy, who waits, and the table that finds a line by its number.

use super::{
    Access,
    cores::{CoreSet, NOBODY},
};

/// One request for a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) thread: u32,
    pub(super) core: u16,
    pub(super) write: bool,
    pub(super) kind: Access,
    /// A store that its core does not wait for.
    pub(super) buffered: bool,
    pub(super) arrived: u64,
    pub(super) pc: usize,
}

/// State of one line.
pub(super) struct Line {
    /// Address divided by the line size.
    pub(super) number: u64,
    /// The one core that may write, or `NOBODY`.
    pub(super) owner: u16,
    /// Who answers the next request: the last owner.
    pub(super) supplier: u16,
    /// Buffered stores on their way.
    pub(super) stores: u32,
    /// Cores with a copy to read, when there is no owner.
    pub(super) copies: CoreSet,
    /// The transfer under way ends then.
    pub(super) busy_until: u64,
    /// When the last buffered store that arrived can be seen.
    pub(super) visible_at: u64,
    /// What only a line needs that has changed hands; most never do.
    traffic: Option<Box<Traffic>>,
}

/// Who held a line before, and who waits for it.
#[derive(Default)]
struct Traffic {
    past_owner: Option<u16>,
    past_copies: CoreSet,
    /// Until when these may go on using it.
    linger_until: u64,
    /// Who waits in this round, in order of arrival, and who came since it began.
    waiting: Vec<Request>,
    late: Vec<Request>,
}

impl Line {
    fn new(number: u64) -> Line {
        Line {
            number,
            owner: NOBODY,
            supplier: NOBODY,
            stores: 0,
            copies: CoreSet::EMPTY,
            busy_until: 0,
            visible_at: 0,
            traffic: None,
        }
    }

    /// Whether the state alone lets the core use its copy.
    #[inline]
    pub(super) fn holds(&self, core: u16, write: bool) -> bool {
        self.owner == core || !write && self.copies.has(core)
    }

    /// Whether the core lost the line so recently that it may still use it.
    #[inline]
    pub(super) fn lingers(&self, core: u16, write: bool, now: u64) -> bool {
        self.traffic.as_ref().is_some_and(|traffic| {
            let held = traffic.past_owner == Some(core);
            now < traffic.linger_until && (held || !write && traffic.past_copies.has(core))
        })
    }

    /// The holders of now may use the line until then, whoever gets it.
    pub(super) fn linger(&mut self, until: u64) {
        let owner = (self.owner != NOBODY).then_some(self.owner);
        if owner.is_none() && self.copies.is_empty() && self.traffic.is_none() {
            return; // it comes from memory
        }
        let copies = self.copies;
        let traffic = self.traffic.get_or_insert_default();
        traffic.past_owner = owner;
        traffic.past_copies = copies;
        traffic.linger_until = until;
    }

    pub(super) fn is_contended(&self) -> bool {
        let idle = |traffic: &Traffic| traffic.waiting.is_empty() && traffic.late.is_empty();
        !self.traffic.as_deref().is_none_or(idle)
    }

    /// A request waits, for the next round.
    pub(super) fn enqueue(&mut self, request: Request) {
        self.traffic.get_or_insert_default().late.push(request);
    }

    /// Everybody who came belongs to this round. Whether the round is a new one.
    pub(super) fn admit_late(&mut self) -> bool {
        let traffic = self.traffic.get_or_insert_default();
        let new = traffic.waiting.is_empty();
        traffic.waiting.append(&mut traffic.late);
        new
    }

    /// Who waits in this round.
    pub(super) fn round(&mut self) -> &mut Vec<Request> {
        &mut self.traffic.get_or_insert_default().waiting
    }

    /// Everybody who waits.
    #[cfg(test)]
    pub(super) fn all_waiting(&self) -> impl Iterator<Item = &Request> {
        let traffic = self.traffic.iter();
        traffic.flat_map(|traffic| traffic.waiting.iter().chain(&traffic.late))
    }
}

const FREE: u32 = u32::MAX;

/// All lines ever touched.
pub(super) struct Lines {
    lines: Vec<Line>,
    /// Open addressing: indices into `lines`.
    slots: Vec<u32>,
}

fn slot_of(number: u64, mask: usize) -> usize {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24) as usize & mask
}

impl Lines {
    pub(super) fn new() -> Lines {
        Lines { lines: Vec::new(), slots: vec![FREE; 1 << 12] }
    }

    /// Index of the line, which is made if it was never touched.
    pub(super) fn index_of(&mut self, number: u64) -> u32 {
        let mask = self.slots.len() - 1;
        let mut slot = slot_of(number, mask);
        loop {
            match self.slots[slot] {
                FREE => return self.insert(number),
                index if self.lines[index as usize].number == number => return index,
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    #[cold]
    fn insert(&mut self, number: u64) -> u32 {
        if (self.lines.len() + 1) * 2 > self.slots.len() {
            self.slots = vec![FREE; self.slots.len() * 2];
            for index in 0..self.lines.len() {
                self.place(index as u32);
            }
        }
        self.lines.push(Line::new(number));
        let index = (self.lines.len() - 1) as u32;
        self.place(index);
        index
    }

    fn place(&mut self, index: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = slot_of(self.lines[index as usize].number, mask);
        while self.slots[slot] != FREE {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = index;
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }
}

impl std::ops::Index<u32> for Lines {
    type Output = Line;
    fn index(&self, at: u32) -> &Line {
        &self.lines[at as usize]
    }
}

impl std::ops::IndexMut<u32> for Lines {
    fn index_mut(&mut self, at: u32) -> &mut Line {
        &mut self.lines[at as usize]
    }
}
