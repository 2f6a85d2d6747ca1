//! A mapping database: which space maps which frame where, and which mappings were derived from it.
//!
//! This module owns [`MappingDb`], [`SpaceId`] and [`Mapping`]. It does not own memory (a
//! [`Backing`](crate::Backing) does).
//!
//! ```text
//!  frame 7:  grant -> server, page 3 (write)        revoke(server, 3) removes all below;
//!                        |  alias                   unmap(server, 3) removes page 3 as well
//!                     client, page 9 (read)
//!                     /            \  alias
//!        library, page 1        client, page 12
//! ```
//!
//! Laws:
//! - mapping_db.V1 A mapping is found by its space and address: a namespace finds the space, and a
//!   table finds the page. This locks and writes nothing. Afterwards only the found node is locked
//!   (tree.M1 to tree.M6 say how).
//! - mapping_db.V2 An operation checks all that it can before it changes anything. It claims
//!   addresses first, then maps them, and publishes them last. If a step is refused, it undoes the
//!   earlier steps.
//! - mapping_db.V3 When `revoke`, `unmap` or `end` return, no derived mapping resolves, in any
//!   space.
//! - mapping_db.V4 A frame, an address and a node are reused only after their gate: the sections
//!   that were open are over, a tick has passed (or `flush` was called), and the backing has
//!   unmapped them (mapping_db_gate.Q1 to mapping_db_gate.Q3).
//!
//! Order of locks: a node, then nodes below it (tree.M3), then the thread's pending list. A flush
//! takes the gate's lock, then a pending list, then the frames' lock (runs.R3); it holds no node.
//! The end of a space waits for operations that have claimed its pages. These never wait for an
//! end.
//!
//! Source: Wang, Stamler, Parmer, "Parallel Sections" (EuroSys 2016), sections 3.6 to 4 and 5.3.

mod alias;
mod failed;
mod gate;
mod revoke;
mod space;
mod tree;

#[cfg(all(test, manycore_loom))]
mod loom_tests;

use crate::backing::{Backing, Run, Span};
use crate::runs::Runs;
use crate::sync::{AtomicU64, Line, Ordering, parts};
use crate::{Error, ErrorKind, Rights};
use failed::{Failed, attempt};
use gate::{Gate, Stores};
use manycore::namespace::{Id, IdSpace};
use manycore::percpu::current_slot;
use manycore::section::{Domain, Section};
use manycore::slab::Slab;
use space::{LEAF, Near};
use std::fmt;
use std::time::Duration;
use tree::{NODE_BYTES, Node, Space, SpaceRef};

/// The paper's time between two flushes of the TLBs.
const TICK: Duration = Duration::from_millis(10);

/// For how many spaces a thread remembers its position.
const CURSORS: usize = 8;

/// The name of an address space.
///
/// See [`MappingDb`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpaceId(Id);

impl SpaceId {
    /// Returns the name as a number, never zero, for code that cannot keep a `SpaceId`.
    ///
    /// ```
    /// use manycore::section;
    /// use manycore_vm::{MappingDb, Null, SpaceId};
    ///
    /// let db = MappingDb::new(Null::new(1), section::global());
    /// let space = db.space(1)?;
    /// assert_eq!(SpaceId::from_bits(space.to_bits()), Some(space));
    /// assert_eq!(SpaceId::from_bits(0), None);
    /// # Ok::<(), manycore_vm::Error>(())
    /// ```
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// Returns the space of a number that [`to_bits`](Self::to_bits) returned, or `None` if no
    /// space can have that number.
    ///
    /// Any other number may be the name of some other space, or of a space that has ended.
    /// Operations check for that.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match Id::from_bits(bits) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }
}

/// The frame and the rights of a page.
///
/// ```
/// use manycore::section;
/// use manycore_vm::{MappingDb, Null, Rights};
///
/// let db = MappingDb::new(Null::new(10), section::global());
/// let space = db.space(10)?;
/// let page = db.grant(space, 1, Rights::READ)?;
/// let mapping = db.resolve(space, page, &section::enter()).unwrap();
/// assert_eq!(mapping.rights, Rights::READ);
/// # Ok::<(), manycore_vm::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapping {
    /// The number of the frame.
    pub frame: u32,
    /// What the mapping allows.
    pub rights: Rights,
}

/// A database of page mappings: pages are granted, aliased into other address spaces, and revoked
/// together with everything derived from them.
///
/// What for: memory, or anything else in pages (blocks of a key-value cache on an accelerator,
/// registered buffers), that is lent on and must be taken back as a whole. When not: for pages with
/// one owner at a time, a [`PagePool`](crate::PagePool) is simpler and needs no mapping.
///
/// A *space* is a window of addresses. [`grant`](Self::grant) maps new frames there.
/// [`alias`](Self::alias) maps the frames of a range at another address, in the same space or
/// another. [`revoke`](Self::revoke) removes everything derived from a range, to any depth.
/// [`unmap`](Self::unmap) removes the range itself as well, and [`end`](Self::end) a whole space.
///
/// - *Consistency*: each page's mapping, alias and revocation is linearizable. An operation on
///   several pages is not atomic for look-ups, which may see a part of it while it runs. When it
///   returns, all of it is done. If it failed, nothing is mapped that was not mapped before. (If
///   the backing refuses to undo a part, that part waits for a flush, like revoked mappings.) When
///   `revoke` returns, with or without an error, no derived mapping resolves.
/// - *Stale pointers*: after a revocation the backing's mapping stays until the next flush: at most
///   two ticks, if operations or [`tick`](Self::tick) go on. Until then an access through an old
///   address reaches the old frame, with the old rights, and never another frame: neither frame nor
///   address is reused before the mapping is gone. After the flush it faults. To use a revoked
///   frame alone, call [`flush`](Self::flush), which returns when everything is unmapped.
/// - *Sections*: what [`resolve`](Self::resolve) found stays mapped until the section is closed.
/// - *Progress*: look-ups are wait-free. Other operations lock one node at a time and wait for
///   operations on the same node. Only `flush` waits for readers.
/// - *Cost*: `alias` with `revoke` of a page takes some 270 ns with [`Null`](crate::Null), and 90
///   ns for each of 1,000 mappings that are revoked at once (the example `revocation` measures it).
///   If frames and pages differ, a look-up, a grant, an alias, a revocation and an unmapping write
///   no line that other threads use (`sim-audit grant-unmap`, `alias-revoke`). The exception are
///   two in a hundred grants: free frames come in batches of up to 512, and a thread takes
///   addresses in leaves of its own while there are some. A flush reads and frees what all threads
///   have queued: at most one line for each mapping. There is no helper thread: every 64th page
///   that a thread unmaps checks whether a flush is due.
/// - *Frames* belong to the backing. They cannot be pages of a [`PagePool`](crate::PagePool): an
///   alias maps a frame at several addresses. Memory of a file allows that, a pool's anonymous
///   memory does not.
/// - *Memory*: 64 bytes for each mapping; 8 bytes for each page of a window, in leaves of 512 pages
///   that are made when they are used; at most 4 bytes for each free frame.
/// - *Errors*: each names the range. *Panics*: if a section is of another domain. A panic of the
///   backing reaches the caller and counts as a refusal: what the call had begun is undone.
///
/// ```
/// use manycore::section;
/// use manycore_vm::{ErrorKind, MappingDb, Null, Rights};
///
/// let db = MappingDb::new(Null::new(1000), section::global());
/// let (server, client, library) = (db.space(100)?, db.space(100)?, db.space(100)?);
///
/// let buffer = db.grant(server, 4, Rights::WRITE)?;
/// let seen = db.alias_anywhere(server, buffer, client, 4, Rights::READ)?;
/// let inner = db.alias_anywhere(client, seen, library, 1, Rights::READ)?;
/// let grown = db.alias_anywhere(client, seen, library, 1, Rights::WRITE).unwrap_err();
/// assert_eq!(grown.kind(), ErrorKind::RightsGrow);
///
/// assert_eq!(db.revoke(server, buffer, 4)?, 5); // four of the client's, one of the library's
/// let section = section::enter();
/// assert!(db.resolve(library, inner, &section).is_none());
/// assert!(db.resolve(server, buffer, &section).is_some());
/// # Ok::<(), manycore_vm::Error>(())
/// ```
pub struct MappingDb<'d, B: Backing> {
    backing: B,
    domain: &'d Domain,
    spaces: IdSpace<'d, SpaceRef>,
    frames: Runs,
    nodes: Slab<Node>,
    gate: Gate,
    cursors: Box<[Line<[AtomicU64; CURSORS]>]>,
}

impl<'d, B: Backing> MappingDb<'d, B> {
    /// Bytes of memory for a mapping of one page.
    pub const MAPPING_BYTES: usize = NODE_BYTES;

    /// Creates an empty database with a tick of 10 ms. Its look-ups take sections of `domain`.
    pub fn new(backing: B, domain: &'d Domain) -> Self {
        Self::with_tick(backing, domain, TICK)
    }

    /// Like [`new`](Self::new), with another minimal time before frames and addresses are reused.
    pub fn with_tick(backing: B, domain: &'d Domain, tick: Duration) -> Self {
        let cursor = |_| Line(std::array::from_fn(|_| AtomicU64::new(u64::MAX)));
        Self {
            frames: Runs::new(backing.frames()),
            backing,
            domain,
            spaces: IdSpace::new_in(domain),
            nodes: Slab::new(),
            gate: Gate::new(tick),
            cursors: (0..parts()).map(cursor).collect(),
        }
    }

    /// Creates an address space with a window of this many pages.
    ///
    /// # Errors
    /// If it has no pages or more than 2^32 - 1, or the backing has no addresses.
    pub fn space(&self, pages: usize) -> Result<SpaceId, Error> {
        if pages == 0 {
            return Err(Error::new(ErrorKind::ZeroPages, 0, 0));
        }
        let too_large = Error::new(ErrorKind::NoAddresses, 0, pages);
        let count = u32::try_from(pages).map_err(|_| too_large)?;
        let base = self.backing.reserve(pages)?;
        let space = Box::into_raw(Box::new(Space::new(base, count)));
        Ok(SpaceId(self.spaces.insert(SpaceRef(space), &self.domain.enter())))
    }

    /// Returns the first address of a space's window.
    ///
    /// # Errors
    /// If the space has ended.
    pub fn base(&self, space: SpaceId) -> Result<usize, Error> {
        Ok(self.find(space, &self.domain.enter(), (0, 0))?.base())
    }

    #[inline]
    fn find<'s>(
        &self,
        space: SpaceId,
        section: &'s Section<'_>,
        (at, pages): (usize, usize),
    ) -> Result<&'s Space, Error> {
        let known = self.spaces.check(space.0.to_bits());
        // A pointer, so that the result borrows from the section.
        let found = known.and_then(|id| self.spaces.get(id, section).map(|space| space.0));
        match found {
            // SAFETY: space.A4 - found in this section, which keeps the space.
            Some(space) => Ok(unsafe { &*space }),
            None => Err(Error::new(ErrorKind::SpaceEnded, at, pages)),
        }
    }

    /// Returns the mapping of the page at `at` (any address in the page). The page stays mapped as
    /// long as the section is open.
    ///
    /// # Panics
    /// If the section is of another domain.
    #[inline]
    pub fn resolve(&self, space: SpaceId, at: usize, section: &Section<'_>) -> Option<Mapping> {
        let space = self.find(space, section, (at, 1)).ok()?;
        let at = at - at % crate::PAGE_BYTES;
        let node = space.node(space.check(at, 1).ok()?)?;
        // SAFETY: tree.M6 - found live in this section, which keeps it.
        let node = unsafe { &*node };
        Some(Mapping { frame: node.frame(), rights: node.rights() })
    }

    /// Maps `n` new frames, which hold zeros, somewhere in a space. Returns the address.
    ///
    /// # Errors
    /// If `n` is zero, the space has ended, there are not enough frames or addresses, or the
    /// backing refuses.
    pub fn grant(&self, space: SpaceId, n: usize, rights: Rights) -> Result<usize, Error> {
        let section = self.domain.enter();
        let to = self.find(space, &section, (0, n))?;
        let first = self.claim_anywhere(space, to, n)?;
        let mut runs = Vec::with_capacity(1);
        let taken = self.take_frames((to.address(first), n as u32), rights, &mut runs);
        let mapped = taken.map_err(Failed::Refused).and_then(|()| self.map(&runs));
        if let Err(Failed::Refused(error)) = mapped {
            self.frames.free_all(runs.iter().map(|run| (run.frame, run.pages)));
            to.unclaim(first, n as u32);
            return Err(error);
        }
        let frames = runs.iter().flat_map(|run| run.frame..run.frame + run.pages);
        for (page, frame) in (first..).zip(frames) {
            let root = Node::new((to, page), frame, rights, std::ptr::null_mut());
            to.publish(page, self.new_node(root));
        }
        let address = to.address(first);
        if let Err(failed) = mapped {
            // Some pages may be mapped: a flush unmaps them before their frames are free.
            drop(section);
            let _ = self.unmap(space, address, n);
            return Err(failed.into_error());
        }
        Ok(address)
    }

    /// Maps the runs. On an error nothing is mapped, unless the error says so.
    fn map(&self, runs: &[Run]) -> Result<(), Failed> {
        let refused = match attempt(|| self.backing.map(runs)) {
            Err(Failed::Refused(error)) => error,
            done => return done,
        };
        let spans: Vec<Span> = runs.iter().map(Run::span).collect();
        match attempt(|| self.gate.alone(|| self.backing.unmap(&spans))) {
            Ok(()) => Err(Failed::Refused(refused)),
            Err(Failed::Panicked(panic)) => Err(Failed::Panicked(panic)),
            Err(_) => Err(Failed::Partly(refused)),
        }
    }

    fn new_node(&self, node: Node) -> *mut Node {
        let memory = self.nodes.alloc_raw();
        // SAFETY: the slab's memory for one node belongs to this call.
        unsafe { memory.write(node) };
        memory.as_ptr()
    }

    /// Claims `n` pages in a row, near the last pages that this thread claimed in this space.
    fn claim_anywhere(&self, id: SpaceId, space: &Space, n: usize) -> Result<u32, Error> {
        let refused = |kind| Error::new(kind, 0, n);
        if n == 0 {
            return Err(refused(ErrorKind::ZeroPages));
        }
        if n > space.pages() as usize {
            return Err(refused(ErrorKind::NoAddresses));
        }
        let slot = current_slot();
        let key = id.0.to_bits() as u32;
        let cursor = &self.cursors[slot % self.cursors.len()].0[key as usize % CURSORS];
        // ORDER: Relaxed; a hint.
        let seen = cursor.load(Ordering::Relaxed);
        let near = if (seen >> 32) as u32 == key {
            Near::Behind(seen as u32)
        } else {
            // Each thread begins in a leaf of its own.
            Near::From(((slot * LEAF) % space.pages() as usize) as u32)
        };
        let stride = self.cursors.len() as u32;
        let first = space.claim_gap(n as u32, near, stride).map_err(refused)?;
        let last = u64::from(key) << 32 | u64::from(first + (n as u32 - 1));
        cursor.store(last, Ordering::Relaxed);
        Ok(first)
    }

    /// Takes frames: in one run if there is one, otherwise in pieces. On error, `runs` has the
    /// frames taken so far.
    fn take_frames(
        &self,
        (mut address, mut rest): (usize, u32),
        rights: Rights,
        runs: &mut Vec<Run>,
    ) -> Result<(), Error> {
        let (at, all) = (address, rest as usize);
        let mut piece = rest;
        while rest != 0 {
            piece = piece.min(rest);
            match self.frames.alloc(piece, 1) {
                Some(frame) => {
                    runs.push(Run { address, frame, pages: piece, rights });
                    address += piece as usize * crate::PAGE_BYTES;
                    rest -= piece;
                }
                None if piece == 1 => return Err(Error::new(ErrorKind::NoFrames, at, all)),
                None => piece = piece.div_ceil(2),
            }
        }
        Ok(())
    }

    fn stores(&self) -> Stores<'_> {
        Stores {
            backing: &self.backing,
            domain: self.domain,
            frames: &self.frames,
            nodes: &self.nodes,
        }
    }

    /// Unmaps what waits for its gate, if that is due. Never waits. Returns how many mappings are
    /// gone.
    ///
    /// Call it from a timer if the program may stop unmapping.
    ///
    /// # Errors
    /// If the backing refuses. What it cannot unmap waits for the next call.
    pub fn tick(&self) -> Result<usize, Error> {
        self.gate.tick(&self.stores())
    }

    /// Waits for the open sections and unmaps everything that was revoked before.
    ///
    /// From then on an access faults, and the frames and addresses are free. Returns how many
    /// mappings are gone.
    ///
    /// # Errors
    /// If the backing refuses. What it cannot unmap waits for the next call.
    ///
    /// # Panics
    /// If the calling thread has a section of the domain open.
    pub fn flush(&self) -> Result<usize, Error> {
        self.gate.flush(&self.stores())
    }

    /// Returns how many mappings are dead and wait for their gate. Approximate while other threads
    /// run.
    pub fn pending(&self) -> usize {
        self.gate.pending()
    }

    /// Returns how many frames are free. Approximate while other threads run.
    pub fn free_frames(&self) -> usize {
        self.frames.idle()
    }

    /// Returns the backing.
    pub fn backing(&self) -> &B {
        &self.backing
    }
}

impl<B: Backing> Drop for MappingDb<'_, B> {
    fn drop(&mut self) {
        let section = self.domain.enter();
        let live = self.spaces.iter(&section).map(|(_, space)| *space);
        for space in live.chain(self.gate.take_ended()) {
            // SAFETY: `&mut self` - no operation is under way, and none will use the space. The
            // nodes go with their slab.
            unsafe { gate::free_space(space, &self.backing) };
        }
    }
}

impl<B: Backing> fmt::Debug for MappingDb<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappingDb")
            .field("spaces", &self.spaces.len())
            .field("free_frames", &self.frames.idle())
            .field("pending", &self.gate.pending())
            .finish_non_exhaustive()
    }
}
