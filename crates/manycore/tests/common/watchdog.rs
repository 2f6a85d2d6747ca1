//! Tests that must not hang: they run on their own thread, and fail if it does not end.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A time limit far above what anything here takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `f` on its own thread, which leaks if `f` hangs. A panic of `f` continues here.
///
/// # Panics
/// If `f` does not return in time.
pub fn ends<R: Send + 'static>(what: &str, f: impl FnOnce() -> R + Send + 'static) -> R {
    ends_within(what, LIMIT, f)
}

/// Does the same as [`ends`], with a time limit of the caller's.
pub fn ends_within<R: Send + 'static>(
    what: &str,
    time: Duration,
    f: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, wait) = mpsc::channel();
    let test = thread::spawn(move || done.send(catch_unwind(AssertUnwindSafe(f))));
    let ended = wait.recv_timeout(time).unwrap_or_else(|_| panic!("{what}: hangs"));
    test.join().expect("the panic was caught").expect("the answer was waited for");
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Returns the message with which `f` panics.
///
/// # Panics
/// If `f` does not panic.
pub fn message(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("there was no panic");
    words_of(&*panic)
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    Works,
    /// With the panic's words.
    Panics(String),
}

impl End {
    pub fn panics_with(&self, words: &str) -> bool {
        matches!(self, Self::Panics(said) if said.contains(words))
    }
}

/// Returns how `f` ended, run as [`ends`] does.
///
/// # Panics
/// If `f` does not return in time.
pub fn end_of(what: &str, f: impl FnOnce() + Send + 'static) -> End {
    ends(what, || match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => End::Works,
        Err(panic) => End::Panics(words_of(&*panic)),
    })
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words.or(panic.downcast_ref::<&str>().copied()).unwrap_or("(no words)").to_owned()
}
