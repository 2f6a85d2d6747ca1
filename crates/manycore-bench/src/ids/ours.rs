//! The library's namespace.

use manycore::{namespace::IdSpace, section::Domain};

use super::{Node, Table, TableHandle};

/// In a domain of its own that lives as long as the process: spaces borrow theirs.
pub(super) struct Space {
    space: IdSpace<'static, Node>,
    domain: &'static Domain,
}

impl Table for Space {
    type Handle<'a> = &'a Self;

    fn new() -> Self {
        let domain = manycore::section::global();
        Self { space: IdSpace::new_in(domain), domain }
    }

    fn handle(&self) -> &Self {
        self
    }
}

impl TableHandle for &Space {
    #[inline]
    fn insert(&mut self, node: Node) -> u64 {
        self.space.insert(node, &self.domain.enter()).to_bits()
    }

    #[inline]
    fn get(&mut self, id: u64) -> Option<u64> {
        let section = self.domain.enter();
        let id = self.space.check(id)?;
        self.space.get(id, &section).map(|node| node.0[0])
    }

    #[inline]
    fn remove(&mut self, id: u64) -> bool {
        let section = self.domain.enter();
        self.space.check(id).is_some_and(|id| self.space.remove(id, &section).is_some())
    }
}
