//! `mc_mappings`: pages that are lent on and revoked, with a memory file or without memory.

use crate::domain::mc_domain_default;
use crate::handle::Domain;
use crate::pages::refused;
use crate::record::{Record, opened};
use crate::running;
use crate::versioned::{self, Versioned};
use libc::c_int;
use manycore::section::Section;
use manycore_vm::{
    Backing, Error, Frames, Mapping, MappingDb, Memfd, Null, Operation, Rights, Run, SpaceId, Span,
};
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// `struct mc_mappings_options`. Zero is the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MappingsOptions {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Bit 0: no memory.
    pub flags: u64,
    /// Minimal time before frames and addresses are reused.
    pub tick_us: u64,
}

const BOOKS: u64 = 1;

// SAFETY: `repr(C)`, the size first; then numbers.
unsafe impl Versioned for MappingsOptions {}

/// `struct mc_mapping`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MappedPage {
    /// The number of the frame.
    pub frame: u32,
    /// The rights, numbered as in the header.
    pub rights: u32,
}

/// The backing of the mappings.
#[derive(Debug)]
enum Frame {
    Books(Null),
    File(Memfd),
}

/// Calls the backing.
macro_rules! behind {
    ($self:ident, $backing:ident => $call:expr) => {
        match $self {
            Frame::Books($backing) => $call,
            Frame::File($backing) => $call,
        }
    };
}

impl Backing for Frame {
    fn frames(&self) -> u32 {
        behind!(self, backing => backing.frames())
    }

    fn supports(&self, operation: Operation) -> Result<(), &'static str> {
        behind!(self, backing => backing.supports(operation))
    }

    fn reserve(&self, pages: usize) -> Result<usize, Error> {
        behind!(self, backing => backing.reserve(pages))
    }

    fn release(&self, address: usize, pages: usize) {
        behind!(self, backing => backing.release(address, pages));
    }

    fn map(&self, runs: &[Run]) -> Result<(), Error> {
        behind!(self, backing => backing.map(runs))
    }

    fn unmap(&self, spans: &[Span]) -> Result<(), Error> {
        behind!(self, backing => backing.unmap(spans))
    }

    fn protect(&self, span: Span, rights: Rights) -> Result<(), Error> {
        behind!(self, backing => backing.protect(span, rights))
    }

    fn flush(&self, frames: &[Frames]) -> Result<(), Error> {
        behind!(self, backing => backing.flush(frames))
    }
}

/// `mc_mappings`.
#[derive(Debug)]
pub struct Mappings {
    // Dropped before the sections that it borrows.
    db: MappingDb<'static, Frame>,
    domain: *const Domain,
    /// Keeps the domain from being freed.
    _sections: Arc<manycore::section::Domain>,
}

impl Mappings {
    fn domain(&self) -> &Domain {
        // SAFETY: not null, and a domain with mappings in it is not freed (`mc_domain_free`).
        unsafe { &*self.domain }
    }
}

/// Converts the header's number of the rights.
fn rights(number: c_int) -> Result<Rights, c_int> {
    match number {
        0 => Ok(Rights::NONE),
        1 => Ok(Rights::READ),
        2 => Ok(Rights::WRITE),
        _ => Err(-libc::EINVAL),
    }
}

/// Converts the number of a space.
fn space(number: u64) -> Result<SpaceId, c_int> {
    SpaceId::from_bits(number).ok_or(-libc::ESRCH)
}

/// Converts the result for C: a count, or a negative errno.
fn counted(result: Result<Result<usize, Error>, c_int>) -> isize {
    match result {
        Ok(Ok(count)) => count as isize,
        Ok(Err(error)) => refused(&error) as isize,
        Err(number) => number as isize,
    }
}

/// Makes new mappings, in a domain or the default domain.
///
/// # Safety
/// `out` is null or may be written; `domain` is null or not freed. `options` is null, or has as
/// many bytes as its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_new(
    out: *mut *mut Mappings,
    domain: *const Domain,
    frames: u32,
    options: *const MappingsOptions,
) -> c_int {
    let none = MappingsOptions { size: size_of::<MappingsOptions>(), flags: 0, tick_us: 0 };
    // SAFETY: the caller promises that it is null, or as long as it says.
    let options = unsafe { versioned::read(options, none) };
    let known = |options: &MappingsOptions| options.flags & !BOOKS == 0;
    let Some(options) = options.filter(known).filter(|_| !out.is_null() && frames != 0) else {
        return -libc::EINVAL;
    };
    let backing = if options.flags & BOOKS != 0 {
        Ok(Frame::Books(Null::new(frames)))
    } else {
        Memfd::new(frames).map(Frame::File)
    };
    let backing = match backing {
        Ok(backing) => backing,
        Err(error) => return refused(&error),
    };
    let domain = if domain.is_null() { mc_domain_default() } else { domain };
    // SAFETY: not null, and the caller promises that it is not freed. It is not freed while the
    // mappings have its sections either, since these count their users.
    let sections = unsafe { &(*domain).sections };
    // SAFETY: the sections live as long as the `Arc` beside the mappings.
    let borrowed = unsafe { &*Arc::as_ptr(sections) };
    let db = match options.tick_us {
        0 => MappingDb::new(backing, borrowed),
        tick => MappingDb::with_tick(backing, borrowed, Duration::from_micros(tick)),
    };
    let mappings = Mappings { db, domain, _sections: Arc::clone(sections) };
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(mappings))) };
    0
}

/// Frees mappings, their spaces and their frames.
///
/// # Safety
/// Null, or from `mc_mappings_new`, freed once, and no thread uses it or its addresses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_free(mappings: *mut Mappings) {
    if !mappings.is_null() {
        // SAFETY: from the box of `mc_mappings_new`; the caller promises that it comes back once.
        drop(unsafe { Box::from_raw(mappings) });
    }
}

/// Makes a new space, and stores its number in `out`.
///
/// # Safety
/// The mappings are not freed; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_space_new(
    mappings: *const Mappings,
    pages: usize,
    out: *mut u64,
) -> c_int {
    if out.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller promises mappings that have not been freed.
    match unsafe { &*mappings }.db.space(pages) {
        Ok(space) => {
            // SAFETY: not null, and the caller promises that it may be written.
            unsafe { out.write(space.to_bits()) };
            0
        }
        Err(error) => refused(&error),
    }
}

/// Returns the first address of a space, or null if it has ended.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_space_base(mappings: *const Mappings, number: u64) -> *mut c_void {
    // SAFETY: the caller promises mappings that have not been freed.
    let mappings = unsafe { &*mappings };
    let base = space(number).ok().and_then(|space| mappings.db.base(space).ok());
    base.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
}

/// Ends a space. Returns how many mappings were removed.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_space_end(mappings: *const Mappings, number: u64) -> isize {
    // SAFETY: the caller promises mappings that have not been freed.
    let mappings = unsafe { &*mappings };
    counted(space(number).map(|space| mappings.db.end(space)))
}

/// Writes an address to `out`, unless the operation was refused.
///
/// # Safety
/// `out` may be written.
unsafe fn tell_address(at: Result<usize, Error>, out: *mut *mut c_void) -> c_int {
    match at {
        Ok(at) => {
            // SAFETY: the caller promises that it may be written.
            unsafe { out.write(ptr::with_exposed_provenance_mut(at)) };
            0
        }
        Err(error) => refused(&error),
    }
}

/// Maps new frames somewhere in a space, and stores the address in `out`.
///
/// # Safety
/// The mappings are not freed; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_grant(
    mappings: *const Mappings,
    number: u64,
    pages: usize,
    may: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller promises mappings that have not been freed.
    let mappings = unsafe { &*mappings };
    let (space, may) = match (space(number), rights(may)) {
        _ if out.is_null() => return -libc::EINVAL,
        (Ok(space), Ok(may)) => (space, may),
        (_, Err(error)) | (Err(error), _) => return error,
    };
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { tell_address(mappings.db.grant(space, pages, may), out) }
}

/// Maps the frames of a range at another address as well: at `*to_at`. If that is null, maps them
/// somewhere and stores the address there.
///
/// # Safety
/// The mappings are not freed; `to_at` is null or may be read and written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_alias(
    mappings: *const Mappings,
    from: u64,
    at: *const c_void,
    pages: usize,
    to: u64,
    to_at: *mut *mut c_void,
    may: c_int,
) -> c_int {
    // SAFETY: the caller promises mappings that have not been freed.
    let db = &unsafe { &*mappings }.db;
    let (from, to, may) = match (space(from), space(to), rights(may)) {
        _ if to_at.is_null() => return -libc::EINVAL,
        (Ok(from), Ok(to), Ok(may)) => (from, to, may),
        (_, _, Err(error)) | (_, Err(error), _) | (Err(error), _, _) => return error,
    };
    // SAFETY: not null, and the caller promises that it may be read.
    let wanted = unsafe { to_at.read() };
    let made = if wanted.is_null() {
        db.alias_anywhere(from, at.addr(), to, pages, may)
    } else {
        db.alias(from, at.addr(), to, wanted.addr(), pages, may).map(|()| wanted.addr())
    };
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { tell_address(made, to_at) }
}

/// Removes everything derived from a range. Returns how many mappings it removed.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_revoke(
    mappings: *const Mappings,
    number: u64,
    at: *const c_void,
    pages: usize,
) -> isize {
    // SAFETY: the caller promises mappings that have not been freed.
    let mappings = unsafe { &*mappings };
    counted(space(number).map(|space| mappings.db.revoke(space, at.addr(), pages)))
}

/// Removes a range and everything derived from it. Returns how many mappings it removed.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_unmap(
    mappings: *const Mappings,
    number: u64,
    at: *const c_void,
    pages: usize,
) -> isize {
    // SAFETY: the caller promises mappings that have not been freed.
    let mappings = unsafe { &*mappings };
    counted(space(number).map(|space| mappings.db.unmap(space, at.addr(), pages)))
}

/// Removes everything derived from a range, and limits the range to these rights. Returns how many
/// mappings it removed.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_restrict(
    mappings: *const Mappings,
    number: u64,
    at: *const c_void,
    pages: usize,
    may: c_int,
) -> isize {
    // SAFETY: the caller promises mappings that have not been freed.
    let mappings = unsafe { &*mappings };
    let both = space(number).and_then(|space| Ok((space, rights(may)?)));
    counted(both.map(|(space, may)| mappings.db.restrict(space, at.addr(), pages, may)))
}

/// Stores the mapping of the page with an address, or returns `-ENOENT`.
///
/// # Safety
/// The mappings are not freed; `record` is null or the calling thread's; `out` is null or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_resolve_(
    mappings: *const Mappings,
    record: *const Record,
    number: u64,
    at: *const c_void,
    out: *mut MappedPage,
) -> c_int {
    // SAFETY: the caller promises mappings that have not been freed.
    let mappings = unsafe { &*mappings };
    let Ok(space) = space(number) else { return -libc::ENOENT };
    let resolve = |section: &Section<'_>| mappings.db.resolve(space, at.addr(), section);
    // SAFETY: the caller promises that it is null or the calling thread's.
    let found = match unsafe { opened(mappings.domain(), record) } {
        Some(section) => resolve(&section),
        None => resolve(&mappings.domain().sections.enter()),
    };
    let Some(Mapping { frame, rights, .. }) = found else { return -libc::ENOENT };
    let rights = u32::from(rights >= Rights::READ) + u32::from(rights >= Rights::WRITE);
    if !out.is_null() {
        // SAFETY: not null, and the caller promises that it may be written.
        unsafe { out.write(MappedPage { frame, rights }) };
    }
    0
}

/// Unmaps what is due. Returns how many mappings are gone.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_tick(mappings: *const Mappings) -> isize {
    // SAFETY: the caller promises mappings that have not been freed.
    counted(Ok(unsafe { &*mappings }.db.tick()))
}

/// Waits for the open sections and unmaps everything that was removed. Returns how many mappings
/// are gone.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_flush(mappings: *const Mappings) -> isize {
    // SAFETY: the caller promises mappings that have not been freed.
    let mappings = unsafe { &*mappings };
    if running::is_running() || mappings.domain().sections.is_inside() {
        return -(libc::EDEADLK as isize);
    }
    let _no_cancel = crate::cancel::disable();
    counted(Ok(mappings.db.flush()))
}

/// Returns how many mappings wait to be unmapped.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_pending(mappings: *const Mappings) -> usize {
    // SAFETY: the caller promises mappings that have not been freed.
    unsafe { &*mappings }.db.pending()
}

/// Returns how many frames are free.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_free_frames(mappings: *const Mappings) -> usize {
    // SAFETY: the caller promises mappings that have not been freed.
    unsafe { &*mappings }.db.free_frames()
}

/// Returns the memory file, or `-EOPNOTSUPP` without memory.
///
/// # Safety
/// The mappings are not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_mappings_fd(mappings: *const Mappings) -> c_int {
    // SAFETY: the caller promises mappings that have not been freed.
    match unsafe { &*mappings }.db.backing() {
        Frame::File(file) => file.as_fd().as_raw_fd(),
        Frame::Books(_) => -libc::EOPNOTSUPP,
    }
}
