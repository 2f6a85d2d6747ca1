//! Conflict-freedom as a unit test: shows that two operations on two cores share no cache line.
//!
//! Two operations scale beside each other if neither writes a line that the other touches. This can
//! be checked: run each operation on its own core, record the lines it touches, and compare. No
//! timing is involved, so the answer is the same each time.
//!
//! The check needs the simulator's instrumentation. Run `manycore sim test` with the arguments of
//! `cargo test`.
//!
//! Source: the rule is the scalable commutativity rule (Clements and others, SOSP 2013).

mod observe;
mod report;

use std::fmt;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use self::observe::{CORES, observe, placed, placements, taken};
pub use self::report::{ConflictLine, ConflictReport, Placement, Toucher};
use self::report::{Recording, parse};
use crate::program;

/// Checks that two operations do not conflict on any cache line.
///
/// Use it for the parts of a program that are meant to scale. Do not use it for operations that
/// must agree on something: these conflict, and rightly so.
///
/// Each operation first runs once unrecorded on its thread, so that a thread's setup at first use
/// does not count. Then it is called [`calls`](Self::calls) times: one call in 64 that writes a
/// shared line is a conflict, too. The check tries every state in both orders and in several
/// placements, each time with a new object.
///
/// Which data share a cache line depends on their addresses, and these depend on earlier
/// allocations. So the check varies the placement: heap memory that `make` and the state allocate
/// begins 0, 16, 32 and 48 bytes into a line (more for longer lines), and so do the operations'
/// stack frames. Blocks follow each other as in a fresh heap, and once more as in a heap whose
/// blocks were used and freed before. The object itself has lines of its own. The report names the
/// placements in which the operations conflict, what lies on each line, and which bytes are used.
///
/// The check sees only the accesses of instrumented code. It does not see those of libc's
/// allocator.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use manycore_sim::{ConflictCheck, NotSimulated};
///
/// let check = ConflictCheck::new(|| AtomicU64::new(0));
/// let add = |counter: &AtomicU64| {
///     counter.fetch_add(1, Ordering::Relaxed);
/// };
/// match check.run(add, add) {
///     Ok(report) => assert!(!report.is_conflict_free(), "both write the same word"),
///     Err(NotSimulated { .. }) => {} // run by `manycore sim test`, it is one
/// }
/// ```
pub struct ConflictCheck<T> {
    make: Box<dyn Fn() -> T>,
    states: Vec<(String, State<T>)>,
    allowed: Vec<String>,
    calls: u32,
}

/// How often an operation is called. More than 64, so that what happens at each 64th call is seen.
const CALLS: u32 = 100;

/// Checks of several tests take turns.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Brings an object into a state.
type State<T> = Box<dyn Fn(&T)>;

/// The check saw nothing: the program does not run on virtual cores, or is not instrumented.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotSimulated {
    /// The part that is missing.
    pub reason: &'static str,
}

impl fmt::Display for NotSimulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "conflict-freedom was NOT checked: {}; run `manycore sim test`", self.reason)
    }
}

impl std::error::Error for NotSimulated {}

impl<T: Sync> ConflictCheck<T> {
    /// Creates a check of operations on the object that `make` returns.
    pub fn new(make: impl Fn() -> T + 'static) -> Self {
        Self { make: Box::new(make), states: Vec::new(), allowed: Vec::new(), calls: CALLS }
    }

    /// Adds a state in which to try the operations. Without any, they run on a new object only.
    #[must_use]
    pub fn state(mut self, name: &str, prepare: impl Fn(&T) + 'static) -> Self {
        self.states.push((name.to_owned(), Box::new(prepare)));
        self
    }

    /// Allows conflicts on a line if one of its accesses has a location that contains `place`.
    #[must_use]
    pub fn allow(mut self, place: &str) -> Self {
        self.allowed.push(place.to_owned());
        self
    }

    /// Calls each operation `calls` times in place of 100. With 1, what happens only at some calls
    /// is not seen: use that for operations that take from a stock of their own core, and fill it
    /// now and then.
    #[must_use]
    pub fn calls(mut self, calls: u32) -> Self {
        self.calls = calls.max(1);
        self
    }

    /// Runs `first` and `second` on two cores and reports where they conflict.
    ///
    /// # Errors
    /// [`NotSimulated`] if the check could not see any access.
    pub fn run(
        &self,
        first: impl Fn(&T) + Sync,
        second: impl Fn(&T) + Sync,
    ) -> Result<ConflictReport, NotSimulated> {
        if !program::is_simulated() {
            return Err(NotSimulated { reason: "the program does not run on virtual cores" });
        }
        // On one core the operations could not meet.
        if std::thread::available_parallelism().map_or(1, NonZero::get) < CORES {
            return Err(NotSimulated { reason: "the machine has fewer than three virtual cores" });
        }
        // The whole process has one recording. If an operation panics, only its own test fails:
        // guards pass the turn on and stop the recording, and the next check discards the leftovers
        // here.
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        drop(taken());
        let mut report = ConflictReport { calls: self.calls, ..ConflictReport::default() };
        let new: (String, State<T>) = ("on a new object".to_owned(), Box::new(|_: &T| {}));
        let states = if self.states.is_empty() { std::slice::from_ref(&new) } else { &self.states };
        let mut seen = 0;
        for (name, prepare) in states {
            for order in ["first, then second", "second, then first"] {
                for at in placements() {
                    let apart = placed(at, || {
                        let object = (self.make)();
                        prepare(&object);
                        object
                    });
                    let (object, shift, calls) = (&apart.object, at.shift, self.calls);
                    let text = if order.starts_with("first") {
                        observe(object, shift, calls, &first, &second)
                    } else {
                        observe(object, shift, calls, &second, &first)
                    };
                    let recording = parse(&text);
                    seen += recording.touches.len();
                    self.judge(&format!("{name}, {order}"), at, recording, &mut report);
                }
            }
        }
        if seen == 0 {
            return Err(NotSimulated { reason: "the operations are not instrumented" });
        }
        Ok(report)
    }

    fn judge(
        &self,
        when: &str,
        at: Placement,
        Recording { mut touches, held }: Recording,
        report: &mut ConflictReport,
    ) {
        if !report.placements.contains(&at) {
            report.placements.push(at);
        }
        touches.sort_by_key(|(address, toucher)| (*address, !toucher.writes, toucher.core));
        for group in touches.chunk_by(|a, b| a.0 == b.0) {
            let pairs = || group.iter().flat_map(|a| group.iter().map(move |b| (&a.1, &b.1)));
            let meet = |a: &Toucher, b: &Toucher| a.core != b.core && (a.writes || b.writes);
            if !pairs().any(|(a, b)| meet(a, b)) {
                continue;
            }
            let is_allowed =
                |t: &Toucher| self.allowed.iter().any(|text| t.place.contains(text.as_str()));
            if group.iter().any(|(_, toucher)| is_allowed(toucher)) {
                report.allowed += 1;
                continue;
            }
            let address = group[0].0;
            let here = held.iter().filter(|(line, _)| *line == address);
            report.add(ConflictLine {
                when: when.to_owned(),
                address,
                is_false_sharing: !pairs().any(|(a, b)| meet(a, b) && a.bytes & b.bytes != 0),
                placements: vec![at],
                touchers: group.iter().map(|(_, toucher)| toucher.clone()).collect(),
                held: here.map(|(_, held)| held.clone()).collect(),
            });
        }
    }
}

/// Fails unless two operations on an object share no cache line ([`ConflictCheck`]).
///
/// Takes a closure that makes the object, and the two operations. After these it takes, all
/// optional, `states = [name => prepare, ...]`, `allow = [text, ...]` and `calls = number`
/// ([`ConflictCheck::calls`]).
///
/// # Panics
/// Panics if the operations conflict, and shows the lines and both sides' source locations. Also
/// panics if the program is not simulated, because a check that saw nothing has not passed. So mark
/// the test `#[ignore = "manycore sim test"]` if it also runs without the simulator.
///
/// ```should_panic
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// manycore_sim::assert_conflict_free!(
///     || [AtomicU64::new(0), AtomicU64::new(0)],
///     |slots: &[AtomicU64; 2]| slots[0].store(1, Ordering::Relaxed),
///     |slots: &[AtomicU64; 2]| slots[1].store(1, Ordering::Relaxed), // the same line
///     states = ["after a store" => |slots: &[AtomicU64; 2]| slots[0].store(1, Ordering::Relaxed)],
/// );
/// ```
#[macro_export]
macro_rules! assert_conflict_free {
    ($make:expr, $first:expr, $second:expr
     $(, states = [$($name:literal => $prepare:expr),* $(,)?])?
     $(, allow = [$($place:expr),* $(,)?])?
     $(, calls = $calls:expr)? $(,)?) => {{
        let check = $crate::ConflictCheck::new($make)
            $($(.state($name, $prepare))*)?
            $($(.allow($place))*)?
            $(.calls($calls))?;
        match check.run($first, $second) {
            Ok(report) if report.is_conflict_free() => {}
            Ok(report) => panic!("the operations conflict\n{report}"),
            Err(missing) => panic!("{missing}"),
        }
    }};
}
