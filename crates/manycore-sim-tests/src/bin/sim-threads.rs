//! Every way of the standard library to start, stop and wait for threads; fails if one of them does
//! not do what it does on real cores.

use std::{
    cell::Cell,
    hint::black_box,
    sync::{Condvar, Mutex, atomic::AtomicU64, atomic::Ordering::Relaxed, mpsc},
    thread,
    time::{Duration, Instant},
};

static DROPPED: AtomicU64 = AtomicU64::new(0);

struct CountsItsDrop;

impl Drop for CountsItsDrop {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Relaxed);
    }
}

thread_local! {
    static OWN: Cell<u64> = const { Cell::new(0) };
    static DROPS: CountsItsDrop = const { CountsItsDrop };
}

fn main() {
    let cores = thread::available_parallelism().expect("a number of cores").get();
    counts_under_a_lock(cores);
    more_threads_than_cores(cores);
    times_out();
    sends_and_parks();
    drops_thread_locals(cores);
    detaches();
    reads_its_ticks(cores);
    identifies_its_core(cores);
    fights_over_the_stack(cores);
    let quota = std::fs::read("/proc/self/cgroup");
    assert!(quota.is_err(), "the real machine's quota has nothing to do with virtual cores");
    assert!(Instant::now().elapsed() < Duration::from_millis(1), "time runs by itself");
    println!("{cores} cores: all well");
}

fn counts_under_a_lock(cores: usize) {
    let count = Mutex::new(0_u64);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                for _ in 0..50 {
                    *count.lock().expect("no panic") += 1;
                    OWN.set(OWN.get() + 1);
                }
                assert_eq!(OWN.get(), 50, "thread-locals are a thread's own");
            });
        }
    });
    assert_eq!(*count.lock().expect("no panic"), 50 * cores as u64);
}

fn more_threads_than_cores(cores: usize) {
    let barrier = std::sync::Barrier::new(2 * cores + 1);
    thread::scope(|scope| {
        for _ in 0..2 * cores + 1 {
            scope.spawn(|| barrier.wait());
        }
    });
}

fn times_out() {
    let (lock, condition) = (Mutex::new(()), Condvar::new());
    let start = Instant::now();
    let time = Duration::from_millis(3);
    let (_guard, result) =
        condition.wait_timeout(lock.lock().expect("no panic"), time).expect("no panic");
    assert!(result.timed_out());
    let waited = start.elapsed();
    assert!(waited >= time && waited < 2 * time, "waited {waited:?} for {time:?}");
    let start = Instant::now();
    thread::park_timeout(time);
    thread::sleep(time);
    let waited = start.elapsed();
    assert!(waited >= 2 * time && waited < 3 * time, "slept {waited:?}");
}

fn sends_and_parks() {
    let (sender, receiver) = mpsc::sync_channel(2);
    let waiter = thread::spawn(move || {
        thread::park();
        receiver.iter().sum::<u64>()
    });
    waiter.thread().unpark();
    (0..20).for_each(|number| sender.send(number).expect("a receiver"));
    drop(sender);
    assert_eq!(waiter.join().expect("no panic"), 190);
}

fn drops_thread_locals(cores: usize) {
    let threads: Vec<_> = (0..cores).map(|_| thread::spawn(|| DROPS.with(|_| ()))).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(DROPPED.load(Relaxed), cores as u64, "destructors ran before the join");
}

fn detaches() {
    let (sender, receiver) = mpsc::channel();
    drop(thread::spawn(move || sender.send(7)));
    assert_eq!(receiver.recv(), Ok(7));
    thread::sleep(Duration::from_micros(100));
}

/// The first reading of a thread comes after a branch that only the machine's code has: a division
/// of 64 bits, which has a short form.
fn reads_its_ticks(cores: usize) {
    let threads: Vec<_> =
        (0..cores).map(|_| thread::spawn(|| divides_and_reads(7_000, 7))).collect();
    for thread in threads {
        let (quotient, ticks) = thread.join().expect("no panic");
        assert_eq!(quotient, 1000);
        assert!(ticks < 1_000_000_000, "{ticks} is no virtual time");
    }
}

#[inline(never)]
fn divides_and_reads(dividend: u64, divisor: u64) -> (u64, u64) {
    let quotient = black_box(dividend) / black_box(divisor).max(1);
    // SAFETY: every x86-64 processor has the instruction.
    (quotient, unsafe { std::arch::x86_64::_rdtsc() })
}

/// `cpuid` names the virtual core, keeps the other registers, and costs what the machine says.
fn identifies_its_core(cores: usize) {
    const TIMES: u64 = 20;
    let numbers: Vec<_> = (0..cores)
        .map(|_| {
            thread::spawn(|| {
                let kept = black_box(std::array::from_fn::<u64, 6, _>(|n| n as u64));
                // SAFETY: every x86-64 processor has the instruction.
                let start = unsafe { std::arch::x86_64::_rdtsc() };
                let cores: Vec<u32> =
                    (0..TIMES).map(|_| std::arch::x86_64::__cpuid(1).ebx >> 24).collect();
                // SAFETY: every x86-64 processor has the instruction.
                let took = unsafe { std::arch::x86_64::_rdtsc() } - start;
                assert!((60 * TIMES..300 * TIMES).contains(&took), "{took} cycles");
                assert!(cores.iter().all(|core| *core == cores[0]), "{cores:?}");
                assert_eq!(kept, [0, 1, 2, 3, 4, 5]);
                cores[0]
            })
        })
        .collect();
    let mut numbers: Vec<u32> =
        numbers.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.iter().all(|number| (*number as usize) < cores), "{numbers:?}");
}

/// How long this takes depends on which of the words share a cache line, so on where the main
/// thread's stack is.
fn fights_over_the_stack(cores: usize) {
    let words: [AtomicU64; 21] = [const { AtomicU64::new(0) }; 21];
    thread::scope(|scope| {
        for word in words.iter().cycle().take(cores) {
            scope.spawn(|| (0..200).for_each(|_| _ = word.fetch_add(1, Relaxed)));
        }
    });
    assert_eq!(words.iter().map(|word| word.load(Relaxed)).sum::<u64>(), 200 * cores as u64);
}
