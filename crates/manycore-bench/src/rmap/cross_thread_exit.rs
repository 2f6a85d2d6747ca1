//! Processes that end on another thread than the one that made them: `rmap-hand` (LDU, sections 2.1
//! and 2.4.1). What is added on one core and removed on another cancels in a mark, but not in logs
//! of cores.
//!
//! One operation makes a process and hands it to the next thread, and ends one that was handed to
//! this thread. Files, mappings and reads are those of `rmap-fork`.
//!
//! Laws:
//!
//! 1. At most four processes wait for a thread. A thread that hands it one more ends the oldest of
//!    them itself, so a descheduled thread blocks no other.
//! 2. A thread reuses its ids after 65,536 processes, when their mappings are long gone.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use crossbeam_utils::CachePadded;

use super::{
    FILES, Load, METRIC, ReverseMap, entries, share_word,
    worker::{Process, Worker},
};
use crate::{
    runner::{Control, Group, Subject, Tally},
    workload::{Entry, Options, Shape, UnknownImpl, groups_by_reads},
};

/// Processes that wait for one thread, at most.
const WAITING: usize = 4;

/// Processes that are handed on.
struct CrossThreadExit;

impl Load for CrossThreadExit {
    const PROCESSES: usize = 1 << 16;
    const MAKES: usize = 1;

    fn new(_: usize) -> Self {
        Self
    }

    /// By itself, a thread hands processes to itself.
    fn run<R: ReverseMap>(&mut self, worker: &mut Worker<'_, R>) {
        let process = worker.create(0, 0);
        worker.exit(process, 0);
    }

    fn subject<R: ReverseMap>(shape: Shape) -> Box<dyn Subject> {
        Box::new(Handed::<R>::new(shape))
    }
}

type Mail<R> = CachePadded<Mutex<VecDeque<Process<'static, R>>>>;

struct Handed<R: ReverseMap> {
    /// From a box of this subject's own, which has no other owner.
    files: &'static [R],
    /// What waits for each thread; empty before the files go.
    mail: Vec<Mail<R>>,
    shape: Shape,
}

impl<R: ReverseMap> Handed<R> {
    fn new(shape: Shape) -> Self {
        let files: Box<[R]> = (0..FILES).map(|_| R::new()).collect();
        let mail = (0..shape.threads).map(|_| Mail::<R>::default()).collect();
        Self { files: Box::leak(files), mail, shape }
    }

    fn worker(&self, index: usize) -> Worker<'static, R> {
        Worker::new(self.files, self.shape, index, CrossThreadExit::PROCESSES)
    }

    fn mail(&self, index: usize) -> std::sync::MutexGuard<'_, VecDeque<Process<'static, R>>> {
        self.mail[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, worker: &mut Worker<'static, R>, index: usize, turn: usize) {
        let process = worker.create(turn % CrossThreadExit::PROCESSES, 0);
        let mut next = self.mail((index + 1) % self.shape.threads);
        let oldest = if next.len() < WAITING { None } else { next.pop_front() };
        next.push_back(process);
        drop(next);
        let own = self.mail(index).pop_front();
        [oldest, own].into_iter().flatten().for_each(|process| worker.exit(process, 0));
    }
}

impl<R: ReverseMap> Subject for Handed<R> {
    fn work(&self, index: usize, control: &Control) -> Tally {
        let mut worker = self.worker(index);
        let mut turns = 0;
        control.drive(|| {
            self.turn(&mut worker, index, turns);
            turns += 1;
            1
        })
    }
}

impl<R: ReverseMap> Drop for Handed<R> {
    fn drop(&mut self) {
        let mut worker = self.worker(0);
        for mail in self.mail.drain(..) {
            let waiting = mail.into_inner().into_inner().unwrap_or_else(PoisonError::into_inner);
            waiting.into_iter().for_each(|process| worker.exit(process, 0));
        }
        // SAFETY: leaked in `new`; what borrowed the files, processes and workers, is gone.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self.files).cast_mut()) });
    }
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &entries::<CrossThreadExit>();

/// The groups for some options: one for each thread count and reading rate.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_by_reads("rmap-hand", ENTRIES, METRIC, options, share_word)
}

#[cfg(test)]
mod tests {
    use std::{
        ops::Range,
        sync::atomic::{AtomicUsize, Ordering::SeqCst},
        thread,
    };

    use super::{Handed, ReverseMap, WAITING};
    use crate::workload::{ReadEvery, Shape};

    static MAPPED: AtomicUsize = AtomicUsize::new(0);
    static HERE: AtomicUsize = AtomicUsize::new(0);
    static ELSEWHERE: AtomicUsize = AtomicUsize::new(0);

    /// Counts removals by thread.
    struct Counting;

    impl ReverseMap for Counting {
        type Mapping<'a> = thread::ThreadId;

        fn new() -> Self {
            Self
        }

        fn add(&self, _: Range<u64>, _: u32) -> thread::ThreadId {
            MAPPED.fetch_add(1, SeqCst);
            thread::current().id()
        }

        fn remove(&self, maker: thread::ThreadId) {
            let here = maker == thread::current().id();
            if here { &HERE } else { &ELSEWHERE }.fetch_add(1, SeqCst);
        }

        fn for_overlapping(&self, _: Range<u64>, _: impl FnMut(u32)) {}
    }

    #[test]
    fn processes_end_on_the_next_thread_and_none_is_left() {
        let shape = Shape { threads: 2, read_every: ReadEvery::Updates(3), spin: 0 };
        let handed = Handed::<Counting>::new(shape);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut one, mut turn) = (handed.worker(0), 0);
                let other = &handed;
                // In turns, so that no thread falls behind.
                while turn < 10 {
                    other.turn(&mut one, 0, turn);
                    thread::scope(|inner| {
                        inner.spawn(|| handed.turn(&mut handed.worker(1), 1, turn));
                    });
                    turn += 1;
                }
            });
        });
        assert_eq!(
            HERE.load(SeqCst),
            0,
            "a process ended on its own thread although no thread was behind"
        );
        let ended = ELSEWHERE.load(SeqCst);
        assert!(ended > 0 && MAPPED.load(SeqCst) - ended <= 2 * WAITING * 8);
        drop(handed);
        assert_eq!(HERE.load(SeqCst) + ELSEWHERE.load(SeqCst), MAPPED.load(SeqCst));
    }
}
