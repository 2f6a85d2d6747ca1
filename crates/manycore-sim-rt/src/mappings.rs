//! Files that the program has mapped at several addresses, whose bytes are the same cache lines.
//!
//! Owns: the list of shared mappings of files, and the choice of one address for each of their
//! bytes.
//!
//! Law mappings.M1: the engine gets the address that a byte has in the oldest mapping of it. If the
//! program has no byte mapped twice, that is the program's own address. When the oldest mapping
//! goes, the lines begin anew at the next one, as if no core had them, and threads that wait there
//! are woken.
//!
//! Cost: while some byte is mapped twice, each access searches the list. That is cheap for the few
//! mappings of a program that shares memory, and slow for thousands.

/// A file: its device and its number there.
pub(crate) type File = (u64, u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mapping {
    start: usize,
    bytes: usize,
    file: File,
    offset: u64,
}

impl Mapping {
    /// Returns the place in the file of an address, if it is in the mapping.
    fn offset_of(&self, address: usize) -> Option<u64> {
        let within = address.checked_sub(self.start)?;
        (within < self.bytes).then(|| self.offset + within as u64)
    }

    /// Returns the address of a place in the file, and how many bytes follow in the mapping.
    fn address_of(&self, file: File, offset: u64) -> Option<(usize, usize)> {
        let within = offset.checked_sub(self.offset)? as usize;
        let is_here = file == self.file && within < self.bytes;
        is_here.then(|| (self.start + within, self.bytes - within))
    }

    /// Returns true if some byte of the file is in both.
    fn meets(&self, other: &Mapping) -> bool {
        let end = |one: &Mapping| one.offset + one.bytes as u64;
        self.file == other.file && self.offset < end(other) && other.offset < end(self)
    }

    /// Returns the part between two addresses, if there is any.
    fn between(&self, from: usize, to: usize) -> Option<Mapping> {
        let start = self.start.max(from);
        let end = (self.start + self.bytes).min(to);
        let offset = self.offset + (start - self.start) as u64;
        (start < end).then(|| Mapping { start, bytes: end - start, offset, ..*self })
    }
}

/// The shared mappings of files.
#[derive(Default)]
pub(crate) struct Mappings {
    /// Oldest first; no two have an address in common.
    all: Vec<Mapping>,
    /// True if some byte of a file is mapped twice.
    has_common: bool,
}

impl Mappings {
    /// Adds a mapping, at addresses that no other one has.
    pub(crate) fn add(&mut self, start: usize, bytes: usize, file: File, offset: u64) {
        let new = Mapping { start, bytes, file, offset };
        self.has_common |= self.all.iter().any(|old| old.meets(&new));
        self.all.push(new);
    }

    /// Removes the addresses of a range.
    pub(crate) fn remove(&mut self, start: usize, bytes: usize) {
        let end = start.saturating_add(bytes);
        if !self.all.iter().any(|mapping| mapping.between(start, end).is_some()) {
            return;
        }
        let rest = |mapping: &Mapping| {
            [mapping.between(0, start), mapping.between(end, usize::MAX)].into_iter().flatten()
        };
        self.all = self.all.iter().flat_map(rest).collect();
        if self.has_common {
            let mut all = self.all.iter().enumerate();
            self.has_common = all.any(|(at, one)| self.all[..at].iter().any(|two| two.meets(one)));
        }
    }

    /// Returns the file and the place in it that are mapped at an address.
    pub(crate) fn file_at(&self, address: usize) -> Option<(File, u64)> {
        self.all.iter().find_map(|one| Some((one.file, one.offset_of(address)?)))
    }

    /// Returns true if some byte of a file is mapped twice.
    #[inline(always)]
    pub(crate) fn has_common(&self) -> bool {
        self.has_common
    }

    /// Returns the address for the engine, and for how many bytes it holds (mappings.M1).
    pub(crate) fn line_address(&self, address: usize) -> (usize, usize) {
        if self.has_common { self.oldest(address) } else { (address, usize::MAX) }
    }

    fn oldest(&self, address: usize) -> (usize, usize) {
        let here = self.all.iter().find_map(|one| Some((one, one.offset_of(address)?)));
        let Some((mapping, offset)) = here else {
            // Up to the next mapping.
            let starts = self.all.iter().map(|one| one.start).filter(|start| *start > address);
            return (address, starts.min().map_or(usize::MAX, |start| start - address));
        };
        let own = mapping.start + mapping.bytes - address;
        let found = self.all.iter().find_map(|one| one.address_of(mapping.file, offset));
        let (at, room) = found.unwrap_or((address, own));
        (at, room.min(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: File = (1, 2);

    #[test]
    fn bytes_have_their_address_in_the_oldest_mapping() {
        let mut mappings = Mappings::default();
        mappings.add(0x1000, 0x2000, FILE, 0);
        mappings.add(0x8000, 0x2000, (1, 3), 0);
        assert_eq!(mappings.line_address(0x8010), (0x8010, usize::MAX), "another file");
        // The second mapping has one page of the first, and one of its own.
        mappings.add(0x5000, 0x2000, FILE, 0x1000);
        assert_eq!(mappings.line_address(0x2010), (0x2010, 0xff0));
        assert_eq!(mappings.line_address(0x5010), (0x2010, 0xff0));
        assert_eq!(mappings.line_address(0x6010), (0x6010, 0xff0));
        assert_eq!(mappings.line_address(0x7010), (0x7010, 0xff0), "no mapping, up to the next");
        assert_eq!(mappings.line_address(0xa000), (0xa000, usize::MAX));
        // Without the page's first mapping, the second one counts.
        mappings.remove(0x2000, 0x1000);
        assert_eq!(mappings.line_address(0x5010), (0x5010, usize::MAX));
        assert_eq!(mappings.file_at(0x1010), Some((FILE, 0x10)));
        assert_eq!(mappings.file_at(0x2010), None);
    }

    #[test]
    fn a_hole_leaves_both_sides() {
        let mut mappings = Mappings::default();
        mappings.add(0x1000, 0x3000, FILE, 0);
        mappings.remove(0x2000, 0x1000);
        let at = |address| mappings.file_at(address);
        assert_eq!([at(0x1fff), at(0x2000)], [Some((FILE, 0xfff)), None]);
        assert_eq!([at(0x3000), at(0x4000)], [Some((FILE, 0x2000)), None]);
    }
}
