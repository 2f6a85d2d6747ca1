//! Entries in memory of the cache's owner, and their relocation in it.

use manycore_cache::{BuildError, Cache, Cursor, NODE_AREA, NodeMemory};
use std::alloc::{self, Layout};
use std::hash::{Hash, Hasher};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Each node has an area of its own, which shows best if a node is used after it was freed.
#[derive(Default)]
struct Areas {
    note: AtomicPtr<()>,
    /// Areas that were freed are kept, so that most of a test's memory is used again.
    free: Mutex<Vec<usize>>,
    made: AtomicUsize,
    given_out: AtomicI64,
}

const AREA: Layout = match Layout::from_size_align(NODE_AREA, NODE_AREA) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};
/// The offset of a node in its area.
const AT: usize = 64;

// SAFETY: each block has an area of its own, with the note at its beginning. Areas are given back
// when this is dropped.
unsafe impl NodeMemory for Areas {
    fn begin(&self, node: Layout, note: *const ()) {
        assert!(node.size() <= 256 && self.note.swap(note.cast_mut(), SeqCst).is_null());
    }

    fn allocate(&self) -> NonNull<u8> {
        self.given_out.fetch_add(1, SeqCst);
        let free = self.free.lock().unwrap().pop();
        let area = free.map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut::<u8>);
        let area = NonNull::new(area).unwrap_or_else(|| {
            self.made.fetch_add(1, SeqCst);
            // SAFETY: the layout is not empty.
            let area = NonNull::new(unsafe { alloc::alloc(AREA) }).expect("there is memory");
            // SAFETY: the memory is fresh.
            unsafe { area.cast::<*const ()>().write(self.note.load(SeqCst)) };
            area.as_ptr().expose_provenance();
            area
        });
        // SAFETY: the offset is within the area.
        unsafe { area.add(AT) }
    }

    unsafe fn free(&self, node: NonNull<u8>) {
        self.given_out.fetch_sub(1, SeqCst);
        let area = node.as_ptr().wrapping_sub(AT);
        // SAFETY: no node is there any more, and the next node must not find this one's content.
        unsafe { node.as_ptr().write_bytes(0xdd, 64) };
        self.free.lock().unwrap().push(area.expose_provenance());
    }

    fn bytes(&self) -> (usize, usize) {
        (self.made.load(SeqCst) * NODE_AREA, self.free.lock().unwrap().len() * NODE_AREA)
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        let free = self.free.get_mut().unwrap();
        assert_eq!(free.len(), *self.made.get_mut(), "a node was not freed");
        for area in free.drain(..) {
            // SAFETY: the area was allocated with this layout, and is not used any more.
            unsafe { alloc::dealloc(std::ptr::with_exposed_provenance_mut(area), AREA) };
        }
    }
}

/// A key that knows how often it was copied, and when it ends.
struct Key {
    number: u64,
    copies: u64,
    alive: Arc<AtomicI64>,
}

impl Key {
    fn new(number: u64, copies: u64, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, SeqCst);
        Self { number, copies, alive: Arc::clone(alive) }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, SeqCst);
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Key {}

impl std::borrow::Borrow<u64> for Key {
    fn borrow(&self) -> &u64 {
        &self.number
    }
}

type Moving = Cache<Key, u64>;

fn cache(capacity: u64, areas: &Arc<Areas>) -> Moving {
    let cache =
        Cache::builder(capacity).weigher(|_: &Key, _: &u64| 1).without_metadata(|_, _| None);
    cache.memory(areas.clone()).clock(|| Duration::ZERO).build().unwrap()
}

/// Moves all entries once, a few buckets at a time. Returns how many it moved.
fn move_all(cache: &Moving) -> usize {
    let (mut moved, mut at) = (0, Some(Cursor::default()));
    while let Some(position) = at {
        let copy = |entry: manycore_cache::Entry<'_, Key, u64>| {
            moved += 1;
            let key = entry.key();
            Some((Key::new(key.number, key.copies + 1, &key.alive), *entry.value()))
        };
        at = cache.relocate(position, 3, copy, |old, new| assert!(old.key() == new.key()));
    }
    moved
}

#[test]
fn moved_entries_are_what_they_were() {
    let (areas, alive) = (Arc::new(Areas::default()), Arc::default());
    let cache = cache(1000, &areas);
    for number in 0..300 {
        cache.insert(Key::new(number, 0, &alive), number * 2);
    }
    for round in 1..4 {
        assert_eq!(move_all(&cache), 300);
        assert_eq!((cache.len(), cache.weight()), (300, 300));
        for number in 0..300 {
            let found = cache.get(&number).unwrap();
            assert_eq!((found.key().copies, *found.value()), (round, number * 2));
        }
    }
    assert_eq!(cache.stats().insertions, 300);
    assert!(cache.remove(&7).is_some() && cache.get(&7).is_none());
    drop(cache);
    assert_eq!((alive.load(SeqCst), areas.given_out.load(SeqCst)), (0, 0));
}

#[test]
fn moved_entries_are_pinned_if_they_were() {
    let (areas, alive) = (Arc::new(Areas::default()), Arc::default());
    let cache = cache(10, &areas);
    let insert = |number| _ = cache.insert(Key::new(number, 0, &alive), 0);
    (0..10).for_each(insert);
    assert!(cache.pin(&3).is_some());
    assert_eq!((move_all(&cache), cache.pinned()), (10, 1));
    (10..200).for_each(insert);
    assert!(cache.contains_key(&3));
    assert!((0..200).filter(|number| cache.unpin(number)).eq([3]));
    assert_eq!(cache.pinned(), 0);
}

/// Updates beside a thread that moves everything all the time: no update is lost, and no removed
/// entry comes back.
#[test]
fn updates_beside_moves_are_not_lost() {
    const KEYS: u64 = 40;
    let (areas, alive) = (Arc::new(Areas::default()), Arc::default());
    let cache = cache(1000, &areas);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut moved = 0;
            while !is_over.load(SeqCst) {
                moved += move_all(&cache);
            }
            moved
        });
        let updaters: Vec<_> = (0..2)
            .map(|thread| {
                let (cache, alive) = (&cache, &alive);
                scope.spawn(move || {
                    for round in 0..3_000 {
                        // Each key belongs to one thread.
                        let number = (round * 7 % KEYS) / 2 * 2 + thread;
                        cache.insert(Key::new(number, 0, alive), round);
                        assert_eq!(cache.get(&number).map(|found| *found.value()), Some(round));
                        if round % 3 == 0 {
                            let removed = cache.remove(&number).map(|found| *found.value());
                            assert_eq!(removed, Some(round));
                            assert!(cache.get(&number).is_none(), "it came back");
                        }
                    }
                })
            })
            .collect();
        updaters.into_iter().for_each(|updater| updater.join().unwrap());
        is_over.store(true, SeqCst);
        assert!(mover.join().unwrap() > 0);
    });
    assert_eq!(cache.weight(), cache.len() as u64);
    drop(cache);
    assert_eq!((alive.load(SeqCst), areas.given_out.load(SeqCst)), (0, 0));
}

#[test]
fn only_lean_caches_take_memory_of_their_owners() {
    let areas: Arc<dyn NodeMemory> = Arc::new(Areas::default());
    let built = Cache::<u64, u64>::builder(10).memory(areas).build();
    assert!(matches!(built, Err(BuildError::OnlyWithoutMetadata(_))), "{:?}", built.err());
}

#[test]
#[should_panic(expected = "only entries without metadata can be relocated")]
fn entries_with_versions_stay_where_they_are() {
    let cache = Cache::<u64, u64>::new(10);
    cache.relocate(Cursor::default(), 1, |_| None, |_, _| {});
}
