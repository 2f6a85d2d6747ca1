//! The functions of libc that tell a program about the machine, or that wait: in virtual time, on
//! virtual cores.
//!
//! Owns: the symbols that stand before libc's. Without a simulation each one passes the call on.
//!
//! What is not here goes to the real system: files, processes, signals, and of pipes and sockets
//! all but reading and writing. A virtual thread that blocks there stops them all.

mod clock;
mod conditions;
mod cores;
mod files;
mod futex;
mod getrandom;
mod locks;
mod memory;
mod pipes;

pub(crate) use self::cores::{is_caller, mask_call, set_mask_call};
pub(crate) use self::futex::virtual_call;

pub(crate) const SEQ_CST: std::sync::atomic::Ordering = std::sync::atomic::Ordering::SeqCst;
