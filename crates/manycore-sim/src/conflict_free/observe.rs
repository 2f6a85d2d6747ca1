//! Runs two operations, each on its own core, with their memory in a given place.

use std::ffi::c_void;
use std::sync::{Condvar, Mutex};

use super::report::Placement;
use crate::program;

/// Bytes between two placements, which is the allocator's alignment.
const STEP: usize = 16;

/// Cores that a check needs: one for each operation, and one for the test itself.
pub(super) const CORES: usize = 3;

/// In place of a number of bytes: ends a placement.
const END: usize = usize::MAX;

/// Added to the number of bytes: what is freed from here on is allocated again.
const REUSE: usize = 1 << 16;

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

/// The object of a check, on lines of its own. A program may keep it in a static, on a stack or in
/// a box: so it does not lie beside what it owns.
#[repr(C)]
pub(super) struct Apart<T> {
    before: [u8; 256],
    pub(super) object: T,
    after: [u8; 256],
}

impl<T> Apart<T> {
    fn new(object: T) -> Box<Self> {
        Box::new(Self { before: [0; 256], object, after: [0; 256] })
    }
}

/// Returns the placements to try.
pub(super) fn placements() -> impl Iterator<Item = Placement> {
    let fresh = (0..line_size()).step_by(STEP).map(|shift| Placement { shift, is_reused: false });
    fresh.flat_map(|fresh| [fresh, Placement { is_reused: true, ..fresh }])
}

/// Bytes of a cache line.
fn line_size() -> usize {
    program::runtime().map_or(64, |runtime| (runtime.place)(END))
}

/// Calls `make` so that its allocations are placed. If memory is to be reused, `make` has been
/// called before, and what it returned was dropped.
pub(super) fn placed<T>(at: Placement, make: impl Fn() -> T) -> Box<Apart<T>> {
    let _over = OnDrop(|| _ = line_size());
    if let Some(runtime) = program::runtime() {
        (runtime.place)(if at.is_reused { at.shift | REUSE } else { at.shift });
    }
    if at.is_reused {
        drop(Apart::new(make()));
    }
    Apart::new(make())
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

/// Runs both operations, each on its own core: once unrecorded, and then `calls` times. Returns the
/// recorded accesses.
pub(super) fn observe<T: Sync>(
    object: &T,
    shift: usize,
    calls: u32,
    first: &(impl Fn(&T) + Sync),
    second: &(impl Fn(&T) + Sync),
) -> String {
    let turn = Turn::default();
    let batch = |act: &dyn Fn()| recorded(|| (0..calls).for_each(|_| act()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            on_core(1);
            turn.act(0, || deeper(shift, || first(object)));
            turn.act(2, || deeper(shift, || batch(&|| first(object))));
        });
        scope.spawn(|| {
            on_core(2);
            turn.act(1, || deeper(shift, || second(object)));
            turn.act(3, || deeper(shift, || batch(&|| second(object))));
        });
    });
    taken()
}

/// Returns the recording and clears it.
pub(super) fn taken() -> String {
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
