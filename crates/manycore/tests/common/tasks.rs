//! Futures without a runtime: a thread is the executor.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

/// Unparks a thread.
struct Unparker(thread::Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Returns a waker that unparks the calling thread; no two are the same.
pub fn unparker() -> Waker {
    Waker::from(Arc::new(Unparker(thread::current())))
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (waker, mut future) = (unparker(), pin!(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

pub fn poll_once<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
