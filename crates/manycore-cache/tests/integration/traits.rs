//! The traits that every public type implements, checked by the compiler.

use manycore_cache::{
    BatchKey, BuildError, Builder, Cache, CasError, Cause, Change, Computed, Cursor, Entry,
    Eviction, Footprint, Guard, Iter, Stats,
};
use std::error::Error;
use std::fmt::Debug;
use std::hash::RandomState;
use std::panic::{RefUnwindSafe, UnwindSafe};

type Numbers = Cache<u32, u32>;

fn debug<T: Debug>() {}
fn unwind<T: UnwindSafe + RefUnwindSafe>() {}
fn send<T: Send>() {}
fn sync<T: Sync>() {}
fn plain<T: Copy + Eq + Send + Sync>() {}
fn default<T: Default>() {}

#[test]
fn public_types_have_the_traits_that_users_expect() {
    debug::<Numbers>();
    debug::<Builder<u32, u32>>();
    debug::<Guard<'_, u32, u32>>();
    debug::<Entry<'_, u32, u32>>();
    debug::<Iter<'_, u32, u32, RandomState>>();
    debug::<BatchKey<'_, u32, u32, u32, RandomState>>();
    debug::<(Change<u32>, Computed<'_, u32, u32>)>();
    debug::<(CasError<u32>, BuildError, Cause, Cursor, Eviction, Footprint, Stats)>();

    unwind::<Numbers>();
    unwind::<Builder<u32, u32>>();
    unwind::<Guard<'_, u32, u32>>();
    unwind::<Entry<'_, u32, u32>>();
    unwind::<Iter<'_, u32, u32, RandomState>>();
    unwind::<BatchKey<'_, u32, u32, u32, RandomState>>();
    unwind::<(Change<u32>, Computed<'_, u32, u32>)>();
    unwind::<(CasError<u32>, BuildError, Cause, Cursor, Eviction, Footprint, Stats)>();

    send::<(Numbers, Builder<u32, u32>)>();
    sync::<(Numbers, Builder<u32, u32>)>();
    plain::<(Change<u32>, Cause, Cursor, Eviction, Footprint, Stats)>();
    // The other types have no default: a cache needs a capacity.
    default::<(Cursor, Eviction, Footprint, Stats)>();
}

#[test]
fn errors_are_errors() {
    let of = |error: &dyn Error| error.to_string();
    assert!(of(&Cache::<u32, u32>::builder(0).build().unwrap_err()).contains("capacity"));
    assert!(of(&Numbers::new(1).compare_and_swap(1, 1, 1).unwrap_err()).contains("not in the"));
}

/// As with a map, changes that a closure has made to a cache before it panics are complete.
#[test]
fn a_cache_crosses_catch_unwind_without_an_assertion() {
    let cache = Numbers::new(10);
    let ended = std::panic::catch_unwind(|| {
        let guard = cache.get_or_insert_with(1, || 1);
        assert_eq!(*guard, 2, "as the test wants it");
    });
    assert!(ended.is_err());
    assert_eq!(cache.get(&1).as_deref(), Some(&1));
}
