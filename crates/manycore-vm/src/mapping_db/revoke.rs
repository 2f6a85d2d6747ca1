//! Revocation: mappings are taken back.

use super::tree::{Chain, Node, Space};
use super::{MappingDb, SpaceId};
use crate::backing::{Backing, Operation, Span};
use crate::{Error, ErrorKind, Rights};
use manycore::section::Section;
use std::ops::Range;

impl<B: Backing> MappingDb<'_, B> {
    /// Removes every mapping derived from these pages, in every space, at any depth.
    ///
    /// The pages themselves stay mapped. Returns how many mappings were removed. When it returns,
    /// none of them resolves. Old addresses fault from the next flush on; see the type.
    ///
    /// # Errors
    /// If the range is invalid, a page of it is not mapped, or the space has ended.
    pub fn revoke(&self, space: SpaceId, at: usize, n: usize) -> Result<usize, Error> {
        self.each_page(space, at, n, |node, section, queue| {
            Node::revoke(node, section, None, queue)
        })
    }

    /// Removes the mappings of these pages, and everything derived from them.
    ///
    /// Frames that were granted there are free after their gate. Returns how many mappings were
    /// removed.
    ///
    /// # Errors
    /// Those of [`revoke`](Self::revoke).
    pub fn unmap(&self, space: SpaceId, at: usize, n: usize) -> Result<usize, Error> {
        self.each_page(space, at, n, |node, section, queue| Node::unmap(node, section, queue))
    }

    /// Removes everything derived from these pages, like [`revoke`](Self::revoke), and limits the
    /// pages themselves to these rights. Returns how many mappings were removed.
    ///
    /// # Errors
    /// Those of `revoke`. Also if a page has fewer rights than these, or the backing does not
    /// support it or refuses.
    pub fn restrict(
        &self,
        space: SpaceId,
        at: usize,
        n: usize,
        rights: Rights,
    ) -> Result<usize, Error> {
        self.backing
            .supports(Operation::Protect)
            .map_err(|what| Error::unsupported(what, at, n))?;
        let section = self.domain.enter();
        let found = self.find(space, &section, (at, n))?;
        let first = mapped(found, at, n)?;
        let all = || (first..first + n as u32).filter_map(|page| found.node(page));
        // SAFETY: tree.M6 - found live in this section, which keeps it.
        if all().any(|node| !unsafe { (*node).rights() }.includes(rights)) {
            return Err(Error::new(ErrorKind::RightsGrow, at, n));
        }
        let protected = self.backing.protect(Span { address: at, pages: n as u32 }, rights);
        if let Err(error) = protected {
            self.restore(found, first..first + n as u32);
            return Err(error);
        }
        drop(section);
        self.each_page(space, at, n, |node, section, queue| {
            Node::revoke(node, section, Some(rights), queue)
        })
    }

    /// Sets the backing's rights of these pages to those in the database, in as few calls as
    /// possible: a call for a single page may be refused where a call for all is not.
    fn restore(&self, space: &Space, pages: Range<u32>) {
        // SAFETY: tree.M6 - found in the caller's section, which keeps it, dead or live.
        let rights = |page: &u32| space.node(*page).map(|node| unsafe { (*node).rights() });
        let mut rest = pages.peekable();
        while let Some(first) = rest.next() {
            let before = rights(&first);
            let mut count = 1;
            while rest.next_if(|page| rights(page) == before).is_some() {
                count += 1;
            }
            let span = Span { address: space.address(first), pages: count };
            before.map(|rights| self.backing.protect(span, rights));
        }
    }

    /// Ends a space: unmaps all of it, with everything derived from it, in every space.
    ///
    /// Its addresses are free after their gate. Returns how many mappings were removed.
    ///
    /// # Errors
    /// If the space has ended already.
    pub fn end(&self, space: SpaceId) -> Result<usize, Error> {
        let ended = || Error::new(ErrorKind::SpaceEnded, 0, 0);
        let section = self.domain.enter();
        // Looked up first: a number that was never given out may be that of an extent.
        self.find(space, &section, (0, 0))?;
        let found = *self.spaces.remove(space.0, &section).ok_or_else(ended)?;
        drop(section);
        // SAFETY: space.A4 - this thread has removed the space, and queues it below.
        let space = unsafe { &*found.0 };
        space.end();
        let mut removed = 0;
        for page in space.used_pages() {
            let section = self.domain.enter();
            if let Some(node) = space.settled_node(page) {
                let queue = |dead| {
                    self.gate.queue(dead);
                };
                removed += Node::unmap(node, &section, queue).unwrap_or(0);
            }
        }
        self.gate.queue_space(found);
        let _ = self.tick();
        Ok(removed)
    }

    /// Calls `f` for each node of a range. All pages of the range must be mapped.
    #[inline]
    fn each_page(
        &self,
        space: SpaceId,
        at: usize,
        n: usize,
        f: impl Fn(*mut Node, &Section<'_>, &mut dyn FnMut(Chain)) -> Option<usize>,
    ) -> Result<usize, Error> {
        let (mut removed, mut is_time) = (0, false);
        {
            let section = self.domain.enter();
            let found = self.find(space, &section, (at, n))?;
            let first = mapped(found, at, n)?;
            for page in first..first + n as u32 {
                let mut queue = |dead| is_time |= self.gate.queue(dead);
                // A node that has gone meanwhile was taken by another thread.
                let node = found.node(page);
                removed += node.and_then(|node| f(node, &section, &mut queue)).unwrap_or(0);
            }
        }
        if is_time {
            // What the backing refuses waits; `tick` and `flush` return the reason.
            let _ = self.tick();
        }
        Ok(removed)
    }
}

/// Returns the first page of a range if all of it is mapped.
#[inline]
fn mapped(space: &Space, at: usize, n: usize) -> Result<u32, Error> {
    let first = space.check(at, n)?;
    if (first..first + n as u32).any(|page| space.node(page).is_none()) {
        return Err(Error::new(ErrorKind::NotMapped, at, n));
    }
    Ok(first)
}
