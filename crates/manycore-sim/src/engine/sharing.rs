//! False and true sharing: what a miss is caused by.
//!
//! Beside a line that several cores use, the same protocol is kept for its parts, which are as
//! small as the accesses make them: which core may write the part, which cores may read it. A miss
//! that other cores caused is true sharing if the part is one that they wrote, or that the core
//! writes and they had read, since the core last had it; else it is false sharing: with a line for
//! each part it would have been a hit. (The definition is Dubois' and others', ISCA 1993.)
//!
//! A core's first miss of a line, and one of a line that its cache had no room for, is neither.
//!
//! Hits count as well, because a core may miss on a part of its own and then look at another's.
//! The fast path answers most hits without a look at the line, so only the first [`LOOKS`] after
//! each transfer come here. If one of them finds a part of another core's, the miss before it, if
//! it was taken for false sharing, is true sharing after all. Nothing here changes a cost.

use super::{
    cores::{CoreSet, NO_CORE},
    stats::{SiteKey, Tally},
};

/// Hits after a transfer that are looked at.
const LOOKS: u8 = 8;

/// Misses that are still doubtful: the holder's, and those of holders before that linger.
const DOUBTFUL: usize = 4;

/// Bytes of a line that always go together.
struct Part {
    bytes: u128,
    /// The core that wrote it last, if no other has read it since.
    owner: u16,
    /// The cores that have read it since.
    copies: CoreSet,
    is_written: bool,
}

/// What is kept of a line that several cores use.
#[derive(Default)]
pub(super) struct Sharing {
    parts: Vec<Part>,
    /// Cores that have had the line since they last gave it up for want of room.
    had: CoreSet,
    looks: u8,
    /// The last misses, of one core each, that were taken for false sharing: core, site and cycles.
    doubtful: Vec<(u16, SiteKey, u64)>,
}

/// What a miss is caused by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// A first use, or a lack of room.
    Own,
    FalseSharing,
    TrueSharing,
}

impl Part {
    /// A core's access. Whether another core's came in between.
    fn touch(&mut self, core: u16, write: bool, lingers: bool) -> bool {
        let is_own = self.owner == core;
        // Or the core never had it; what is only read is not wanted from the others.
        let is_lost = self.is_written && !is_own && !self.copies.has(core);
        let is_common = is_lost || write && self.copies.iter().any(|copy| copy != core);
        if lingers && is_common {
            return true; // the next holder's access, which is counted, comes behind this one
        }
        if write {
            self.owner = core;
            self.is_written = true;
            self.copies.clear();
            return is_common;
        }
        if !is_own {
            if self.owner != NO_CORE {
                self.copies.add(self.owner);
                self.owner = NO_CORE;
            }
            self.copies.add(core);
        }
        is_common
    }
}

impl Sharing {
    /// A core's access of those bytes. Whether another core's access of some of them came in
    /// between, so that the core would miss also if each byte had a line of its own. The core
    /// holds the line, or lost it so recently that it `lingers`.
    fn touch(&mut self, core: u16, bytes: u128, write: bool, lingers: bool) -> bool {
        let mut left = bytes;
        let mut is_common = false;
        for at in 0..self.parts.len() {
            let part = &mut self.parts[at];
            let both = part.bytes & bytes;
            if both == 0 {
                continue;
            }
            left &= !both;
            let rest = part.bytes & !both;
            if rest != 0 {
                let rest = Part { bytes: rest, ..*part };
                part.bytes = both;
                self.parts.push(rest);
            }
            is_common |= self.parts[at].touch(core, write, lingers);
        }
        if left != 0 {
            let (owner, copies) = (NO_CORE, CoreSet::EMPTY);
            let mut part = Part { bytes: left, owner, copies, is_written: false };
            part.touch(core, write, lingers);
            self.parts.push(part);
        }
        is_common
    }

    /// Of a line that these cores have.
    pub(super) fn new(owner: u16, copies: &CoreSet) -> Sharing {
        let mut new = Sharing { had: *copies, ..Sharing::default() };
        if owner != NO_CORE {
            new.had.add(owner);
        }
        new
    }

    /// A core's miss, which others caused if they have the line and the core had it before.
    pub(super) fn miss(&mut self, core: u16, bytes: u128, write: bool, others: bool) -> Cause {
        let is_back = self.had.has(core);
        self.had.add(core);
        self.looks = LOOKS;
        let is_common = self.touch(core, bytes, write, false);
        match (others && is_back, is_common) {
            (false, _) => Cause::Own,
            (true, true) => Cause::TrueSharing,
            (true, false) => Cause::FalseSharing,
        }
    }

    /// The miss has been counted at its site, as what it was taken for.
    pub(super) fn remember(&mut self, key: SiteKey, core: u16, cause: Cause, waited: u64) {
        self.doubtful.retain(|(of, ..)| *of != core);
        if cause == Cause::FalseSharing {
            self.doubtful.truncate(DOUBTFUL - 1);
            self.doubtful.insert(0, (core, key, waited));
        }
    }

    /// Whether hits of the line are still looked at.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.looks > 0
    }

    /// A hit, of a core that holds the line or lost it so recently that it `lingers`. The core's
    /// miss that was taken for false sharing, and is none.
    pub(super) fn hit(
        &mut self,
        core: u16,
        bytes: u128,
        write: bool,
        lingers: bool,
    ) -> Option<(SiteKey, u64)> {
        self.looks -= 1;
        if !self.touch(core, bytes, write, lingers) {
            return None;
        }
        let place = self.doubtful.iter().position(|(of, ..)| *of == core)?;
        let (_, key, waited) = self.doubtful.remove(place);
        Some((key, waited))
    }

    /// The core's cache had no room for the line.
    pub(super) fn give_up(&mut self, core: u16) {
        self.had.remove(core);
        for part in &mut self.parts {
            part.copies.remove(core);
            if part.owner == core {
                part.owner = NO_CORE;
            }
        }
    }
}

impl Tally {
    /// Counts a miss.
    pub(super) fn add(&mut self, cause: Cause, waited: u64) {
        self.misses += 1;
        self.cycles += waited;
        match cause {
            Cause::Own => {}
            Cause::FalseSharing => self.false_sharing += waited,
            Cause::TrueSharing => self.true_sharing += waited,
        }
    }

    /// A miss of so many cycles was taken for false sharing, and is none.
    pub(super) fn was_true_sharing(&mut self, waited: u64) {
        let waited = waited.min(self.false_sharing);
        self.false_sharing -= waited;
        self.true_sharing += waited;
    }
}
