//! The keys and entries of a map. Keys are numbers, or the program's functions compare them.
//! Entries have a call-back at their end, or none.

use crate::handle::Domain;
use crate::mixing::Mixing;
use crate::tracked::Tracked;
use crate::versioned::Versioned;
use libc::c_int;
use manycore::collections::HashMap;
use std::borrow::Borrow;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::ptr;

/// `struct mc_map_operations`: the program's functions for keys and entries.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Operations {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Returns the hash of a key. Null if keys are numbers.
    pub hash: Option<unsafe extern "C-unwind" fn(*const c_void, *mut c_void) -> u64>,
    /// Returns whether two keys are equal. Null if keys are numbers.
    pub equal:
        Option<unsafe extern "C-unwind" fn(*const c_void, *const c_void, *mut c_void) -> c_int>,
    /// Called at the end of an entry.
    pub free_entry: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void)>,
    /// The argument of these functions.
    pub argument: *mut c_void,
}

// SAFETY: `repr(C)`, the size first; then functions that may be null, and a pointer.
unsafe impl Versioned for Operations {}

impl Operations {
    pub(crate) const NONE: Self = Self {
        size: size_of::<Self>(),
        hash: None,
        equal: None,
        free_entry: None,
        argument: ptr::null_mut(),
    };
}

/// The options with which the program made the map.
pub(crate) struct Program {
    pub(crate) domain: *const Domain,
    pub(crate) operations: *const Operations,
}

impl Program {
    pub(crate) fn domain(&self) -> &Domain {
        // SAFETY: not null, and a domain with a map in it is not freed (`mc_domain_free`).
        unsafe { &*self.domain }
    }
}

/// A key with its functions: the key of an entry, or a key to look up.
#[repr(C)]
pub(crate) struct Key {
    pub(crate) key: *const c_void,
    pub(crate) operations: *const Operations,
}

impl Key {
    fn operations(&self) -> &Operations {
        // SAFETY: the program keeps the operations as long as there are entries. Those of a key to
        // look up are the map's.
        unsafe { &*self.operations }
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let operations = self.operations();
        state.write_u64(match operations.hash {
            // SAFETY: a key of the map, or a key to look up: the program permits any thread to call
            // it with these.
            Some(hash) => unsafe { hash(self.key, operations.argument) },
            None => self.key.addr() as u64,
        });
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        let operations = self.operations();
        match operations.equal {
            // SAFETY: keys of the map, or a key to look up: the program permits any thread to call
            // it with these.
            Some(equal) => unsafe { equal(self.key, other.key, operations.argument) != 0 },
            None => ptr::eq(self.key, other.key),
        }
    }
}

impl Eq for Key {}

/// A key of a map whose keys are numbers: like [`Key`], without functions.
#[repr(transparent)]
#[derive(PartialEq, Eq)]
pub(crate) struct Number(pub(crate) *const c_void);

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.addr() as u64);
    }
}

/// An entry: the key, its value, and whether it is counted. The map's own value type is `()`.
pub(crate) struct Entry {
    key: Key,
    value: *mut c_void,
    tracked: Tracked,
}

// SAFETY: the header says that any thread may look an entry up and free it.
unsafe impl Send for Entry {}
// SAFETY: the shared pointers do not change, and `tracked` is made for sharing.
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
            // SAFETY: the program keeps the operations as long as there are entries.
            let operations = unsafe { &*operations };
            if let Some(free) = operations.free_entry {
                // SAFETY: the grace period is over, and the program promised that any thread may
                // call it.
                unsafe { free(key.cast_mut(), value, operations.argument) };
            }
        });
    }
}

/// An entry with a number as its key and without a function at its end. It is half as large.
pub(crate) struct Pair {
    key: Number,
    value: *mut c_void,
}

// SAFETY: the header says that any thread may look an entry up and free it.
unsafe impl Send for Pair {}
// SAFETY: the shared pointers do not change.
unsafe impl Sync for Pair {}

impl Hash for Pair {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Pair {}

impl Borrow<Number> for Pair {
    fn borrow(&self) -> &Number {
        &self.key
    }
}

/// The type of a map's entries.
pub(crate) trait Stored: Hash + Eq + Send + Sync + Borrow<Self::Wanted> + Sized {
    /// The type of the key by which an entry is found.
    type Wanted: Wanted;

    fn new(key: *mut c_void, value: *mut c_void, program: &Program) -> Self;
    fn key(&self) -> *const c_void;
    fn value(&self) -> *mut c_void;

    /// Counts an entry that the calling thread took out of the map, in this section.
    fn count(&self, program: &Program);

    /// Returns the map's entries if they have this type.
    fn of(entries: &Entries) -> Option<&HashMap<Self, (), Mixing>>;
}

impl Stored for Pair {
    type Wanted = Number;

    fn new(key: *mut c_void, value: *mut c_void, _: &Program) -> Self {
        Self { key: Number(key), value }
    }

    fn key(&self) -> *const c_void {
        self.key.0
    }

    fn value(&self) -> *mut c_void {
        self.value
    }

    fn count(&self, _: &Program) {}

    fn of(entries: &Entries) -> Option<&HashMap<Self, (), Mixing>> {
        if let Entries::Pairs(map) = entries { Some(map) } else { None }
    }
}

impl Stored for Entry {
    type Wanted = Key;

    fn new(key: *mut c_void, value: *mut c_void, program: &Program) -> Self {
        Self { key: Key::new(key, program), value, tracked: Tracked::new(program.domain()) }
    }

    fn key(&self) -> *const c_void {
        self.key.key
    }

    fn value(&self) -> *mut c_void {
        self.value
    }

    fn count(&self, program: &Program) {
        self.tracked.count(program.domain());
    }

    fn of(entries: &Entries) -> Option<&HashMap<Self, (), Mixing>> {
        if let Entries::Full(map) = entries { Some(map) } else { None }
    }
}

/// A key to look up.
pub(crate) trait Wanted: Hash + Eq {
    fn new(key: *const c_void, program: &Program) -> Self;
}

impl Wanted for Number {
    fn new(key: *const c_void, _: &Program) -> Self {
        Self(key)
    }
}

impl Wanted for Key {
    fn new(key: *const c_void, program: &Program) -> Self {
        Self { key, operations: program.operations }
    }
}

/// The entries of a map.
pub(crate) enum Entries {
    Pairs(HashMap<Pair, (), Mixing>),
    Full(HashMap<Entry, (), Mixing>),
}
