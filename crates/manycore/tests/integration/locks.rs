//! The locks as their users see them: exclusion under load with more threads than cores, panics,
//! forgotten guards, and guards that outlive their thread's slot.

use crate::common::env;
use crate::common::rng::Rng;
use manycore::lock::{BrLock, BrReadGuard, McsLock, TicketLock};
use manycore::percpu::current_slot;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Two counts that differ only if a lock is broken.
#[derive(Debug, Default, Clone, PartialEq)]
struct Twins {
    first: u64,
    second: u64,
}

impl Twins {
    fn step(&mut self, pause: bool) {
        assert_eq!(self.first, self.second, "two threads were inside");
        self.first += 1;
        if pause {
            thread::yield_now();
        }
        self.second += 1;
    }
}

macro_rules! fair_lock_tests {
    ($name:ident, $Lock:ident) => {
        mod $name {
            use super::*;

            #[test]
            fn more_threads_than_cores_lose_no_visit() {
                const THREADS: u64 = 16;
                const VISITS: u64 = 4_000;
                let _alone = env::alone();
                let seed = env::seed();
                println!("MANYCORE_SEED={seed:#x}");
                let lock = $Lock::new(Twins::default());
                let taken = AtomicUsize::new(0);
                thread::scope(|scope| {
                    for thread in 0..THREADS {
                        let (lock, taken) = (&lock, &taken);
                        scope.spawn(move || {
                            let mut rng = Rng::part(seed, thread);
                            for _ in 0..VISITS {
                                let pause = rng.once_in(64);
                                if rng.once_in(4) {
                                    let Some(mut twins) = lock.try_lock() else { continue };
                                    twins.step(pause);
                                } else {
                                    lock.lock().step(pause);
                                }
                                taken.fetch_add(1, Ordering::Relaxed);
                            }
                        });
                    }
                });
                let visits = taken.into_inner() as u64;
                assert_eq!(lock.into_inner(), Twins { first: visits, second: visits });
                assert!(visits > THREADS * VISITS / 2);
            }

            /// Waiters sleep: they leave the processor to others while the holder is away.
            #[test]
            fn waiters_of_a_long_holder_burn_no_time() {
                let _alone = env::alone();
                let lock = $Lock::new(0);
                let held = lock.lock();
                let start = Instant::now();
                let spent: Duration = thread::scope(|scope| {
                    let wait = || {
                        *lock.lock() += 1;
                        cpu_time()
                    };
                    let waiters: Vec<_> = (0..4).map(|_| scope.spawn(wait)).collect();
                    thread::sleep(Duration::from_millis(300));
                    drop(held);
                    waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum()
                });
                assert!(start.elapsed() >= Duration::from_millis(300));
                assert!(spent < Duration::from_millis(100), "four waiters burnt {spent:?}");
                assert_eq!(lock.into_inner(), 4);
            }

            #[test]
            fn panic_of_the_holder_gives_the_lock_up() {
                let lock = $Lock::new(1);
                let result = catch_unwind(AssertUnwindSafe(|| {
                    let mut value = lock.lock();
                    *value = 2;
                    panic!("planned");
                }));
                assert!(result.is_err());
                assert_eq!(*lock.try_lock().expect("given up"), 2);
            }

            #[test]
            fn forgotten_guard_leaves_a_lock_that_may_move_but_stays_locked() {
                let lock = $Lock::new(5);
                std::mem::forget(lock.lock());
                let mut moved = Box::new(lock);
                assert!(moved.try_lock().is_none());
                assert_eq!(
                    format!("{moved:?}"),
                    concat!(stringify!($Lock), " { value: <locked> }")
                );
                *moved.get_mut() += 1;
                assert_eq!(moved.into_inner(), 6);
            }

            #[test]
            fn value_shows_in_every_way_in() {
                let mut lock: $Lock<u32> = 3.into();
                *lock.get_mut() += 1;
                *lock.lock() += 1;
                assert_eq!(format!("{lock:?}"), concat!(stringify!($Lock), " { value: 5 }"));
                let guard = lock.lock();
                assert_eq!(format!("{guard} {guard:?}"), "5 5");
                assert!(lock.try_lock().is_none());
                drop(guard);
                assert_eq!(lock.into_inner(), 5);
                assert_eq!(*$Lock::<u32>::default().lock(), 0);
            }
        }
    };
}
fair_lock_tests!(ticket, TicketLock);
fair_lock_tests!(mcs, McsLock);

/// Returns the processor time that the calling thread has used.
#[cfg(unix)]
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live timespec.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
#[cfg(not(unix))]
fn cpu_time() -> Duration {
    Duration::ZERO
}

#[test]
fn big_reader_lets_nobody_see_half_a_write() {
    let _alone = env::alone();
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let lock = BrLock::new(Twins::default());
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (lock, written) = (&lock, &written);
            scope.spawn(move || {
                let mut rng = Rng::part(seed, thread);
                for _ in 0..20_000 {
                    match rng.below(200) {
                        0 => lock.write().step(rng.once_in(4)),
                        1 => match lock.try_write() {
                            Some(mut twins) => twins.step(rng.once_in(4)),
                            None => continue,
                        },
                        2..40 => {
                            let outer = lock.read();
                            let inner = lock.read();
                            assert_eq!(*outer, *inner);
                            continue;
                        }
                        number => {
                            let twins =
                                if number < 60 { lock.try_read() } else { Some(lock.read()) };
                            let Some(twins) = twins else { continue };
                            assert_eq!(twins.first, twins.second, "a reader saw half a write");
                            continue;
                        }
                    }
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let writes = written.into_inner() as u64;
    assert!(writes > 100);
    assert_eq!(lock.into_inner(), Twins { first: writes, second: writes });
}

#[test]
fn big_reader_waits_asleep_while_a_writer_is_inside() {
    let _alone = env::alone();
    let lock = BrLock::new(0);
    let mut value = lock.write();
    let spent: Duration = thread::scope(|scope| {
        let wait = || {
            assert_eq!(*lock.read(), 7);
            cpu_time()
        };
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(wait)).collect();
        thread::sleep(Duration::from_millis(300));
        *value = 7;
        drop(value);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert!(spent < Duration::from_millis(100), "four readers burnt {spent:?}");
}

#[test]
fn big_writer_waits_for_a_reader_and_keeps_later_ones_out() {
    let lock = BrLock::new(0);
    let outer = lock.read();
    thread::scope(|scope| {
        let writer = scope.spawn(|| *lock.write() = 1);
        while scope.spawn(|| lock.try_read().is_some()).join().unwrap() {
            thread::yield_now();
        }
        let inner = lock.read(); // a reader may read again
        assert!(!writer.is_finished());
        assert_eq!((*outer, *inner), (0, 0));
        assert!(lock.try_write().is_none());
        drop((outer, inner));
        writer.join().unwrap();
    });
    assert_eq!(*lock.read(), 1);
}

/// Demands that the attempt panics, because the thread would wait for itself.
fn refuses(attempt: &dyn Fn()) {
    let panic = catch_unwind(AssertUnwindSafe(attempt)).expect_err("it should refuse");
    let text = panic.downcast::<String>().map(|text| *text).unwrap_or_else(|panic| {
        panic.downcast_ref::<&str>().expect("the message is text").to_string()
    });
    assert!(text.contains("it would wait for itself"), "{text}");
}

#[test]
fn big_reader_says_when_a_thread_would_wait_for_itself() {
    let lock = BrLock::new(());
    let reader = lock.read();
    refuses(&|| drop(lock.write()));
    assert!(lock.try_write().is_none());
    drop(reader);
    let writer = lock.write();
    refuses(&|| drop(lock.read()));
    refuses(&|| drop(lock.write()));
    assert!(lock.try_read().is_none() && lock.try_write().is_none());
    assert_eq!(format!("{lock:?}"), "BrLock { value: <locked> }");
    drop(writer);
    assert_eq!(format!("{lock:?}"), "BrLock { value: () }");
    assert!(lock.try_write().is_some());
}

#[test]
fn big_reader_panics_give_the_lock_up() {
    let mut lock: BrLock<u32> = 1.into();
    for write in [false, true] {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _reader = (!write).then(|| lock.read());
            let _writer = write.then(|| lock.write());
            panic!("planned");
        }));
        assert!(result.is_err());
        assert!(lock.try_write().is_some());
    }
    *lock.get_mut() = 4;
    assert_eq!(lock.into_inner(), 4);
    assert_eq!(*BrLock::<u32>::default().read(), 0);
}

static LATE: BrLock<u32> = BrLock::new(0);

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { guard: None, order: None }) };
}

/// A guard that its thread keeps until its locals are destroyed, when its slot may be gone.
struct Kept {
    guard: Option<BrReadGuard<'static, u32>>,
    order: Option<(Arc<Barrier>, Arc<AtomicBool>)>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some((barrier, is_writing)) = self.order.take() else { return };
        // The slot has gone back by now. The main thread has others take it, and a writer wait.
        barrier.wait();
        barrier.wait();
        assert_eq!(LATE.try_read().map(|value| *value), Some(0), "who reads may read again");
        assert_eq!(*LATE.read(), 0);
        refuses(&|| drop(LATE.write()));
        assert_eq!(**self.guard.as_ref().expect("kept"), 0);
        assert!(!is_writing.load(Ordering::SeqCst), "a writer came in beside a late reader");
        self.guard = None;
        assert!(LATE.read().le(&1), "a late thread reads as a stray");
    }
}

#[test]
fn guard_that_outlives_its_threads_slot_still_keeps_writers_out() {
    let (barrier, is_writing) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
    let late = {
        let order = Some((Arc::clone(&barrier), Arc::clone(&is_writing)));
        thread::spawn(move || {
            // Touched first, so destroyed after the slot's own destructor has run.
            KEPT.with_borrow_mut(|kept| {
                *kept = Kept { guard: Some(LATE.read()), order };
            });
        })
    };
    barrier.wait();
    // One of these gets the slot, with the lane that still counts the late guard.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| assert_eq!(*LATE.read(), 0)));
        }
    });
    let writer = {
        let is_writing = Arc::clone(&is_writing);
        thread::spawn(move || {
            let mut value = LATE.write();
            is_writing.store(true, Ordering::SeqCst);
            *value += 1;
        })
    };
    while LATE.try_read().is_some() {
        thread::yield_now();
    }
    barrier.wait();
    late.join().unwrap();
    writer.join().unwrap();
    assert_eq!(*LATE.read(), 1);
}

static SHARED: BrLock<u32> = BrLock::new(0);

thread_local! {
    static LEASE: RefCell<Lease> = const { RefCell::new(Lease(None)) };
}

/// A guard that its thread keeps beyond its slot, until it is told to drop it.
struct Lease(Option<(BrReadGuard<'static, u32>, Arc<Barrier>)>);

impl Drop for Lease {
    fn drop(&mut self) {
        let Some((guard, barrier)) = self.0.take() else { return };
        barrier.wait(); // the slot has gone back
        barrier.wait(); // the next owner reads without a lane
        drop(guard);
    }
}

/// The next owner of a slot reads without a lane while the lane counts the last owner. It reads
/// again when the lane has become its own and a writer waits.
#[test]
fn big_reader_reads_again_when_its_lane_has_become_free_meanwhile() {
    let barrier = Arc::new(Barrier::new(2));
    let (late, slot) = {
        let (barrier, (send, slot)) = (Arc::clone(&barrier), mpsc::channel());
        let late = thread::spawn(move || {
            LEASE.with_borrow_mut(|lease| *lease = Lease(Some((SHARED.read(), barrier))));
            send.send(current_slot()).expect("the test waits");
        });
        (late, slot.recv().expect("the thread said it"))
    };
    barrier.wait();
    thread::scope(|scope| {
        // The lowest free slot is taken first. So one of these threads gets that slot, and the
        // others keep theirs until their channel is gone. If a thread of another test got it, that
        // thread ends sooner or later.
        let mut stay = Vec::new();
        let since = Instant::now();
        loop {
            let ((said, hear), (go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
            scope.spawn(move || {
                let outer = (current_slot() == slot).then(|| SHARED.read());
                said.send(outer.is_some()).expect("the test waits");
                let a_writer_waits = wait.recv().is_ok();
                if let Some(outer) = outer {
                    assert!(a_writer_waits);
                    assert_eq!(SHARED.try_read().map(|value| *value), Some(0));
                    assert_eq!((*outer, *SHARED.read()), (0, 0));
                    refuses(&|| drop(SHARED.write()));
                }
            });
            stay.push(go);
            if hear.recv().expect("the thread said it") {
                break;
            }
            if stay.len() == 64 {
                stay.clear();
            }
            assert!(since.elapsed() < Duration::from_secs(60), "another thread keeps the slot");
        }
        barrier.wait();
        late.join().unwrap();
        scope.spawn(|| *SHARED.write() = 1);
        while SHARED.try_read().is_some() {
            thread::yield_now();
        }
        stay.pop().expect("the last one is it").send(()).expect("it waits");
    });
    assert_eq!(*SHARED.read(), 1);
}
