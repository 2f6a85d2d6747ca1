//! The libc functions that describe the machine to a program, or that wait. In a simulation they
//! answer for virtual cores, and wait in virtual time.
//!
//! Owns: the symbols that take the place of libc's. Without a simulation each one passes the call
//! on.
//!
//! Every other call goes to the real system, such as reading a file of the file system. A virtual
//! thread that blocks in such a call stops all of them; [`crate::watchdog`] names it.

mod alarms;
mod by_number;
mod c11;
mod clock;
mod conditions;
mod cores;
mod descriptors;
mod files;
mod futex;
mod getrandom;
mod libc_functions;
mod locks;
mod maps;
mod memory;
mod replace;
mod semaphores;
mod signals;
mod waits;

pub(crate) use self::by_number::virtual_call;
pub(crate) use self::clock::set_day;
pub(crate) use self::files::{MAP, set_map};
pub(crate) use self::signals::deliver;

pub(crate) const SEQ_CST: std::sync::atomic::Ordering = std::sync::atomic::Ordering::SeqCst;

/// Ends the run, with the reason.
fn refuse(call: &str, what: &str) -> ! {
    let place = crate::simulation::with(|sim| sim.place());
    crate::diagnostics::fatal(format_args!(
        "the program calls {call} at {place}: {what} not simulated, and would come in real time"
    ))
}
