//! Code that the conformance tests share.

use std::thread;

/// Runs `work` on so many threads, each with its number; the first thing that went wrong.
pub(crate) fn on_threads(
    threads: usize,
    work: impl Fn(usize) -> Result<(), String> + Sync,
) -> Result<(), String> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|one| one.join().map_err(|_| "a thread panicked")?)
    })
}
