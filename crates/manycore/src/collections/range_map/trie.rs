//! The radix trie: entries, branches, the words of their slots, and the look-up (range_map.R1 to
//! range_map.R3).

use super::parts::{self, LEN, Part, Parts, clip, parts_in};
use crate::section::Section;
use crate::slab::classes;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU64, LoadToChange, Ordering, seeded_bug};
use std::alloc::Layout;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{self, NonNull};

const IN_MODEL: bool = cfg!(any(manycore_loom, manycore_shuttle));
/// log2 of the number of slots of a branch. There is a lock bit for each slot in one word. (A page
/// of 4096 keys is a slot of level 2, and a gigabyte a slot of level 5.)
pub(super) const BITS: u32 = if IN_MODEL { 1 } else { 6 };
pub(super) const FAN: usize = 1 << BITS;
/// Number of levels above its own size at which a range may be a part of a slot, in a list with
/// others. Threads whose ranges are less than `64^ABOVE` times their size apart may contend there.
/// With 1, each page that is alone in 16 megabytes would have a branch.
pub(super) const ABOVE: u32 = if IN_MODEL { 1 } else { 2 };
/// Level of the root. A slot of a branch at level `n` has `2^(n * BITS)` keys.
pub(super) const ROOT_LEVEL: u32 = if IN_MODEL { 2 } else { 10 };
/// The lock bits of all slots.
pub(super) const ALL: u64 = if FAN == 64 { !0 } else { (1 << FAN) - 1 };
/// The largest key.
pub(super) const LAST_KEY: u64 = if IN_MODEL { 7 } else { u64::MAX };

/// Bit of a slot's word: it leads to a branch. The bits above contain the branch's level.
const BRANCH: usize = 1;
const LEVEL_SHIFT: u32 = 1;
/// Bits of a word that are not part of a branch's address.
const TAGS: usize = 63;

/// A value and the keys for which it was inserted. While it is linked, only `keys` changes. The
/// alignment leaves room for the tags of a word ([`LEN`]).
#[repr(align(16))]
pub(super) struct Entry<V> {
    pub(super) first: u64,
    pub(super) last: u64,
    /// Number of keys at which it is linked, modulo 2^64 (range_map.R5).
    pub(super) keys: AtomicU64,
    pub(super) value: V,
}

/// An entry that is not linked.
pub(super) struct OwnEntry<V>(NonNull<Entry<V>>);

impl<V> OwnEntry<V> {
    #[inline]
    pub(super) fn new(first: u64, last: u64, value: V) -> Self {
        let keys = AtomicU64::new((last - first).wrapping_add(1));
        let entry = classes::allocate(Layout::new::<Entry<V>>()).cast::<Entry<V>>();
        // SAFETY: memory for an entry, just allocated.
        unsafe { entry.write(Entry { first, last, keys, value }) };
        Self(entry)
    }

    /// Sets the keys for which it is inserted.
    pub(super) fn set_keys(&mut self, first: u64, last: u64) {
        // SAFETY: `self` owns the entry.
        let entry = unsafe { self.0.as_mut() };
        (entry.first, entry.last) = (first, last);
        entry.keys = AtomicU64::new((last - first).wrapping_add(1));
    }

    /// Returns the word that leads to the entry. From now on, the entry is linked.
    #[inline]
    pub(super) fn into_word(self) -> *mut () {
        let raw = ManuallyDrop::new(self).0.as_ptr();
        raw.expose_provenance(); // for `from_word`
        raw.cast()
    }

    /// Takes an entry out of a word.
    ///
    /// # Safety
    /// The word comes from [`into_word`](Self::into_word), and no slot and no other thread has it.
    pub(super) unsafe fn from_word(word: *const ()) -> Self {
        // The word may have been made from a reference.
        match NonNull::new(owned(word.cast())) {
            Some(entry) => Self(entry),
            None => unreachable!("an entry has an address"),
        }
    }
}

impl<V> Drop for OwnEntry<V> {
    fn drop(&mut self) {
        /// Frees the memory, even if the value's destructor panics.
        struct Memory(NonNull<u8>, Layout);
        impl Drop for Memory {
            fn drop(&mut self) {
                // SAFETY: allocated in `new` with this layout; the value is dropped.
                unsafe { classes::free(self.0, self.1) };
            }
        }
        let _memory = Memory(self.0.cast(), Layout::new::<Entry<V>>());
        // SAFETY: `self` owns the entry, and is dropped.
        unsafe { ptr::drop_in_place(self.0.as_ptr()) };
    }
}

impl<V> Entry<V> {
    /// Returns the keys of a slot with this span for which the entry was inserted.
    #[inline(always)]
    pub(super) fn part_in(&self, span: (u64, u64)) -> (u64, u64) {
        clip(span, self.first, self.last)
    }

    #[inline(always)]
    fn was_inserted_at(&self, key: u64) -> bool {
        key.wrapping_sub(self.first) <= self.last - self.first
    }
}

#[repr(align(64))]
struct Words([AtomicPtr<()>; FAN]);

/// Fields that rarely change, on a line of their own. On the line of the lock bits, every update
/// that goes through this branch would miss the cache.
#[repr(align(64))]
pub(super) struct Steady {
    /// True if the branch was unlinked: lockers have to look for another one. Set under all lock
    /// bits.
    pub(super) is_dead: AtomicBool,
    /// True if a thread has found it empty and listed it (`prune`).
    pub(super) is_listed: AtomicBool,
    pub(super) level: u32,
    pub(super) first: u64,
}

impl<V> Deref for Branch<V> {
    type Target = Steady;

    #[inline(always)]
    fn deref(&self) -> &Steady {
        &self.steady
    }
}

/// An inner node: the slots of an aligned block of keys, and their lock bits.
#[repr(C, align(64))]
pub(super) struct Branch<V> {
    /// One bit for each slot: set if it is locked (range_map.R2).
    pub(super) locks: AtomicU64,
    /// One bit for each slot: set if it is not empty. Changes under the slot's lock bit.
    pub(super) used: AtomicU64,
    steady: Steady,
    slots: Words,
    _entries: PhantomData<*const Entry<V>>,
}

// SAFETY: threads get `&V` through a shared branch (`V: Sync`), and a thread frees values that
// another thread inserted (`V: Send`).
unsafe impl<V: Send + Sync> Send for Branch<V> {}
// SAFETY: as for `Send`: all threads share branches.
unsafe impl<V: Send + Sync> Sync for Branch<V> {}

/// The contents of a slot.
pub(super) enum Slot<'s, V> {
    Empty,
    /// The keys of the slot for which the entry was inserted have it, and no other keys have one.
    Entry(&'s Entry<V>),
    Parts(&'s [Part]),
    Branch(&'s Branch<V>),
}

impl<V> Clone for Slot<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<V> Copy for Slot<'_, V> {}

/// Returns the bits in which the keys of a slot at this level differ.
#[inline(always)]
pub(super) fn slot_mask(level: u32) -> u64 {
    (1 << (level * BITS)) - 1
}

/// Returns the bits in which the keys of a branch at this level differ.
#[inline(always)]
pub(super) fn block_mask(level: u32) -> u64 {
    if (level + 1) * BITS >= 64 { u64::MAX } else { (1 << ((level + 1) * BITS)) - 1 }
}

#[inline(always)]
pub(super) fn slot_of(key: u64, level: u32) -> usize {
    (key >> (level * BITS)) as usize & (FAN - 1)
}

/// Returns the lowest level at which one branch has these keys and others.
pub(super) fn level_for(first: u64, last: u64) -> u32 {
    let bits = (first ^ last).checked_ilog2().map_or(0, |log| log + 1);
    let level = bits.saturating_sub(1) / BITS;
    let mask = block_mask(level);
    let is_whole = first & mask == 0 && last & mask == mask;
    level + u32::from(is_whole)
}

/// Returns the highest level at which an update of these keys may lock a slot that also has other
/// keys. Such a slot has less than `FAN^(ABOVE + 1)` times as many keys, so that threads whose
/// ranges are far apart do not contend for it.
#[inline(always)]
pub(super) fn brief_level(first: u64, last: u64) -> u32 {
    (last - first).saturating_add(1).ilog2() / BITS + ABOVE
}

/// Returns the lock bits of slots `from` to `to`.
#[inline(always)]
pub(super) fn bits(from: usize, to: usize) -> u64 {
    (u64::MAX >> (63 - (to - from))) << from
}

/// Iterator over the slots whose bits are set, in order.
pub(super) struct Slots(pub(super) u64);

impl Iterator for Slots {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let at = self.0.trailing_zeros() as usize;
        (self.0 != 0).then(|| {
            self.0 &= self.0 - 1;
            at
        })
    }
}

impl<V> Branch<V> {
    /// Makes an empty branch at this level around `key`.
    pub(super) fn new(level: u32, key: u64) -> Box<Self> {
        debug_assert!(level <= ROOT_LEVEL, "range_map.R1: a branch above the root");
        Box::new(Self {
            locks: AtomicU64::new(0),
            used: AtomicU64::new(0),
            steady: Steady {
                is_dead: AtomicBool::new(false),
                is_listed: AtomicBool::new(false),
                level,
                first: key & !block_mask(level),
            },
            slots: Words(std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut()))),
            _entries: PhantomData,
        })
    }

    /// Stores parts, which are all in its block, in its slots. Called before the branch is linked.
    ///
    /// # Safety
    /// The parts lead to linked entries of `V`.
    pub(super) unsafe fn adopt_parts(&self, all: &[Part]) {
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return };
        let mut used = 0;
        for at in slot_of(first.first, self.level)..=slot_of(last.last, self.level) {
            let span = self.span(at);
            // SAFETY: the caller promises parts with linked entries of `V` (# Safety).
            let word = unsafe { word_of::<V>(&parts_in(all, span), span) };
            if !word.is_null() {
                used |= bits(at, at);
                // ORDER: Relaxed (both); published with the branch.
                self.slots.0[at].store(word, Ordering::Relaxed);
            }
        }
        self.used.store(used, Ordering::Relaxed);
    }

    /// Stores a word in its slot around `key`. Called before the branch is linked.
    pub(super) fn adopt(&self, key: u64, word: *mut ()) {
        let slot = slot_of(key, self.level);
        // ORDER: Relaxed (both); published with the branch.
        self.slots.0[slot].store(word, Ordering::Relaxed);
        self.used.store(bits(slot, slot), Ordering::Relaxed);
    }

    /// Returns the last key of its block.
    pub(super) fn last(&self) -> u64 {
        self.first | block_mask(self.level)
    }

    /// Returns true if the keys are in its block.
    #[inline(always)]
    pub(super) fn holds(&self, first: u64, last: u64) -> bool {
        let mask = !block_mask(self.level);
        first & mask == self.first && last & mask == self.first
    }

    /// Returns true if the keys are in its block and are not all of it.
    #[inline]
    pub(super) fn holds_part(&self, first: u64, last: u64) -> bool {
        let mask = block_mask(self.level);
        self.holds(first, last) && (first != self.first || last != self.first | mask)
    }

    /// Returns the first and last key of a slot.
    #[inline(always)]
    pub(super) fn span(&self, slot: usize) -> (u64, u64) {
        let first = self.first | (slot as u64) << (self.level * BITS);
        (first, first | slot_mask(self.level))
    }

    /// Returns the word that leads to the branch. From now on, the branch is linked.
    pub(super) fn into_word(self: Box<Self>) -> *mut () {
        let tags = BRANCH | (self.level as usize) << LEVEL_SHIFT;
        let raw = Box::into_raw(self);
        raw.expose_provenance(); // for `free_branch`
        debug_assert!(raw.addr() & TAGS == 0, "range_map.R1: the address has no room for a level");
        raw.cast::<()>().map_addr(|bits| bits | tags)
    }

    /// Loads the word of a slot for a section, which may then follow it.
    #[inline(always)]
    pub(super) fn word(&self, slot: usize, section: &Section<'_>) -> *mut () {
        section.protect(&self.slots.0[slot])
    }

    /// Loads the word of a slot for a thread that holds the slot's lock bit or is about to take it.
    #[inline(always)]
    pub(super) fn word_to_change(&self, slot: usize) -> *mut () {
        // ORDER: Acquire; pairs with Release in `set`, for nodes that were linked under another
        // lock bit.
        self.slots.0[slot].load_to_change(Ordering::Acquire)
    }

    /// Stores a slot's word, under its lock bit. The caller updates `used`.
    #[inline(always)]
    pub(super) fn set(&self, slot: usize, word: *mut ()) {
        debug_assert!(
            cfg!(manycore_loom) || self.locks.load(Ordering::Relaxed) >> slot & 1 == 1,
            "range_map.R2: changes a slot that is not locked"
        );
        // ORDER: Release; pairs with Acquire in `Section::protect`: the node before its link.
        self.slots.0[slot].store(word, Ordering::Release);
    }

    /// Sets the `used` bits of these slots, under their lock bits.
    #[inline]
    pub(super) fn note_used(&self, slots: u64) {
        // ORDER: Relaxed load; only the holder of their lock bits changes these bits. Release;
        // pairs with Acquire in `used`.
        if slots != 0 && self.used.load_to_change(Ordering::Relaxed) & slots != slots {
            self.set_used(slots);
        }
    }

    /// Same, if the caller knows that some were empty.
    #[inline]
    pub(super) fn set_used(&self, slots: u64) {
        // ORDER: Release; as in `note_used`.
        self.used.fetch_or(slots, Ordering::Release);
    }

    /// Clears the `used` bits of these slots, under their lock bits.
    #[inline]
    pub(super) fn note_unused(&self, slots: u64) {
        // ORDER: as in `note_used`.
        if slots != 0 && self.used.load_to_change(Ordering::Relaxed) & slots != 0 {
            self.set_unused(slots);
        }
    }

    /// Same, if the caller knows that some were in use.
    #[inline]
    pub(super) fn set_unused(&self, slots: u64) {
        // ORDER: Release; as in `note_used`.
        self.used.fetch_and(!slots, Ordering::Release);
    }

    /// Returns the slots in use: all that were noted before, and perhaps some that are being
    /// changed.
    #[inline]
    pub(super) fn used(&self) -> u64 {
        // ORDER: Acquire; pairs with Release in `note_used`: the slot before its bit.
        self.used.load(Ordering::Acquire)
    }

    /// Returns the slots in use, exactly for the slots whose lock bits the caller holds.
    #[inline]
    pub(super) fn used_locked(&self) -> u64 {
        // ORDER: Acquire; as in `used`, for slots that were noted under another lock bit of the
        // claim.
        self.used.load_to_change(Ordering::Acquire)
    }

    /// Iterates over the words of its slots, for a thread that has the map to itself.
    pub(super) fn words_mut(&mut self) -> impl Iterator<Item = *mut ()> + '_ {
        // ORDER: Relaxed; `&mut self`.
        self.slots.0.iter().map(|slot| slot.load(Ordering::Relaxed))
    }
}

/// Returns the node that a word leads to.
///
/// # Safety
/// The word was loaded from a slot of the map while `section`, of the map's domain, was open. Or
/// the node that it leads to cannot be retired before the section ends.
#[inline(always)]
pub(super) unsafe fn decode<'s, V>(word: *mut (), _section: &'s Section<'_>) -> Slot<'s, V> {
    if word.addr() & BRANCH != 0 {
        let branch = word.map_addr(|bits| bits & !TAGS).cast::<Branch<V>>();
        // SAFETY: range_map.R6 - `into_word` made it, and it is retired only after it was unlinked.
        // The caller's section keeps it (# Safety).
        return Slot::Branch(unsafe { &*branch });
    }
    if word.addr() & LEN != 0 {
        // SAFETY: range_map.R9 - a list is retired only after its slot was changed. The caller's
        // section keeps it (# Safety).
        return Slot::Parts(unsafe { parts::list(word) });
    }
    // SAFETY: range_map.R6 - null, or an entry, which is retired only after its last slot was
    // changed. The caller's section keeps it (# Safety).
    match unsafe { word.cast::<Entry<V>>().as_ref() } {
        Some(entry) => Slot::Entry(entry),
        None => Slot::Empty,
    }
}

/// Returns the parts of a slot with this span and word; none if it leads to a branch. `whole` is
/// the caller's buffer for a single part.
#[inline]
pub(super) fn parts_of<'a, V>(
    word: *mut (),
    slot: Slot<'a, V>,
    span: (u64, u64),
    whole: &'a mut Part,
) -> &'a [Part] {
    match slot {
        Slot::Parts(parts) => parts,
        Slot::Entry(entry) => {
            let (first, last) = entry.part_in(span);
            *whole = Part { first, last, entry: word };
            std::slice::from_ref(whole)
        }
        Slot::Empty | Slot::Branch(_) => &[],
    }
}

/// Returns the word for a slot with this span that has these parts.
///
/// # Safety
/// The parts lead to entries of `V` that are linked or about to be linked.
pub(super) unsafe fn word_of<V>(parts: &Parts, span: (u64, u64)) -> *mut () {
    let [part] = parts.as_slice() else {
        return if parts.as_slice().is_empty() { ptr::null_mut() } else { parts.to_list() };
    };
    // SAFETY: the caller promises an entry of `V` that is not retired (# Safety).
    let whole = unsafe { &*part.entry.cast::<Entry<V>>() }.part_in(span);
    // BUG: a slot leads to an entry although some of the slot's keys were removed from it, so they
    // seem to have it again (range_map.R9).
    let is_whole = whole == part.keys() || seeded_bug!("removed-part-is-back");
    if is_whole { part.entry } else { parts.to_list() }
}

/// Finds the entry of a key (range_map.R1), with one load for each branch on the way and no store.
#[inline(always)]
pub(super) fn find<'s, V>(
    root: &Branch<V>,
    key: u64,
    section: &'s Section<'_>,
) -> Option<&'s Entry<V>> {
    let (mut branch, mut level) = (ptr::from_ref(root), ROOT_LEVEL);
    loop {
        // SAFETY: range_map.R6 - the root, or a branch that was linked after the section was
        // opened, which keeps it.
        let word = unsafe { &*branch }.word(slot_of(key, level), section);
        if word.addr() & BRANCH == 0 {
            if word.addr() & LEN != 0 {
                // SAFETY: range_map.R9 - linked after the section was opened, which keeps it.
                let part = unsafe { parts::list(word) }.iter().find(|part| part.has(key))?;
                // SAFETY: range_map.R6 - in a linked list, so it is a linked entry.
                return Some(unsafe { &*part.entry.cast::<Entry<V>>() });
            }
            // SAFETY: range_map.R6 - null, or an entry that was linked after the section was
            // opened, which keeps it.
            let entry = unsafe { word.cast::<Entry<V>>().as_ref() }?;
            // BUG: a look-up returns the entry that it finds without comparing the key, which may
            // lie outside of the entry's keys, or of the block of a branch on the way
            // (range_map.R1).
            let is_its = entry.was_inserted_at(key) || seeded_bug!("key-not-compared");
            return is_its.then_some(entry);
        }
        level = (word.addr() & TAGS) as u32 >> LEVEL_SHIFT;
        branch = word.map_addr(|bits| bits & !TAGS).cast();
    }
}

/// Returns the pointer by which a node was allocated. A pointer that is made from a reference must
/// not be used to free the node.
pub(super) fn owned<T>(node: *const T) -> *mut T {
    ptr::with_exposed_provenance_mut(node.addr())
}

/// Frees an entry.
///
/// # Safety
/// It came from [`OwnEntry::into_word`], and no other thread has it.
pub(super) unsafe fn free_entry<V>(address: NonNull<()>) {
    // SAFETY: the caller promises an entry that no other thread has (# Safety).
    drop(unsafe { OwnEntry::<V>::from_word(address.as_ptr()) });
}

/// Frees a branch, but no node that it leads to.
///
/// # Safety
/// It came from [`Branch::into_word`], and no other thread has it.
pub(super) unsafe fn free_branch<V>(address: NonNull<()>) {
    let branch = owned(address.cast::<Branch<V>>().as_ptr());
    // SAFETY: the caller promises a branch from a box that no other thread has (# Safety).
    drop(unsafe { Box::from_raw(branch) });
}
