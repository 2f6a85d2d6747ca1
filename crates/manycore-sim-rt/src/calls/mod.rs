//! The functions of libc that tell a program about the machine, or that wait: in virtual time, on
//! virtual cores.
//!
//! Owns: the symbols that stand before libc's. Without a simulation each one passes the call on.
//!
//! What is not here goes to the real system, such as files in the file system. A virtual thread
//! that blocks there stops them all, and is named by [`crate::watchdog`].

mod alarms;
mod by_number;
mod clock;
mod conditions;
mod cores;
mod descriptors;
mod files;
mod futex;
mod getrandom;
mod libc_functions;
mod locks;
mod memory;
mod signals;

pub(crate) use self::by_number::virtual_call;
pub(crate) use self::signals::deliver;

pub(crate) const SEQ_CST: std::sync::atomic::Ordering = std::sync::atomic::Ordering::SeqCst;

/// Ends the run, with the reason.
fn refuse(call: &str, what: &str) -> ! {
    let place = crate::simulation::with(|sim| sim.place());
    crate::diagnostics::fatal(format_args!(
        "the program calls {call} at {place}: {what} not simulated, and would come in real time"
    ))
}
