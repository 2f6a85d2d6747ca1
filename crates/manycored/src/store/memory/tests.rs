use super::*;
use std::collections::VecDeque;

/// A small pseudo-random generator with a seed, so that runs can be repeated.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize * below) >> 31
    }
}

fn content(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 31 + at * 7 + at / 256) as u8).collect()
}

fn filled(memory: &Memory, number: usize, length: usize, together: usize) -> Tail {
    let tail = memory.tail(length, together);
    let bytes = content(number, length);
    let (front, back) = bytes.split_at(length / 3);
    // SAFETY: allocated just now.
    let mut filler = unsafe { tail.filler() };
    filler.push(front);
    filler.push(back);
    tail
}

fn read(tail: Tail) -> Vec<u8> {
    tail.pieces().flatten().copied().collect()
}

#[test]
fn tail_holds_what_was_written() {
    let memory = Memory::new(1 << 20, 1);
    let lengths = [1, 15, 16, 17, 1008, 5000, REGION - 3000, REGION, 3 * REGION + 5];
    for length in lengths.into_iter().take(if cfg!(miri) { 6 } else { usize::MAX }) {
        let tail = filled(&memory, length, length, 0);
        assert_eq!((tail.bytes(), read(tail) == content(length, length)), (length, true));
        assert!(tail.memory() >= length && tail.memory() < length + length / 1000 + 48);
        // SAFETY: used no more.
        unsafe { tail.free() };
    }
    let usage = memory.usage();
    assert_eq!(usage.free, Kind::Tails.units() * GRANULE * usage.mapped / REGION);
}

/// Freed memory of any sizes serves for any other sizes: the mapped memory is bounded by the memory
/// in use and a margin.
#[test]
fn memory_does_not_leak_into_sizes() {
    let seed = 7;
    let mut chance = Seeded(seed);
    let most = if cfg!(miri) { 1 << 18 } else { 2 << 20 };
    let memory = Memory::new(most as u64, 1);
    let (mut all, mut used) = (VecDeque::new(), 0);
    let mut pieces = 0;
    for round in 0..if cfg!(miri) { 2 } else { 16 } {
        let size = [60, 1000, 5000, 200, 30_000, 12_000, 300, 100_000][chance.next(8)];
        for number in 0..3 * most / size {
            let length = size + chance.next(size / 4);
            while used + length + GRANULE > most {
                // One of the older ones, as eviction leaves holes anywhere.
                let at = chance.next(all.len().div_ceil(2));
                let (tail, number, length): (Tail, usize, usize) =
                    all.swap_remove_front(at).expect("there are some");
                assert!(read(tail) == content(number, length), "round {round}, seed {seed}");
                used -= tail.memory();
                // SAFETY: used no more.
                unsafe { tail.free() };
            }
            let tail = filled(&memory, number, length, 20);
            let first = tail.pieces().next().map_or(0, <[u8]>::len);
            assert!(first >= 20, "round {round}, seed {seed}");
            pieces = pieces.max(tail.pieces().count());
            used += tail.memory();
            all.push_back((tail, number, length));
        }
        let mapped = memory.usage().mapped;
        assert!(mapped <= most + most / 8 + 5 * REGION, "{mapped} in round {round}, seed {seed}");
    }
    println!("at most {pieces} pieces");
}

#[test]
fn nodes_of_many_threads_are_apart() {
    let memory = Memory::new(4 << 20, 4);
    memory.begin(Layout::new::<[u64; 8]>(), std::ptr::without_provenance(0x1234));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let memory = &memory;
            scope.spawn(move || {
                let mut own = Vec::new();
                for round in 0..if cfg!(miri) { 300 } else { 20_000_u64 } {
                    let node = memory.allocate().cast::<u64>();
                    // SAFETY: allocated just now.
                    unsafe { node.write(thread << 32 | round) };
                    own.push((node, thread << 32 | round));
                    if round % 3 == 2 {
                        let (node, expected) = own.swap_remove((round * 7) as usize % own.len());
                        // SAFETY: this thread's own.
                        assert_eq!(unsafe { node.read() }, expected);
                        // SAFETY: used no more.
                        unsafe { memory.free(node.cast()) };
                    }
                }
                for (node, expected) in own {
                    // SAFETY: this thread's own.
                    assert_eq!(unsafe { node.read() }, expected);
                    let area = node.as_ptr().map_addr(|at| at & !(REGION - 1));
                    // SAFETY: areas begin with the note.
                    assert_eq!(unsafe { area.read() }, 0x1234);
                    // SAFETY: used no more.
                    unsafe { memory.free(node.cast()) };
                }
            });
        }
    });
}

#[test]
fn what_is_vacated_gives_nothing_out() {
    let memory = Memory::new(2 << 20, 1);
    let tails: Vec<Tail> = (0..if cfg!(miri) { 12_000 } else { 32_000 })
        .map(|number| filled(&memory, number, 200, 0))
        .collect();
    let (odd, even): (Vec<_>, Vec<_>) =
        tails.into_iter().enumerate().partition(|(at, _)| at % 4 > 0);
    for (_, tail) in odd {
        // SAFETY: used no more.
        unsafe { tail.free() };
    }
    assert!(memory.begin_vacating() > 0);
    for number in 0..if cfg!(miri) { 500 } else { 8000 } {
        assert!(!filled(&memory, number, 300, 0).vacated() > 0);
    }
    let moved = even.iter().filter(|(_, tail)| tail.vacated() > 0).count();
    assert!(moved > 0);
    memory.end_vacating();
    assert!(even.iter().all(|(number, tail)| read(*tail) == content(*number, 200)));
}

/// The last granule of a region has no room behind a chain's head: a piece there would extend into
/// the next region, or beyond the block.
#[test]
fn no_piece_is_empty_at_the_end_of_a_region() {
    let memory = Memory::new(2 << 20, 1);
    let most = filled(&memory, 1, (Kind::Tails.units() - 1) * GRANULE, 0);
    let tail = filled(&memory, 2, 100, 0);
    assert!(tail.pieces().all(|piece| !piece.is_empty()) && tail.vacated() == 0);
    assert!(read(tail) == content(2, 100));
    for tail in [most, tail] {
        // SAFETY: used no more.
        unsafe { tail.free() };
    }
}

/// A large item with a small part in a vacated region stays where it is.
#[test]
fn no_item_is_moved_for_a_small_part_of_it() {
    let memory = Memory::new(1 << 20, 1);
    for (regions, moved_for) in [(1, 1), (5, 1), (40, 2), (80, 3)] {
        let tail = memory.tail(regions * REGION, 0);
        assert_eq!(tail.vacated(), 0);
        for (before, piece) in tail.pieces().enumerate() {
            Region::of(piece.as_ptr().cast_mut()).set_vacated(true);
            // A region may have two of the pieces.
            let vacated = tail.vacated();
            assert!(vacated > before);
            assert_eq!(Memory::is_worth_moving(tail.memory(), vacated), vacated >= moved_for);
        }
        assert!(tail.vacated() >= regions);
        tail.pieces().for_each(|piece| Region::of(piece.as_ptr().cast_mut()).set_vacated(false));
        // SAFETY: used no more.
        unsafe { tail.free() };
    }
}
