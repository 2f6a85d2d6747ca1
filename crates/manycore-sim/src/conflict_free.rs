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

use std::{
    ffi::c_void,
    fmt,
    num::NonZero,
    sync::{Condvar, Mutex, PoisonError},
};

use crate::program;

/// Checks that two operations do not conflict on any cache line.
///
/// Use it for the parts of a program that are meant to scale. Do not use it for operations that
/// must agree on something: these conflict, and rightly so.
///
/// Each operation first runs once unrecorded on its thread, so that a thread's setup at first use
/// does not count. The check tries every state in both orders and in several placements, each time
/// with a new object.
///
/// Which data share a cache line depends on their addresses, and these depend on earlier
/// allocations. So the check varies the placement: heap memory that `make` and the state allocate
/// begins 0, 16, 32 and 48 bytes into a line (more for longer lines), and so do the operations'
/// stack frames. The report names the placements in which the operations conflict.
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
}

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

/// A line on which the operations conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConflictLine {
    /// The state and the order of the operations.
    pub when: String,
    /// The first byte of the line.
    pub address: u64,
    /// True if they use different bytes of the line. Padding would help.
    pub is_false_sharing: bool,
    /// The placements that conflict: how many bytes into a line heap and stack begin.
    pub placements: Vec<usize>,
    /// The cores that access the line, and where.
    pub touchers: Vec<Toucher>,
}

/// One core's reads, or one core's writes, of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Toucher {
    /// The core.
    pub core: u32,
    /// True if the core writes the line, false if it reads it.
    pub writes: bool,
    /// The source location of the first such access, such as `src/main.rs:8 (serve)`.
    pub place: String,
    /// The bytes of the line, one bit each.
    bytes: u128,
}

/// The conflicts of two operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConflictReport {
    /// The lines on which the operations conflict.
    pub lines: Vec<ConflictLine>,
    /// The number of conflicts that [`ConflictCheck::allow`] excused.
    pub allowed: usize,
    /// The placements tried: how many bytes into a line heap and stack begin.
    pub placements: Vec<usize>,
}

impl ConflictReport {
    /// Returns true if the operations conflict nowhere, except where that is allowed.
    pub fn is_conflict_free(&self) -> bool {
        self.lines.is_empty()
    }

    /// Adds a line. Merges it with a known line that has the same locations in another placement.
    fn add(&mut self, line: ConflictLine) {
        let shift = line.placements[0];
        let is_same = |known: &&mut ConflictLine| {
            let same = |(a, b): (&Toucher, &Toucher)| {
                (a.core, a.writes, &a.place) == (b.core, b.writes, &b.place)
            };
            known.when == line.when
                && known.is_false_sharing == line.is_false_sharing
                && !known.placements.contains(&shift)
                && known.touchers.len() == line.touchers.len()
                && known.touchers.iter().zip(&line.touchers).all(same)
        };
        match self.lines.iter_mut().find(is_same) {
            Some(known) => known.placements.push(shift),
            None => self.lines.push(line),
        }
    }
}

impl fmt::Display for ConflictReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return write!(f, "no conflict ({} allowed)", self.allowed);
        }
        let list = |placements: &[usize]| {
            placements.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
        };
        for line in &self.lines {
            let how = if line.is_false_sharing { "share" } else { "meet on" };
            writeln!(f, "{}: the operations {how} the line at {:#x}", line.when, line.address)?;
            for toucher in &line.touchers {
                let verb = if toucher.writes { "writes" } else { "reads" };
                writeln!(f, "    core {} {verb:<6} at {}", toucher.core, toucher.place)?;
            }
            let (failed, tried) = (list(&line.placements), list(&self.placements));
            writeln!(f, "    where heap and stack begin {failed} bytes into a line (of {tried})")?;
        }
        Ok(())
    }
}

impl<T: Sync> ConflictCheck<T> {
    /// Creates a check of operations on the object that `make` returns.
    pub fn new(make: impl Fn() -> T + 'static) -> Self {
        Self { make: Box::new(make), states: Vec::new(), allowed: Vec::new() }
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
        let mut report = ConflictReport::default();
        let new: (String, State<T>) = ("on a new object".to_owned(), Box::new(|_: &T| {}));
        let states = if self.states.is_empty() { std::slice::from_ref(&new) } else { &self.states };
        let mut seen = 0;
        for (name, prepare) in states {
            for order in ["first, then second", "second, then first"] {
                for shift in (0..line_size()).step_by(STEP) {
                    let object = placed(shift, || {
                        let object = Box::new((self.make)());
                        prepare(&object);
                        object
                    });
                    let text = if order.starts_with("first") {
                        observe(&*object, shift, &first, &second)
                    } else {
                        observe(&*object, shift, &second, &first)
                    };
                    let touches = parse(&text);
                    seen += touches.len();
                    self.judge(&format!("{name}, {order}"), shift, touches, &mut report);
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
        shift: usize,
        mut touches: Vec<(u64, Toucher)>,
        report: &mut ConflictReport,
    ) {
        if !report.placements.contains(&shift) {
            report.placements.push(shift);
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
            report.add(ConflictLine {
                when: when.to_owned(),
                address: group[0].0,
                is_false_sharing: !pairs().any(|(a, b)| meet(a, b) && a.bytes & b.bytes != 0),
                placements: vec![shift],
                touchers: group.iter().map(|(_, toucher)| toucher.clone()).collect(),
            });
        }
    }
}

/// Whose turn it is. Not recorded, because the threads use it only between operations.
#[derive(Default)]
struct Turn {
    step: Mutex<u32>,
    next: Condvar,
}

impl Turn {
    fn act(&self, step: u32, act: impl FnOnce()) {
        let mut now = self.step.lock().expect("no step panics with the lock");
        while *now != step {
            now = self.next.wait(now).expect("no step panics with the lock");
        }
        drop(now);
        let _passed_on = OnDrop(|| {
            *self.step.lock().expect("no step panics with the lock") += 1;
            self.next.notify_all();
        });
        act();
    }
}

/// Calls the function when dropped, also in a panic.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Bytes between two placements, which is the allocator's alignment.
const STEP: usize = 16;

/// Bytes of a cache line.
fn line_size() -> usize {
    program::runtime().map_or(64, |runtime| (runtime.place)(usize::MAX))
}

/// Calls `make` so that its allocations begin `shift` bytes into a line.
fn placed<R>(shift: usize, make: impl FnOnce() -> R) -> R {
    let _over = OnDrop(|| _ = line_size()); // ends the placement
    if let Some(runtime) = program::runtime() {
        (runtime.place)(shift);
    }
    make()
}

/// Calls the function with its stack frame `shift` bytes further down.
fn deeper(shift: usize, mut act: impl FnMut()) {
    #[inline(never)]
    fn padded<const N: usize>(act: &mut dyn FnMut()) {
        let mut pad = [0_u8; N];
        std::hint::black_box(&mut pad);
        act();
        std::hint::black_box(&mut pad);
    }
    match shift / STEP % 8 {
        0 => padded::<0>(&mut act),
        1 => padded::<16>(&mut act),
        2 => padded::<32>(&mut act),
        3 => padded::<48>(&mut act),
        4 => padded::<64>(&mut act),
        5 => padded::<80>(&mut act),
        6 => padded::<96>(&mut act),
        _ => padded::<112>(&mut act),
    }
}

/// Runs both operations, each on its own core, and returns the recorded accesses.
fn observe<T: Sync>(
    object: &T,
    shift: usize,
    first: &(impl Fn(&T) + Sync),
    second: &(impl Fn(&T) + Sync),
) -> String {
    let turn = Turn::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            on_core(1);
            turn.act(0, || deeper(shift, || first(object)));
            turn.act(2, || deeper(shift, || recorded(|| first(object))));
        });
        scope.spawn(|| {
            on_core(2);
            turn.act(1, || deeper(shift, || second(object)));
            turn.act(3, || deeper(shift, || recorded(|| second(object))));
        });
    });
    taken()
}

/// Returns the recording and clears it.
fn taken() -> String {
    let mut text = String::new();
    if let Some(runtime) = program::runtime() {
        (runtime.take_recording)(take, (&raw mut text).cast());
    }
    text
}

extern "C" fn take(bytes: *const u8, length: usize, text: *mut c_void) {
    // SAFETY: the runtime passes a string of its own and the pointer that it got from `taken`.
    let (bytes, text) =
        unsafe { (std::slice::from_raw_parts(bytes, length), &mut *text.cast::<String>()) };
    text.push_str(&String::from_utf8_lossy(bytes));
}

/// Records what `act` touches.
#[inline(never)]
fn recorded(act: impl FnOnce()) {
    let Some(runtime) = program::runtime() else { return };
    (runtime.record)(true);
    let _over = OnDrop(|| (runtime.record)(false));
    act();
}

/// Cores that a check needs: one for each operation, and one for the test itself.
const CORES: usize = 3;

/// Moves the caller to a core below [`CORES`].
fn on_core(core: usize) {
    #[cfg(target_os = "linux")]
    {
        unsafe extern "C" {
            fn sched_setaffinity(thread: i32, bytes: usize, mask: *const u64) -> i32;
        }
        let mask = [1_u64 << core, 0, 0, 0];
        // SAFETY: the mask is as long as its stated size. The call cannot fail: the core exists.
        unsafe { sched_setaffinity(0, size_of_val(&mask), mask.as_ptr()) };
    }
    let _ = core;
}

/// Parses the runtime's text: address, core, kind, count, bytes, place.
fn parse(text: &str) -> Vec<(u64, Toucher)> {
    let line = |line: &str| {
        let mut words = line.splitn(6, ' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let core = words.next()?.parse().ok()?;
        let writes = words.next()? == "write";
        let bytes = u128::from_str_radix(words.nth(1)?, 16).ok()?;
        Some((address, Toucher { core, writes, place: words.next()?.to_owned(), bytes }))
    };
    text.lines().filter_map(line).collect()
}

/// Fails unless two operations on an object share no cache line ([`ConflictCheck`]).
///
/// Takes a closure that makes the object, and the two operations. After these it takes, both
/// optional, `states = [name => prepare, ...]` and `allow = [text, ...]`.
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
     $(, allow = [$($place:expr),* $(,)?])? $(,)?) => {{
        let check = $crate::ConflictCheck::new($make)
            $($(.state($name, $prepare))*)?
            $($(.allow($place))*)?;
        match check.run($first, $second) {
            Ok(report) if report.is_conflict_free() => {}
            Ok(report) => panic!("the operations conflict\n{report}"),
            Err(missing) => panic!("{missing}"),
        }
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str, allowed: &[&str]) -> ConflictReport {
        let check = allowed.iter().fold(ConflictCheck::new(|| ()), |check, text| check.allow(text));
        let mut report = ConflictReport::default();
        check.judge("now", 0, parse(text), &mut report);
        report
    }

    #[test]
    fn what_meets_in_some_placements_says_in_which() {
        let (check, mut report) = (ConflictCheck::new(|| ()), ConflictReport::default());
        let meets = "40 1 write 1 f a.rs:1\n40 2 write 1 f0 b.rs:2\n";
        let apart = "40 1 write 1 f a.rs:1\n80 2 write 1 f0 b.rs:2\n";
        for (shift, text) in [(0, meets), (16, meets), (32, apart), (48, apart)] {
            check.judge("now", shift, parse(text), &mut report);
        }
        assert_eq!(report.lines.len(), 1, "{report}");
        assert_eq!(report.lines[0].placements, [0, 16]);
        let said = "heap and stack begin 0, 16 bytes into a line (of 0, 16, 32, 48)";
        assert!(report.to_string().contains(said), "{report}");
    }

    #[test]
    fn write_and_read_of_one_word_by_two_cores_conflict() {
        let report = judged("40 1 write 1 f src/a.rs:1 (f)\n40 2 read 3 ff src/b.rs:2 (g)\n", &[]);
        assert_eq!(report.lines.len(), 1);
        assert!(!report.lines[0].is_false_sharing);
        let text = report.to_string();
        assert!(text.contains("core 1 writes at src/a.rs:1"), "{text}");
        assert!(text.contains("core 2 reads  at src/b.rs:2"), "{text}");
    }

    #[test]
    fn different_bytes_of_a_line_are_false_sharing() {
        let report = judged("40 1 write 1 f a\n40 2 write 1 f0 b\n", &[]);
        assert!(report.lines[0].is_false_sharing);
    }

    #[test]
    fn reads_of_all_and_writes_of_one_core_do_not_conflict() {
        let text = "40 1 read 1 f a\n40 2 read 1 f b\n80 1 write 1 f a\n80 1 read 1 f a\n";
        assert!(judged(text, &[]).is_conflict_free());
    }

    #[test]
    fn allowed_place_excuses_its_line_alone() {
        let text = "40 1 write 1 f a.rs:1\n40 2 read 1 f b.rs:2\n\
            80 1 write 1 f c.rs:3\n80 2 write 1 f c.rs:3\n";
        let report = judged(text, &["b.rs:2"]);
        assert_eq!((report.lines.len(), report.allowed), (1, 1));
        assert_eq!(report.lines[0].address, 0x80);
    }

    #[test]
    fn check_without_simulation_says_so() {
        let missing = ConflictCheck::new(|| ()).run(|_| {}, |_| {}).unwrap_err();
        assert!(missing.to_string().contains("NOT checked"), "{missing}");
    }
}
