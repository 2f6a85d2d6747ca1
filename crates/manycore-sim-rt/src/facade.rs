//! The functions that a program may call. The crate `manycore-sim` offers them in Rust.
//!
//! A program finds these symbols at run time, so it does not link this library. Without a
//! simulation they do nothing.

use std::ffi::c_void;
use std::fmt::Write;

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
/// The largest number ends that. Returns the size of a line.
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
/// the kind, the count, the bytes as a mask, and the place in the source.
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
    let mut text = String::new();
    for touch in sim.engine.take_recording() {
        let site = touch.pc as u64;
        let mut addresses = vec![frames::pc(site)];
        addresses.extend(sim.frames.stack(site));
        let place = symbols.place(&modules, &addresses);
        let kind = if touch.wrote { "write" } else { "read" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:x} {} {kind} {} {:x} {place}",
            touch.line, touch.core, touch.count, touch.bytes
        );
    }
    text
}
