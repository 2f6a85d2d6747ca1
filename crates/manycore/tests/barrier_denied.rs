//! A sandbox that denies membarrier after the library has begun to rely on it. Nothing breaks;
//! everything runs on, but slower.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use common::process::in_own_process;
use manycore::collections::Counter;
use manycore::oplog::{Commuting, Deferred, Op};
use manycore::section::{Atomic, Domain, Owned};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// From now on, `membarrier` fails with EPERM in every thread of the process.
fn deny_membarrier() {
    let code = |code: u32, k: u32, jt, jf| libc::sock_filter { code: code as u16, jt, jf, k };
    let filter = [
        code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the call's number
        code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_membarrier as u32, 0, 1),
        code(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        code(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which lives until the call is over.
    let (first, second) = unsafe {
        let first = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let all = libc::SECCOMP_FILTER_FLAG_TSYNC;
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        (first, libc::syscall(libc::SYS_seccomp, mode, all, &raw const program))
    };
    assert_eq!((first, second), (0, 0), "{}", std::io::Error::last_os_error());
}

const ALIVE: usize = 0x5afe;
static FREED: AtomicUsize = AtomicUsize::new(0);

/// A value that outlives its node and tells whether the node was freed.
struct Node(&'static AtomicUsize);

impl Node {
    fn new() -> Self {
        Self(Box::leak(Box::new(AtomicUsize::new(ALIVE))))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.0.store(0, SeqCst);
        FREED.fetch_add(1, SeqCst);
    }
}

struct Add(u64);

impl Op<u64> for Add {
    fn apply(self, sum: &mut u64) {
        *sum += self.0;
    }
}

#[test]
fn barrier_that_is_denied_later_is_replaced_and_readers_stay_safe() {
    in_own_process("barrier_that_is_denied_later_is_replaced_and_readers_stay_safe", || {
        let before = Domain::builder().batch_nodes(8).build().unwrap();
        let (link, stop) = (Atomic::new(Node::new()), AtomicBool::new(false));
        let counter = Counter::new(0);
        let sum = Deferred::<u64, Commuting<Add>>::new(0);
        (0..5000).for_each(|_| sum.append(Add(1))); // reserves the object for this thread
        /// Ends the readers, also when an assertion fails.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        thread::scope(|scope| {
            let _stop = Stop(&stop);
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(SeqCst) {
                        let section = before.enter();
                        let node = link.load(&section).as_ref().unwrap().0;
                        counter.inc();
                        assert_eq!(node.load(SeqCst), ALIVE, "freed under its reader");
                    }
                });
            }
            let replace = |domain: &Domain, link: &Atomic<Node>| {
                let section = domain.enter();
                let old = link.swap(Owned::new(Node::new()), &section);
                // SAFETY: unlinked by the swap; no links; sections of one domain.
                unsafe { section.retire(old) };
            };
            // A reader that the system has stopped inside holds everything back.
            let start = Instant::now();
            while FREED.load(SeqCst) == 0 {
                (0..1000).for_each(|_| replace(&before, &link));
                assert!(start.elapsed() < Duration::from_secs(60), "nothing is freed");
            }
            deny_membarrier();
            let (freed, start) = (FREED.load(SeqCst), Instant::now());
            while start.elapsed() < Duration::from_secs(1) {
                (0..100).for_each(|_| replace(&before, &link));
                assert!(counter.sum() >= 0);
            }
            let other = scope.spawn(|| (0..1000).for_each(|_| sum.append(Add(1))));
            (0..1000).for_each(|_| sum.append(Add(1)));
            other.join().unwrap();
            assert_eq!(*sum.read(), 7000);
            assert!(FREED.load(SeqCst) > freed, "nothing is freed any more");
            let after = Domain::builder().batch_nodes(8).build().unwrap();
            let other = Atomic::new(Node::new());
            (0..1000).for_each(|_| replace(&after, &other));
            // SAFETY: nothing else leads to the node.
            drop(unsafe { other.into_owned() });
        });
        // SAFETY: nothing else leads to the node.
        drop(unsafe { link.into_owned() });
    });
}
