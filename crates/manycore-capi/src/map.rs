//! `mc_map`: a hash map of pointers with the program's hash and equality.

use crate::domain::mc_domain_default;
use crate::handle::Domain;
pub use crate::map_entry::Operations;
use crate::map_entry::{Entries, Entry, Key, Number, Pair, Program, Stored, Wanted};
use crate::mixing::Mixing;
use crate::record::{Record, entered, opened};
use crate::versioned;
use libc::c_int;
use manycore::collections::{HashMap, HashMapView};
use std::borrow::Borrow;
use std::ffi::c_void;
use std::hint::assert_unchecked;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;

/// `mc_map`. The header relies on its first field.
#[repr(C)]
pub struct Map {
    get: Get,
    entries: Entries,
    program: Program,
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Evaluates an expression with the map's entries, whatever their type is.
macro_rules! with_entries {
    ($map:expr, |$entries:ident| $result:expr) => {
        match &$map.entries {
            Entries::Pairs($entries) => $result,
            Entries::Full($entries) => $result,
        }
    };
}

impl Map {
    /// The names and offsets of the fields that the header knows.
    pub const FRONT: [(&str, usize); 1] = [("get", mem::offset_of!(Self, get))];

    fn len(&self) -> usize {
        with_entries!(self, |entries| entries.len())
    }

    /// Runs `f` with the map in the section that the thread has open, or in a new one.
    ///
    /// # Safety
    /// `record` is null or the calling thread's; the entries are the map's.
    unsafe fn within<E: Stored, R>(
        &self,
        entries: &HashMap<E, (), Mixing>,
        record: *const Record,
        f: impl FnOnce(&HashMapView<'_, E, (), Mixing>) -> R,
    ) -> R {
        // SAFETY: the caller promises that it is null or the calling thread's.
        match unsafe { opened(self.program.domain(), record) } {
            Some(section) => {
                let section = ManuallyDrop::into_inner(section);
                // SAFETY: the section is of the domain with which the map was made.
                f(&ManuallyDrop::new(unsafe { entries.view_in_unchecked(section) }))
            }
            None => f(&entries.enter()),
        }
    }

    fn put<E: Stored>(&self, view: &HashMapView<'_, E, (), Mixing>, entry: E) -> c_int {
        let old = view.insert_entry(entry, ());
        old.map_or(0, |(old, ())| {
            old.count(&self.program);
            1
        })
    }

    fn add<E: Stored>(&self, view: &HashMapView<'_, E, (), Mixing>, entry: E) -> c_int {
        match view.try_insert(entry, ()) {
            Ok(()) => 0,
            Err((entry, ())) => {
                mem::forget(entry); // the caller keeps key and value
                -libc::EEXIST
            }
        }
    }

    fn remove<E: Stored>(
        &self,
        view: &HashMapView<'_, E, (), Mixing>,
        key: *const c_void,
        value: *const c_void,
    ) -> c_int {
        // The removed entry is the last one for which the condition held.
        let mut last = None;
        let removed = view.remove_if(&E::Wanted::new(key, &self.program), |entry, ()| {
            last = Some(ptr::from_ref(entry));
            value.is_null() || ptr::eq(entry.value(), value)
        });
        match (removed, last) {
            (Some(()), Some(entry)) => {
                // SAFETY: this thread unlinked it in this section, which keeps it.
                unsafe { &*entry }.count(&self.program);
                0
            }
            _ => -libc::ENOENT,
        }
    }
}

/// Makes a new map in a domain, or in the default domain.
///
/// # Safety
/// `out` is null or may be written; `domain` is null or not freed. `operations` is null, or has as
/// many bytes as its first field says, and does not change until every entry was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_new(
    out: *mut *mut Map,
    domain: *const Domain,
    operations: *const Operations,
) -> c_int {
    if out.is_null() || operations.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: the caller promises that it is as long as its first field says.
    let functions = unsafe { versioned::read(operations, Operations::NONE) };
    let is_whole = |functions: &Operations| functions.size >= size_of::<Operations>();
    let Some(functions) = functions.filter(is_whole) else { return -libc::EINVAL };
    let (is_plain, gets) = match (functions.hash, functions.equal) {
        (Some(_), Some(_)) => (false, gets::<Entry, Key>()),
        (None, None) if functions.free_entry.is_some() => (false, gets::<Entry, Number>()),
        (None, None) => (true, gets::<Pair, Number>()),
        _ => return -libc::EINVAL,
    };
    let domain = if domain.is_null() { mc_domain_default() } else { domain };
    // SAFETY: not null, and the caller promises that it is not freed. It is not freed while the map
    // has its sections either, since these count their users.
    let (sections, bounded) = unsafe { (Arc::clone(&(*domain).sections), (*domain).is_bounded) };
    let get = gets[usize::from(bounded)];
    let program = Program { domain, operations };
    let entries = if is_plain {
        Entries::Pairs(HashMap::builder().domain(sections).hasher(Mixing).build())
    } else {
        Entries::Full(HashMap::builder().domain(sections).hasher(Mixing).build())
    };
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(Map { get, entries, program }))) };
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
    // `mc_barrier` also waits for entries that are freed after this call.
    with_entries!(map, |entries| entries.for_each(|entry, ()| entry.count(&map.program)));
    drop(map);
}

/// Returns the value of a key, or null: the type of `get` of a [`Map`].
type Get = unsafe extern "C" fn(*const Map, *const Record, *const c_void) -> *mut c_void;

/// Returns the look-ups of a map with such entries and keys: for an unbounded domain, and for a
/// bounded one.
fn gets<E: Stored + Borrow<Q>, Q: Wanted>() -> [Get; 2] {
    [get::<E, Q, false>, get::<E, Q, true>]
}

/// Looks up a key in the section that the thread has open, or in a new one. The usual path calls
/// nothing except the functions of the key.
///
/// # Safety
/// The map is not freed, and `BOUNDED` says whether its domain is bounded; `record` is null or the
/// calling thread's; the map's functions may be called with `key`.
unsafe extern "C" fn get<E: Stored + Borrow<Q>, Q: Wanted, const BOUNDED: bool>(
    map: *const Map,
    record: *const Record,
    key: *const c_void,
) -> *mut c_void {
    // SAFETY: the caller promises a map that has not been freed.
    let of = unsafe { &*map };
    // SAFETY: the caller promises that the record is null or the calling thread's.
    let section = unsafe { entered(of.program.domain(), record) };
    if let (Some(section), Some(entries)) = (section, E::of(&of.entries)) {
        let section = ManuallyDrop::into_inner(section);
        // SAFETY: the section is of the map's domain, for whose mode `mc_map_new` chose this
        // function.
        unsafe { assert_unchecked(section.is_bounded() == BOUNDED) };
        // SAFETY: the section is of the domain with which the map was made.
        let view = ManuallyDrop::new(unsafe { entries.view_in_unchecked(section) });
        if let Some(found) = view.get_key_value_now(&Q::new(key, &of.program)) {
            return value_of(found);
        }
    }
    // SAFETY: what the caller promises.
    unsafe { get_anyway(map, record, key) }
}

/// Does the same while the map grows, or without an open section.
///
/// # Safety
/// As for `get`.
#[cold]
#[inline(never)]
unsafe extern "C" fn get_anyway(
    map: *const Map,
    record: *const Record,
    key: *const c_void,
) -> *mut c_void {
    fn of<E: Stored>(view: &HashMapView<'_, E, (), Mixing>, key: &E::Wanted) -> *mut c_void {
        value_of(view.get_key_value(key))
    }
    // SAFETY: the caller promises a map that has not been freed.
    let map = unsafe { &*map };
    // SAFETY: the caller promises that the record is null or the calling thread's.
    with_entries!(map, |entries| unsafe {
        map.within(entries, record, |view| of(view, &Wanted::new(key, &map.program)))
    })
}

fn value_of<E: Stored>(found: Option<(&E, &())>) -> *mut c_void {
    found.map_or(ptr::null_mut(), |(entry, ())| entry.value())
}

/// Puts an entry in, and replaces one with an equal key. Returns 1 if an entry was replaced, else
/// 0.
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
    // SAFETY: the caller promises that the record is null or the calling thread's.
    with_entries!(map, |entries| unsafe {
        map.within(entries, record, |view| map.put(view, Stored::new(key, value, &map.program)))
    })
}

/// Puts an entry in, unless a key is equal.
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
    // SAFETY: the caller promises that the record is null or the calling thread's.
    with_entries!(map, |entries| unsafe {
        map.within(entries, record, |view| map.add(view, Stored::new(key, value, &map.program)))
    })
}

/// Removes a key if its value is `value`, or if `value` is null.
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
    // SAFETY: the caller promises that the record is null or the calling thread's.
    with_entries!(map, |entries| unsafe {
        map.within(entries, record, |view| map.remove(view, key, value))
    })
}

/// Returns how many entries there are.
///
/// # Safety
/// The map is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_map_length(map: *const Map) -> usize {
    // SAFETY: the caller promises a map that has not been freed.
    unsafe { &*map }.len()
}

/// Calls `visit` with every entry until it returns a value other than zero. Returns its last value.
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
    // SAFETY: the caller promises that the record is null or the calling thread's.
    with_entries!(map, |entries| unsafe {
        map.within(entries, record, |view| {
            view.keys()
                // SAFETY: the caller promises that it may be called; the section keeps the entry.
                .map(|entry| visit(entry.key(), entry.value(), argument))
                .find(|stop| *stop != 0)
                .unwrap_or(0)
        })
    })
}
