//! The memory limit of the buffers of all connections, beside the items' memory (`-m`).
//!
//! A connection has its own buffers only for bytes that outlast a turn: an incomplete request,
//! requests that wait for their slice, replies that the socket does not accept. All other bytes
//! pass through buffers that the worker's connections share.
//!
//! ```text
//! Budget (all workers)  --reserves chunks-->  Ledger (one worker)  --counts-->  connections
//! ```
//!
//! Laws:
//! - buffers.B1 Memory for connections is reserved in the [`Budget`] before it is allocated. A
//!   worker's [`Ledger`] reserves it in chunks, so that short-lived buffers write nothing shared.
//! - buffers.B2 Incomplete requests leave a quarter of the limit to replies. The reason: a
//!   refused request costs an error, but a refused reply costs the connection.
//! - buffers.B3 A connection may always hold [`SMALL`] bytes, so that a short request is served
//!   even if it is cut by the end of a packet.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that a connection may always hold.
pub const SMALL: usize = 4 << 10;
/// The most bytes that a ledger reserves ahead.
const CHUNK_MAX: usize = 256 << 10;

/// The options of buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes for the buffers of all connections; 0 is no limit.
    pub limit: usize,
    /// Seconds after which a stalled connection with bytes in its buffers is closed while
    /// buffers are scarce; 0 is never.
    pub timeout: u64,
    /// The least limit, so that one item can always be received and sent.
    least: usize,
}

impl Options {
    /// Returns the defaults for `memory` bytes of items, each of at most `item` bytes.
    #[must_use]
    pub fn new(memory: u64, item: usize) -> Self {
        let quarter = usize::try_from(memory / 4).unwrap_or(usize::MAX);
        let least = item.saturating_mul(2);
        Self { limit: quarter.max(32 << 20).max(least), timeout: 30, least }
    }

    /// Takes an option of `-o`. Returns false if the option is not about buffers.
    ///
    /// # Errors
    /// A message that says what is wrong with the value.
    pub fn take(
        &mut self,
        name: &str,
        value: &str,
        warnings: &mut Vec<String>,
    ) -> Result<bool, String> {
        match name {
            "read_buf_mem_limit" => {
                let bytes = value.parse().ok().and_then(|mb: usize| mb.checked_mul(1 << 20));
                self.limit = bytes.ok_or("-o read_buf_mem_limit: megabytes are expected")?;
                if self.limit != 0 && self.limit < self.least {
                    self.limit = self.least;
                    let raised = "-o read_buf_mem_limit: raised to twice the largest item (-I)";
                    warnings.push(raised.into());
                }
            }
            "buffer_timeout" => {
                let seconds = value.parse();
                self.timeout = seconds.map_err(|_| "-o buffer_timeout: seconds are expected")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The use of a buffer, which decides how much of the limit it may take (buffers.B2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// An incomplete request.
    Unfinished,
    /// Replies, and whole requests that wait for them.
    Replies,
    /// Memory that is bounded elsewhere. It is counted and never refused.
    Bounded,
}

/// The memory for the buffers of all connections.
#[derive(Debug, Default)]
pub struct Budget {
    limit: usize,
    reserved: AtomicUsize,
    closed: AtomicU64,
}

impl Budget {
    /// Makes a budget of `limit` bytes; 0 is no limit.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Returns the limit in bytes; 0 is none.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are reserved now.
    #[must_use]
    pub fn reserved(&self) -> usize {
        // ORDER: Relaxed; a count.
        self.reserved.load(Ordering::Relaxed)
    }

    /// Connections that were closed for lack of memory.
    #[must_use]
    pub fn closed(&self) -> u64 {
        // ORDER: Relaxed; a count.
        self.closed.load(Ordering::Relaxed)
    }

    /// Counts a connection that is closed for lack of memory.
    pub fn count_closed(&self) {
        // ORDER: Relaxed; a count.
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if more than half of the limit is reserved.
    #[must_use]
    pub fn is_scarce(&self) -> bool {
        self.limit != 0 && self.reserved() > self.limit / 2
    }

    /// Returns true if at most a quarter of the limit is reserved, so that there is room for caches
    /// of buffers.
    #[must_use]
    pub fn is_ample(&self) -> bool {
        self.limit == 0 || self.reserved() <= self.limit / 4
    }

    fn bound(&self, what: Use) -> usize {
        match what {
            Use::Unfinished if self.limit != 0 => self.limit / 4 * 3,
            Use::Replies if self.limit != 0 => self.limit,
            _ => usize::MAX,
        }
    }

    fn reserve(&self, bytes: usize, what: Use) -> bool {
        let bound = self.bound(what);
        let more = |now: usize| now.checked_add(bytes).filter(|then| *then <= bound);
        // ORDER: Relaxed; a count, which guards no other memory.
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn release(&self, bytes: usize) {
        // ORDER: Relaxed; as in `reserve`.
        let before = self.reserved.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(bytes <= before, "buffers.B1: {bytes} bytes are released of {before}");
    }
}

/// One worker's part of the budget (buffers.B1).
#[derive(Debug)]
pub struct Ledger<'b> {
    budget: &'b Budget,
    chunk: usize,
    /// Bytes that the worker's connections hold.
    held: usize,
    /// Bytes that are reserved for them: at least `held`, and at most two chunks more.
    reserved: usize,
}

impl<'b> Ledger<'b> {
    /// Makes the ledger of one of `workers` workers.
    #[must_use]
    pub fn new(budget: &'b Budget, workers: usize) -> Self {
        // All workers together reserve at most an eighth of the limit ahead.
        let share =
            if budget.limit == 0 { CHUNK_MAX } else { budget.limit / (16 * workers.max(1)) };
        Self { budget, chunk: share.min(CHUNK_MAX), held: 0, reserved: 0 }
    }

    /// Returns the budget.
    #[must_use]
    pub fn budget(&self) -> &'b Budget {
        self.budget
    }

    /// Bytes that the worker's connections hold.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// Sets the bytes that a connection holds to `bytes`. Returns false and changes nothing if that
    /// is refused.
    #[must_use]
    pub fn set(&mut self, holds: &mut usize, bytes: usize, what: Use) -> bool {
        debug_assert!(
            *holds <= self.held,
            "buffers.B1: a connection has {holds} bytes of {} that all have",
            self.held
        );
        let held = self.held - *holds + bytes;
        if held > self.reserved {
            let missing = held - self.reserved;
            let what = if bytes <= SMALL { Use::Bounded } else { what }; // buffers.B3
            let chunk = missing.max(self.chunk);
            if self.budget.reserve(chunk, what) {
                self.reserved += chunk;
            } else if self.budget.reserve(missing, what) {
                self.reserved += missing;
            } else {
                return false;
            }
        } else if self.reserved - held > 2 * self.chunk {
            let spare = self.reserved - held - self.chunk;
            self.budget.release(spare);
            self.reserved -= spare;
        }
        (self.held, *holds) = (held, bytes);
        debug_assert!(
            self.held <= self.reserved,
            "buffers.B1: {} bytes are held, {} reserved",
            self.held,
            self.reserved
        );
        true
    }
}

impl Drop for Ledger<'_> {
    fn drop(&mut self) {
        self.budget.release(self.reserved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_leave_a_quarter_to_replies_and_small_buffers_are_never_refused() {
        let budget = Budget::new(1 << 20);
        let mut ledger = Ledger::new(&budget, 1);
        let (mut one, mut other, mut small) = (0, 0, 0);
        assert!(ledger.set(&mut one, 700 << 10, Use::Unfinished));
        assert!(!ledger.set(&mut other, 200 << 10, Use::Unfinished));
        assert_eq!((other, budget.is_scarce()), (0, true));
        assert!(ledger.set(&mut other, 200 << 10, Use::Replies));
        assert!(!ledger.set(&mut one, 900 << 10, Use::Replies));
        assert!(ledger.set(&mut small, SMALL, Use::Unfinished));
        assert!(ledger.set(&mut one, 0, Use::Unfinished));
        assert!(ledger.set(&mut other, 0, Use::Replies));
        assert!(ledger.set(&mut small, 0, Use::Replies));
        assert!(budget.reserved() <= 2 * ledger.chunk, "{}", budget.reserved());
        drop(ledger);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn limit_is_a_quarter_of_the_memory_unless_said_and_at_least_two_items() {
        let (mut warnings, mb) = (Vec::new(), 1 << 20);
        for (memory, item, said, limit) in [
            (64 << 20, mb, None, 32),
            (1 << 30, mb, None, 256),
            (64 << 20, 20 * mb, None, 40),
            (64 << 20, mb, Some("5"), 5),
            (64 << 20, mb, Some("1"), 2),
            (64 << 20, mb, Some("0"), 0),
        ] {
            let mut options = Options::new(memory, item);
            if let Some(said) = said {
                assert_eq!(options.take("read_buf_mem_limit", said, &mut warnings), Ok(true));
            }
            assert_eq!(options.limit, limit << 20, "{said:?}");
        }
        assert_eq!(warnings.len(), 1);
        let mut options = Options::new(64 << 20, mb);
        for (name, value) in [("read_buf_mem_limit", "x"), ("buffer_timeout", "-1")] {
            assert!(options.take(name, value, &mut warnings).is_err());
        }
        assert_eq!(options.take("modern", "", &mut warnings), Ok(false));
        assert_eq!(options.take("buffer_timeout", "7", &mut warnings), Ok(true));
        assert_eq!(options.timeout, 7);
    }

    #[test]
    fn what_comes_and_goes_within_chunks_writes_nothing_shared() {
        let budget = Budget::new(64 << 20);
        let mut ledger = Ledger::new(&budget, 2);
        let mut holds = 0;
        assert!(ledger.set(&mut holds, 60_000, Use::Replies));
        let reserved = budget.reserved();
        for bytes in [0, 60_000, 1_000, 30_000, 0] {
            assert!(ledger.set(&mut holds, bytes, Use::Unfinished));
            assert_eq!(budget.reserved(), reserved);
        }
    }

    #[test]
    fn without_a_limit_nothing_is_refused() {
        let budget = Budget::new(0);
        let mut ledger = Ledger::new(&budget, 1);
        let mut holds = 0;
        assert!(ledger.set(&mut holds, 1 << 40, Use::Unfinished));
        assert!(!budget.is_scarce());
    }
}
