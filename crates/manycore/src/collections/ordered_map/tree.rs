//! How places are found, and how nodes give way to others (laws ordered_map.T2 to ordered_map.T5).

use super::OrderedMap;
use super::node::{self, Locked, Node};
use super::order::{Order, SLOTS};
use super::value::{self, Fresh, Word};
use crate::section::{Section, Weight};
use crate::sync::{Backoff, Ordering, run_each, seeded_bug};
use std::cmp;
use std::ptr::NonNull;

/// With so many entries or fewer, a full node is replaced by one, else by two.
const ROOMY: usize = SLOTS * 2 / 3;
/// With so many entries or fewer, a node is joined with the one beside it, if they fit together.
const SPARSE: usize = SLOTS / 4;
/// So many entries fit together into one node that has room left.
const JOINED: usize = SLOTS * 3 / 4;

/// A position in a node, and the order that the node had.
pub(super) struct Position<'s, K, V> {
    pub(super) node: &'s Node<K, V>,
    pub(super) order: Order,
    pub(super) at: usize,
    /// Whether the key that was looked for is there. Of leaves.
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

    /// The key at the place.
    #[inline(always)]
    pub(super) fn key(&self) -> &'s K {
        debug_assert!(self.at < self.order.len(), "ordered_map.T1: no key at {}", self.at);
        // SAFETY: a slot of an order that was loaded from the node.
        unsafe { self.node.key(self.slot()) }
    }

    /// The value at the place, in a leaf.
    #[inline(always)]
    pub(super) fn value(&self) -> &'s V {
        // SAFETY: as for the key; ordered_map.T3 - the section that lent the node holds what was in
        // it while it is open.
        unsafe { self.node.value(self.slot()) }
    }

    /// The entry at the place, in a leaf.
    #[inline(always)]
    pub(super) fn entry(&self) -> (&'s K, &'s V) {
        (self.key(), self.value())
    }

    /// The child at the place, in an inner node.
    #[inline(always)]
    pub(super) fn child(&self) -> &'s Node<K, V> {
        debug_assert!(!self.node.is_leaf(), "ordered_map.T2: a child of a leaf");
        // SAFETY: ordered_map.T2, ordered_map.T3 - the link of a slot in use leads to a node, which
        // the section holds, as above.
        unsafe { &*self.node.link(self.slot()).cast_const().cast() }
    }

    /// Locks the node, if it has the same order still and is in the tree.
    fn lock(&self) -> Option<Locked<'s, K, V>> {
        let locked = self.node.lock()?;
        // BUG: an update takes the order that it found before it had the lock (ordered_map.T4).
        let is_same = self.node.order() == self.order || seeded_bug!("stale-order");
        is_same.then_some(locked)
    }

    fn lock_with_room(&self) -> Option<Locked<'s, K, V>> {
        self.lock().filter(|locked| locked.node().unused() > 0)
    }
}

/// An entry that was not put in, and where its key is.
type NotInserted<'s, K, V> = (K, Fresh<V>, Position<'s, K, V>);

/// How nodes were put in the place of others in their parent.
enum Below {
    Put,
    /// The parent has no room for more.
    Full,
    /// They are not in the parent any more.
    Changed,
}

/// Nodes that are to take the place of others.
struct New<K, V> {
    /// The key of the first one.
    low: Option<K>,
    /// Those of the others.
    separators: Vec<K>,
    nodes: Vec<Box<Node<K, V>>>,
    /// The links of those whose place they have taken.
    old: Vec<*mut ()>,
}

impl<K: Clone, V: Clone> New<K, V> {
    /// A node with clones of the first `cut` entries, and another one with those of the rest if
    /// there are more. Those of inner nodes have no links yet, because these may still change.
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
                    // SAFETY: as for the key; the section that lent the leaf keeps its values.
                    true => unsafe { value::copy::<V>(source.node.word(slot)) },
                    false => Word::new(std::ptr::null_mut()),
                };
                nodes.last_mut().expect("there is one").push(key.clone(), word);
            }
        }
        Self { low: None, separators, nodes, old: Vec::with_capacity(2) }
    }

    /// The nodes that are left, for slots of their parent.
    fn entries(&mut self) -> impl Iterator<Item = (K, Word)> {
        // If the first one has a slot already, that has its key, and this one is dropped later.
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
    /// The root. None before the first insertion.
    #[inline(always)]
    pub(super) fn root<'s>(&'s self, _section: &'s Section<'_>) -> Option<&'s Node<K, V>> {
        // ORDER: Acquire; pairs with Release in `set_root` and `make_root`: the node before its
        // link.
        // SAFETY: null, or a node that the section keeps (ordered_map.T3).
        unsafe { self.root.load(Ordering::Acquire).as_ref() }
    }

    /// Where it is that `compare` looks for, or would be.
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

    /// The same, with the inner nodes on the way: from the root to the leaf.
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

    /// Makes the first node, unless another thread has.
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
            // SAFETY: made above, and linked nowhere.
            drop(unsafe { Box::from_raw(root) });
        }
    }

    /// The link to the root, whose lock is held.
    fn root_link(&self) -> *mut () {
        // ORDER: Relaxed; under the lock.
        self.root.load(Ordering::Relaxed).cast()
    }

    /// Replaces the root, whose lock is held.
    fn set_root(&self, root: *mut Node<K, V>) {
        // ORDER: Release; pairs with Acquire in `root`.
        self.root.store(root, Ordering::Release);
    }
}

impl<K: Ord + Clone, V: Clone> OrderedMap<K, V> {
    /// Puts an entry in, if its key is absent or it may take the place of the one that is there;
    /// its value, and that of the other one.
    ///
    /// # Errors
    /// The entry, and where its key is.
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

    /// Puts an entry into a leaf that has room, in the place of an equal one or of none.
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
        // BUG: an entry is in the order before it is in its slot (ordered_map.T1).
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
        // SAFETY: ordered_map.T3 - filled just now, and held by the section.
        unsafe { place.node.value(slot) }
    }

    /// Where a key is, in a leaf that has room or had a moment ago; none if it is not there.
    ///
    /// So a comparison that contradicts itself does not keep the caller for ever: what was found is
    /// what is replaced.
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

    /// A place in a leaf that has room, or had a moment ago.
    ///
    /// Each turn but the last replaces a full node. So a comparison that contradicts itself does
    /// not keep the call for ever: there are no more full nodes at some time.
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

    /// Puts another entry in where an equal key is, if nothing has changed there; its value.
    ///
    /// # Errors
    /// The other entry. The caller looks again.
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

    /// Takes an entry out, if nothing has changed there. Returns false if something has. `compare`
    /// leads to the place.
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

    /// Retires the value at a place that the calling thread has just taken out of its order.
    #[inline(always)]
    fn retire(&self, place: &Position<'_, K, V>, section: &Section<'_>) {
        if !value::is_inline::<V>() {
            // SAFETY: ordered_map.T1 - a slot that was in an order, of a leaf: it has an address,
            // which is not null.
            let block =
                unsafe { NonNull::new_unchecked(place.node.word(place.slot()).assume_init()) };
            // SAFETY: ordered_map.T4 - one thread takes a slot out of its order, once, or puts its
            // node out of the tree. A value has no links of the map's.
            unsafe { section.retire_raw(block, const { Weight::of::<V>() }, value::free::<V>) };
        }
    }

    /// The first entry's place, or the last one's.
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
            // The last removal of its leaf has not joined it yet, or there is none beside it.
            let path = self.path(section, &compare);
            match &path[..] {
                [root] if root.order.len() == 0 => return None,
                _ if self.join(&path, section) => {}
                _ => backoff.pause(),
            }
        }
    }

    /// Takes the first entry out, or the last one.
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

    /// Makes room in the last node of a path: for a key, or for two children.
    fn make_room(&self, path: &[Position<'_, K, V>], section: &Section<'_>) {
        let Some((place, above)) = path.split_last() else { return };
        let (node, len) = (place.node, place.order.len());
        if node.unused() >= if node.is_leaf() { 1 } else { 2 } {
            return;
        }
        // Where keys come in order, nodes are left full.
        let is_last = path.iter().all(|place| place.at + 1 >= place.order.len());
        let cut = match len {
            _ if len <= ROOMY => len,
            _ if is_last => len - 1,
            _ => len.div_ceil(2),
        };
        let source = Source { node, order: place.order };
        self.rebuild(above, &[source], cut, section);
    }

    /// Joins one node of a path, the lowest that has few entries, with one beside it. Returns
    /// whether something has changed on the way, so that there may be more to do.
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
        // A leaf that is empty, or a node of but one child, always finds a place: so it is never
        // long that a leaf is empty.
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

    /// Makes the only child of a root the root. Returns whether it has.
    fn collapse(&self, root: &Position<'_, K, V>, section: &Section<'_>) -> bool {
        let only = Position { at: 0, ..*root };
        let Some(locked) = root.lock() else { return false };
        let old = self.root_link();
        self.set_root(only.node.link(only.slot()).cast());
        locked.leave();
        // SAFETY: unlinked just now, under its lock.
        unsafe { self.retire_node(old, section) };
        true
    }

    /// Replaces one node, or two that are beside each other, by one that has their first `cut`
    /// entries, and another one with the rest if there are more. `above` leads to the place of the
    /// first of them in its parent; there is none above a root. Returns false if something has
    /// changed, and then nothing was done; true if it is done, or something else that has to be
    /// done before.
    ///
    /// ordered_map.T5: keys are cloned before any node is locked, and dropped when none is.
    fn rebuild(
        &self,
        above: &[Position<'_, K, V>],
        sources: &[Source<'_, K, V>],
        cut: usize,
        section: &Section<'_>,
    ) -> bool {
        let level = sources[0].node.level();
        let mut new = New::of(sources, cut);
        // The first child of a root has no lower bound: any key will do.
        new.low = match above.last() {
            Some(parent) => Some(parent.key().clone()),
            None => new.separators.first().cloned(),
        };
        let mut root = (above.is_empty() && new.nodes.len() > 1).then(|| Node::new(level + 1));

        // The order in which all lock: from left to right, then the parent.
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
            self.set_root(Box::into_raw(new.nodes.pop().expect("there is one")));
        }
        locked.into_iter().for_each(Locked::leave);
        run_each(new.old.drain(..), |old| {
            // SAFETY: unlinked just now, under its lock.
            unsafe { self.retire_node(old, section) };
        });
        true
    }

    /// Puts new nodes in the place of others, whose locks are held, in their parent.
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
        // BUG: a node takes the place of one that had more (ordered_map.T2).
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

    /// Gives inner nodes the links of those whose keys they have.
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

    /// # Safety
    /// The link to a node that the calling thread has just replaced.
    unsafe fn retire_node(&self, node: *mut (), section: &Section<'_>) {
        let weight = const { Weight::holding::<K>(size_of::<Node<K, V>>()) };
        // SAFETY: it came from `Box::into_raw`, so it is not null, and was unlinked once, by this
        // thread (# Safety). The domain is not bounded: its links may be followed as long as it is
        // held.
        unsafe {
            section.retire_raw(NonNull::new_unchecked(node), weight, node::free::<K, V>);
        }
    }
}

/// What leads to the first key, or to the last.
fn end_of<K>(is_first: bool) -> impl Fn(&K) -> cmp::Ordering {
    move |_| if is_first { cmp::Ordering::Greater } else { cmp::Ordering::Less }
}
