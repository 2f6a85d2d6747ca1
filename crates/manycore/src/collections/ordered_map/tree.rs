//! The tree: searching for places, and replacing nodes (ordered_map.T2 to ordered_map.T5).

use super::OrderedMap;
use super::node::{self, Locked, Node};
use super::order::{Order, SLOTS};
use super::value::{self, Fresh, Word};
use crate::section::{Section, Weight};
use crate::sync::{Backoff, Ordering, run_each, seeded_bug};
use std::cmp;
use std::ptr::NonNull;

/// A full node with at most this many entries is replaced by one node, otherwise by two.
const ROOMY: usize = SLOTS * 2 / 3;
/// A node with at most this many entries is joined with a neighbour, if their entries fit in one
/// node.
const SPARSE: usize = SLOTS / 4;
/// At most this many entries are joined into one node, so that it has room left.
const JOINED: usize = SLOTS * 3 / 4;

/// A position in a node, and the order that the node had.
pub(super) struct Position<'s, K, V> {
    pub(super) node: &'s Node<K, V>,
    pub(super) order: Order,
    pub(super) at: usize,
    /// True if the sought key is at this position. Used in leaves.
    pub(super) is_there: bool,
}

impl<K, V> Clone for Position<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V> Copy for Position<'_, K, V> {}

impl<'s, K, V> Position<'s, K, V> {
    #[inline(always)]
    pub(super) fn slot(&self) -> usize {
        self.order.slot(self.at)
    }

    /// Returns the key at the position.
    #[inline(always)]
    pub(super) fn key(&self) -> &'s K {
        debug_assert!(self.at < self.order.len(), "ordered_map.T1: no key at {}", self.at);
        // SAFETY: a slot of an order that was loaded from the node.
        unsafe { self.node.key(self.slot()) }
    }

    /// Returns the value at the position, in a leaf.
    #[inline(always)]
    pub(super) fn value(&self) -> &'s V {
        // SAFETY: as for the key; ordered_map.T3 - the section in which the node was reached keeps
        // its values while it is open.
        unsafe { self.node.value(self.slot()) }
    }

    /// Returns the entry at the position, in a leaf.
    #[inline(always)]
    pub(super) fn entry(&self) -> (&'s K, &'s V) {
        (self.key(), self.value())
    }

    /// Returns the child at the position, in an inner node.
    #[inline(always)]
    pub(super) fn child(&self) -> &'s Node<K, V> {
        debug_assert!(!self.node.is_leaf(), "ordered_map.T2: a child of a leaf");
        // SAFETY: ordered_map.T2, ordered_map.T3 - the link of a slot in use leads to a node, which
        // the section keeps, as above.
        unsafe { &*self.node.link(self.slot()).cast_const().cast() }
    }

    /// Locks the node, if it is in the tree and still has the same order.
    fn lock(&self) -> Option<Locked<'s, K, V>> {
        let locked = self.node.lock()?;
        // BUG: an update uses the order that it found before it had the lock (ordered_map.T4).
        let is_same = self.node.order() == self.order || seeded_bug!("stale-order");
        is_same.then_some(locked)
    }

    fn lock_with_room(&self) -> Option<Locked<'s, K, V>> {
        self.lock().filter(|locked| locked.node().unused() > 0)
    }
}

/// An entry that was not inserted, and the position of its key.
type NotInserted<'s, K, V> = (K, Fresh<V>, Position<'s, K, V>);

/// The result of linking new nodes in their parent.
enum Below {
    Put,
    /// The parent has no room for more.
    Full,
    /// The parent does not have the old nodes any more.
    Changed,
}

/// Nodes that are to replace others.
struct New<K, V> {
    /// The key of the first node.
    low: Option<K>,
    /// The keys of the other nodes.
    separators: Vec<K>,
    nodes: Vec<Box<Node<K, V>>>,
    /// The links to the nodes that they have replaced.
    old: Vec<*mut ()>,
}

impl<K: Clone, V: Clone> New<K, V> {
    /// Makes a node with clones of the first `cut` entries, and a node with clones of the rest, if
    /// any. Inner nodes get no links yet, because the links may still change.
    fn of(sources: &[Source<'_, K, V>], cut: usize) -> Self {
        let level = sources[0].node.level();
        let (mut nodes, mut separators) = (vec![Node::<K, V>::new(level)], Vec::new());
        for source in sources {
            for slot in source.order.slots(0..source.order.len()) {
                // SAFETY: a slot of an order that was loaded from the node.
                let key = unsafe { source.node.key(slot) };
                if nodes[0].order().len() == cut && nodes.len() == 1 {
                    nodes.push(Node::new(level));
                    separators.push(key.clone());
                }
                let word = match source.node.is_leaf() {
                    // SAFETY: as for the key; the section in which the leaf was reached keeps its
                    // values.
                    true => unsafe { value::copy::<V>(source.node.word(slot)) },
                    false => Word::new(std::ptr::null_mut()),
                };
                nodes.last_mut().expect("there is a node").push(key.clone(), word);
            }
        }
        Self { low: None, separators, nodes, old: Vec::with_capacity(2) }
    }

    /// Returns the nodes that need slots in their parent, with their keys.
    fn entries(&mut self) -> impl Iterator<Item = (K, Word)> {
        // If the first node has a slot already, the slot has its key, and this key is dropped
        // later.
        let low = self.low.take_if(|_| self.nodes.len() > self.separators.len());
        let keys = low.into_iter().chain(self.separators.drain(..));
        keys.zip(self.nodes.drain(..).map(|node| Word::new(Box::into_raw(node).cast())))
    }
}

/// A node that is about to be replaced.
struct Source<'s, K, V> {
    node: &'s Node<K, V>,
    order: Order,
}

impl<K, V> OrderedMap<K, V> {
    /// Returns the root, or `None` before the first insertion.
    #[inline(always)]
    pub(super) fn root<'s>(&'s self, _section: &'s Section<'_>) -> Option<&'s Node<K, V>> {
        // ORDER: Acquire; pairs with Release in `set_root` and `make_root`: the node before its
        // link.
        // SAFETY: null, or a node that the section keeps (ordered_map.T3).
        unsafe { self.root.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the position in a leaf of the key that `compare` looks for, or where it would be.
    #[inline(always)]
    pub(super) fn find<'s>(
        &'s self,
        section: &'s Section<'_>,
        compare: &impl Fn(&K) -> cmp::Ordering,
    ) -> Option<Position<'s, K, V>> {
        let mut node = self.root(section)?;
        loop {
            let order = node.order();
            if node.is_leaf() {
                let (at, is_there) = node.search(order, 0, compare);
                return Some(Position { node, order, at, is_there });
            }
            let at = node.search_child(order, compare);
            node = Position { node, order, at, is_there: true }.child();
            node.prefetch();
        }
    }

    /// Same, with the positions in all nodes on the path from the root to the leaf.
    pub(super) fn path<'s>(
        &'s self,
        section: &'s Section<'_>,
        compare: &impl Fn(&K) -> cmp::Ordering,
    ) -> Vec<Position<'s, K, V>> {
        let mut next = self.root(section);
        let mut path = Vec::with_capacity(next.map_or(0, |root| root.level() as usize + 1));
        while let Some(node) = next {
            let order = node.order();
            let (at, is_there) = if node.is_leaf() {
                node.search(order, 0, compare)
            } else {
                (node.search_child(order, compare), true)
            };
            let place = Position { node, order, at, is_there };
            path.push(place);
            next = (!node.is_leaf()).then(|| place.child());
        }
        path
    }

    /// Makes the first node, unless another thread has made it.
    #[cold]
    fn make_root(&self) {
        let root = Box::into_raw(Node::new(0));
        // ORDER: Release; pairs with Acquire in `root`.
        let made = self.root.compare_exchange(
            std::ptr::null_mut(),
            root,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if made.is_err() {
            // SAFETY: made above, and not linked.
            drop(unsafe { Box::from_raw(root) });
        }
    }

    /// Returns the link to the root. The root's lock is held.
    fn root_link(&self) -> *mut () {
        // ORDER: Relaxed; under the lock.
        self.root.load(Ordering::Relaxed).cast()
    }

    /// Replaces the root. The root's lock is held.
    fn set_root(&self, root: *mut Node<K, V>) {
        // ORDER: Release; pairs with Acquire in `root`.
        self.root.store(root, Ordering::Release);
    }
}

impl<K: Ord + Clone, V: Clone> OrderedMap<K, V> {
    /// Inserts an entry if its key is not present, or replaces the present entry if `may_replace`
    /// is true. Returns the new value, and the old value if any.
    ///
    /// # Errors
    /// The entry that was not inserted, and the position of its key.
    pub(super) fn put<'s>(
        &'s self,
        key: K,
        value: Fresh<V>,
        may_replace: bool,
        section: &'s Section<'_>,
    ) -> Result<(&'s V, Option<&'s V>), NotInserted<'s, K, V>> {
        let mut found = self.find(section, &|own| own.cmp(&key));
        loop {
            let Some(place) = found else {
                self.make_root();
                found = self.find(section, &|own| own.cmp(&key));
                continue;
            };
            if place.is_there && !may_replace {
                return Err((key, value, place));
            }
            if place.node.unused() == 0 {
                found = self.with_room(section, &|own| own.cmp(&key));
                continue;
            }
            if let Some(locked) = place.lock_with_room() {
                let new = self.fill(&place, locked, key, value, section);
                return Ok((new, place.is_there.then(|| place.value())));
            }
            found = self.find(section, &|own| own.cmp(&key));
        }
    }

    /// Writes an entry into a leaf that has room, in place of an equal key's entry or as a new one.
    fn fill<'s>(
        &self,
        place: &Position<'s, K, V>,
        locked: Locked<'s, K, V>,
        key: K,
        value: Fresh<V>,
        section: &Section<'_>,
    ) -> &'s V {
        let word = value.into_word();
        let order = |slot| match place.is_there {
            true => place.order.without(place.at).with(place.at, slot),
            false => place.order.with(place.at, slot),
        };
        // BUG: an entry gets into the order before it is in its slot (ordered_map.T1).
        let slot = if seeded_bug!("order-before-entry") {
            locked.set_order(order(SLOTS - place.node.unused()));
            locked.fill(key, word)
        } else {
            let slot = locked.fill(key, word);
            locked.set_order(order(slot));
            slot
        };
        drop(locked);
        if place.is_there {
            self.retire(place, section);
        } else {
            self.count.inc();
        }
        // SAFETY: ordered_map.T3 - filled just now, and the section keeps it.
        unsafe { place.node.value(slot) }
    }

    /// Returns the position of a key, in a leaf that has room or had room a moment ago. Returns
    /// `None` if the key is not present.
    ///
    /// The caller then replaces exactly the entry that was found. So a comparison that contradicts
    /// itself does not keep the caller for ever.
    pub(super) fn find_to_replace<'s>(
        &'s self,
        section: &'s Section<'_>,
        compare: &impl Fn(&K) -> cmp::Ordering,
    ) -> Option<Position<'s, K, V>> {
        let mut place = self.find(section, compare)?;
        if place.is_there && place.node.unused() == 0 {
            place = self.with_room(section, compare)?;
        }
        place.is_there.then_some(place)
    }

    /// Returns a position in a leaf that has room or had room a moment ago.
    ///
    /// Each round except the last replaces a full node, so at some time no full node is left. So a
    /// comparison that contradicts itself does not keep the caller for ever.
    #[cold]
    fn with_room<'s>(
        &'s self,
        section: &'s Section<'_>,
        compare: &impl Fn(&K) -> cmp::Ordering,
    ) -> Option<Position<'s, K, V>> {
        loop {
            let path = self.path(section, compare);
            let place = path.last()?;
            if place.node.unused() > 0 {
                return Some(*place);
            }
            self.make_room(&path, section);
        }
    }

    /// Replaces the entry at a position, if nothing has changed there. Returns the new value.
    ///
    /// # Errors
    /// The new entry, if something has changed. The caller then searches again.
    pub(super) fn replace<'s>(
        &'s self,
        place: &Position<'s, K, V>,
        key: K,
        value: Fresh<V>,
        section: &'s Section<'_>,
    ) -> Result<&'s V, (K, Fresh<V>)> {
        match place.lock_with_room() {
            Some(locked) => Ok(self.fill(place, locked, key, value, section)),
            None => Err((key, value)),
        }
    }

    /// Removes the entry at a position, if nothing has changed there. Returns false if something
    /// has. `compare` leads to the position.
    pub(super) fn take(
        &self,
        place: &Position<'_, K, V>,
        section: &Section<'_>,
        compare: &impl Fn(&K) -> cmp::Ordering,
    ) -> bool {
        let Some(locked) = place.lock() else { return false };
        let order = place.order.without(place.at);
        locked.set_order(order);
        drop(locked);
        self.count.dec();
        self.retire(place, section);
        if order.len() <= SPARSE {
            while self.join(&self.path(section, compare), section) {}
        }
        true
    }

    /// Retires the value at a position that the calling thread has just removed from its order.
    #[inline(always)]
    fn retire(&self, place: &Position<'_, K, V>, section: &Section<'_>) {
        if !value::is_inline::<V>() {
            // SAFETY: ordered_map.T1 - a slot of a leaf that was in an order: it has an address,
            // which is not null.
            let block =
                unsafe { NonNull::new_unchecked(place.node.word(place.slot()).assume_init()) };
            // SAFETY: ordered_map.T4 - one thread removes a slot from its order, once, and only
            // while its node is in the tree. A value has no links to the map's nodes.
            unsafe { section.retire_raw(block, const { Weight::of::<V>() }, value::free::<V>) };
        }
    }

    /// Returns the position of the first entry, or of the last one.
    pub(super) fn end<'s>(
        &'s self,
        section: &'s Section<'_>,
        is_first: bool,
    ) -> Option<Position<'s, K, V>> {
        let compare = end_of(is_first);
        let mut backoff = Backoff::new();
        loop {
            let place = self.find(section, &compare)?;
            if let Some(last) = place.order.len().checked_sub(1) {
                return Some(Position { at: if is_first { 0 } else { last }, ..place });
            }
            // The removal that emptied the leaf has not joined it yet, or the leaf has no
            // neighbour.
            let path = self.path(section, &compare);
            match &path[..] {
                [root] if root.order.len() == 0 => return None,
                _ if self.join(&path, section) => {}
                _ => backoff.pause(),
            }
        }
    }

    /// Removes the first entry, or the last one.
    pub(super) fn pop<'s>(
        &'s self,
        section: &'s Section<'_>,
        is_first: bool,
    ) -> Option<(&'s K, &'s V)> {
        loop {
            let place = self.end(section, is_first)?;
            if self.take(&place, section, &end_of(is_first)) {
                return Some(place.entry());
            }
        }
    }

    /// Makes room in the last node of a path: for a key in a leaf, or for two children in an inner
    /// node.
    fn make_room(&self, path: &[Position<'_, K, V>], section: &Section<'_>) {
        let Some((place, above)) = path.split_last() else { return };
        let (node, len) = (place.node, place.order.len());
        if node.unused() >= if node.is_leaf() { 1 } else { 2 } {
            return;
        }
        // If keys are inserted in order, nodes are left full.
        let is_last = path.iter().all(|place| place.at + 1 >= place.order.len());
        let cut = match len {
            _ if len <= ROOMY => len,
            _ if is_last => len - 1,
            _ => len.div_ceil(2),
        };
        let source = Source { node, order: place.order };
        self.rebuild(above, &[source], cut, section);
    }

    /// Joins the lowest node of a path that has few entries with a neighbour. Returns true if
    /// something has changed, so that there may be more to do.
    #[cold]
    pub(super) fn join(&self, path: &[Position<'_, K, V>], section: &Section<'_>) -> bool {
        (1..=path.len()).rev().any(|depth| self.join_last(&path[..depth], section))
    }

    fn join_last(&self, path: &[Position<'_, K, V>], section: &Section<'_>) -> bool {
        let Some((place, above)) = path.split_last() else { return false };
        let (node, len) = (place.node, place.order.len());
        let Some(parent) = above.last() else {
            return !node.is_leaf() && len == 1 && self.collapse(place, section);
        };
        if len > SPARSE || parent.order.len() == 1 {
            return false;
        }
        let beside = Position { at: if parent.at == 0 { 1 } else { parent.at - 1 }, ..*parent };
        let other = beside.child();
        let other = Source { node: other, order: other.order() };
        let all = len + other.order.len();
        // An empty leaf, or an inner node with only one child, can always be joined. So no leaf
        // stays empty for long.
        let cut = match all {
            _ if all <= JOINED || all <= SLOTS && len == 0 => all,
            _ if !node.is_leaf() && len == 1 => all.div_ceil(2),
            _ => return false,
        };
        let mut above = above.to_vec();
        let first = parent.at.min(beside.at);
        *above.last_mut().expect("there is a parent") = Position { at: first, ..*parent };
        let this = Source { node, order: place.order };
        let sources = if beside.at < parent.at { [other, this] } else { [this, other] };
        self.rebuild(&above, &sources, cut, section)
    }

    /// Makes the only child of a root the root. Returns true if it has.
    fn collapse(&self, root: &Position<'_, K, V>, section: &Section<'_>) -> bool {
        let only = Position { at: 0, ..*root };
        let Some(locked) = root.lock() else { return false };
        let old = self.root_link();
        self.set_root(only.node.link(only.slot()).cast());
        locked.mark_replaced();
        // SAFETY: unlinked just now, under its lock.
        unsafe { self.retire_node(old, section) };
        true
    }

    /// Replaces one node, or two adjacent nodes, by a node with their first `cut` entries, and a
    /// node with the rest, if any. `above` is the path to the position of the first node in its
    /// parent; it is empty if the node is the root.
    ///
    /// Returns false if something has changed; then nothing was done. Returns true if the nodes
    /// were replaced, or if the parent had to be replaced first.
    ///
    /// ordered_map.T5: keys are cloned before any node is locked, and dropped when none is locked.
    fn rebuild(
        &self,
        above: &[Position<'_, K, V>],
        sources: &[Source<'_, K, V>],
        cut: usize,
        section: &Section<'_>,
    ) -> bool {
        let level = sources[0].node.level();
        let mut new = New::of(sources, cut);
        // The first child of a root has no lower bound, so any key will do.
        new.low = match above.last() {
            Some(parent) => Some(parent.key().clone()),
            None => new.separators.first().cloned(),
        };
        let mut root = (above.is_empty() && new.nodes.len() > 1).then(|| Node::new(level + 1));

        // All threads lock in this order: from left to right, and then the parent.
        let mut locked = Vec::with_capacity(2);
        for source in sources {
            let position =
                Position { node: source.node, order: source.order, at: 0, is_there: false };
            let Some(lock) = position.lock() else { return false };
            locked.push(lock);
        }
        if level > 0 {
            Self::copy_links(&mut new.nodes, sources);
        }
        if let Some(parent) = above.last() {
            match Self::put_below(parent, sources, &mut new) {
                Below::Changed => return false,
                Below::Full => {
                    drop(locked);
                    self.make_room(above, section);
                    return true;
                }
                Below::Put => {}
            }
        } else if let Some(mut root) = root.take() {
            new.old.push(self.root_link());
            new.entries().for_each(|(key, node)| root.push(key, node));
            self.set_root(Box::into_raw(root));
        } else {
            new.old.push(self.root_link());
            self.set_root(Box::into_raw(new.nodes.pop().expect("there is a node")));
        }
        locked.into_iter().for_each(Locked::mark_replaced);
        run_each(new.old.drain(..), |old| {
            // SAFETY: unlinked just now, under its lock.
            unsafe { self.retire_node(old, section) };
        });
        true
    }

    /// Links new nodes in the parent in place of others. The locks of the others are held.
    fn put_below(
        parent: &Position<'_, K, V>,
        sources: &[Source<'_, K, V>],
        new: &mut New<K, V>,
    ) -> Below {
        let Some(up) = parent.node.lock() else { return Below::Changed };
        let mut order = parent.node.order();
        let Some(at) = order.position(parent.slot()) else { return Below::Changed };
        let is_there = |index: usize| {
            let slot = parent.order.slot(parent.at + index);
            at + index < order.len()
                && order.slot(at + index) == slot
                && parent.node.link(slot) == std::ptr::from_ref(sources[index].node) as *mut ()
        };
        if !(0..sources.len()).all(is_there) {
            return Below::Changed;
        }
        let is_one_by_one = new.nodes.len() == sources.len() && sources.len() == 1;
        // BUG: a node replaces another that covers more keys (ordered_map.T2).
        let in_place = is_one_by_one || seeded_bug!("split-in-place") && sources.len() == 1;
        if !in_place && up.node().unused() < new.nodes.len() {
            return Below::Full;
        }
        let slots = parent.order.slots(parent.at..parent.at + sources.len());
        new.old.extend(slots.map(|slot| parent.node.link(slot)));
        let is_at = if in_place {
            up.set_link(parent.slot(), Box::into_raw(new.nodes.remove(0)).cast());
            at + 1
        } else {
            for _ in sources {
                order = order.without(at);
            }
            at
        };
        for (index, (key, node)) in new.entries().enumerate() {
            order = order.with(is_at + index, up.fill(key, node));
        }
        up.set_order(order);
        Below::Put
    }

    /// Copies the links of the old inner nodes to the new ones, which have the same keys.
    fn copy_links(made: &mut [Box<Node<K, V>>], sources: &[Source<'_, K, V>]) {
        let mut links = sources.iter().flat_map(|source| {
            source.order.slots(0..source.order.len()).map(|slot| source.node.link(slot))
        });
        for node in made {
            (0..node.order().len())
                .zip(links.by_ref())
                .for_each(|(slot, link)| node.put_link(slot, link));
        }
    }

    /// Retires a node.
    ///
    /// # Safety
    /// `node` is the link to a node that the calling thread has just replaced.
    unsafe fn retire_node(&self, node: *mut (), section: &Section<'_>) {
        let weight = const { Weight::holding::<K>(size_of::<Node<K, V>>()) };
        // SAFETY: it comes from `Box::into_raw`, so it is not null, and this thread has unlinked
        // it, once (# Safety). The domain is not bounded, so the node's links may be followed for
        // as long as it is kept.
        unsafe {
            section.retire_raw(NonNull::new_unchecked(node), weight, node::free::<K, V>);
        }
    }
}

/// Returns a comparison that leads to the first key, or to the last.
fn end_of<K>(is_first: bool) -> impl Fn(&K) -> cmp::Ordering {
    move |_| if is_first { cmp::Ordering::Greater } else { cmp::Ordering::Less }
}
