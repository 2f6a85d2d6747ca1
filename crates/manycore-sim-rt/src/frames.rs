//! The shadow call stack: the place of each virtual thread in the tree of calls.
//!
//! This module owns the tree. A node is a path of calls: the return addresses of the functions on
//! the stack, from the thread's first to the innermost. A thread holds the number of its node, so
//! one word carries its whole stack. Entering a function costs a look at the node's last child,
//! which nearly always is the right one.
//!
//! Law frames.F1: there are as many `leave`s as `enter`s. The tree has at most [`NODES`] nodes.
//! Calls beyond that are counted, and attributed to the last existing node.

use std::collections::HashMap;

/// Bits of a program address. The bits above hold the number of a node.
const ADDRESS_BITS: u32 = 47;

/// Maximal number of nodes: what fits above the address.
const NODES: usize = 1 << (u64::BITS - ADDRESS_BITS);

/// The stack of one thread, as its node of the tree.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallPath {
    node: u32,
    /// Calls below `node` that have no node.
    beyond: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    /// The return address of the innermost function.
    caller: usize,
    parent: u32,
    /// The child that was entered last.
    last: u32,
}

/// The tree of calls of all threads; node 0 is the root.
#[derive(Debug)]
pub(crate) struct Frames {
    nodes: Vec<Node>,
    children: HashMap<(u32, usize), u32, crate::hash::Fixed>,
}

impl Frames {
    pub(crate) fn new() -> Self {
        Self { nodes: vec![Node::default()], children: HashMap::default() }
    }

    #[inline]
    pub(crate) fn enter(&mut self, path: &mut CallPath, caller: usize) {
        let last = self.nodes[path.node as usize].last;
        if path.beyond == 0 && last != 0 && self.nodes[last as usize].caller == caller {
            path.node = last;
        } else {
            self.enter_other(path, caller);
        }
    }

    #[cold]
    fn enter_other(&mut self, path: &mut CallPath, caller: usize) {
        let parent = path.node;
        let known = self.children.get(&(parent, caller)).copied();
        let child = match known {
            Some(child) if path.beyond == 0 => child,
            // frames.F1: beyond the last node, calls are only counted in `beyond`.
            None if path.beyond == 0 && self.nodes.len() < NODES => {
                let child = self.nodes.len() as u32;
                self.nodes.push(Node { caller, parent, last: 0 });
                self.children.insert((parent, caller), child);
                child
            }
            _ => {
                path.beyond += 1;
                return;
            }
        };
        self.nodes[parent as usize].last = child;
        path.node = child;
    }

    #[inline]
    pub(crate) fn leave(&self, path: &mut CallPath) {
        if path.beyond > 0 {
            path.beyond -= 1;
        } else {
            path.node = self.nodes[path.node as usize].parent;
        }
    }

    /// Returns the return addresses of a site's stack, innermost first.
    pub(crate) fn stack(&self, site: u64) -> Vec<u64> {
        let mut node = (site >> ADDRESS_BITS) as usize;
        let mut stack = Vec::new();
        while node != 0 && node < self.nodes.len() {
            stack.push(self.nodes[node].caller as u64);
            node = self.nodes[node].parent as usize;
        }
        stack
    }
}

impl CallPath {
    /// Combines an address of the program and the path of calls to it into one word.
    #[inline]
    pub(crate) fn site(self, pc: usize) -> u64 {
        (pc as u64 & ((1 << ADDRESS_BITS) - 1)) | u64::from(self.node) << ADDRESS_BITS
    }
}

/// Returns the address of a site.
pub(crate) fn pc(site: u64) -> u64 {
    site & ((1 << ADDRESS_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_is_where_one_came_from() {
        let mut frames = Frames::new();
        let (mut one, mut other) = (CallPath::default(), CallPath::default());
        frames.enter(&mut one, 0x10);
        frames.enter(&mut one, 0x20);
        frames.enter(&mut other, 0x10);
        let site = one.site(0x5555_5555_0000);
        assert_eq!(pc(site), 0x5555_5555_0000);
        assert_eq!(frames.stack(site), [0x20, 0x10]);
        frames.leave(&mut one);
        assert_eq!(one.site(7), other.site(7), "the same way is the same place in all threads");
        frames.leave(&mut one);
        frames.leave(&mut one);
        assert_eq!(frames.stack(one.site(7)), [0; 0]);
    }

    #[test]
    fn calls_beyond_the_tree_return_to_it() {
        let mut frames = Frames::new();
        let mut path = CallPath::default();
        let depth = NODES + 10;
        (1..depth).for_each(|caller| frames.enter(&mut path, caller));
        assert_eq!(frames.nodes.len(), NODES);
        (2..depth).for_each(|_| frames.leave(&mut path));
        assert_eq!(frames.stack(path.site(7)), [1]);
    }
}
