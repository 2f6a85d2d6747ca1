//! Futures without a runtime, and a watchdog.

#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../../manycore/tests/common/tasks.rs"]
mod shared;

pub use shared::{block_on, poll_once};
use std::any::Any;
use std::future::poll_fn;
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// Is pending once.
pub async fn yield_once() {
    let mut is_second = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_second, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs `work` on a thread of its own, and returns its result. Panics if it takes longer than this.
/// Builds for sanitizers get five times as long, because they may run beside other checks.
#[track_caller]
pub fn within<T: Send + 'static>(seconds: u64, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(work()));
    let seconds = if cfg!(manycore_sanitized) { 5 * seconds } else { seconds };
    match receive.recv_timeout(Duration::from_secs(seconds)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("its thread panicked"),
    }
}

/// Returns the message of a panic.
pub fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a sentence").into()
}
