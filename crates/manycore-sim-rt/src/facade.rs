//! The functions that a program may call. The crate `manycore-sim` offers them in Rust.
//!
//! A program finds these symbols at run time, so it does not link this library. Without a
//! simulation they do nothing.

use std::ffi::c_void;
use std::fmt::Write;
use std::ops::Range;

use manycore_sim::symbols::{Module, Symbols};

use crate::{frames, placement, simulation};

/// Returns true if the calling thread is simulated.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_active() -> bool {
    simulation::active()
}

/// Counts `count` more operations of the program.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_op(count: u64) {
    if simulation::active() {
        simulation::with(|sim| sim.measured.operations += count);
    }
}

/// Begins a measured part.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_begin() {
    if simulation::active() {
        simulation::with(simulation::Simulation::begin_part);
    }
}

/// Ends a measured part.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_end() {
    if simulation::active() {
        simulation::with(simulation::Simulation::end_part);
    }
}

/// Starts or stops recording the calling thread's accesses.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_record(on: bool) {
    if simulation::active() {
        simulation::with(|sim| sim.engine.record(on));
    }
}

/// Lets the calling thread's allocations begin `shift` bytes into a cache line from now on.
///
/// With the bit [`placement::REUSE`], what is freed meanwhile is allocated again. The largest
/// number ends the placement. Returns the size of a line.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_place(shift: usize) -> usize {
    if !simulation::active() {
        return 64;
    }
    if shift == usize::MAX {
        placement::end()
    } else {
        placement::begin(shift)
    }
    simulation::with(|sim| 1 << sim.engine.machine().line_shift)
}

/// Passes the recording to `take` as text, and forgets it.
///
/// The text has a line for each cache line, core and kind of access: the line's address, the core,
/// the kind, the count, the bytes as a mask, and the place in the source. For a line that several
/// cores touch, it also has what lies there: the line's address, `held`, the first byte and the one
/// behind the last, and a name.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_take_recording(
    take: extern "C" fn(*const u8, usize, *mut c_void),
    with: *mut c_void,
) {
    if simulation::active() {
        // This reads files and debug information, which the program does not do.
        let text = simulation::paused(|| simulation::with(recording));
        take(text.as_ptr(), text.len(), with);
    }
}

fn recording(sim: &mut simulation::Simulation) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let modules = Module::parse(&maps);
    let mut symbols = Symbols::new();
    let mut place = |sim: &simulation::Simulation, site: u64| {
        let mut addresses = vec![frames::pc(site)];
        addresses.extend(sim.frames.stack(site));
        symbols.place(&modules, &addresses)
    };
    let mut text = String::new();
    let touches = sim.engine.take_recording();
    for touches in touches.chunk_by(|a, b| a.line == b.line) {
        for touch in touches {
            let kind = if touch.wrote { "write" } else { "read" };
            let (line, core, count, bytes) = (touch.line, touch.core, touch.count, touch.bytes);
            let place = place(sim, touch.pc as u64);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{line:x} {core} {kind} {count} {bytes:x} {place}");
        }
        let line = touches[0].line;
        if touches.iter().any(|touch| touch.core != touches[0].core) {
            for (bytes, what) in sim.held(line, &mut place) {
                let _ = writeln!(text, "{line:x} held {} {} {what}", bytes.start, bytes.end);
            }
        }
    }
    text
}

impl simulation::Simulation {
    /// Returns what lies on a cache line now, with the bytes that it occupies: heap blocks, and a
    /// stack.
    fn held(
        &self,
        line: usize,
        place: &mut impl FnMut(&Self, u64) -> String,
    ) -> Vec<(Range<usize>, String)> {
        let size = 1 << self.engine.machine().line_shift;
        let blocks = self.allocations.at(line, line + size, self.engine.now());
        let mut found: Vec<_> = blocks
            .iter()
            .map(|block| {
                let from = block.start.saturating_sub(line);
                let to = (block.start + block.bytes - line).min(size);
                let what =
                    format!("{} bytes allocated at {}", block.bytes, place(self, block.site));
                (from..to, what)
            })
            .collect();
        if let Some((thread, _)) = self.stack_of(line).filter(|_| found.is_empty()) {
            found.push((0..size, format!("the stack of thread {thread}")));
        }
        found
    }
}
