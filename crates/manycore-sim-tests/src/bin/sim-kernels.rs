//! Small loops of one thread, for the time that the model gives to instructions: on the machine
//! that was calibrated, and on its model.
//!
//! `sim-kernels`, run plainly, and as `manycore sim --machine this-host --cores 1 -- sim-kernels`.
//! Prints the nanoseconds of a step of each, the fastest of three goes. All data fit the first
//! cache. The list was written down before any of it was run.

use std::{
    collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque},
    hint::black_box,
    time::Instant,
};

const ROUNDS: u64 = 20;

fn time(name: &str, steps: usize, mut work: impl FnMut()) {
    work();
    let go = |_| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / (ROUNDS * steps as u64) as f64
    };
    let best = (0..3).map(go).fold(f64::MAX, f64::min);
    println!("{name} {best:.3}");
}

fn main() {
    let numbers: Vec<u64> = (0..2000).map(|i| i * 7919 % 2003).collect();
    let text = "the quick brown fox jumps over the lazy dog and runs away ".repeat(20);
    arrays(&numbers);
    texts(&text);
    tables();
    queues(&numbers);
    calls();
    chains();
}

fn arrays(numbers: &Vec<u64>) {
    let count = numbers.len();
    time("sum", count, || {
        black_box(black_box(numbers).iter().sum::<u64>());
    });
    time("max", count, || {
        black_box(black_box(numbers).iter().max());
    });
    time("bits", count, || {
        black_box(black_box(numbers).iter().map(|x| x.count_ones()).sum::<u32>());
    });
    time("dot", count, || {
        let all = black_box(numbers);
        let both = all.iter().zip(all.iter().rev());
        black_box(both.map(|(x, y)| x.wrapping_mul(*y)).fold(0, u64::wrapping_add));
    });
    time("prefix", count, || {
        let mut sums = black_box(numbers.clone());
        for i in 1..sums.len() {
            sums[i] = sums[i].wrapping_add(sums[i - 1]);
        }
        black_box(sums);
    });
    time("reverse", count, || {
        let mut all = black_box(numbers.clone());
        all.reverse();
        black_box(all);
    });
    time("insertion", 100 * 50, || {
        let mut sorted = numbers[..100].to_vec();
        for i in 1..sorted.len() {
            let mut j = i;
            while j > 0 && sorted[j - 1] > sorted[j] {
                sorted.swap(j - 1, j);
                j -= 1;
            }
        }
        black_box(sorted);
    });
    time("matrix", 16 * 16 * 16, || {
        let (a, mut c) = (black_box([[1_u32; 16]; 16]), [[0_u32; 16]; 16]);
        for (row, sums) in a.iter().zip(&mut c) {
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = row.iter().zip(&a).map(|(x, other)| x * other[j]).sum();
            }
        }
        black_box(c);
    });
}

fn texts(text: &str) {
    time("words", 240, || {
        black_box(black_box(text).split_whitespace().count());
    });
    time("chars", text.len(), || {
        black_box(black_box(text).chars().filter(|c| c.is_alphabetic()).count());
    });
    time("utf8", text.len(), || {
        black_box(std::str::from_utf8(black_box(text.as_bytes())).is_ok());
    });
    time("bytes", text.len(), || {
        let mut counts = [0_u32; 256];
        black_box(text).bytes().for_each(|byte| counts[usize::from(byte)] += 1);
        black_box(counts);
    });
    time("parse", 500, || {
        (0..500).for_each(|_| {
            black_box(black_box("12345").parse::<u32>().is_ok());
        });
    });
}

fn tables() {
    let map: HashMap<u64, u64> = (0..500).map(|i| (i, i)).collect();
    time("hash-get", 500, || {
        (0..500).for_each(|i| {
            black_box(map.get(black_box(&i)));
        });
    });
    let set: HashSet<&str> = ["a", "bb", "ccc", "dddd"].into_iter().collect();
    time("hash-text", 500, || {
        (0..500).for_each(|_| {
            black_box(set.contains(black_box("ccc")));
        });
    });
    time("tree", 500, || {
        let tree: BTreeSet<u64> = (0..500).collect();
        black_box(tree.range(10..490).sum::<u64>());
    });
}

fn queues(numbers: &[u64]) {
    time("deque", 1000, || {
        let mut queue = VecDeque::with_capacity(64);
        for i in 0..1000_u64 {
            queue.push_back(black_box(i));
            if queue.len() > 32 {
                black_box(queue.pop_front());
            }
        }
    });
    time("ring", 1000, || {
        let (mut ring, mut first, mut end) = ([0_u64; 64], 0, 0);
        for i in 0..1000 {
            ring[end & 63] = i;
            end += 1;
            if end - first > 32 {
                black_box(ring[first & 63]);
                first += 1;
            }
        }
        black_box((first, end));
    });
    time("heap", 500, || {
        let mut heap = BinaryHeap::with_capacity(512);
        numbers[..500].iter().for_each(|&number| heap.push(number));
        while let Some(number) = heap.pop() {
            black_box(number);
        }
    });
}

trait Shape {
    fn area(&self) -> u64;
}

struct Square(u64);

struct Rectangle(u64, u64);

impl Shape for Square {
    fn area(&self) -> u64 {
        self.0 * self.0
    }
}

impl Shape for Rectangle {
    fn area(&self) -> u64 {
        self.0 * self.1
    }
}

fn fibonacci(n: u64) -> u64 {
    if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn calls() {
    let shape = |i| -> Box<dyn Shape> {
        if i % 2 == 0 { Box::new(Square(i)) } else { Box::new(Rectangle(i, 2)) }
    };
    let shapes: Vec<_> = (0..500).map(shape).collect();
    time("dyn", 500, || {
        black_box(black_box(&shapes).iter().map(|shape| shape.area()).sum::<u64>());
    });
    time("fibonacci", 465, || {
        black_box(fibonacci(black_box(12)));
    });
}

struct Particle {
    at: [f64; 2],
    speed: [f64; 2],
}

fn chains() {
    let particle = |i| Particle { at: [f64::from(i), 1.0], speed: [0.5, 0.25] };
    let mut particles: Vec<Particle> = (0..500).map(particle).collect();
    time("particles", 500, || {
        for Particle { at, speed } in black_box(&mut particles) {
            at[0] += speed[0] * 0.01;
            at[1] += speed[1] * 0.01;
            if at[0] > 1e6 {
                speed[0] = -speed[0];
            }
        }
    });
    let mut state = 88_172_645_463_325_252_u64;
    time("random", 1000, || {
        for _ in 0..1000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            black_box(state);
        }
    });
    let next: Vec<usize> = (0..1024).map(|i| (i * 5 + 3) % 1024).collect();
    time("chase", 1000, || {
        black_box((0..1000).fold(0, |at, _| black_box(&next)[at]));
    });
}
