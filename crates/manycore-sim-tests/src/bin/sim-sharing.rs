//! Cache lines that threads share, of each kind of memory: what the simulator's report calls them.
//! `sim-sharing WHICH`: `statics` and `counter` are variables of the program, `boxed`, `vector` and
//! `neighbours` blocks of its heap, `stack` and `locals` of a thread's.

use std::{
    cell::Cell,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

/// Two words in one line: false sharing.
#[repr(align(64))]
struct Pair([AtomicU64; 2]);

static SLOTS: Pair = Pair([const { AtomicU64::new(0) }; 2]);
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// One word that a thread adds to and another one reads, beside one of the reader's own.
#[derive(Default)]
#[repr(align(64))]
struct Queue {
    tail: AtomicU64,
    head: AtomicU64,
}

thread_local! {
    static OWN: AtomicU64 = const { AtomicU64::new(0) };
    static TURNS: Cell<u64> = const { Cell::new(0) };
}

const EACH: u64 = 3000;

/// Runs it on two threads at once, each of which is told its number.
fn on_two(act: impl Fn(usize) + Sync) {
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        for number in 0..2 {
            let (act, ready) = (&act, &ready);
            scope.spawn(move || {
                ready.wait();
                (0..EACH).for_each(|_| act(number));
            });
        }
    });
}

fn add(word: &AtomicU64) {
    word.fetch_add(1, Relaxed);
}

/// Words of a block of their own each, which the allocator lays side by side.
fn neighbours() {
    let words: Vec<Box<AtomicU64>> = (0..4).map(|_| Box::default()).collect();
    let line = |word: &AtomicU64| std::ptr::from_ref(word) as usize / 64;
    let pair = words.windows(2).find(|pair| line(&pair[0]) == line(&pair[1]));
    let pair = pair.expect("a line has room for two blocks");
    on_two(|number| add(&pair[number]));
}

/// Two words of the calling thread's stack.
fn stack() {
    let words = Pair([const { AtomicU64::new(0) }; 2]);
    on_two(|number| add(&words.0[number]));
}

/// A thread adds to a thread-local of another's.
fn locals() {
    let ready = Barrier::new(2);
    OWN.with(|own| {
        thread::scope(|scope| {
            scope.spawn(|| {
                ready.wait();
                (0..EACH).for_each(|_| add(own));
            });
            ready.wait();
            for _ in 0..EACH {
                add(own);
                TURNS.set(TURNS.get() + 1);
            }
        });
    });
}

fn main() {
    match std::env::args().nth(1).unwrap_or_default().as_str() {
        "statics" => on_two(|number| add(&SLOTS.0[number])),
        "counter" => on_two(|_| add(&COUNTER)),
        "boxed" => {
            let queue = Arc::new(Queue::default());
            on_two(|number| match number {
                0 => add(&queue.tail),
                _ => queue.head.store(queue.tail.load(Relaxed), Relaxed),
            });
        }
        "vector" => {
            let words: Vec<AtomicU64> = (0..8).map(AtomicU64::new).collect();
            on_two(|number| add(&words[number]));
        }
        "neighbours" => neighbours(),
        "stack" => stack(),
        "locals" => locals(),
        other => panic!("no kind of memory '{other}'"),
    }
}
