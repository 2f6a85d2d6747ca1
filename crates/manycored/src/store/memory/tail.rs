//! A tail: the bytes of an item that do not fit its node, in pieces. Law memory.R4.
//!
//! A piece's pointer encodes everything about the piece:
//!
//! ```text
//! bit 63       whether another piece follows
//! bits 62-48   the number of granules, less one
//! bits 47-4    the address
//! bits 3-0     the unused bytes of the last granule
//! ```

use super::lease::Leases;
use super::region::{Handle, Kind, Region};
use super::{GRANULE, Memory};
use std::marker::PhantomData;
use std::slice;

const SLACK: usize = GRANULE - 1;
const ADDRESS: usize = (1 << 48) - 1 - SLACK;
const LENGTH_SHIFT: u32 = 48;
const LENGTH_MAX: usize = 1 << 15;
const HAS_NEXT: usize = 1 << 63;

/// The header of a piece that is not the last.
#[repr(C)]
struct Link {
    next: Piece,
}

/// The header of the first piece of a chain.
#[repr(C)]
struct Head {
    link: Link,
    /// The sum over all pieces.
    granules: u32,
    /// Bytes of the item, without links and this header.
    bytes: u32,
}

/// After this many leases without a fitting run, an entirely free region is leased.
const TRIES: u32 = 16;
/// After this many refused runs, the required length is halved.
const REFUSALS: u32 = 4;

/// A piece of a tail, as its encoded pointer.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
struct Piece(*mut u8);

impl Piece {
    fn new(address: *mut u8, granules: usize, slack: usize, has_next: bool) -> Self {
        debug_assert!(
            (1..=LENGTH_MAX).contains(&granules) && slack <= SLACK,
            "memory.R4: a piece of {granules} granules with {slack} unused bytes"
        );
        assert!(address.addr() & !ADDRESS == 0, "manycored: an address beyond 48 bits");
        let next = if has_next { HAS_NEXT } else { 0 };
        Self(address.map_addr(|at| at | slack | (granules - 1) << LENGTH_SHIFT | next))
    }

    #[inline(always)]
    fn address(self) -> *mut u8 {
        self.0.map_addr(|bits| bits & ADDRESS)
    }

    #[inline(always)]
    fn granules(self) -> usize {
        (self.0.addr() >> LENGTH_SHIFT) % LENGTH_MAX + 1
    }

    #[inline(always)]
    fn has_next(self) -> bool {
        self.0.addr() & HAS_NEXT != 0
    }

    /// Returns the item's bytes in it, without the link and the unused bytes.
    #[inline(always)]
    fn bytes(self, before: usize) -> usize {
        self.granules() * GRANULE - before - (self.0.addr() & SLACK)
    }
}

/// A reference to the tail of an item. It has no destructor.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(in super::super) struct Tail(Piece);

impl Tail {
    /// Allocates memory for `bytes` bytes. The first `together` bytes lie in one piece.
    pub(super) fn allocate(
        leases: &mut Leases,
        memory: &Memory,
        bytes: usize,
        together: usize,
    ) -> Self {
        debug_assert!(
            bytes > 0 && u32::try_from(bytes).is_ok() && together <= bytes,
            "memory.R4: a tail of {bytes} bytes, {together} of them in one piece"
        );
        let mut left = bytes;
        // The first of several pieces, and the link of the last one.
        let mut first: Option<Piece> = None;
        let mut link: *mut Link = std::ptr::null_mut();
        let (mut granules, mut refused) = (0, 0);
        loop {
            let want = left.div_ceil(GRANULE).min(Kind::Tails.units());
            let least = if first.is_none() {
                (together.max(1) + size_of::<Head>()).div_ceil(GRANULE)
            } else {
                size_of::<Link>().div_ceil(GRANULE) + 1
            };
            let least = least.min(want);
            let (address, found) = take_run(leases, memory, want, least, &mut refused);
            granules += found;
            let is_last = found * GRANULE >= left;
            let slack = if is_last { found * GRANULE - left } else { 0 };
            let piece = Piece::new(address, found, slack, !is_last);
            if !link.is_null() {
                // SAFETY: the link of the piece before, which is this thread's.
                unsafe { (*link).next = piece };
            }
            if is_last {
                let Some(first) = first else { return Self(piece) };
                let head = first.address().cast::<Head>();
                // SAFETY: the first piece is this thread's, and has room for its head.
                unsafe {
                    (&raw mut (*head).granules).write(granules as u32);
                    (&raw mut (*head).bytes).write(bytes as u32);
                }
                return Self(first);
            }
            let before = if first.is_none() { size_of::<Head>() } else { size_of::<Link>() };
            first = first.or(Some(piece));
            link = address.cast();
            debug_assert!(
                (1..left).contains(&piece.bytes(before)),
                "memory.R4: a piece that is not the last holds {} of {left} bytes",
                piece.bytes(before)
            );
            left -= piece.bytes(before);
        }
    }

    /// Bytes of the item in it.
    #[inline]
    pub(in super::super) fn bytes(self) -> usize {
        if self.0.has_next() { self.head().bytes as usize } else { self.0.bytes(0) }
    }

    /// Bytes of memory that it uses.
    #[inline]
    pub(in super::super) fn memory(self) -> usize {
        let all = if self.0.has_next() { self.head().granules as usize } else { self.0.granules() };
        all * GRANULE
    }

    fn head(&self) -> &Head {
        debug_assert!(self.0.has_next(), "memory.R4: a single piece has no head");
        // SAFETY: memory.R4 - written when the chain was made, and not changed during the life of
        // the tail.
        unsafe { &*self.0.address().cast::<Head>() }
    }

    /// Returns its pieces, in order. The caller holds an item that keeps the tail.
    #[inline]
    pub(in super::super) fn pieces<'i>(&self) -> Pieces<'i> {
        Pieces { next: Some(self.0), before: size_of::<Head>(), item: PhantomData }
    }

    /// Returns a writer of the item's bytes, part by part.
    ///
    /// # Safety
    /// The tail was allocated by this thread, and no other has it yet.
    pub(in super::super) unsafe fn filler(self) -> Filler {
        let pieces = self.pieces();
        Filler { pieces, to: std::ptr::null_mut(), room: 0 }
    }

    /// Returns the number of its pieces in regions that are being vacated.
    pub(in super::super) fn vacated(self) -> usize {
        let mut pieces = self.pieces();
        std::iter::from_fn(|| {
            let address = pieces.next?.address();
            pieces.step();
            Some(address)
        })
        .filter(|address| Memory::is_vacated(*address))
        .count()
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The tail is not used any more, and was not freed.
    #[inline]
    pub(in super::super) unsafe fn free(self) {
        let mut next = Some(self.0);
        let (all, mut freed) = (if cfg!(debug_assertions) { self.memory() } else { 0 }, 0);
        while let Some(piece) = next {
            let address = piece.address();
            freed += piece.granules() * GRANULE;
            // SAFETY: memory.R4 - a piece that has a next one begins with a link to it.
            next = piece.has_next().then(|| unsafe { (*address.cast::<Link>()).next });
            Region::of(address).free_granules(address, piece.granules());
        }
        debug_assert_eq!(freed, all, "memory.R4: the pieces of a tail are not its memory");
    }
}

/// Takes a run of `want` granules if there is one near, else a shorter run of at least `least`.
/// After every few refused runs, the required length is halved, so few runs are refused.
fn take_run(
    leases: &mut Leases,
    memory: &Memory,
    want: usize,
    least: usize,
    refused: &mut u32,
) -> (*mut u8, usize) {
    let mut tries = 0;
    loop {
        if let Some(region) = leases.tails.map(Handle) {
            while let Some((start, found)) = region.run(leases.from, want) {
                leases.from = start + found;
                debug_assert!(
                    leases.from <= Region::GRANULES_END && (1..=want).contains(&found),
                    "memory.R2: a run of {found} granules at {start} leaves its region"
                );
                let part = want >> (1 + *refused / REFUSALS).min(usize::BITS - 1);
                // The end of a region is taken even if it is short. Otherwise its granules would be
                // lost until their neighbours are freed.
                let part = if leases.from == Region::GRANULES_END { least } else { part };
                if found >= part.max(least) {
                    return (region.take_granules(start, found), found);
                }
                *refused += 1;
            }
        }
        leases.next_tails(memory, tries >= TRIES);
        tries += 1;
    }
}

/// The pieces of a tail.
pub(in super::super) struct Pieces<'i> {
    next: Option<Piece>,
    /// Bytes of the next piece's link, if it has one.
    before: usize,
    item: PhantomData<&'i [u8]>,
}

impl Pieces<'_> {
    #[inline]
    fn step(&mut self) -> Option<(*mut u8, usize)> {
        let piece = self.next?;
        let address = piece.address();
        let mut before = 0;
        self.next = piece.has_next().then(|| {
            before = std::mem::replace(&mut self.before, size_of::<Link>());
            // SAFETY: memory.R4 - a piece that has a next one begins with a link to it.
            unsafe { (*address.cast::<Link>()).next }
        });
        Some((address.wrapping_add(before), piece.bytes(before)))
    }
}

impl<'i> Iterator for Pieces<'i> {
    type Item = &'i [u8];

    #[inline]
    fn next(&mut self) -> Option<&'i [u8]> {
        let (from, bytes) = self.step()?;
        // SAFETY: memory.R4 - a piece of an item that the caller keeps; its bytes were all written
        // when it was made, and do not change.
        Some(unsafe { slice::from_raw_parts(from, bytes) })
    }
}

/// Writes a tail's bytes from the first to the last.
pub(in super::super) struct Filler {
    pieces: Pieces<'static>,
    to: *mut u8,
    room: usize,
}

impl Filler {
    /// Returns true if the tail has no more room.
    pub(in super::super) fn is_full(&self) -> bool {
        self.room == 0 && self.pieces.next.is_none()
    }

    /// Writes the next bytes.
    ///
    /// # Panics
    /// If the tail has no room for them.
    #[inline]
    pub(in super::super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.room == 0 {
                (self.to, self.room) = self.pieces.step().expect("a tail has room for its item");
            }
            let (here, rest) = bytes.split_at(bytes.len().min(self.room));
            // SAFETY: `filler` - a piece that only this thread has, with so much room.
            unsafe { self.to.copy_from_nonoverlapping(here.as_ptr(), here.len()) };
            self.to = self.to.wrapping_add(here.len());
            self.room -= here.len();
            bytes = rest;
        }
    }
}
