//! `mc_queue`: an event queue of pointers.

use crate::cancel;
use crate::versioned::{self, Versioned};
use libc::c_int;
use manycore::collections::{EventQueue, RecvError, SendError};
use std::ffi::c_void;
use std::slice;
use std::time::Duration;

/// An event: a pointer that passes from thread to thread.
#[derive(Debug)]
#[repr(transparent)]
pub struct QueueEvent(*mut c_void);

// SAFETY: the header says that the thread that receives it may use it.
unsafe impl Send for QueueEvent {}

/// `mc_queue`.
pub type Queue = EventQueue<QueueEvent>;

/// `struct mc_queue_options`. Zero is the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct QueueOptions {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Waiting events from which on senders wait. The greatest number means no bound.
    pub max_events: usize,
}

// SAFETY: `repr(C)`, the size first; then a number.
unsafe impl Versioned for QueueOptions {}

/// No limit: `MC_FOREVER`.
pub const FOREVER: u64 = u64::MAX;

/// Makes a new queue.
///
/// # Safety
/// `out` is null or may be written. `options` is null, or has as many bytes as its first field
/// says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_queue_new(out: *mut *mut Queue, options: *const QueueOptions) -> c_int {
    let none = QueueOptions { size: size_of::<QueueOptions>(), max_events: 0 };
    // SAFETY: the caller promises that it is null, or as long as it says.
    let read = unsafe { versioned::read(options, none) };
    let queue = match read.map(|options| options.max_events) {
        Some(0) => Some(EventQueue::new()),
        Some(usize::MAX) => Some(EventQueue::unbounded()),
        Some(events) => EventQueue::builder().max_events(events).build().ok(),
        None => None,
    };
    let Some(queue) = queue.filter(|_| !out.is_null()) else { return -libc::EINVAL };
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(queue))) };
    0
}

/// Frees a queue and forgets the events in it.
///
/// # Safety
/// Null, or from `mc_queue_new`, freed once, and used by no thread any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_queue_free(queue: *mut Queue) {
    if !queue.is_null() {
        // SAFETY: from the box of `mc_queue_new`; the caller promises that it comes back once.
        drop(unsafe { Box::from_raw(queue) });
    }
}

/// Sends an event. Waits at most `timeout_ns` while the queue is full.
///
/// # Safety
/// The queue is not freed; the thread that receives the event may use it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_queue_send(
    queue: *const Queue,
    event: *mut c_void,
    timeout_ns: u64,
) -> c_int {
    // SAFETY: the caller promises a queue that has not been freed.
    let (queue, event) = (unsafe { &*queue }, QueueEvent(event));
    let sent = match timeout_ns {
        0 => queue.try_send(event),
        _ if !queue.is_full() => queue.send(event),
        FOREVER => {
            let _no_cancel = cancel::disable();
            queue.send(event)
        }
        limit => {
            let _no_cancel = cancel::disable();
            queue.send_timeout(event, Duration::from_nanos(limit))
        }
    };
    match sent {
        Ok(()) => 0,
        Err(SendError::Closed(_)) => -libc::EPIPE,
        Err(_) if timeout_ns == 0 => -libc::EAGAIN,
        Err(_) => -libc::ETIMEDOUT,
    }
}

/// Receives an event. Waits for one at most `timeout_ns`.
///
/// # Safety
/// The queue is not freed; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_queue_receive(
    queue: *const Queue,
    out: *mut *mut c_void,
    timeout_ns: u64,
) -> c_int {
    // SAFETY: the caller promises that it is null or may be written.
    let Some(out) = (unsafe { out.as_mut() }) else { return -libc::EINVAL };
    // SAFETY: the caller promises a queue that has not been freed.
    let queue = unsafe { &*queue };
    let received = match timeout_ns {
        0 => queue.try_recv(),
        limit => {
            let _no_cancel = cancel::disable();
            match limit {
                FOREVER => queue.recv().ok_or(RecvError::Closed),
                limit => queue.recv_timeout(Duration::from_nanos(limit)),
            }
        }
    };
    match received {
        Ok(QueueEvent(event)) => {
            *out = event;
            0
        }
        Err(RecvError::Closed) => -libc::EPIPE,
        Err(_) if timeout_ns == 0 => -libc::EAGAIN,
        Err(_) => -libc::ETIMEDOUT,
    }
}

/// Receives the events that are there, up to `room`. Returns how many.
///
/// # Safety
/// The queue is not freed; `room` events may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_queue_receive_many(
    queue: *const Queue,
    events: *mut *mut c_void,
    room: usize,
) -> usize {
    if events.is_null() || room == 0 {
        return 0;
    }
    let mut batch = Vec::new();
    // SAFETY: the caller promises a queue that has not been freed.
    unsafe { &*queue }.drain_at_most(room, &mut batch);
    // SAFETY: the caller promises room for as many, and no other thread writes there.
    let out = unsafe { slice::from_raw_parts_mut(events.cast::<std::mem::MaybeUninit<_>>(), room) };
    for (out, QueueEvent(event)) in out.iter_mut().zip(&batch) {
        out.write(*event);
    }
    batch.len()
}

/// Closes the queue. Returns 1 if it was open, else 0.
///
/// # Safety
/// The queue is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_queue_close(queue: *const Queue) -> c_int {
    // SAFETY: the caller promises a queue that has not been freed.
    unsafe { &*queue }.close().into()
}

/// Returns how many events there are.
///
/// # Safety
/// The queue is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_queue_length(queue: *const Queue) -> usize {
    // SAFETY: the caller promises a queue that has not been freed.
    unsafe { &*queue }.len()
}
