//! `mc_map`: a hash map of pointers, whose hash and equality are the program's.

use crate::domain::mc_domain_default;
use crate::handle::Domain;
use crate::record::{Record, opened};
use crate::tracked::Tracked;
use libc::c_int;
use manycore::collections::{HashMap, HashMapView};
use manycore::section::Section;
use std::borrow::Borrow;
use std::ffi::c_void;
use std::hash::{BuildHasher, Hash, Hasher};
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;

/// `struct mc_map_operations`: what a map does with its keys and entries.
#[repr(C)]
#[derive(Debug)]
pub struct Operations {
    /// Of the struct as the caller knows it.
    pub size: usize,
    /// The hash of a key; null for keys that are numbers.
    pub hash: Option<unsafe extern "C-unwind" fn(*const c_void, *mut c_void) -> u64>,
    /// Whether two keys are equal; null for keys that are numbers.
    pub equal:
        Option<unsafe extern "C-unwind" fn(*const c_void, *const c_void, *mut c_void) -> c_int>,
    /// The end of an entry.
    pub free_entry: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void)>,
    /// What these are called with.
    pub argument: *mut c_void,
}

/// A key with what compares it: of an entry, or one that is looked for.
#[repr(C)]
struct Key {
    key: *const c_void,
    operations: *const Operations,
}

impl Key {
    fn operations(&self) -> &Operations {
        // SAFETY: the giver of the operations keeps them as long as there are entries; and those of
        // a key that is looked for are the map's.
        unsafe { &*self.operations }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let operations = self.operations();
        state.write_u64(match operations.hash {
            // SAFETY: a key of the map's, or one that is looked for: the giver lets any thread
            // call it with these.
            Some(hash) => unsafe { hash(self.key, operations.argument) },
            None => self.key.addr() as u64,
        });
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let operations = self.operations();
        match operations.equal {
            // SAFETY: keys of the map's, or one that is looked for: the giver lets any thread call
            // it with these.
            Some(equal) => unsafe { equal(self.key, other.key, operations.argument) != 0 },
            None => ptr::eq(self.key, other.key),
        }
    }
}

impl Eq for Key {}

/// A key of a map whose keys are numbers: as [`Key`], without functions to call.
#[repr(transparent)]
#[derive(PartialEq, Eq)]
struct Number(*const c_void);

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.addr() as u64);
    }
}

/// An entry: the key, its value, and whether it is counted. The map's own value is nothing.
struct Entry {
    key: Key,
    value: *mut c_void,
    tracked: Tracked,
}

// SAFETY: the header says that any thread may look an entry up, and free it.
unsafe impl Send for Entry {}
// SAFETY: threads share the pointers, which do not change; `tracked` is made for sharing.
unsafe impl Sync for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl Borrow<Key> for Entry {
    fn borrow(&self) -> &Key {
        &self.key
    }
}

impl Borrow<Number> for Entry {
    fn borrow(&self) -> &Number {
        // SAFETY: `Number` is a pointer, `repr(transparent)`.
        unsafe { &*(&raw const self.key.key).cast::<Number>() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (key, value) = (self.key.key, self.value);
        let operations = ptr::from_ref(self.key.operations());
        self.tracked.finish(|| {
            // SAFETY: the giver keeps the operations as long as there are entries.
            let operations = unsafe { &*operations };
            if let Some(free) = operations.free_entry {
                // SAFETY: the grace period is over, and any thread may call it: the giver says so.
                unsafe { free(key.cast_mut(), value, operations.argument) };
            }
        });
    }
}

/// Makes a hash of the program's fit for buckets and tags, which are of its low and its high bits.
#[derive(Debug, Clone, Copy, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        // Both halves of the product with an odd constant, of the golden ratio.
        let product = u128::from(hash ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Makes [`Mixed`].
#[derive(Debug, Clone, Copy)]
struct Mixing;

impl BuildHasher for Mixing {
    type Hasher = Mixed;

    fn build_hasher(&self) -> Mixed {
        Mixed::default()
    }
}

type View<'m> = HashMapView<'m, Entry, (), Mixing>;

/// `mc_map`. Its first field is the header's by contract.
#[repr(C)]
pub struct Map {
    get: Get,
    map: HashMap<Entry, (), Mixing>,
    domain: *const Domain,
    operations: *const Operations,
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("len", &self.map.len()).finish_non_exhaustive()
    }
}

impl Map {
    /// The fields that the header knows, as it names them, and where they are.
    pub const FRONT: [(&str, usize); 1] = [("get", mem::offset_of!(Self, get))];

    fn domain(&self) -> &Domain {
        // SAFETY: not null, and a domain with a map in it is not freed (`mc_domain_free`).
        unsafe { &*self.domain }
    }

    fn key(&self, key: *const c_void) -> Key {
        Key { key, operations: self.operations }
    }

    fn entry(&self, key: *mut c_void, value: *mut c_void) -> Entry {
        Entry { key: self.key(key), value, tracked: Tracked::new(self.domain) }
    }

    /// Runs `f` with the map in a section: the one that the thread has open, or one of its own.
    ///
    /// # Safety
    /// `record` is null or the calling thread's.
    #[inline(always)]
    unsafe fn within<R>(&self, record: *const Record, f: impl FnOnce(&View<'_>) -> R) -> R {
        // SAFETY: the caller promises that it is null or the calling thread's.
        match unsafe { opened(self.domain(), record) } {
            Some(section) => {
                let section = ManuallyDrop::into_inner(section);
                // SAFETY: of the domain that the map was made with.
                f(&ManuallyDrop::new(unsafe { self.map.view_in_unchecked(section) }))
            }
            None => f(&self.map.enter()),
        }
    }

    /// Counts an entry that the calling thread has taken out of the map, in this section.
    fn count(&self, entry: &Entry) {
        entry.tracked.count(self.domain());
    }

    fn put(&self, view: &View<'_>, entry: Entry) -> c_int {
        let old = view.insert_entry(entry, ());
        old.map_or(0, |(old, ())| {
            self.count(old);
            1
        })
    }

    fn remove(&self, view: &View<'_>, key: &Key, value: *const c_void) -> c_int {
        // The entry for which the condition held last is the one that was removed.
        let mut last = None;
        let removed = view.remove_if(key, |entry, ()| {
            last = Some(ptr::from_ref(entry));
            value.is_null() || ptr::eq(entry.value, value)
        });
        match (removed, last) {
            (Some(()), Some(entry)) => {
                // SAFETY: unlinked by this thread, in this section, which keeps it.
                self.count(unsafe { &*entry });
                0
            }
            _ => -libc::ENOENT,
        }
    }
}

/// A new map in a domain, or in the default one.
///
/// # Safety
/// `out` is null or may be written; `domain` is null or not freed. `operations` is null, or has as
/// many bytes as its first field says, and stays as it is until every entry was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_new(
    out: *mut *mut Map,
    domain: *const Domain,
    operations: *const Operations,
) -> c_int {
    if out.is_null() || operations.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: not null, and the caller promises that the first field is there at least.
    if unsafe { (*operations).size } < size_of::<Operations>() {
        return -libc::EINVAL;
    }
    // SAFETY: as long as its first field says.
    let (has_hash, has_equal) =
        unsafe { ((*operations).hash.is_some(), (*operations).equal.is_some()) };
    let get: Get = match (has_hash, has_equal) {
        (true, true) => get::<Key>,
        (false, false) => get::<Number>,
        _ => return -libc::EINVAL,
    };
    let domain = if domain.is_null() { mc_domain_default() } else { domain };
    // SAFETY: not null, and the caller promises that it is not freed; nor is it while the map has
    // its sections, which count their users.
    let sections = Arc::clone(unsafe { &(*domain).sections });
    let map = HashMap::builder().domain(sections).hasher(Mixing).build();
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(Map { get, map, domain, operations }))) };
    0
}

/// Frees a map and the entries in it.
///
/// # Safety
/// Null, or from `mc_map_new`, freed once, and no thread uses it or its entries any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_free(map: *mut Map) {
    if map.is_null() {
        return;
    }
    // SAFETY: from the box of `mc_map_new`; the caller promises that it comes back once.
    let map = unsafe { Box::from_raw(map) };
    // What is freed later than in this call is waited for by `mc_barrier`.
    map.map.for_each(|entry, ()| map.count(entry));
    drop(map);
}

/// The value of a key, or null: `get` of a [`Map`].
type Get = unsafe extern "C" fn(*const Map, *const Record, *const c_void) -> *mut c_void;

/// A key that is looked for.
trait Wanted: Hash + Eq {
    fn new(key: *const c_void, map: &Map) -> Self;
}

impl Wanted for Number {
    fn new(key: *const c_void, _: &Map) -> Self {
        Self(key)
    }
}

impl Wanted for Key {
    fn new(key: *const c_void, map: &Map) -> Self {
        map.key(key)
    }
}

/// Looks up a key of this kind, in the section that the thread has open, or one of its own.
///
/// # Safety
/// The map is not freed; `record` is null or the calling thread's; the map's functions may be
/// called with `key`.
unsafe extern "C" fn get<Q: Wanted>(
    map: *const Map,
    record: *const Record,
    key: *const c_void,
) -> *mut c_void
where
    Entry: Borrow<Q>,
{
    // SAFETY: the caller promises a map that has not been freed.
    let map = unsafe { &*map };
    // SAFETY: the caller promises that it is null or the calling thread's.
    let opened = unsafe { opened(map.domain(), record) };
    let is_open = opened.is_some();
    let section = ManuallyDrop::into_inner(opened.unwrap_or_else(|| open(map)));
    // SAFETY: of the domain that the map was made with.
    let view = ManuallyDrop::new(unsafe { map.map.view_in_unchecked(section) });
    // Looked up in one place, so that it is compiled into this function.
    let value = value_of(view.get_key_value(&Q::new(key, map)));
    if !is_open {
        close(view);
    }
    value
}

/// A section for one call.
#[cold]
#[inline(never)]
fn open(map: &Map) -> ManuallyDrop<Section<'_>> {
    ManuallyDrop::new(map.domain().sections.enter())
}

/// The end of a section for one call.
#[cold]
#[inline(never)]
fn close(view: ManuallyDrop<View<'_>>) {
    drop(ManuallyDrop::into_inner(view));
}

fn value_of(found: Option<(&Entry, &())>) -> *mut c_void {
    found.map_or(ptr::null_mut(), |(entry, ())| entry.value)
}

/// Puts an entry in, in place of one with an equal key: 1 if there was one, 0 if not.
///
/// # Safety
/// The map is not freed; `record` is null or the calling thread's; the map's functions may be
/// called with `key` and `value` until the entry was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_put_(
    map: *const Map,
    record: *const Record,
    key: *mut c_void,
    value: *mut c_void,
) -> c_int {
    if value.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller promises a map that has not been freed.
    let map = unsafe { &*map };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe { map.within(record, |view| map.put(view, map.entry(key, value))) }
}

/// Puts an entry in, if no key is equal.
///
/// # Safety
/// As for `mc_map_put_`, if the result is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_add_(
    map: *const Map,
    record: *const Record,
    key: *mut c_void,
    value: *mut c_void,
) -> c_int {
    if value.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller promises a map that has not been freed.
    let map = unsafe { &*map };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe {
        map.within(record, |view| match view.try_insert(map.entry(key, value), ()) {
            Ok(()) => 0,
            Err((entry, ())) => {
                mem::forget(entry); // key and value stay the caller's
                -libc::EEXIST
            }
        })
    }
}

/// Removes a key, if its value is this one, or if `value` is null.
///
/// # Safety
/// The map is not freed; `record` is null or the calling thread's; the map's functions may be
/// called with `key`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_remove_(
    map: *const Map,
    record: *const Record,
    key: *const c_void,
    value: *const c_void,
) -> c_int {
    // SAFETY: the caller promises a map that has not been freed.
    let map = unsafe { &*map };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe { map.within(record, |view| map.remove(view, &map.key(key), value)) }
}

/// How many entries there are.
///
/// # Safety
/// The map is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_length(map: *const Map) -> usize {
    // SAFETY: the caller promises a map that has not been freed.
    unsafe { &*map }.map.len()
}

/// Calls `visit` with every entry, until it returns something else than zero; what it returned
/// last.
///
/// # Safety
/// The map is not freed; `record` is null or the calling thread's; `visit` may be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_for_each_(
    map: *const Map,
    record: *const Record,
    visit: Option<unsafe extern "C-unwind" fn(*const c_void, *mut c_void, *mut c_void) -> c_int>,
    argument: *mut c_void,
) -> c_int {
    let Some(visit) = visit else { return -libc::EINVAL };
    // SAFETY: the caller promises a map that has not been freed.
    let map = unsafe { &*map };
    // SAFETY: the caller promises that it is null or the calling thread's.
    unsafe {
        map.within(record, |view| {
            let entries = view.keys();
            entries
                // SAFETY: the caller promises that it may be called; the section keeps the entry.
                .map(|entry| visit(entry.key.key, entry.value, argument))
                .find(|stop| *stop != 0)
                .unwrap_or(0)
        })
    }
}
