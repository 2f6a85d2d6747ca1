//! Leases of regions to slots. Law memory.R3.

use super::region::{Handle, Kind, Region};
use super::{Memory, NODE, REGION, Usage};
use std::alloc::{self, Layout};
use std::collections::BTreeSet;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

/// Bytes mapped at once: a huge page.
const FETCH: usize = 2 << 20;
/// Regions that are probed before a new region is made, while the budget allows a new region.
const LOOKS: usize = 64;
/// The fraction of a region that must be free for a lease, by how scarce free memory is.
const PARTS: [usize; 5] = [8, 16, 32, 64, 256];
/// The index in [`PARTS`] from which on it is better to vacate other regions.
const HARD: u32 = 2;

/// Vacating begins when all but this fraction of the budget is used. The rest is for regions that a
/// walk needs for new items, and for copies that fit no gap.
const EARLY: usize = 16;

/// The regions from which a slot allocates.
#[derive(Default)]
pub(super) struct Leases {
    nodes: Option<NonNull<Region>>,
    /// The index of the bitmap word that `taken` came from.
    word: usize,
    /// A bit for each node that the slot has taken from the bitmap and has not allocated.
    taken: u64,
    pub(super) tails: Option<NonNull<Region>>,
    /// The granule at which the search for runs continues.
    pub(super) from: usize,
}

// SAFETY: regions belong to no thread; the slot's lock decides which thread uses its leases.
unsafe impl Send for Leases {}

impl Leases {
    /// Allocates a node.
    #[inline]
    pub(super) fn node(&mut self, memory: &Memory) -> NonNull<u8> {
        loop {
            if let Some(region) = self.nodes.filter(|_| self.taken != 0) {
                let number = self.word * 64 + self.taken.trailing_zeros() as usize;
                self.taken &= self.taken - 1;
                let node = Handle(region).unit(number, NODE);
                // SAFETY: within a region.
                return unsafe { NonNull::new_unchecked(node) };
            }
            self.take_nodes(memory);
        }
    }

    /// Takes the free nodes of the next word with free nodes.
    #[cold]
    fn take_nodes(&mut self, memory: &Memory) {
        if let Some(region) = self.nodes.map(Handle) {
            for at in self.word + 1..region.words() {
                // ORDER: Relaxed; bits are taken by Acquire.
                let free = region.word(at).load(Ordering::Relaxed);
                if free != 0 {
                    debug_assert_eq!(self.taken, 0, "memory.R2: nodes that were taken are lost");
                    region.take(at, free);
                    (self.word, self.taken) = (at, free);
                    return;
                }
            }
        }
        let region = memory.lease(Kind::Nodes, self.nodes, false);
        self.nodes = Some(region);
        // ORDER: Relaxed; as above.
        let free = Handle(region).word(0).load(Ordering::Relaxed);
        if free != 0 {
            Handle(region).take(0, free);
        }
        (self.word, self.taken) = (0, free);
    }

    /// Leases another region for tails. If `free` is set, leases a region that is all free.
    pub(super) fn next_tails(&mut self, memory: &Memory, free: bool) {
        let region = memory.lease(Kind::Tails, self.tails, free);
        (self.tails, self.from) = (Some(region), 0);
    }
}

/// The result of a request for a lease.
pub(super) struct Leased {
    pub(super) region: NonNull<Region>,
    /// Whether there are, or soon will be, more regions than the budget allows.
    pub(super) is_over: bool,
}

/// The list of all regions.
pub(super) struct Regions {
    all: Vec<Handle>,
    /// The position of the next probe.
    hand: usize,
    hardness: [u32; 2],
    /// The blocks mapped from the system, each of [`FETCH`] bytes.
    fetched: Vec<NonNull<u8>>,
    /// Regions of the last block that are not made yet.
    left: usize,
    /// Regions with memory that was returned to the system. A block with such a region has huge
    /// pages disabled. Otherwise the system could collapse the block's small pages into a huge
    /// page, which would make the region's memory resident again.
    returned: BTreeSet<NonNull<u8>>,
    note: *const (),
    /// Regions that are being vacated.
    vacated: Vec<Handle>,
    /// The total so far.
    vacated_total: usize,
    /// Leases since the last check whether regions should be vacated.
    leases: usize,
}

// SAFETY: memory, which belongs to no thread; to this module the note is only a number.
unsafe impl Send for Regions {}

impl Default for Regions {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            hand: 0,
            hardness: [0; 2],
            fetched: Vec::new(),
            left: 0,
            returned: BTreeSet::new(),
            note: ptr::null(),
            vacated: Vec::new(),
            vacated_total: 0,
            leases: 0,
        }
    }
}

impl Regions {
    /// Sets the note that regions begin with, before there are regions.
    pub(super) fn note(&mut self, note: *const ()) {
        assert!(self.all.is_empty(), "manycored: memory for two caches");
        self.note = note;
    }

    /// Leases a region with free room, and ends the lease of `before`.
    pub(super) fn lease(
        &mut self,
        kind: Kind,
        before: Option<NonNull<Region>>,
        budget: usize,
        all_free: bool,
    ) -> Leased {
        if let Some(before) = before.map(Handle) {
            // ORDER: Relaxed (and so below); under this lock.
            debug_assert!(
                before.leased().load(Ordering::Relaxed)
                    && !before.is_vacated()
                    && before.kind() == kind,
                "memory.R3: a lease ends of a region that the slot has not leased"
            );
            before.leased().store(false, Ordering::Relaxed);
        }
        if all_free {
            let found = self.find(kind, 1, usize::MAX).map(|(region, _)| region);
            let is_over = found.is_none() && self.all.len() >= budget - budget / EARLY;
            let region = found.unwrap_or_else(|| self.make(kind)).0;
            return Leased { region, is_over };
        }
        // While the budget allows more regions, only regions with enough free room are accepted.
        let may_grow = self.all.len() < budget;
        let most = if may_grow { LOOKS } else { usize::MAX };
        let last = if may_grow { 0 } else { PARTS.len() as u32 - 1 };
        let mut hardness = self.hardness[kind as usize].min(last);
        loop {
            if let Some((region, is_roomy)) = self.find(kind, PARTS[hardness as usize], most) {
                let hardness = if is_roomy { 0 } else { hardness };
                self.hardness[kind as usize] = hardness;
                let is_over = (hardness >= HARD || self.all.len() > budget) && self.is_time();
                return Leased { region: region.0, is_over };
            }
            if hardness >= last {
                break;
            }
            hardness += 1;
        }
        self.hardness[kind as usize] = hardness;
        let region = self.make(kind);
        let is_over = !may_grow || self.all.len() > budget - budget / EARLY && self.is_time();
        Leased { region: region.0, is_over }
    }

    /// Returns true if enough leases have passed for another search for regions to vacate.
    fn is_time(&mut self) -> bool {
        self.leases += 1;
        let is_time = self.leases > self.all.len() / 16;
        if is_time {
            self.leases = 0;
        }
        is_time
    }

    /// Leases a region with at least this fraction free. Also returns whether much more is free.
    fn find(&mut self, kind: Kind, part: usize, most: usize) -> Option<(Handle, bool)> {
        for _ in 0..self.all.len().min(most) {
            self.hand = (self.hand + 1) % self.all.len();
            let region = self.all[self.hand];
            if region.leased().load(Ordering::Relaxed) {
                continue;
            }
            let (own, free) = (region.kind(), region.free_now());
            let is_empty = free == own.units() && region.count_free() == free;
            if is_empty && own != kind {
                region.lay_out(kind);
            } else if own != kind || free < (kind.units() / part).max(1) {
                continue;
            }
            debug_assert!(!region.is_vacated(), "memory.R3: a region is leased while vacated");
            region.leased().store(true, Ordering::Relaxed);
            return Some((region, is_empty || free >= kind.units() / 4));
        }
        None
    }

    /// Makes a new region, which is leased at once.
    fn make(&mut self, kind: Kind) -> Handle {
        let memory = self.take_returned().unwrap_or_else(|| self.fetch());
        // SAFETY: aligned, as long as a region, and no other region's.
        let region = Handle(unsafe { Region::make(memory, self.note, kind) });
        region.leased().store(true, Ordering::Relaxed);
        self.all.push(region);
        region
    }

    /// Takes the memory of a region that was returned to the system.
    fn take_returned(&mut self) -> Option<NonNull<u8>> {
        let memory = self.returned.pop_last()?;
        let area = fetched_with(memory);
        if self.returned.last().is_none_or(|next| fetched_with(*next) != area) {
            want_huge_page(area, true);
        }
        Some(memory)
    }

    /// Takes new memory for a region.
    fn fetch(&mut self) -> NonNull<u8> {
        if self.left == 0 {
            let layout = Layout::from_size_align(FETCH, FETCH).expect("a power of two");
            // SAFETY: the layout is not empty.
            let memory = unsafe { alloc::alloc(layout) };
            let Some(memory) = NonNull::new(memory) else { alloc::handle_alloc_error(layout) };
            memory.expose_provenance(); // for `Memory::is_vacated`
            want_huge_page(memory, true);
            self.fetched.push(memory);
            self.left = FETCH / REGION;
        }
        self.left -= 1;
        let fetched = *self.fetched.last().expect("fetched just now");
        // SAFETY: within what was fetched.
        unsafe { fetched.add(self.left * REGION) }
    }

    /// Returns the memory of entirely free regions to the system, as long as there are more regions
    /// than the budget allows.
    pub(super) fn give_back(&mut self, budget: usize) {
        let Self { all, returned, .. } = self;
        let mut more = all.len().saturating_sub(budget);
        all.retain(|region| {
            let is_free = more > 0
                && !region.leased().load(Ordering::Relaxed)
                && region.free_now() == region.kind().units()
                && region.count_free() == region.kind().units();
            if is_free {
                more -= 1;
                let memory = region.0.cast();
                want_huge_page(fetched_with(memory), false);
                forget_content(memory);
                let is_new = returned.insert(memory);
                debug_assert!(is_new, "memory.R1: a region is returned to the system twice");
            }
            !is_free
        });
    }

    /// Chooses regions to be vacated, of the kind with the larger free part.
    pub(super) fn choose_to_vacate(&mut self) -> usize {
        debug_assert!(self.vacated.is_empty(), "memory.R3: two walks vacate regions");
        let mut best: (usize, Vec<(usize, Handle)>) = (0, Vec::new());
        for kind in Kind::ALL {
            let idle = |region: &&Handle| {
                region.kind() == kind && !region.leased().load(Ordering::Relaxed)
            };
            let mut own: Vec<(usize, Handle)> =
                self.all.iter().filter(idle).map(|own| (own.free_now(), *own)).collect();
            own.retain(|(free, _)| *free < kind.units()); // an empty region fits any kind
            own.sort_by_key(|(free, _)| std::cmp::Reverse(*free));
            // The content of the chosen regions must fit into the others, with a margin.
            let mut room: usize = own.iter().map(|(free, _)| *free).sum();
            let (mut moved, mut count) = (0, 0);
            for (free, _) in &own {
                room -= free;
                moved += kind.units() - free;
                if moved + moved / 8 > room || count > own.len() / 4 {
                    break;
                }
                count += 1;
            }
            own.truncate(count);
            let gain = own.iter().map(|(free, _)| free * kind.unit()).sum::<usize>();
            if gain > best.0 {
                best = (gain, own);
            }
        }
        if best.0 < (self.all.len() * REGION / 64).max(2 * REGION) {
            return 0; // not worth a walk
        }
        self.vacated = best.1.into_iter().map(|(_, region)| region).collect();
        for region in &self.vacated {
            region.leased().store(true, Ordering::Relaxed);
            region.set_vacated(true);
        }
        self.vacated_total += self.vacated.len();
        self.vacated.len()
    }

    pub(super) fn end_vacating(&mut self) {
        for region in self.vacated.drain(..) {
            debug_assert!(
                region.is_vacated() && region.leased().load(Ordering::Relaxed),
                "memory.R3: a region was leased while it was vacated"
            );
            region.set_vacated(false);
            region.leased().store(false, Ordering::Relaxed);
        }
    }

    /// Returns the number of regions.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn usage(&self) -> Usage {
        let free = self.all.iter().map(|own| own.free_now() * own.kind().unit()).sum();
        Usage { mapped: self.all.len() * REGION, free, vacated: self.vacated_total }
    }
}

impl Drop for Regions {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(FETCH, FETCH).expect("a power of two");
        for memory in &self.fetched {
            // SAFETY: allocated so by `make`; memory.R5 - no item is left.
            unsafe { alloc::dealloc(memory.as_ptr(), layout) };
        }
    }
}

/// Returns the pages of a region to the system, which supplies zeroed pages at the next use.
fn forget_content(memory: NonNull<u8>) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: memory that is ours, of whole pages, and that no unit in use lies in. If the call
    // fails, the memory stays as it is.
    unsafe {
        use nix::sys::mman::{MmapAdvise, madvise};
        let _ = madvise(memory.cast(), REGION, MmapAdvise::MADV_DONTNEED);
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = memory;
}

/// Returns the beginning of the block that a region's memory belongs to.
fn fetched_with(memory: NonNull<u8>) -> NonNull<u8> {
    let area = memory.as_ptr().map_addr(|address| address & !(FETCH - 1));
    NonNull::new(area).expect("what is fetched does not begin at 0")
}

/// Enables or disables huge pages for a block. Huge pages help, because items are accessed in
/// random order and the TLB has few entries.
fn want_huge_page(memory: NonNull<u8>, is_wanted: bool) {
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: memory that is ours; the advice changes no content. If the call fails, all is as
    // before.
    unsafe {
        use nix::sys::mman::{MmapAdvise, madvise};
        let advice =
            if is_wanted { MmapAdvise::MADV_HUGEPAGE } else { MmapAdvise::MADV_NOHUGEPAGE };
        let _ = madvise(memory.cast(), FETCH, advice);
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (memory, is_wanted);
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;

    /// Returns true if the system may use huge pages at this address.
    fn may_have_huge_pages(memory: NonNull<u8>) -> bool {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_there = false;
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to)))
            {
                is_there = (from..to).contains(&memory.addr().get());
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_there) {
                return flags.split(' ').any(|flag| flag == "hg");
            }
        }
        panic!("{memory:?} is in none of the mappings");
    }

    #[test]
    fn no_huge_page_makes_returned_memory_resident_again() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return; // a system without huge pages
        }
        let mut regions = Regions::default();
        let all = [(); 2 * FETCH / REGION].map(|()| regions.make(Kind::Tails));
        let [first, .., last] = all.map(|region| region.0.cast::<u8>());
        assert!(may_have_huge_pages(first) && may_have_huge_pages(last));
        for region in &all[..2] {
            region.leased().store(false, Ordering::Relaxed);
        }
        regions.give_back(0);
        assert_eq!(regions.returned.len(), 2);
        assert!(!may_have_huge_pages(first) && may_have_huge_pages(last));
        regions.make(Kind::Nodes);
        assert!(!may_have_huge_pages(first), "one is still returned");
        regions.make(Kind::Nodes);
        assert!(may_have_huge_pages(first) && regions.returned.is_empty());
    }
}
