//! The functions that a program may call; the crate `manycore-sim` offers it in Rust.
//!
//! A program finds these symbols at run time, so it needs nothing of ours to be linked. Without a
//! simulation they do nothing.

use std::ffi::c_void;
use std::fmt::Write;

use manycore_sim::symbols::{Module, Symbols};

use crate::{frames, world};

/// Whether the calling thread is simulated.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_active() -> bool {
    world::active()
}

/// The program has done `count` operations of what it measures.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_op(count: u64) {
    if world::active() {
        world::with(|world| world.measured.operations += count);
    }
}

/// What follows is measured.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_begin() {
    if world::active() {
        world::with(world::World::begin_part);
    }
}

/// What follows is not measured.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_end() {
    if world::active() {
        world::with(world::World::end_part);
    }
}

/// Starts or stops the recording of what the calling thread touches.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_record(on: bool) {
    if world::active() {
        world::with(|world| world.engine.record(on));
    }
}

/// Gives the recording to `take` as text and forgets it: a line for each cache line, core and kind
/// of access, with the line's address, the core, the kind, how often, the bytes as a mask, and the
/// place in the source.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn manycore_sim_take_recording(
    take: extern "C" fn(*const u8, usize, *mut c_void),
    with: *mut c_void,
) {
    if world::active() {
        // What follows reads files and debug information: nothing that the program does.
        let text = world::paused(|| world::with(recording));
        take(text.as_ptr(), text.len(), with);
    }
}

fn recording(world: &mut world::World) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let modules = Module::parse(&maps);
    let mut symbols = Symbols::new();
    let mut text = String::new();
    for touch in world.engine.take_recording() {
        let site = touch.pc as u64;
        let mut addresses = vec![frames::pc(site)];
        addresses.extend(world.frames.stack(site));
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
