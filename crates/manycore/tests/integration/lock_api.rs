//! The locks used through the crate `lock_api`: exclusion, failing attempts, forgotten guards, and
//! readers that read again.

use crate::common::watchdog::{ends, message};
use lock_api::{Mutex, RawMutexFair, RawRwLockRecursive, RwLock};
use manycore::lock::{RawBrLock, RawMcsLock, RawTicketLock};
use std::mem::forget;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

static TICKET: Mutex<RawTicketLock, Vec<usize>> = Mutex::new(Vec::new());
static MCS: Mutex<RawMcsLock, Vec<usize>> = Mutex::new(Vec::new());
static BIG: RwLock<RawBrLock, Vec<usize>> = RwLock::new(Vec::new());

fn excludes<R: RawMutexFair + Sync>(mutex: &'static Mutex<R, Vec<usize>>) {
    const EACH: usize = 2_000;
    let inside = AtomicUsize::new(0);
    thread::scope(|s| {
        for me in 0..4 {
            let inside = &inside;
            s.spawn(move || {
                for round in 0..EACH {
                    let mut list = match round % 3 {
                        0 => match mutex.try_lock() {
                            Some(list) => list,
                            None => mutex.lock(),
                        },
                        _ => mutex.lock(),
                    };
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two hold it");
                    list.push(me);
                    inside.fetch_sub(1, SeqCst);
                    if round % 2 == 0 {
                        lock_api::MutexGuard::unlock_fair(list);
                    }
                }
            });
        }
    });
    assert!(!mutex.is_locked());
    assert_eq!(mutex.lock().len(), 4 * EACH);
    let held = mutex.lock();
    thread::spawn(|| assert!(mutex.try_lock().is_none() && mutex.is_locked())).join().unwrap();
    drop(held);
    let private: Mutex<R, u8> = Mutex::new(1);
    forget(private.lock());
    assert!(private.try_lock().is_none());
    // SAFETY: locked above, by this thread, and the guard is forgotten.
    unsafe { private.force_unlock() };
    assert_eq!(*private.lock(), 1);
}

#[test]
fn ticket_and_mcs_locks_exclude() {
    ends("mutexes", || {
        excludes(&TICKET);
        excludes(&MCS);
    });
}

#[test]
fn big_reader_lock_shares_and_excludes() {
    ends("a read-write lock", || {
        const ROUNDS: usize = 500;
        let (readers, writers) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|s| {
            for me in 0..4 {
                let (readers, writers) = (&readers, &writers);
                s.spawn(move || {
                    for round in 0..ROUNDS {
                        if (round + me) % 8 == 0 {
                            let mut list = BIG.write();
                            assert_eq!(writers.fetch_add(1, SeqCst), 0, "two write");
                            assert_eq!(readers.load(SeqCst), 0, "one reads, one writes");
                            list.push(me);
                            writers.fetch_sub(1, SeqCst);
                        } else {
                            let list = BIG.read();
                            readers.fetch_add(1, SeqCst);
                            assert_eq!(writers.load(SeqCst), 0, "one reads, one writes");
                            let again = BIG.read_recursive();
                            assert_eq!(again.len(), list.len());
                            readers.fetch_sub(1, SeqCst);
                            // In either order.
                            if round % 2 == 0 {
                                drop(list);
                            }
                        }
                    }
                });
            }
        });
        assert!(!BIG.is_locked());
        let writes = (0..4).flat_map(|me| (me..ROUNDS + me).filter(|sum| sum % 8 == 0));
        assert_eq!(BIG.read().len(), writes.count());
    });
}

/// A waiting writer must not keep a reader from reading again: that would be a deadlock.
#[test]
fn reader_reads_again_while_a_writer_waits() {
    fn again<R: RawRwLockRecursive + Send + Sync + 'static>(lock: &'static RwLock<R, u8>) {
        let first = lock.read();
        let (tell, told) = mpsc::channel();
        let writer = thread::spawn(move || {
            tell.send(()).unwrap();
            *lock.write() += 1;
        });
        told.recv().unwrap();
        // Until it has closed the lock for threads that do not read.
        while thread::scope(|s| s.spawn(|| lock.try_read().is_some()).join().unwrap()) {
            thread::yield_now();
        }
        let second = lock.read_recursive();
        assert_eq!((*first, *second), (0, 0));
        assert!(lock.try_write().is_none() && lock.is_locked());
        drop((first, second));
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    }
    static LOCK: RwLock<RawBrLock, u8> = RwLock::new(0);
    ends("a reader", || again(&LOCK));
}

#[test]
fn thread_that_would_wait_for_itself_is_told() {
    let lock = RwLock::<RawBrLock, u8>::new(0);
    let write = lock.write();
    assert!(message(|| drop(lock.read())).contains("it is writing"));
    assert!(lock.try_read().is_none());
    drop(write);
    let read = lock.read();
    assert!(message(|| drop(lock.write())).contains("reading or writing"));
    assert!(lock.try_write().is_none());
    drop(read);
    *lock.write() += 1;
    forget(lock.read());
    assert!(lock.try_write().is_none());
    // SAFETY: read above, by this thread, and the guard is forgotten.
    unsafe { lock.force_unlock_read() };
    assert_eq!(*lock.try_write().unwrap(), 1);
}
