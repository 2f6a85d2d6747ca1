//! What the check must flag, and what it must not. Run by `manycore sim test`.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use manycore::collections::Counter;
use manycore::section::{Atomic, Domain, Owned};
use manycore_sim::{ConflictCheck, Placement, assert_conflict_free};

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[test]
#[ignore = "manycore sim test"]
fn shared_counter_is_flagged_with_both_places() {
    let report = ConflictCheck::new(|| AtomicU64::new(0)).run(add, add).unwrap();
    assert!(!report.is_conflict_free());
    let line = &report.lines[0];
    assert!(!line.is_false_sharing);
    assert!(line.touchers.len() >= 2, "{report}");
    assert!(line.touchers.iter().all(|t| t.place.contains("tests/conflicts.rs:16")), "{report}");
}

fn raise(word: &AtomicU64) {
    word.fetch_max(5, Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn exchange(word: &AtomicU64) {
    // SAFETY: an atomic access of the word.
    unsafe { std::arch::asm!("xchg [{}], {}", in(reg) word.as_ptr(), inout(reg) 1_u64 => _) }
}

#[cfg(target_arch = "x86_64")]
fn fill(word: &AtomicU64) {
    let size = size_of::<AtomicU64>();
    // SAFETY: writes the word's bytes, which no other thread does at the same time.
    unsafe {
        std::arch::asm!("rep stosb", inout("rdi") word.as_ptr() => _, inout("rcx") size => _,
            in("al") 1_u8, options(nostack, preserves_flags));
    }
}

/// The compiler makes no callback for `fetch_max`, nor for inline assembly.
#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "manycore sim test"]
fn access_without_a_callback_is_flagged() {
    for (what, access) in
        [("fetch_max", raise as fn(&AtomicU64)), ("xchg", exchange), ("stos", fill)]
    {
        let report = ConflictCheck::new(|| AtomicU64::new(0)).run(access, access).unwrap();
        assert!(!report.is_conflict_free(), "{what}");
        let apart = || [const { CachePadded(AtomicU64::new(0)) }; 2];
        let check = ConflictCheck::new(apart);
        let report =
            check.run(move |w: &[_; 2]| access(&w[0].0), move |w: &[_; 2]| access(&w[1].0));
        assert!(report.as_ref().unwrap().is_conflict_free(), "{what}: {}", report.unwrap());
    }
}

#[repr(align(128))]
struct CachePadded(AtomicU64);

#[test]
#[ignore = "manycore sim test"]
fn unpadded_slots_are_flagged_as_false_sharing() {
    let make = || -> Vec<AtomicU64> { (0..16).map(|_| AtomicU64::new(0)).collect() };
    // 0 and 1 lie 8 bytes apart; 2 and 3 as well, so one of the pairs is in one line.
    for at in [0, 2] {
        let check = ConflictCheck::new(make);
        let report =
            check.run(|v: &Vec<AtomicU64>| add(&v[at]), |v: &Vec<AtomicU64>| add(&v[at + 1]));
        let report = report.unwrap();
        assert!(report.lines.iter().all(|line| line.is_false_sharing), "{report}");
        if !report.is_conflict_free() {
            return;
        }
    }
    panic!("neither pair shares a line");
}

#[test]
#[ignore = "manycore sim test"]
fn map_under_a_lock_is_flagged_in_every_state() {
    let make = || Mutex::new(BTreeMap::new());
    let insert = |key: u64| {
        move |map: &Mutex<BTreeMap<u64, u64>>| {
            map.lock().unwrap().insert(key, key);
        }
    };
    let fill = |map: &Mutex<BTreeMap<u64, u64>>| {
        for key in 0..100 {
            map.lock().unwrap().insert(key, key);
        }
    };
    let check = ConflictCheck::new(make).state("empty", |_| {}).state("with 100 keys", fill);
    let report = check.run(insert(1000), insert(2000)).unwrap();
    for state in ["empty, first", "empty, second", "with 100 keys, first", "100 keys, second"] {
        assert!(report.lines.iter().any(|line| line.when.contains(state)), "{state}: {report}");
    }
}

#[test]
#[ignore = "manycore sim test"]
fn allowed_place_is_no_failure() {
    assert_conflict_free!(|| AtomicU64::new(0), add, add, allow = ["tests/conflicts.rs:16"],);
}

#[test]
#[ignore = "manycore sim test"]
#[should_panic(expected = "tests/conflicts.rs:16")]
fn assertion_names_the_place() {
    assert_conflict_free!(|| AtomicU64::new(0), add, add);
}

fn hot_counter() -> Counter {
    let counter = Counter::new(0);
    assert!(counter.promote());
    counter
}

#[test]
#[ignore = "manycore sim test"]
fn adds_to_a_hot_counter_do_not_conflict() {
    assert_conflict_free!(
        hot_counter,
        |counter: &Counter| counter.add(1),
        |counter: &Counter| counter.add(1),
        states = [
            "new" => |_: &Counter| {},
            "after 100 additions" => |counter: &Counter| (0..100).for_each(|_| counter.add(1)),
        ],
    );
}

#[test]
#[ignore = "manycore sim test"]
fn sections_do_not_conflict() {
    assert_conflict_free!(
        Domain::bounded,
        |domain: &Domain| drop(domain.enter()),
        |domain: &Domain| drop(domain.enter()),
    );
}

/// A file of two pages that is mapped twice.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
struct Twice([usize; 2]);

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
impl Twice {
    const BYTES: usize = 8192;

    fn new() -> Self {
        use std::os::fd::AsRawFd;
        let path = std::env::temp_dir().join(format!("manycore-twice-{}", std::process::id()));
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.expect("a file");
        std::fs::remove_file(&path).expect("the file");
        file.set_len(Self::BYTES as u64).expect("space");
        let (read_write, shared, file) = (3, 1, file.as_raw_fd());
        // SAFETY: a mapping without MAP_FIXED replaces nothing.
        Self([0; 2].map(|near| unsafe { mmap(near, Self::BYTES, read_write, shared, file, 0) }))
    }

    /// Returns a word of the file in one of the two mappings.
    fn word(&self, mapping: usize, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at < Self::BYTES);
        // SAFETY: an aligned word of the mapping, which lives as long as `self`.
        unsafe { AtomicU64::from_ptr((self.0[mapping] + at) as *mut u64) }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
impl Drop for Twice {
    fn drop(&mut self) {
        for start in self.0 {
            // SAFETY: the mapping is this object's, and no reference to it is left.
            unsafe { munmap(start, Self::BYTES) };
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
unsafe extern "C" {
    fn mmap(near: usize, bytes: usize, rights: i32, flags: i32, file: i32, from: i64) -> usize;
    fn munmap(start: usize, bytes: usize) -> i32;
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[ignore = "manycore sim test"]
fn two_mappings_of_a_file_are_the_same_lines() {
    let first = |file: &Twice| add(file.word(0, 4096));
    let check = || ConflictCheck::new(Twice::new);
    let report = check().run(first, |file| add(file.word(1, 4096))).unwrap();
    assert!(!report.is_conflict_free());
    assert!(report.lines.iter().all(|line| !line.is_false_sharing), "{report}");
    let report = check().run(first, |file| add(file.word(1, 4096 + 8))).unwrap();
    assert!(report.lines.iter().all(|line| line.is_false_sharing), "{report}");
    assert!(!report.is_conflict_free());
    let report = check().run(first, |file| add(file.word(1, 0))).unwrap();
    assert!(report.is_conflict_free(), "{report}");
}

#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[ignore = "manycore sim test"]
fn waiter_is_woken_by_another_mapping_after_the_oldest_one_has_gone() {
    const FUTEX: i64 = 202;
    const WAIT: i32 = 0;
    const WAKE: i32 = 1;
    unsafe extern "C" {
        fn syscall(number: i64, ...) -> i64;
    }
    let twice = std::mem::ManuallyDrop::new(Twice::new());
    // SAFETY: an aligned word of the second mapping, which is removed at the end.
    let word = unsafe { AtomicU32::from_ptr(twice.0[1] as *mut u32) };
    let futex = |operation: i32, value: u32| {
        let no_time = std::ptr::null::<u8>();
        // SAFETY: the kernel reads the word, which is there.
        unsafe { syscall(FUTEX, word.as_ptr(), operation, value, no_time) }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while word.load(Relaxed) == 0 {
                futex(WAIT, 0);
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(1));
        // SAFETY: nothing refers to the first mapping.
        unsafe { munmap(twice.0[0], Twice::BYTES) };
        word.store(1, Relaxed);
        futex(WAKE, 1);
    });
    // SAFETY: the word is not used any more.
    unsafe { munmap(twice.0[1], Twice::BYTES) };
}

/// Links and nodes on lines of their own, and the threads that read and replace the nodes.
struct Nodes {
    domain: Domain,
    links: [Line<Atomic<Line<u64>>>; 2],
}

#[repr(align(128))]
struct Line<T>(T);

impl Nodes {
    fn new() -> Self {
        Self {
            domain: Domain::bounded(),
            links: [0, 1].map(|value| Line(Atomic::new(Line(value)))),
        }
    }

    fn observe(&self, number: usize) {
        let section = self.domain.enter();
        assert!(self.links[number].0.load(&section).as_ref().is_some_and(|node| node.0 < 8));
    }

    fn modify(&self, number: usize) {
        let section = self.domain.enter();
        let old = self.links[number].0.swap(Owned::new(Line(7)), &section);
        // SAFETY: the swap took it out of the link, and gave it to this thread alone.
        unsafe { section.retire(old) };
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for link in &mut self.links {
            // SAFETY: the link owns its node, and no other thread has it any more.
            drop(unsafe { std::mem::take(&mut link.0).into_owned() });
        }
    }
}

#[test]
#[ignore = "manycore sim test"]
fn readers_of_one_node_do_not_conflict() {
    let observe = |nodes: &Nodes| nodes.observe(0);
    assert_conflict_free!(Nodes::new, observe, observe);
}

#[test]
#[ignore = "manycore sim test"]
fn updates_of_two_nodes_do_not_conflict() {
    let (first, second) = (|nodes: &Nodes| nodes.modify(0), |nodes: &Nodes| nodes.modify(1));
    assert_conflict_free!(Nodes::new, first, second);
    assert_conflict_free!(Nodes::new, first, |nodes: &Nodes| nodes.observe(1));
}

/// Without the simulator the check must fail, and not seem to have passed.
#[test]
fn unsimulated_check_fails_loudly() {
    if manycore_sim::is_simulated() {
        return;
    }
    let failed = std::panic::catch_unwind(|| {
        assert_conflict_free!(|| AtomicU64::new(0), add, add);
    });
    let message = *failed.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("NOT checked"), "{message}");
}

/// Two boxes that lie behind each other: whether they share a line is a matter of what was
/// allocated before. The handles lie on a line of the object, which both only read.
#[test]
#[ignore = "manycore sim test"]
fn neighbours_on_the_heap_are_flagged_in_the_placements_where_they_share_a_line() {
    type Boxes = [Box<AtomicU64>; 2];
    let make = || -> Boxes { [Box::new(AtomicU64::new(0)), Box::new(AtomicU64::new(0))] };
    for filler in [0, 1, 2, 3] {
        let _filler: Vec<Box<[u64; 3]>> = (0..filler).map(|_| Box::new([0; 3])).collect();
        let check = ConflictCheck::new(make);
        let report = check.run(|boxes: &Boxes| add(&boxes[0]), |boxes: &Boxes| add(&boxes[1]));
        let report = report.unwrap();
        let fresh = |placements: &[Placement]| -> Vec<usize> {
            placements.iter().filter(|at| !at.is_reused).map(|at| at.shift).collect()
        };
        assert_eq!(fresh(&report.placements), [0, 16, 32, 48]);
        // 32 bytes apart: in one line if the first begins 0 or 16 bytes into it.
        assert!(report.lines.iter().all(|line| line.is_false_sharing), "{report}");
        assert!(report.lines.iter().all(|line| fresh(&line.placements) == [0, 16]), "{report}");
        assert_eq!(report.lines.len(), 2, "in both orders: {report}");
        let text = report.to_string();
        assert!(text.contains("8 bytes allocated at"), "{text}");
        assert!(text.contains("tests/conflicts.rs"), "{text}");
    }
}

/// The second box gets the block of the temporary one, beside the first box. In memory that was
/// never used, other data lie between the two.
#[test]
#[ignore = "manycore sim test"]
fn neighbours_where_a_block_is_used_again_are_flagged() {
    type Boxes = [Box<AtomicU64>; 2];
    let make = || -> Boxes {
        let temporary = std::hint::black_box(Box::new(0_u64));
        let first = Box::new(AtomicU64::new(0));
        let _between = std::hint::black_box(Box::new([0_u64; 32]));
        drop(temporary);
        [first, Box::new(AtomicU64::new(0))]
    };
    let check = ConflictCheck::new(make);
    let report = check.run(|boxes: &Boxes| add(&boxes[0]), |boxes: &Boxes| add(&boxes[1])).unwrap();
    let placements = || report.lines.iter().flat_map(|line| &line.placements);
    assert!(placements().all(|at| at.is_reused), "{report}");
    assert_eq!(placements().count(), 2 * 2, "two of four, in both orders: {report}");
}

/// Takes a number of a stock of its own; each 64th call fetches a new stock from a shared counter.
#[derive(Default)]
struct Stocks {
    next: AtomicU64,
    own: [Line<AtomicU64>; 2],
}

impl Default for Line<AtomicU64> {
    fn default() -> Self {
        Line(AtomicU64::new(0))
    }
}

impl Stocks {
    fn take(&self, number: usize) {
        let own = &self.own[number].0;
        if own.fetch_add(1, Relaxed) % 64 == 63 {
            self.next.fetch_add(64, Relaxed);
        }
    }
}

#[test]
#[ignore = "manycore sim test"]
fn conflict_of_each_64th_call_is_flagged_unless_single_calls_are_checked() {
    let (first, second) = (|stocks: &Stocks| stocks.take(0), |stocks: &Stocks| stocks.take(1));
    let report = ConflictCheck::new(Stocks::default).run(first, second).unwrap();
    assert!(report.lines.iter().all(|line| !line.is_false_sharing), "{report}");
    assert!(report.lines.iter().flat_map(|line| &line.touchers).all(|t| t.count == 1), "{report}");
    assert!(!report.is_conflict_free());
    assert_conflict_free!(Stocks::default, first, second, calls = 1);
}
