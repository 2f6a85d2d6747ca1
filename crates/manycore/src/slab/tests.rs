//! Tests that need a view from inside: the division of memory, the memory kept, and the checks of
//! debug builds.

use super::chunk::HEADER_BYTES;
use super::heap::{EMPTIES_MIN, Heap, PARCEL_BLOCKS};
use super::layout::{ALIGN_MAX, BLOCKS_MIN, CHUNK_BYTES, ChunkLayout};
use super::system::{self, Reserve};
use super::{Slab, SlabBox};
use crate::config::SMALL;
use crate::sync::thread;

#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "only its size counts")] u8);

fn layout_holds<T>() {
    let layout = ChunkLayout::of::<T>(HEADER_BYTES);
    assert!(layout.chunk.is_power_of_two() && layout.chunk >= CHUNK_BYTES);
    assert!(layout.block >= size_of::<T>() && layout.block % align_of::<T>() == 0);
    let slab = Slab::<T>::new();
    let mut objects = vec![slab.alloc_raw()];
    while slab.stats().chunks < 3 {
        objects.push(slab.alloc_raw());
    }
    assert!(objects.len() > 2 * BLOCKS_MIN && objects.len() * layout.block < 3 * layout.chunk);
    let mut addresses: Vec<_> = objects.iter().map(|object| object.addr().get()).collect();
    addresses.sort_unstable();
    assert!(addresses.windows(2).all(|two| two[1] - two[0] >= layout.block));
    assert!(objects.iter().all(|object| object.is_aligned()));
    let stats = slab.stats();
    assert_eq!((stats.live, stats.bytes), (objects.len(), 3 * layout.chunk));
    assert!(stats.live + stats.cached >= 3 * BLOCKS_MIN);
    for object in objects {
        // SAFETY: allocated above, and freed once.
        unsafe { slab.free_raw(object) };
    }
    assert_eq!(slab.stats().live, 0);
}

#[test]
fn every_size_and_alignment_fits() {
    layout_holds::<()>();
    layout_holds::<u8>();
    layout_holds::<u64>();
    layout_holds::<[u8; 9]>();
    layout_holds::<u128>();
    layout_holds::<[u64; 5]>();
    layout_holds::<[u8; 4095]>();
    layout_holds::<[u8; 4097]>();
    layout_holds::<[u8; 64 << 10]>();
    layout_holds::<Page>();
    assert_eq!(align_of::<Page>(), ALIGN_MAX);
}

/// The documentation of `Slab` says what an object takes. An object without size still has an
/// address of its own.
#[test]
fn object_takes_what_is_documented() {
    #[repr(align(64))]
    struct Aligned;
    let blocks = [
        ChunkLayout::of::<()>(HEADER_BYTES).block,
        ChunkLayout::of::<u8>(HEADER_BYTES).block,
        ChunkLayout::of::<[u64; 2]>(HEADER_BYTES).block,
        ChunkLayout::of::<[u8; 17]>(HEADER_BYTES).block,
        ChunkLayout::of::<Aligned>(HEADER_BYTES).block,
    ];
    assert_eq!(blocks, [16, 16, 16, 24, 64]);
    let (itself, each) = (size_of::<Slab<u64>>(), size_of::<Heap>());
    assert!(SMALL || cfg!(not(target_pointer_width = "64")) || (itself, each) == (272, 384));
    let slab = Slab::new();
    let objects: Vec<_> = (0..100).map(|_| SlabBox::into_raw(slab.alloc(()))).collect();
    let apart = |two: &[std::ptr::NonNull<()>]| two[0].addr().get().abs_diff(two[1].addr().get());
    assert!(objects.windows(2).all(|two| apart(two) >= 16));
    assert_eq!(slab.stats().live, 100);
    // SAFETY: `into_raw` gave up the box of each object, which this takes back once, with its slab.
    objects.into_iter().for_each(|object| drop(unsafe { SlabBox::from_raw(&slab, object) }));
    assert_eq!(slab.stats().live, 0);
}

#[test]
fn last_freed_is_first_allocated() {
    let slab = Slab::new();
    let first = SlabBox::into_raw(slab.alloc(1_u64));
    let second = SlabBox::into_raw(slab.alloc(2_u64));
    // SAFETY: `into_raw` gave up both boxes of this slab; each object is freed once.
    unsafe {
        slab.free_raw(first);
        slab.free_raw(second);
    }
    assert_eq!([slab.alloc_raw(), slab.alloc_raw()], [second, first]);
}

#[test]
fn reserve_gives_each_chunk_once_and_the_rest_back() {
    let mut reserve = Reserve::EMPTY;
    let mut chunks: Vec<_> = (0..100).map(|_| reserve.take(CHUNK_BYTES)).collect();
    for (number, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk.addr().get() % CHUNK_BYTES, 0);
        // SAFETY: memory of ours, as much as was asked for.
        unsafe {
            chunk.cast::<usize>().write(number);
            chunk.byte_add(CHUNK_BYTES - 8).cast::<usize>().write(number);
        }
    }
    reserve.give_back();
    reserve.give_back();
    chunks.push(reserve.take(CHUNK_BYTES));
    for (number, chunk) in chunks.iter().take(100).enumerate() {
        // SAFETY: memory of ours still: `give_back` took only what no `take` had given out.
        let ends = unsafe {
            [chunk.cast::<usize>().read(), chunk.byte_add(CHUNK_BYTES - 8).cast().read()]
        };
        assert_eq!(ends, [number; 2]);
    }
    for chunk in chunks {
        // SAFETY: taken with this size, and not used any more.
        unsafe { system::give_back(chunk, CHUNK_BYTES) };
    }
    reserve.give_back();
}

#[test]
fn large_slab_holds_what_is_put_in_and_gives_it_back() {
    let slab = Slab::new();
    let count = 24 << 14; // 24 MiB
    let boxes: Vec<_> = (0..count).map(|number| slab.alloc([number; 8])).collect();
    assert!(boxes.iter().enumerate().all(|(number, object)| **object == [number; 8]));
    drop(boxes);
    slab.trim();
    assert_eq!(slab.stats(), super::Stats::default());
}

#[test]
fn empty_chunks_go_back_but_for_some() {
    let slab = Slab::new();
    let mut boxes = Vec::new();
    while slab.stats().chunks < 3 * EMPTIES_MIN {
        boxes.push(slab.alloc([0_u64; 8]));
    }
    assert_eq!(slab.stats().live, boxes.len());
    drop(boxes);
    // Blocks at hand are the last that were freed, from the last chunks.
    let stats = slab.stats();
    assert!((EMPTIES_MIN..EMPTIES_MIN + 4).contains(&stats.chunks), "{stats:?}");
    assert_eq!(stats.bytes, stats.chunks * CHUNK_BYTES);
    slab.trim();
    assert_eq!(slab.stats(), super::Stats::default());
    drop(slab.alloc([0; 8])); // and it goes on
}

#[test]
fn chunks_that_are_needed_again_and_again_are_kept() {
    let slab = Slab::new();
    let mut fetched = Vec::new();
    for _ in 0..6 {
        let before = slab.stats().chunks;
        let boxes: Vec<_> = (0..100_000).map(|_| slab.alloc([0_u64; 8])).collect();
        fetched.push(slab.stats().chunks - before);
        drop(boxes);
    }
    assert!(fetched[1] > 50, "empty chunks went back: {fetched:?}");
    assert_eq!(fetched[5], 0, "they were fetched again and again: {fetched:?}");
    slab.trim();
    assert_eq!(slab.stats().chunks, 0);
}

#[test]
fn foreign_frees_go_home_in_parcels() {
    let slab = Slab::new();
    let boxes: Vec<_> = (0..PARCEL_BLOCKS + 5).map(|number| slab.alloc(number)).collect();
    let slab = &slab;
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(boxes);
            assert_eq!(slab.stats().live, 0);
            slab.trim();
            assert_eq!(slab.stats().chunks, 1, "another thread's chunk is not ours to give back");
        });
    });
    slab.trim();
    assert_eq!(slab.stats().chunks, 0, "everything came home");
}

#[cfg(debug_assertions)]
mod misuse {
    use super::*;

    fn message(misuse: impl FnOnce()) -> String {
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse));
        let panic = panic.expect_err("the misuse should be noticed");
        let text = panic.downcast_ref::<String>().cloned();
        text.unwrap_or_else(|| panic.downcast_ref::<&str>().expect("text").to_string())
    }

    #[test]
    fn double_free_is_noticed_also_on_another_thread() {
        let slab = Slab::<u64>::new();
        let object = slab.alloc_raw();
        let address = object.addr();
        // SAFETY: the second free is wrong, and panics before it does harm.
        unsafe { slab.free_raw(object) };
        let again = || {
            let object = object_at(&slab, address);
            // SAFETY: the chunk is live; the second free is wrong, and panics before it does harm.
            message(|| unsafe { slab.free_raw(object) })
        };
        assert!(again().contains("freed twice"));
        thread::scope(|scope| {
            let text = scope.spawn(again).join().unwrap();
            assert!(text.contains("freed twice"), "{text}");
        });
        assert_eq!(slab.stats().live, 0);
    }

    fn object_at(_: &Slab<u64>, address: std::num::NonZeroUsize) -> std::ptr::NonNull<u64> {
        std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut(address.get())).unwrap()
    }

    #[test]
    fn write_after_free_is_noticed_at_the_next_allocation() {
        let slab = Slab::<[u64; 4]>::new();
        let object = slab.alloc_raw();
        // SAFETY: the write after the free is wrong, but the memory is still the slab's.
        unsafe {
            slab.free_raw(object);
            object.cast::<u64>().add(2).write(0);
        }
        let again = || _ = slab.alloc_raw();
        assert!(message(again).contains("written after it was freed"));
    }

    #[test]
    fn address_that_is_no_object_is_noticed() {
        let slab = Slab::<[u64; 4]>::new();
        let object = slab.alloc_raw();
        // SAFETY: the free is wrong, and panics before it does harm.
        let text = message(|| unsafe { slab.free_raw(object.byte_add(8)) });
        assert!(text.contains("no block"), "{text}");
    }
}
