//! Diagnostics: written to the real standard error, bypassing the program's own.

use std::fmt::{Arguments, Write};

/// The exit code of a run that the simulator itself gave up.
pub(crate) const EXIT_GIVEN_UP: usize = 86;

struct Stderr;

impl Write for Stderr {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        const SYS_WRITE: usize = 1;
        // SAFETY: the kernel reads `len` bytes of a string that outlives the call.
        unsafe {
            crate::host::call(SYS_WRITE, [2, text.as_ptr() as usize, text.len(), 0, 0, 0]);
        }
        Ok(())
    }
}

/// Writes a line to standard error.
pub(crate) fn line(text: Arguments<'_>) {
    // There is no other channel if standard error is closed.
    let _ = writeln!(Stderr, "manycore sim: {text}");
}

/// Ends the process at once, with a message.
pub(crate) fn fatal(text: Arguments<'_>) -> ! {
    line(text);
    exit(EXIT_GIVEN_UP)
}

/// Ends the process without running any of the program's own code.
pub(crate) fn exit(code: usize) -> ! {
    loop {
        // SAFETY: the call ends the process.
        unsafe { crate::host::call(crate::host::SYS_EXIT_GROUP, [code, 0, 0, 0, 0, 0]) };
    }
}
