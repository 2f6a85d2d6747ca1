//! The log of a running server: lines on the standard error stream.
//!
//! Laws:
//! - log.L1 A thread that logs does not wait for the stream. It appends to a buffer, and the
//!   log's own thread writes the buffer to the stream. The log's thread starts with the first line.
//! - log.L2 The buffer is bounded. A line without room is dropped, and the number of dropped lines
//!   is logged.
//! - log.L3 A client's bytes are escaped and truncated before they are logged ([`escape`]), so
//!   one line of the log is one event.

use std::fmt;
use std::io::{self, Write};
use std::mem::take;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes that wait to be written.
const WAITING_MAX: usize = 1 << 20;
/// The most bytes of a client's line or key that are logged.
pub const SHOWN_MAX: usize = 1024;

/// The log.
#[derive(Default)]
pub struct Log {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    /// Lines that were dropped since the writer last took the others.
    dropped: u64,
    /// The stream for the lines, if it is not the standard error stream.
    stream: Option<Box<dyn Write + Send>>,
    has_writer: bool,
    is_writing: bool,
    is_over: bool,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("waiting", &self.shared.locked().lines.len()).finish()
    }
}

impl Log {
    /// Returns a log on another stream.
    #[must_use]
    pub fn to(stream: impl Write + Send + 'static) -> Self {
        let log = Self::default();
        log.shared.locked().stream = Some(Box::new(stream));
        log
    }

    /// Logs a message of the server.
    pub fn message(&self, words: &str) {
        self.append(format!("manycored: {words}\n").as_bytes());
    }

    /// Logs whole lines, in the order of the calls.
    pub fn append(&self, lines: &[u8]) {
        debug_assert!(lines.ends_with(b"\n"), "log.L3: a line of the log has no end");
        // log.L1, log.L2: a lock that is held for copies alone, and a full buffer drops the line.
        let mut state = self.shared.locked();
        if !state.has_writer && !self.start(&mut state) {
            return;
        }
        // After a dropped line, drop this line, too: it would stand before the note of the drops.
        if state.dropped > 0 || state.lines.len() + lines.len() > WAITING_MAX {
            state.dropped += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
            return;
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(lines);
        debug_assert!(state.lines.len() <= WAITING_MAX, "log.L2: the buffer exceeds its bound");
        drop(state);
        if was_empty {
            self.shared.changed.notify_all();
        }
    }

    /// Starts the thread that writes. Without it there is no log.
    fn start(&self, state: &mut State) -> bool {
        let Some(stream) = state.stream.take().or_else(standard_error) else { return false };
        let shared = self.shared.clone();
        let started = thread::Builder::new().name("log".into()).spawn(move || shared.write(stream));
        state.has_writer = started.is_ok();
        state.has_writer
    }

    /// Waits until everything is written, but for at most `most`.
    pub fn flush(&self, most: Duration) {
        let end = Instant::now() + most;
        let mut state = self.shared.locked();
        while state.is_writing || !state.lines.is_empty() || state.dropped > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.locked().is_over = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes waiting lines until the log is dropped.
    fn write(&self, mut stream: Box<dyn Write + Send>) {
        let mut lines = Vec::new();
        let mut state = self.locked();
        loop {
            if state.lines.is_empty() && state.dropped == 0 {
                if state.is_over {
                    return;
                }
                let waited = self.changed.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            lines.clear();
            std::mem::swap(&mut lines, &mut state.lines);
            let dropped = take(&mut state.dropped);
            state.is_writing = true;
            drop(state);
            if dropped > 0 {
                let note = format!("manycored: {dropped} lines of the log were dropped\n");
                lines.extend_from_slice(note.as_bytes());
            }
            // If the stream fails, the operator does not read it.
            let _ = stream.write_all(&lines).and_then(|()| stream.flush());
            state = self.locked();
            state.is_writing = false;
            self.changed.notify_all();
        }
    }
}

/// Returns the standard error stream, without the lock of the standard library. A thread that waits
/// for the stream must not keep other threads from a last message.
fn standard_error() -> Option<Box<dyn Write + Send>> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        let descriptor = io::stderr().as_fd().try_clone_to_owned().ok()?;
        Some(Box::new(std::fs::File::from(descriptor)))
    }
    #[cfg(not(unix))]
    Some(Box::new(io::stderr()))
}

/// Appends at most [`SHOWN_MAX`] bytes that a client sent. Printable ASCII stays as it is; the
/// backslash and all other bytes become `\xNN`.
pub fn escape(out: &mut Vec<u8>, sent: &[u8]) {
    // log.L3: no control byte is left that could end a line.
    for byte in &sent[..sent.len().min(SHOWN_MAX)] {
        match byte {
            b'\\' | ..=0x1f | 0x7f.. => {
                // Writing to a vector does not fail.
                let _ = write!(out, "\\x{byte:02x}");
            }
            _ => out.push(*byte),
        }
    }
    if sent.len() > SHOWN_MAX {
        let _ = write!(out, "... ({} bytes)", sent.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A stream that reports its writes. A write ends when the test allows it.
    struct Slow {
        begun: Sender<Vec<u8>>,
        ends: Receiver<()>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.begun.send(bytes.to_vec()).map_err(io::Error::other)?;
            self.ends.recv().map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stream_that_takes_nothing_keeps_no_thread_waiting_and_dropped_lines_are_told() {
        let ((begun, written), (end, ends)) = (channel(), channel());
        let log = Log::to(Slow { begun, ends });
        log.message("first");
        assert_eq!(written.recv().unwrap(), b"manycored: first\n");
        // That write has not ended.
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        for _ in 0..WAITING_MAX / line.len() + 5 {
            log.append(&line);
        }
        log.flush(Duration::from_millis(1)); // bounded, too
        end.send(()).unwrap();
        let text = written.recv().unwrap();
        let note = b"manycored: 5 lines of the log were dropped\n";
        assert!(text.ends_with(note) && text.len() == WAITING_MAX + note.len(), "{}", text.len());
        log.message("next");
        end.send(()).unwrap();
        assert_eq!(written.recv().unwrap(), b"manycored: next\n");
        end.send(()).unwrap();
        log.flush(Duration::from_secs(20));
        assert!(log.shared.locked().lines.is_empty());
    }

    #[test]
    fn what_clients_send_stays_in_its_line() {
        let mut out = Vec::new();
        escape(&mut out, b"get a\\\r\n<9 b\x7f\xff'\"");
        assert_eq!(out, b"get a\\x5c\\x0d\\x0a<9 b\\x7f\\xff'\"");
        out.clear();
        escape(&mut out, &[b'a'; SHOWN_MAX + 1]);
        assert_eq!(&out[SHOWN_MAX..], b"... (1025 bytes)");
    }
}
