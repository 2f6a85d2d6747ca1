//! Buckets of one cache line, and what readers and evictors do with them. The parent module has the
//! laws, cache_table.T1 to cache_table.T3.

use self::snapshot::Snapshot;
use crate::bucket_lock::BucketLock;
use crate::chance::Chance;
use crate::huge_pages::LINE;
use crate::key_hash::KeyHash;
use crate::node::{ADDRESS, Node};
use crate::prefetch::prefetch;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Links in a bucket.
pub(crate) const SLOTS: usize = 7;
/// Approximate number of lines of a node that are fetched before the node is read.
const NODE_LINES: usize = 3;
pub(super) const TAG_SHIFT: u32 = 50;

/// A bit of a link: its entry is pinned (cache_pinned.P1).
pub(super) const PINNED: usize = 1 << 48;

/// The reference byte of an entry on probation, which was not used since it came.
pub(crate) const ON_PROBATION: u8 = 0;
/// The lowest reference byte of an entry that has proved itself.
pub(crate) const PROTECTED: u8 = 1;
/// The highest reference byte. The hand skips an entry once for each use above `PROTECTED`.
pub(crate) const FREQUENCY_MAX: u8 = 3;

pub(super) type Link<K, V> = *mut Node<K, V>;

#[inline(always)]
pub(super) fn tag_in<K, V>(link: Link<K, V>) -> usize {
    link.addr() >> TAG_SHIFT
}

/// Returns true if the link leads to a node (cache_table.T1).
#[inline(always)]
pub(super) fn has_tag<K, V>(link: Link<K, V>) -> bool {
    link.addr() >= 1 << TAG_SHIFT
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

#[cfg(not(manycore_loom))] // loom's atomics are larger
const _: () = assert!(size_of::<Bucket<u8, u8>>() == LINE);

/// A node that a reader found, and its place.
pub(crate) struct Hit<'t, K, V> {
    pub(crate) node: NonNull<Node<K, V>>,
    /// The link that led to the node.
    pub(super) link: Link<K, V>,
    pub(crate) slot: Slot<'t, K, V>,
    /// The frequency. It is read with the link, because an update may take the line later.
    pub(crate) frequency: u8,
}

/// A place of a bucket: its link and its frequency. Only this module and its parent make places.
pub(crate) struct Slot<'t, K, V> {
    pub(super) bucket: &'t Bucket<K, V>,
    /// Always below `SLOTS`.
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
        // ORDER: Acquire; pairs with Release in `Locked::set`: the node, or the bucket, is written
        // before its link.
        self.links[at].load(Ordering::Acquire)
    }

    /// Returns the next bucket of the chain, if the last link leads to one (cache_table.T1).
    #[inline(always)]
    pub(super) fn more(last: Link<K, V>) -> Option<NonNull<Self>> {
        if has_tag(last) { None } else { NonNull::new(last.cast()) }
    }

    /// Finds a key without a lock (cache_table.T2). The caller has a section open.
    #[inline(always)]
    pub(crate) fn find(&self, hash: KeyHash, is_key: impl Fn(&K) -> bool) -> Option<Hit<'_, K, V>> {
        let tag = hash.tag();
        let mut bucket = self;
        'bucket: loop {
            let mut hits = bucket.hits(tag);
            while hits != 0 {
                let at = hits.trailing_zeros() as usize;
                let link = bucket.link(at);
                if !has_tag(link) {
                    // The link has changed meanwhile: perhaps the key has moved on
                    // (cache_table.T2). (If another entry is here now, the key has left.)
                    continue 'bucket;
                }
                let slot = Slot { bucket, at };
                let frequency = slot.frequency_now();
                // SAFETY: a link with a tag leads to a node, which the caller's section keeps
                // (node.N1).
                let node = unsafe { NonNull::new_unchecked(address_in(link)) };
                // SAFETY: node.N1 - the section keeps the node, whose key does not change before
                // the grace period is over.
                if is_key(unsafe { &(*node.as_ptr()).key }) {
                    return Some(Hit { node, link, slot, frequency });
                }
                hits &= hits - 1;
            }
            // Read after the other links: a key that moved on from here is found there
            // (cache_table.T2).
            match Self::more(bucket.link(SLOTS - 1)) {
                // SAFETY: chains live as long as their table, which the section keeps.
                Some(more) => bucket = unsafe { more.as_ref() },
                None => return None,
            }
        }
    }

    /// Returns true if the chain has an entry with this tag.
    pub(crate) fn has_tag(&self, hash: KeyHash) -> bool {
        self.find(hash, |_| true).is_some()
    }

    /// Returns which links have the tag: bit `n` for link `n`. A hint: a thread that follows a link
    /// reads it again, with ordering.
    #[inline(always)]
    pub(super) fn hits(&self, tag: usize) -> u32 {
        Snapshot::of(self).hits(tag)
    }

    /// Returns a free place of this bucket. The caller holds the lock of the chain.
    #[inline(always)]
    pub(super) fn free(&self) -> Option<Slot<'_, K, V>> {
        // A link without a tag is free, or is the last one and leads to the next bucket
        // (cache_table.T1).
        let at = self.hits(0).trailing_zeros() as usize;
        (at < SLOTS && self.link(at).is_null()).then_some(Slot { bucket: self, at })
    }

    /// Returns the first free place of the chain, if there is one, and the chain's last bucket.
    /// Returns `None` if the chain has an entry with this tag. The caller holds the lock.
    #[inline(always)]
    pub(super) fn room_without(&self, hash: KeyHash) -> Option<(Option<Slot<'_, K, V>>, &Self)> {
        let mut found = None;
        let mut bucket = self;
        loop {
            // One look answers both.
            let seen = Snapshot::of(bucket);
            if seen.hits(hash.tag()) != 0 {
                return None;
            }
            let free = |places: usize| {
                let at = seen.hits(0).trailing_zeros() as usize;
                (at < places).then_some(Slot { bucket, at })
            };
            // A last link without a tag that is not null leads to the next bucket.
            match Self::more(bucket.link(SLOTS - 1)) {
                Some(more) => {
                    found = found.or_else(|| free(SLOTS - 1));
                    // SAFETY: chains live as long as their table, which the caller's section keeps.
                    bucket = unsafe { more.as_ref() };
                }
                None => return Some((found.or_else(|| free(SLOTS)), bucket)),
            }
        }
    }

    /// Returns true if the chain has a free place. Without the lock, this is a hint.
    #[inline(always)]
    pub(crate) fn has_free(&self) -> bool {
        // The last place is filled last.
        if self.link(SLOTS - 1).is_null() {
            return true;
        }
        let mut bucket = self;
        loop {
            if bucket.free().is_some() {
                return true;
            }
            match Self::more(bucket.link(SLOTS - 1)) {
                // SAFETY: chains live as long as their table, which the caller's section keeps.
                Some(more) => bucket = unsafe { more.as_ref() },
                None => return false,
            }
        }
    }

    /// Returns the least used entry of the chain, among those with a frequency in `of`, without
    /// `kept` and pinned entries. Of several such entries of a bucket, returns a random one
    /// (segment.G6). Takes no lock.
    #[inline(always)]
    pub(crate) fn least_used(
        &self,
        mut of: RangeInclusive<u8>,
        kept: Option<NonNull<Node<K, V>>>,
    ) -> Option<LeastUsed<'_, K, V>> {
        let (mut bucket, mut found) = (self, None::<LeastUsed<'_, K, V>>);
        let from = Chance::draw().one_of(8);
        loop {
            let mut frequencies = Snapshot::of(bucket).frequencies();
            while let Some((at, frequency)) = frequencies.least(of.clone(), from) {
                let slot = Slot { bucket, at };
                let link = slot
                    .evictable()
                    .filter(|link| kept.is_none_or(|kept| address_in(*link) != kept.as_ptr()));
                if let Some(link) = link {
                    found = Some(LeastUsed { slot, link, frequency });
                    if frequency == *of.start() {
                        return found;
                    }
                    of = *of.start()..=frequency - 1;
                    break;
                }
                frequencies.forget(at);
            }
            match Self::more(bucket.link(SLOTS - 1)) {
                // SAFETY: chains live as long as their table, which the caller's section keeps.
                Some(more) => bucket = unsafe { more.as_ref() },
                None => return found,
            }
        }
    }

    /// Takes a use from each entry of the chain that has uses left.
    pub(crate) fn cool(&self) {
        for slot in self.slots() {
            let frequency = slot.frequency_now();
            if frequency > PROTECTED {
                slot.set_frequency(frequency - 1);
            }
        }
    }

    /// Fetches the nodes of the chain's first bucket that have the key's tag, and returns the first
    /// of them. Its key may still be another. The caller has a section open.
    #[inline(always)]
    pub(crate) fn probe(&self, hash: KeyHash) -> Option<Hit<'_, K, V>> {
        let mut hits = self.hits(hash.tag());
        let mut first = None;
        while hits != 0 {
            let at = hits.trailing_zeros() as usize;
            hits &= hits - 1;
            let link = self.link(at);
            let node = address_in(link);
            // Key and value are read next; of a large node only the beginning is fetched.
            let last = size_of::<Node<K, V>>().saturating_sub(1);
            for from in (0..last).step_by(LINE).take(NODE_LINES) {
                prefetch(node.cast::<u8>().wrapping_add(from));
            }
            prefetch(node.cast::<u8>().wrapping_add(last.min(NODE_LINES * LINE)));
            if first.is_none() && tag_in(link) == hash.tag() {
                let slot = Slot { bucket: self, at };
                let frequency = slot.frequency_now();
                first = NonNull::new(node).map(|node| Hit { node, link, slot, frequency });
            }
        }
        first
    }

    /// Returns the places of the chain. Without the lock, each place is seen as it is at some
    /// moment.
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

impl<'t, K, V> Slot<'t, K, V> {
    /// Returns what an array of the bucket has for this place.
    #[inline(always)]
    fn own<T>(self, all: &'t [T; SLOTS]) -> &'t T {
        debug_assert!(self.at < SLOTS, "cache_table.T1: place {} of a bucket", self.at);
        // SAFETY: `at` is below `SLOTS`. It comes from a mask of so many bits that is not zero,
        // from a comparison with `SLOTS`, or from `Frequencies::least`, which finds no byte behind
        // the places, because that is `0xff`.
        unsafe { all.get_unchecked(self.at) }
    }

    #[inline(always)]
    pub(super) fn cell(self) -> &'t AtomicPtr<Node<K, V>> {
        self.own(&self.bucket.links)
    }

    #[inline(always)]
    pub(super) fn link(self) -> Link<K, V> {
        // ORDER: Acquire; as in `Bucket::link`.
        self.cell().load(Ordering::Acquire)
    }

    #[inline(always)]
    fn frequency(self) -> &'t AtomicU8 {
        self.own(&self.bucket.frequency)
    }

    /// Returns the node, if the link leads to one.
    #[inline(always)]
    pub(crate) fn node(self) -> Option<NonNull<Node<K, V>>> {
        let link = self.link();
        if has_tag(link) { NonNull::new(address_in(link)) } else { None }
    }

    /// Returns the link, if it leads to a node and the entry is not pinned.
    #[inline(always)]
    fn evictable(self) -> Option<Link<K, V>> {
        let link = self.link();
        // The tag lies above the bit. With the bit above it, this is positive if the link has a tag
        // and is not pinned.
        let turned = ((link.addr() >> PINNED.trailing_zeros()) as u16).rotate_right(1) as i16;
        (turned > 0).then_some(link)
    }

    /// Returns the entry as one to evict, if there is an entry that is not pinned.
    pub(crate) fn to_evict(self) -> Option<LeastUsed<'t, K, V>> {
        let frequency = self.frequency_now();
        self.evictable().map(|link| LeastUsed { slot: self, link, frequency })
    }

    #[inline(always)]
    pub(crate) fn is_pinned(self) -> bool {
        self.link().addr() & PINNED != 0
    }

    #[inline(always)]
    pub(crate) fn frequency_now(self) -> u8 {
        // ORDER: Relaxed; a hint (cache_table.T3).
        self.frequency().load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set_frequency(self, frequency: u8) {
        debug_assert!(frequency <= FREQUENCY_MAX, "cache_table.T3: a frequency of {frequency}");
        // ORDER: Relaxed; a hint (cache_table.T3).
        self.frequency().store(frequency, Ordering::Relaxed);
    }
}

/// The least used entry of a chain.
pub(crate) struct LeastUsed<'t, K, V> {
    pub(crate) slot: Slot<'t, K, V>,
    /// The link, of an entry that is not pinned.
    pub(crate) link: Link<K, V>,
    pub(crate) frequency: u8,
}

impl<K, V> Clone for LeastUsed<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<K, V> Copy for LeastUsed<'_, K, V> {}

impl<K, V> LeastUsed<'_, K, V> {
    #[inline(always)]
    pub(crate) fn node(self) -> NonNull<Node<K, V>> {
        debug_assert!(has_tag(self.link), "cache_table.T1: a free place is to be evicted");
        // SAFETY: cache_table.T1 - the link has a tag, so it leads to a node.
        unsafe { NonNull::new_unchecked(address_in(self.link)) }
    }
}

/// The frequencies of a bucket: a byte for each place and one more byte, `0xff` where there is no
/// entry. So all places are compared together, without a branch that cannot be predicted.
struct Frequencies(u64);

/// One in each byte.
const EACH: u64 = 0x0101_0101_0101_0101;

impl Frequencies {
    /// Returns the place with the lowest of these frequencies, and that frequency. Of several such
    /// places, returns the first one from `from` on, in a circle.
    #[inline(always)]
    fn least(&self, mut of: RangeInclusive<u8>, from: u32) -> Option<(usize, u8)> {
        let turned = self.0.rotate_right(8 * from);
        of.find_map(|frequency| {
            let other = turned ^ (u64::from(frequency) * EACH);
            // The lowest of these bits is in the lowest zero byte of `other`.
            let zeros = other.wrapping_sub(EACH) & !other & (0x80 * EACH);
            let at = || (zeros.trailing_zeros() / 8 + from) % 8;
            (zeros != 0).then(|| (at() as usize, frequency))
        })
    }

    /// Treats a place as free.
    fn forget(&mut self, at: usize) {
        self.0 |= 0xff << (8 * at);
    }
}

/// A bucket as it was when it was read.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod snapshot {
    use super::{Bucket, Frequencies, SLOTS, TAG_SHIFT};
    use core::arch::x86_64::{
        __m128i, _mm_cmpeq_epi16, _mm_cvtsi128_si64, _mm_movemask_epi8, _mm_packs_epi16,
        _mm_packs_epi32, _mm_set1_epi16, _mm_srli_epi32,
    };

    /// A bit for each link.
    const LINKS: u32 = (1 << SLOTS) - 1;

    /// The tags, a 16-bit word for each link. The eighth word belongs to no link.
    pub(super) struct Snapshot<'b, K, V>(__m128i, &'b Bucket<K, V>);

    impl<'b, K, V> Snapshot<'b, K, V> {
        #[inline(always)]
        pub(super) fn of(bucket: &'b Bucket<K, V>) -> Self {
            const SHIFT: i32 = TAG_SHIFT as i32 - 32;
            let (low, high): (__m128i, __m128i);
            // SAFETY: these are the four quarters of a bucket, which is a line and aligned to one.
            // Other threads may write concurrently, so the hardware does the read, and reads each
            // word whole. The upper half of each link is kept.
            unsafe {
                std::arch::asm!(
                    "movaps {low}, [{bucket}]",
                    "shufps {low}, [{bucket} + 16], 0xdd",
                    "movaps {high}, [{bucket} + 32]",
                    "shufps {high}, [{bucket} + 48], 0xdd",
                    bucket = in(reg) bucket,
                    low = out(xmm_reg) low,
                    high = out(xmm_reg) high,
                    options(nostack, preserves_flags, readonly),
                );
            }
            // SAFETY: x86-64 has SSE2. (A tag does not reach the sign bit of its word.)
            let tags = unsafe {
                _mm_packs_epi32(_mm_srli_epi32::<SHIFT>(low), _mm_srli_epi32::<SHIFT>(high))
            };
            Self(tags, bucket)
        }

        /// Returns a byte for each link that says whether the link has the tag. The upper half of
        /// the result repeats the lower half.
        #[inline(always)]
        fn equal(&self, tag: usize) -> __m128i {
            // SAFETY: x86-64 has SSE2.
            unsafe {
                let equal = _mm_cmpeq_epi16(self.0, _mm_set1_epi16(tag as i16));
                _mm_packs_epi16(equal, equal)
            }
        }

        /// See `Bucket::hits`.
        #[inline(always)]
        pub(super) fn hits(&self, tag: usize) -> u32 {
            // SAFETY: x86-64 has SSE2.
            unsafe { _mm_movemask_epi8(self.equal(tag)) as u32 & LINKS }
        }

        /// Returns the frequencies of this bucket's entries. A hint (cache_table.T3).
        #[inline(always)]
        pub(super) fn frequencies(&self) -> Frequencies {
            let bytes: u64;
            // SAFETY: this is the end of the bucket's line, which the hardware reads, as in `of`.
            unsafe {
                std::arch::asm!(
                    "mov {bytes}, [{bucket} + 56]",
                    bucket = in(reg) self.1,
                    bytes = out(reg) bytes,
                    options(nostack, preserves_flags, readonly),
                );
            }
            // SAFETY: x86-64 has SSE2.
            let free = unsafe { _mm_cvtsi128_si64(self.equal(0)) as u64 };
            Frequencies(free | bytes | !0 << (8 * SLOTS))
        }
    }
}

/// A bucket, which each method reads again.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod snapshot {
    use super::{Bucket, Frequencies, SLOTS, Slot, tag_in};

    pub(super) struct Snapshot<'b, K, V>(&'b Bucket<K, V>);

    impl<'b, K, V> Snapshot<'b, K, V> {
        #[inline(always)]
        pub(super) fn of(bucket: &'b Bucket<K, V>) -> Self {
            Self(bucket)
        }

        /// See `Bucket::hits`.
        #[inline(always)]
        pub(super) fn hits(&self, tag: usize) -> u32 {
            let bit = |at: usize| u32::from(tag_in(self.0.link(at)) == tag) << at;
            (0..SLOTS).fold(0, |hits, at| hits | bit(at))
        }

        /// Returns the frequencies of this bucket's entries. A hint (cache_table.T3).
        #[inline(always)]
        pub(super) fn frequencies(&self) -> Frequencies {
            let byte = |at: usize| match tag_in(self.0.link(at)) {
                0 => 0xff,
                _ => u64::from(Slot { bucket: self.0, at }.frequency_now()),
            };
            Frequencies((0..SLOTS).fold(!0 << (8 * SLOTS), |all, at| all | byte(at) << (8 * at)))
        }
    }
}
