//! Real threads that wait for each step, so that a test decides how they interleave.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;

/// Some threads, each waiting for its next step. They live, and keep their slots, as long as this
/// value.
pub struct Stepped {
    threads: Vec<(Option<Sender<Job>>, JoinHandle<()>)>,
}

impl Stepped {
    pub fn new(threads: usize) -> Self {
        let start = |_| {
            let (jobs, todo): (Sender<Job>, Receiver<Job>) = channel();
            (Some(jobs), thread::spawn(move || todo.iter().for_each(|job| job())))
        };
        Self { threads: (0..threads).map(start).collect() }
    }

    /// Has one thread do `job` and waits until it is done. A panic comes back here.
    pub fn on<R: Send + 'static>(
        &self,
        thread: usize,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        let (answer, answered) = channel();
        let job = move || {
            let result = catch_unwind(AssertUnwindSafe(job));
            answer.send(result).expect("the driver waits");
        };
        let jobs = self.threads[thread].0.as_ref().expect("only a drop takes it");
        jobs.send(Box::new(job)).expect("the thread waits for jobs");
        match answered.recv().expect("the thread answers") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        for (jobs, _) in &mut self.threads {
            *jobs = None;
        }
        for (_, thread) in self.threads.drain(..) {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking(), "a stepped thread panicked");
        }
    }
}
