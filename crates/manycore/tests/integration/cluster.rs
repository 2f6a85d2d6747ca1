//! Clustered objects: when representatives are created, under every placement, and faults in user
//! code.

use manycore::cluster::{Clustered, Placement, Rep};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

const PLACEMENTS: [Placement; 4] =
    [Placement::Shared, Placement::PerNode, Placement::PerLlc, Placement::PerThread];

/// A representative that counts locally; the root knows which were made.
#[derive(Debug)]
struct Count(AtomicUsize);

#[derive(Debug, Default)]
struct Made {
    places: Mutex<Vec<usize>>,
    start: AtomicUsize,
}

impl Rep for Count {
    type Root = Made;

    fn create(root: &Made, place: usize) -> Self {
        root.places.lock().unwrap().push(place);
        Self(AtomicUsize::new(root.start.load(Relaxed)))
    }
}

fn counts(placement: Placement) -> Clustered<Count> {
    Clustered::new(placement, Made::default())
}

fn total(counts: &Clustered<Count>) -> usize {
    counts.gather(0, |sum, count| sum + count.0.load(Relaxed))
}

/// One object distributed in three steps, as in the paper: everything in the root, then cached
/// reads, then local updates. The same test passes for each step.
mod steps {
    use super::*;

    pub trait Regions: Sync {
        fn add(&self, region: usize);
        fn has(&self, region: usize) -> bool;
    }

    type List = Mutex<Vec<usize>>;

    /// Passes everything on to the root.
    pub struct RootOnly;
    impl Rep for RootOnly {
        type Root = List;
        fn create(_: &List, _: usize) -> Self {
            Self
        }
    }
    impl Regions for Clustered<RootOnly> {
        fn add(&self, region: usize) {
            self.root().lock().unwrap().push(region);
        }
        fn has(&self, region: usize) -> bool {
            self.root().lock().unwrap().contains(&region)
        }
    }

    /// Remembers what the root has said.
    pub struct CachedReads(List);
    impl Rep for CachedReads {
        type Root = List;
        fn create(_: &List, _: usize) -> Self {
            Self(List::default())
        }
    }
    impl Regions for Clustered<CachedReads> {
        fn add(&self, region: usize) {
            self.root().lock().unwrap().push(region);
        }
        fn has(&self, region: usize) -> bool {
            let cache = self.local();
            if cache.0.lock().unwrap().contains(&region) {
                return true;
            }
            let root = self.root().lock().unwrap();
            let found = root.contains(&region);
            if found {
                cache.0.lock().unwrap().push(region); // root, then representative
            }
            found
        }
    }

    /// Keeps its own part, and asks the others when it does not know.
    pub struct LocalUpdates(List);
    impl Rep for LocalUpdates {
        type Root = ();
        fn create(_: &(), _: usize) -> Self {
            Self(List::default())
        }
    }
    impl Regions for Clustered<LocalUpdates> {
        fn add(&self, region: usize) {
            self.with(|part| part.0.lock().unwrap().push(region));
        }
        fn has(&self, region: usize) -> bool {
            self.reps().any(|(_, part)| part.0.lock().unwrap().contains(&region))
        }
    }
}

fn regions_are_found(regions: &dyn steps::Regions) {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for region in (thread * 50)..(thread * 50 + 50) {
                    assert!(!regions.has(region));
                    regions.add(region);
                    assert!(regions.has(region));
                }
            });
        }
    });
    assert!((0..200).all(|region| regions.has(region)) && !regions.has(200));
}

#[test]
fn object_is_distributed_in_three_steps() {
    for placement in PLACEMENTS {
        regions_are_found(&Clustered::<steps::RootOnly>::new(placement, Mutex::default()));
        regions_are_found(&Clustered::<steps::CachedReads>::new(placement, Mutex::default()));
        regions_are_found(&Clustered::<steps::LocalUpdates>::new(placement, ()));
    }
}

#[test]
fn representatives_are_made_at_the_first_call_and_once() {
    for placement in PLACEMENTS {
        let counts = counts(placement);
        assert_eq!(counts.reps().count(), 0, "none before the first call");
        let barrier = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    (0..1000).for_each(|_| {
                        counts.with(|count| count.0.fetch_add(1, Relaxed));
                    });
                });
            }
        });
        assert_eq!(total(&counts), 8000);
        let mut made = counts.root().places.lock().unwrap().clone();
        made.sort_unstable();
        let len = made.len();
        made.dedup();
        assert_eq!((made.len(), counts.reps().count()), (len, len), "{placement:?}: made twice");
        assert!((1..=8).contains(&len) || placement != Placement::PerThread, "{len}");
        assert!(made.iter().all(|place| counts.at(*place).is_some()));
        if placement == Placement::Shared {
            assert_eq!(made, [0]);
        }
    }
}

#[test]
fn threads_have_representatives_of_their_own() {
    let counts = counts(Placement::PerThread);
    let barrier = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mine = std::ptr::from_ref(counts.local());
                barrier.wait(); // all are alive at once
                assert!(std::ptr::eq(mine, counts.local()));
                assert!(std::ptr::eq(mine, counts.at(counts.place()).unwrap()));
                barrier.wait();
            });
        }
    });
    assert_eq!(counts.reps().count(), 4);
    let distances = counts.reps().map(|(_, count)| std::ptr::from_ref(count).addr() % 128);
    assert!(distances.into_iter().all(|offset| offset == 0), "each is on lines of its own");
}

#[test]
fn constructor_that_panics_leaves_the_object_working() {
    struct Moody;
    impl Rep for Moody {
        type Root = AtomicBool;
        fn create(bad_mood: &AtomicBool, _: usize) -> Self {
            assert!(!bad_mood.load(Relaxed), "a bad mood");
            Self
        }
    }
    for placement in PLACEMENTS {
        let object = Clustered::<Moody>::new(placement, AtomicBool::new(true));
        for _ in 0..2 {
            assert!(catch_unwind(AssertUnwindSafe(|| object.with(|_| ()))).is_err());
            assert_eq!(object.reps().count(), 0);
        }
        object.root().store(false, Relaxed);
        object.with(|_| ());
        assert_eq!(object.reps().count(), 1);
        object.scatter(|_| (), |_| ());
    }
}

#[test]
fn scatter_that_panics_gives_the_lock_up() {
    let counts = counts(Placement::Shared);
    let scatter = || counts.scatter(|_| panic!("in the root"), |_| ());
    assert!(catch_unwind(AssertUnwindSafe(scatter)).is_err());
    counts.with(|count| count.0.fetch_add(1, Relaxed));
    assert_eq!(counts.scatter(|_| 7, |count| count.0.store(5, Relaxed)), 7);
    assert_eq!(total(&counts), 5);
}

#[test]
#[should_panic(expected = "from its representative's constructor")]
fn constructor_that_calls_its_own_object_is_told() {
    static OBJECT: Mutex<Option<Arc<Clustered<Selfish>>>> = Mutex::new(None);
    struct Selfish;
    impl Rep for Selfish {
        type Root = ();
        fn create(_: &(), _: usize) -> Self {
            let own = OBJECT.lock().unwrap().clone().unwrap();
            own.with(|_| ());
            Self
        }
    }
    let object = Arc::new(Clustered::<Selfish>::new(Placement::Shared, ()));
    *OBJECT.lock().unwrap() = Some(Arc::clone(&object));
    object.with(|_| ());
}

#[test]
#[should_panic(expected = "during its own scatter")]
fn scatter_from_within_scatter_is_told() {
    let counts = counts(Placement::Shared);
    counts.local();
    counts.scatter(|_| (), |_| counts.scatter(|_| (), |_| ()));
}

/// Every representative has the last scattered number, whenever it was made.
#[test]
fn no_representative_misses_a_scatter() {
    for _ in 0..20 {
        let counts = counts(Placement::PerThread);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    counts.local();
                });
            }
            for number in 1..=50 {
                let change = |made: &Made| made.start.store(number, Relaxed);
                counts.scatter(change, |count| count.0.store(number, Relaxed));
            }
        });
        assert!(counts.reps().all(|(_, count)| count.0.load(Relaxed) == 50));
    }
}

#[test]
fn representatives_and_root_are_dropped_once() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Dropping;
    impl Drop for Dropping {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Relaxed);
        }
    }
    impl Rep for Dropping {
        type Root = Arc<()>;
        fn create(_: &Arc<()>, _: usize) -> Self {
            Self
        }
    }
    let root = Arc::new(());
    let object = Clustered::<Dropping>::new(Placement::PerThread, Arc::clone(&root));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| object.with(|_| ()));
        }
    });
    let made = object.reps().count();
    assert_eq!(DROPPED.load(Relaxed), 0);
    assert!(Arc::ptr_eq(&object.into_root(), &root));
    assert_eq!(DROPPED.load(Relaxed), made);
}

/// Calls from a thread-local's destructor, when the thread no longer has a slot.
#[test]
fn thread_that_is_ending_still_calls() {
    struct AtEnd(Option<Arc<Clustered<Count>>>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            if let Some(counts) = self.0.take() {
                counts.with(|count| count.0.fetch_add(1, Relaxed));
            }
        }
    }
    thread_local!(static END: std::cell::RefCell<AtEnd> = const {
        std::cell::RefCell::new(AtEnd(None))
    });
    let counts = Arc::new(counts(Placement::PerThread));
    for _ in 0..4 {
        let counts = Arc::clone(&counts);
        let body = move || END.with(|end| end.borrow_mut().0 = Some(counts));
        thread::spawn(body).join().unwrap();
    }
    assert_eq!(total(&counts), 4);
}
