//! `mc_cache`: a cache whose keys and values are bytes.

use crate::cache_key::Key;
use crate::cancel;
use crate::versioned::{self, Versioned};
use foldhash::quality::RandomState;
use libc::c_int;
use manycore_cache::Cache as Whole;
use std::ffi::c_void;
use std::ptr;
use std::slice;
use std::time::Duration;

type Bytes = Box<[u8]>;
type OwnKey = Box<Key>;

/// `mc_cache`.
#[derive(Debug)]
pub struct Cache {
    whole: Whole<OwnKey, Bytes, RandomState>,
    has_times: bool,
}

/// `struct mc_cache_options`. Zero is the default of each field, except for `bytes`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CacheOptions {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Bit 0: reads are counted. Bit 1: entries may have times to live of their own.
    pub flags: u64,
    /// Bytes that all entries may take, including the cache's own memory for them.
    pub bytes: u64,
    /// Time from an entry's insertion to its end.
    pub live_ms: u64,
    /// Time from an entry's last use to its end.
    pub idle_ms: u64,
}

const COUNT_READS: u64 = 1;
const TIMES: u64 = 2;

/// `struct mc_cache_stats`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CacheStats {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Number of entries.
    pub entries: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes that they may take.
    pub capacity: u64,
    /// Reads that found the key, if reads are counted.
    pub hits: u64,
    /// Reads that did not find the key, if reads are counted.
    pub misses: u64,
    /// Entries that were put in.
    pub insertions: u64,
    /// Entries that were evicted because room was needed.
    pub evictions: u64,
    /// Entries that expired.
    pub expirations: u64,
}

// SAFETY: `repr(C)`, the size first; then numbers.
unsafe impl Versioned for CacheOptions {}
// SAFETY: `repr(C)`, the size first; then numbers.
unsafe impl Versioned for CacheStats {}

/// `mc_visit_bytes`: called with bytes that are valid during the call.
pub type Visit = unsafe extern "C-unwind" fn(*const c_void, usize, *mut c_void);

/// `mc_load_bytes`: makes the value of a missing key.
pub type Load =
    unsafe extern "C-unwind" fn(*mut Loading, *const c_void, usize, *mut c_void) -> c_int;

/// `mc_loading`: the place where a load puts its value.
#[derive(Debug)]
pub struct Loading(Option<Bytes>);

/// Returns the bytes of a key or a value.
///
/// # Safety
/// `length` bytes are at `at` and do not change, or `length` is zero.
unsafe fn bytes<'a>(at: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller promises that they are there and do not change.
    unsafe { slice::from_raw_parts(at.cast(), length) }
}

/// Copies bytes, without a function call if there are 8 to 64.
///
/// # Safety
/// The destination `to` has room for as many bytes, or is null if there are none.
#[inline(always)]
unsafe fn copy(bytes: &[u8], to: *mut u8) {
    match bytes.len() {
        0 => {}
        // SAFETY: at least 32 bytes and at most 64; the caller promises room for them.
        33..=64 => unsafe { copy_ends::<32>(bytes, to) },
        // SAFETY: at least 16 bytes and at most 32; the caller promises room for them.
        17..=32 => unsafe { copy_ends::<16>(bytes, to) },
        // SAFETY: at least 8 bytes and at most 16; the caller promises room for them.
        8..=16 => unsafe { copy_ends::<8>(bytes, to) },
        // SAFETY: the caller promises room for as many; a caller's buffer does not overlap the
        // cache.
        length => unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, length) },
    }
}

/// Copies the first and the last `N` bytes, which are all of up to `2 * N`.
///
/// # Safety
/// There are at least `N` bytes, and `to` has room for all of them.
#[inline(always)]
unsafe fn copy_ends<const N: usize>(bytes: &[u8], to: *mut u8) {
    let (from, last) = (bytes.as_ptr().cast::<[u8; N]>(), bytes.len() - N);
    // SAFETY: the caller promises at least `N` bytes on both sides, so both ends lie within them.
    // An array of bytes needs no alignment.
    unsafe {
        let ends = (from.read(), from.byte_add(last).read());
        to.cast::<[u8; N]>().write(ends.0);
        to.add(last).cast::<[u8; N]>().write(ends.1);
    }
}

/// Returns the key with these bytes.
///
/// # Safety
/// As for [`bytes`].
#[inline(always)]
unsafe fn key_of<'a>(at: *const c_void, length: usize) -> &'a Key {
    // SAFETY: what the caller promises.
    Key::of(unsafe { bytes(at, length) })
}

/// Makes a new cache.
///
/// # Safety
/// `out` is null or may be written. `options` is null, or has as many bytes as its first field
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_new(out: *mut *mut Cache, options: *const CacheOptions) -> c_int {
    let size = size_of::<CacheOptions>();
    let none = CacheOptions { size, flags: 0, bytes: 0, live_ms: 0, idle_ms: 0 };
    // SAFETY: the caller promises that it is null, or as long as it says.
    let options = unsafe { versioned::read(options, none) };
    let known = |options: &CacheOptions| options.flags & !(COUNT_READS | TIMES) == 0;
    let Some(options) = options.filter(known).filter(|_| !out.is_null()) else {
        return -libc::EINVAL;
    };
    let mut builder = Whole::builder(options.bytes)
        .hasher(RandomState::default())
        .byte_weigher(|key: &OwnKey, value: &Bytes| key.bytes().len() + value.len())
        .count_reads(options.flags & COUNT_READS != 0);
    if options.flags & TIMES != 0 {
        builder = builder.expire_after(|_, _| None);
    }
    if options.live_ms != 0 {
        builder = builder.time_to_live(Duration::from_millis(options.live_ms));
    }
    if options.idle_ms != 0 {
        builder = builder.time_to_idle(Duration::from_millis(options.idle_ms));
    }
    let Ok(whole) = builder.build() else { return -libc::EINVAL };
    let has_times = options.flags & TIMES != 0 || options.live_ms != 0 || options.idle_ms != 0;
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(Cache { whole, has_times }))) };
    0
}

/// Frees a cache.
///
/// # Safety
/// Null, or from `mc_cache_new`, freed once, and used by no thread any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_free(cache: *mut Cache) {
    if !cache.is_null() {
        // SAFETY: from the box of `mc_cache_new`; the caller promises that it comes back once.
        drop(unsafe { Box::from_raw(cache) });
    }
}

/// Puts a copy of the value in, for `live_ms`, or for as long as the cache's options say.
///
/// # Safety
/// The cache is not freed; key and value have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_put(
    cache: *const Cache,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    length: usize,
    live_ms: u64,
) -> c_int {
    // SAFETY: the caller promises a cache that has not been freed, and so many bytes.
    let (cache, key, value) =
        unsafe { (&*cache, key_of(key, key_length).into(), bytes(value, length).into()) };
    match live_ms {
        0 => cache.whole.insert(key, value),
        _ if !cache.has_times => return -libc::EINVAL,
        live => cache.whole.insert_for(key, value, Duration::from_millis(live)),
    };
    0
}

/// Copies the value of a key if there is room for it. Returns its length, or `-ENOENT`.
///
/// # Safety
/// The cache is not freed; the key has so many bytes; `room` bytes of `buffer` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_get(
    cache: *const Cache,
    key: *const c_void,
    key_length: usize,
    buffer: *mut c_void,
    room: usize,
) -> isize {
    // SAFETY: the caller promises a cache that has not been freed, and so many bytes.
    let (cache, key) = unsafe { (&*cache, key_of(key, key_length)) };
    let Some(value) = cache.whole.get(key) else {
        return -(libc::ENOENT as isize);
    };
    if value.len() <= room {
        // SAFETY: the caller promises that there is room for as many bytes.
        unsafe { copy(&value, buffer.cast()) };
    }
    value.len() as isize
}

/// Calls `visit` with the value of a key, if it is there.
///
/// # Safety
/// The cache is not freed; the key has so many bytes; `visit` may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_visit(
    cache: *const Cache,
    key: *const c_void,
    key_length: usize,
    visit: Option<Visit>,
    argument: *mut c_void,
) -> c_int {
    let Some(visit) = visit else { return -libc::EINVAL };
    // SAFETY: the caller promises a cache that has not been freed, and so many bytes.
    let (cache, key) = unsafe { (&*cache, key_of(key, key_length)) };
    let Some(value) = cache.whole.get(key) else { return -libc::ENOENT };
    // SAFETY: the caller promises that it may be called; the guard keeps the value.
    unsafe { visit(value.as_ptr().cast(), value.len(), argument) };
    0
}

/// Like `mc_cache_visit`, but loads the value first if the key is missing. One thread loads at a
/// time.
///
/// # Safety
/// The cache is not freed; the key has so many bytes; `load` and `visit` may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_get_or_load(
    cache: *const Cache,
    key: *const c_void,
    key_length: usize,
    load: Option<Load>,
    visit: Option<Visit>,
    argument: *mut c_void,
) -> c_int {
    let (Some(load), Some(visit)) = (load, visit) else { return -libc::EINVAL };
    // SAFETY: the caller promises a cache that has not been freed, and so many bytes.
    let (cache, key) = unsafe { (&*cache, key_of(key, key_length)) };
    let _no_cancel = cancel::disable();
    let loaded = cache.whole.try_get_or_insert_with(key.into(), || {
        let (mut loading, key) = (Loading(None), key.bytes());
        // SAFETY: the caller promises that it may be called; the bytes stay as long as this call.
        match unsafe { load(&raw mut loading, key.as_ptr().cast(), key.len(), argument) } {
            0 => loading.0.ok_or(-libc::ENOENT),
            error => Err(error),
        }
    });
    match loaded {
        Ok(value) => {
            // SAFETY: the caller promises that it may be called; the guard keeps the value.
            unsafe { visit(value.as_ptr().cast(), value.len(), argument) };
            0
        }
        Err(error) => *error,
    }
}

/// Copies the value that a load has made.
///
/// # Safety
/// `loading` is the argument of a load that has not returned; the value has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_loaded(loading: *mut Loading, value: *const c_void, length: usize) {
    // SAFETY: the caller promises that the load has not returned, so `loading` is on this thread's
    // stack; also that the value has so many bytes.
    unsafe { (*loading).0 = Some(bytes(value, length).into()) };
}

/// Removes a key.
///
/// # Safety
/// The cache is not freed; the key has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_remove(
    cache: *const Cache,
    key: *const c_void,
    key_length: usize,
) -> c_int {
    // SAFETY: the caller promises a cache that has not been freed, and so many bytes.
    let removed = unsafe { (*cache).whole.remove(key_of(key, key_length)) };
    if removed.is_some() { 0 } else { -libc::ENOENT }
}

/// Removes every entry.
///
/// # Safety
/// The cache is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_clear(cache: *const Cache) {
    // SAFETY: the caller promises a cache that has not been freed.
    unsafe { &*cache }.whole.invalidate_all();
}

/// Sets the bytes that entries may take from now on.
///
/// # Safety
/// The cache is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_set_capacity(cache: *const Cache, bytes: u64) -> c_int {
    if !(1..=1 << 62).contains(&bytes) {
        return -libc::EINVAL;
    }
    // SAFETY: the caller promises a cache that has not been freed.
    unsafe { &*cache }.whole.set_capacity(bytes);
    0
}

/// Reports the cache's contents and counts.
///
/// # Safety
/// The cache is not freed; `out` is null, or has as many bytes as its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_cache_stats(cache: *const Cache, out: *mut CacheStats) -> c_int {
    // SAFETY: the caller promises a cache that has not been freed.
    let whole = &unsafe { &*cache }.whole;
    let counts = whole.stats();
    let stats = CacheStats {
        size: size_of::<CacheStats>(),
        entries: whole.len() as u64,
        bytes: whole.weight(),
        capacity: whole.capacity(),
        hits: counts.hits,
        misses: counts.misses,
        insertions: counts.insertions,
        evictions: counts.evictions,
        expirations: counts.expirations,
    };
    // SAFETY: the caller promises that it is null, or as long as it says.
    if unsafe { versioned::write(out, stats) } { 0 } else { -libc::EINVAL }
}
