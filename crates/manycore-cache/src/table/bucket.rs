//! Buckets of one line, and what readers and evictors do with them. Laws cache.T1 to cache.T3 of
//! the parent module.

use crate::bucket_lock::BucketLock;
use crate::huge_pages::LINE;
use crate::key_hash::KeyHash;
use crate::node::Node;
use crate::prefetch::prefetch;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Links in a bucket.
pub(crate) const SLOTS: usize = 7;
/// ZeroedLines of a node that are fetched before it is looked at, about.
const NODE_LINES: usize = 3;
pub(super) const TAG_SHIFT: u32 = 50;
pub(super) const ADDRESS: usize = (1 << 48) - 1;

/// The reference byte of an entry on probation: it was not used since it came.
pub(crate) const UNPROVED: u8 = 0;
/// The lowest one of an entry that has proved itself.
pub(crate) const PROVED: u8 = 1;
/// The highest one: the hand skips such an entry as often as it is above the lowest.
pub(crate) const FREQUENCY_MAX: u8 = 4;

pub(super) type Link<K, V> = *mut Node<K, V>;

#[inline(always)]
pub(super) fn tag_in<K, V>(link: Link<K, V>) -> usize {
    link.addr() >> TAG_SHIFT
}

#[inline(always)]
pub(super) fn address_in<K, V>(link: Link<K, V>) -> Link<K, V> {
    link.map_addr(|bits| bits & ADDRESS)
}

#[repr(C, align(64))]
pub(crate) struct Bucket<K, V> {
    pub(super) links: [AtomicPtr<Node<K, V>>; SLOTS],
    pub(super) frequency: [AtomicU8; SLOTS],
    pub(super) lock: BucketLock,
}

#[cfg(not(manycore_loom))] // whose atomics are larger
const _: () = assert!(size_of::<Bucket<u8, u8>>() == LINE);

/// Where a reader found a node.
pub(crate) struct Hit<'t, K, V> {
    pub(crate) node: NonNull<Node<K, V>>,
    pub(crate) slot: Slot<'t, K, V>,
    /// The frequency, read with the link: later, an update may have taken the line.
    pub(crate) frequency: u8,
}

/// A link under its bucket's lock.
pub(crate) struct Slot<'t, K, V> {
    pub(super) bucket: &'t Bucket<K, V>,
    pub(super) at: usize,
}

impl<K, V> Clone for Slot<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V> Copy for Slot<'_, K, V> {}

impl<K, V> Bucket<K, V> {
    #[inline(always)]
    pub(super) fn link(&self, at: usize) -> Link<K, V> {
        // ORDER: Acquire; pairs with Release in `Slot::set`: the node, or the bucket, before its
        // link.
        self.links[at].load(Ordering::Acquire)
    }

    /// The next bucket of the chain, if this is what the last link leads to (cache.T1).
    #[inline(always)]
    pub(super) fn more(last: Link<K, V>) -> Option<NonNull<Self>> {
        if tag_in(last) != 0 { None } else { NonNull::new(last.cast()) }
    }

    /// Looks for a key without a lock (cache.T2). The caller has a section open.
    #[inline(always)]
    pub(crate) fn find(&self, hash: KeyHash, is_key: impl Fn(&K) -> bool) -> Option<Hit<'_, K, V>> {
        let tag = hash.tag();
        let mut bucket = self;
        'bucket: loop {
            let mut hits = bucket.hits(tag);
            while hits != 0 {
                let at = (hits.trailing_zeros() / 2) as usize;
                hits &= hits - 1;
                let link = bucket.link(at);
                if tag_in(link) != tag {
                    continue 'bucket; // changed since: perhaps the key has moved on (cache.T2)
                }
                let slot = Slot { bucket, at };
                let frequency = slot.frequency_now();
                // SAFETY: a link with a tag leads to a node, which the caller's section keeps
                // (cache.N1).
                let node = unsafe { NonNull::new_unchecked(address_in(link)) };
                // SAFETY: cache.N1 - the section keeps the node, whose key does not change before
                // the grace period is over.
                if is_key(unsafe { &(*node.as_ptr()).key }) {
                    return Some(Hit { node, slot, frequency });
                }
            }
            // Read after the others: a key that moved on from here is found there (cache.T2).
            match Self::more(bucket.link(SLOTS - 1)) {
                // SAFETY: chains live as long as their table, which the section keeps.
                Some(more) => bucket = unsafe { more.as_ref() },
                None => return None,
            }
        }
    }

    /// Which links have the tag: bit `2 * n` for link `n`. A hint: a thread that follows a link
    /// reads it again, with order.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline(always)]
    pub(super) fn hits(&self, tag: usize) -> u32 {
        use core::arch::x86_64::{
            __m128i, _mm_cmpeq_epi16, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
            _mm_set1_epi16, _mm_srli_epi64,
        };
        const SHIFT: i32 = TAG_SHIFT as i32;
        const LINKS: i32 = 0x1555;
        let (first, second, third, fourth): (__m128i, __m128i, __m128i, __m128i);
        // SAFETY: the four quarters of a bucket, which is a line and aligned to one. Other threads
        // may write concurrently, so this is left to the hardware, which reads each word whole.
        unsafe {
            std::arch::asm!(
                "movdqa {first}, [{bucket}]",
                "movdqa {second}, [{bucket} + 16]",
                "movdqa {third}, [{bucket} + 32]",
                "movdqa {fourth}, [{bucket} + 48]",
                bucket = in(reg) self,
                first = out(xmm_reg) first,
                second = out(xmm_reg) second,
                third = out(xmm_reg) third,
                fourth = out(xmm_reg) fourth,
                options(nostack, preserves_flags, readonly),
            );
        }
        // SAFETY: x86-64 has SSE2.
        unsafe {
            let tag = _mm_set1_epi16(tag as i16);
            // Of each link two 16-bit words: its tag, and zero, which is no tag.
            let pair = |one, other| {
                let tags = |links| _mm_srli_epi64::<SHIFT>(links);
                _mm_cmpeq_epi16(_mm_packs_epi32(tags(one), tags(other)), tag)
            };
            let equal = _mm_packs_epi16(pair(first, second), pair(third, fourth));
            (_mm_movemask_epi8(equal) & LINKS) as u32
        }
    }

    /// As above.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    #[inline(always)]
    pub(super) fn hits(&self, tag: usize) -> u32 {
        let bit = |at: usize| u32::from(tag_in(self.link(at)) == tag) << (2 * at);
        (0..SLOTS).fold(0, |hits, at| hits | bit(at))
    }

    /// A free place of this bucket, for the holder of its chain's lock.
    #[inline(always)]
    pub(super) fn free(&self) -> Option<Slot<'_, K, V>> {
        // What has no tag is free, or the last and leads to the next bucket (cache.T1).
        let at = (self.hits(0).trailing_zeros() / 2) as usize;
        (at < SLOTS && self.link(at).is_null()).then_some(Slot { bucket: self, at })
    }

    /// The first entry of the chain that is on probation, but for `kept`. Without the lock.
    #[inline(always)]
    pub(crate) fn unproved(&self, kept: Option<NonNull<Node<K, V>>>) -> Option<Linked<'_, K, V>> {
        let mut bucket = self;
        loop {
            for at in 0..SLOTS {
                let slot = Slot { bucket, at };
                if slot.frequency_now() == UNPROVED {
                    if let Some(node) = slot.node().filter(|node| Some(*node) != kept) {
                        return Some((slot, node));
                    }
                }
            }
            // SAFETY: chains live as long as their table, which the caller's section keeps.
            bucket = unsafe { Self::more(bucket.link(SLOTS - 1))?.as_ref() };
        }
    }

    /// The entry of the chain that was used least, of those with this frequency or more, but for
    /// `kept`. Without the lock.
    #[inline(always)]
    pub(crate) fn least_used(
        &self,
        from: u8,
        kept: Option<NonNull<Node<K, V>>>,
    ) -> Option<Linked<'_, K, V>> {
        let (mut bucket, mut least, mut found) = (self, u8::MAX, None);
        loop {
            for at in 0..SLOTS {
                let slot = Slot { bucket, at };
                let frequency = slot.frequency_now();
                if (from..least).contains(&frequency) {
                    if let Some(node) = slot.node().filter(|node| Some(*node) != kept) {
                        (least, found) = (frequency, Some((slot, node)));
                    }
                }
            }
            match Self::more(bucket.link(SLOTS - 1)) {
                // SAFETY: chains live as long as their table, which the caller's section keeps.
                Some(more) => bucket = unsafe { more.as_ref() },
                None => return found,
            }
        }
    }

    /// Takes a use from each entry of the chain that has proved itself.
    pub(crate) fn cool(&self) {
        for slot in self.slots() {
            let frequency = slot.frequency_now();
            if frequency > PROVED {
                slot.set_frequency(frequency - 1);
            }
        }
    }

    /// Fetches the nodes that are likely meant, and says which is the first: it is of the first
    /// bucket of the chain, and its key may be another. The caller has a section open.
    #[inline(always)]
    pub(crate) fn probe(&self, hash: KeyHash) -> Option<Hit<'_, K, V>> {
        let mut hits = self.hits(hash.tag());
        let mut first = None;
        while hits != 0 {
            let at = (hits.trailing_zeros() / 2) as usize;
            hits &= hits - 1;
            let link = self.link(at);
            let node = address_in(link);
            // Key and value are looked at next; of large ones the beginning.
            let last = size_of::<Node<K, V>>().saturating_sub(1);
            for from in (0..last).step_by(LINE).take(NODE_LINES) {
                prefetch(node.cast::<u8>().wrapping_add(from));
            }
            prefetch(node.cast::<u8>().wrapping_add(last.min(NODE_LINES * LINE)));
            if first.is_none() && tag_in(link) == hash.tag() {
                let slot = Slot { bucket: self, at };
                let frequency = slot.frequency_now();
                first = NonNull::new(node).map(|node| Hit { node, slot, frequency });
            }
        }
        first
    }

    /// Every link of the chain to a node; without the lock, each is seen as it is at some moment.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot<'_, K, V>> {
        let mut bucket = Some(self);
        let mut at = 0;
        std::iter::from_fn(move || {
            let here = bucket?;
            let slot = Slot { bucket: here, at };
            at += 1;
            if at == SLOTS {
                at = 0;
                // SAFETY: chains live as long as their table, which the caller's section keeps.
                bucket = Self::more(here.link(SLOTS - 1)).map(|more| unsafe { &*more.as_ptr() });
            }
            Some(slot)
        })
    }
}

impl<K, V> Slot<'_, K, V> {
    /// The node, if the link leads to one.
    #[inline(always)]
    pub(crate) fn node(self) -> Option<NonNull<Node<K, V>>> {
        let link = self.bucket.link(self.at);
        if tag_in(link) == 0 { None } else { NonNull::new(address_in(link)) }
    }

    pub(super) fn tag(self) -> usize {
        tag_in(self.bucket.link(self.at))
    }

    #[inline(always)]
    pub(crate) fn frequency_now(self) -> u8 {
        // ORDER: Relaxed; a hint (cache.T3).
        self.bucket.frequency[self.at].load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set_frequency(self, frequency: u8) {
        debug_assert!(frequency <= FREQUENCY_MAX, "cache.T3: a frequency of {frequency}");
        // ORDER: Relaxed; a hint (cache.T3).
        self.bucket.frequency[self.at].store(frequency, Ordering::Relaxed);
    }
}

/// An entry: its link and its node.
pub(super) type Linked<'t, K, V> = (Slot<'t, K, V>, NonNull<Node<K, V>>);
