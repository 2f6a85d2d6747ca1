//! False and true sharing: what caused a miss.
//!
//! For a line that several cores use, the engine also runs the protocol on its parts: which core
//! may write a part, and which cores may read it. Parts are as small as the accesses make them. A
//! miss that other cores caused is one of two kinds:
//!
//! - True sharing: since the core last had the line, others wrote the part, or they read it and the
//!   core now writes it.
//! - False sharing: anything else. With a line for each part the access would have been a hit.
//!
//! (The definition is that of Dubois and others, ISCA 1993.) A core's first miss of a line is
//! neither, and so is a miss after its cache had no room for the line.
//!
//! Hits count as well: a core may miss on a part of its own and then use another core's part. The
//! fast path answers most hits without a look at the line, so only the first [`LOOKS`] hits after
//! each transfer come here. If such a hit finds another core's part, an earlier miss that was
//! classed as false sharing becomes true sharing. Nothing here changes a cost.

use super::{
    cores::{CoreSet, NO_CORE},
    stats::{SiteKey, Tally},
};

/// Hits that are examined after each transfer.
const LOOKS: u8 = 8;

/// Maximal misses whose class may still change: the holder's, and those of earlier holders that
/// linger.
const DOUBTFUL: usize = 4;

/// Bytes of a line that always go together.
struct Part {
    bytes: u128,
    /// The core that last wrote the part, if no other core has read it since.
    owner: u16,
    /// The cores that have read the part since.
    copies: CoreSet,
    is_written: bool,
}

/// The sharing state of a line that several cores use.
#[derive(Default)]
pub(super) struct Sharing {
    parts: Vec<Part>,
    /// Cores that have had the line and have not evicted it since.
    had: CoreSet,
    looks: u8,
    /// The last misses classed as false sharing, one for each core: core, site and cycles.
    doubtful: Vec<(u16, SiteKey, u64)>,
}

/// The cause of a miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    /// A first use, or a lack of room.
    Own,
    FalseSharing,
    TrueSharing,
}

impl Part {
    /// Records a core's access. Returns true if another core's access came in between.
    fn touch(&mut self, core: u16, write: bool, lingers: bool) -> bool {
        let is_own = self.owner == core;
        // True also if the core never had the part. A part that nobody wrote conflicts with no
        // read.
        let is_lost = self.is_written && !is_own && !self.copies.has(core);
        let is_common = is_lost || write && self.copies.iter().any(|copy| copy != core);
        if lingers && is_common {
            return true; // the next holder's access is counted, and it comes after this one
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
    /// Records a core's access of some bytes of the line.
    ///
    /// Returns true if another core accessed any of these bytes in between. The core would then
    /// miss even if each byte had its own line. `lingers`: the core has lost the line, but so
    /// recently that it may still use it.
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

    /// Starts the state of a line that these cores have.
    pub(super) fn new(owner: u16, copies: &CoreSet) -> Sharing {
        let mut new = Sharing { had: *copies, ..Sharing::default() };
        if owner != NO_CORE {
            new.had.add(owner);
        }
        new
    }

    /// Classifies a core's miss. Others caused it if they have the line and the core had it before.
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

    /// Remembers a miss that was counted at its site, in case its class changes.
    pub(super) fn remember(&mut self, key: SiteKey, core: u16, cause: Cause, waited: u64) {
        self.doubtful.retain(|(of, ..)| *of != core);
        if cause == Cause::FalseSharing {
            self.doubtful.truncate(DOUBTFUL - 1);
            self.doubtful.insert(0, (core, key, waited));
        }
    }

    /// Returns true if hits of the line are still examined.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.looks > 0
    }

    /// Examines a hit of a core that holds the line, or that lost it so recently that it `lingers`.
    ///
    /// Returns the core's earlier miss if that miss was classed as false sharing and turns out to
    /// be true sharing.
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

    /// Records that the core's cache evicted the line.
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

    /// Moves a miss of `waited` cycles from false sharing to true sharing.
    pub(super) fn was_true_sharing(&mut self, waited: u64) {
        let waited = waited.min(self.false_sharing);
        self.false_sharing -= waited;
        self.true_sharing += waited;
    }
}
