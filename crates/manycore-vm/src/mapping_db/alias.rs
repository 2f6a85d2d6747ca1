//! Aliases: mappings derived from mappings.

use super::failed::{Failed, attempt};
use super::tree::{Node, Space};
use super::{MappingDb, SpaceId};
use crate::backing::{Backing, Operation, Run};
use crate::{Error, ErrorKind, PAGE_BYTES, Rights};
use manycore::section::Section;

/// A range of pages in a space.
#[derive(Clone, Copy)]
struct Range<'s> {
    space: &'s Space,
    first: u32,
    n: u32,
}

impl Range<'_> {
    fn refused(self, kind: ErrorKind) -> Error {
        Error::new(kind, self.space.address(self.first), self.n as usize)
    }
}

impl<B: Backing> MappingDb<'_, B> {
    /// Maps the frames of `n` pages at `at` in `from` also at `to_at` in `to`, with these rights.
    ///
    /// The new mappings are derived from the old ones: revoking the old removes the new.
    ///
    /// # Errors
    /// - A range has no pages, is not aligned, wraps or leaves its space, or a space has ended.
    /// - A page of the first range is not mapped or has fewer rights, or a page of the second is
    ///   mapped.
    /// - The backing does not support it, or refuses.
    pub fn alias(
        &self,
        from: SpaceId,
        at: usize,
        to: SpaceId,
        to_at: usize,
        n: usize,
        rights: Rights,
    ) -> Result<(), Error> {
        let section = self.domain.enter();
        let target = self.find(to, &section, (to_at, n))?;
        let source = self.source(from, (at, n), rights, &section)?;
        let first = target.check(to_at, n)?;
        let range = Range { space: target, first, n: source.n };
        target.claim(first, source.n).map_err(|kind| range.refused(kind))?;
        self.derive(source, range, rights, &section)
    }

    /// Like [`alias`](Self::alias), somewhere in `to`. Returns the address.
    ///
    /// # Errors
    /// Those of `alias`; also if there is no gap of that size.
    pub fn alias_anywhere(
        &self,
        from: SpaceId,
        at: usize,
        to: SpaceId,
        n: usize,
        rights: Rights,
    ) -> Result<usize, Error> {
        let section = self.domain.enter();
        let target = self.find(to, &section, (0, n))?;
        let source = self.source(from, (at, n), rights, &section)?;
        let first = self.claim_anywhere(to, target, n)?;
        self.derive(source, Range { space: target, first, n: source.n }, rights, &section)?;
        Ok(target.address(first))
    }

    /// Checks the source range before anything changes (mapping_db.V2).
    fn source<'s>(
        &self,
        from: SpaceId,
        (at, n): (usize, usize),
        rights: Rights,
        section: &'s Section<'_>,
    ) -> Result<Range<'s>, Error> {
        self.backing.supports(Operation::Alias).map_err(|what| Error::unsupported(what, at, n))?;
        let space = self.find(from, section, (at, n))?;
        let source = Range { space, first: space.check(at, n)?, n: n as u32 };
        for page in source.first..source.first + source.n {
            let node = space.node(page).ok_or_else(|| source.refused(ErrorKind::NotMapped))?;
            // SAFETY: tree.M6 - found live in this section, which keeps it.
            if !unsafe { (*node).rights() }.includes(rights) {
                return Err(source.refused(ErrorKind::RightsGrow));
            }
        }
        Ok(source)
    }

    /// Derives mappings in a claimed range: links them, maps them, publishes them.
    ///
    /// They are linked first, so a revocation from now on kills them and makes their pages pending.
    /// No flush can take them before this section is closed, so a flush comes after the mapping
    /// below (mapping_db_gate.Q1).
    fn derive(
        &self,
        source: Range<'_>,
        target: Range<'_>,
        rights: Rights,
        section: &Section<'_>,
    ) -> Result<(), Error> {
        let mut made = Vec::with_capacity(source.n as usize);
        let mut runs: Vec<Run> = Vec::with_capacity(1);
        let linked = (0..source.n).try_for_each(|index| {
            let page = target.first + index;
            let parent = source.space.node(source.first + index);
            let parent = parent.ok_or_else(|| source.refused(ErrorKind::NotMapped))?;
            // SAFETY: tree.M6 - found live in this section, which keeps it.
            let from = unsafe { &*parent };
            let child = Node::new((target.space, page), from.frame(), rights, parent);
            let child = self.new_node(child);
            // SAFETY: made just now, below this parent.
            if let Err(kind) = unsafe { from.insert(child, section) } {
                // SAFETY: no other thread knows the node, and it is in no list.
                unsafe { self.nodes.free_raw(std::ptr::NonNull::new_unchecked(child)) };
                return Err(source.refused(kind));
            }
            made.push(child);
            add_run(&mut runs, target.space.address(page), from.frame(), rights);
            Ok(())
        });
        let mapped = linked.map_err(Failed::Refused);
        if let Err(failed) = mapped.and_then(|()| attempt(|| self.backing.map(&runs))) {
            for child in made {
                Node::unmap(child, section, |dead| {
                    self.gate.queue(dead);
                });
            }
            target.space.unclaim(target.first, target.n); // the pages that were not linked
            return Err(failed.into_error());
        }
        for (page, child) in (target.first..).zip(made) {
            // If the node is dead already, it was revoked in between.
            target.space.publish(page, child);
        }
        Ok(())
    }
}

/// Adds a page to the last run if it continues that run, otherwise as a new run.
fn add_run(runs: &mut Vec<Run>, address: usize, frame: u32, rights: Rights) {
    if let Some(last) = runs.last_mut() {
        let is_next = last.frame + last.pages == frame
            && last.address + last.pages as usize * PAGE_BYTES == address;
        if is_next {
            last.pages += 1;
            return;
        }
    }
    runs.push(Run { address, frame, pages: 1, rights });
}
