//! A child of `fork` leaves its parent's recording alone, and may have its own.

use crate::{AtEnd, TEST, Temporary, alone, numbers};
use manycore_trace::{Recorder, Trace, event};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn record(n: u32) {
    event!(TEST, Step { n: u32 });
}

/// In the child: events without a recording, then with one.
fn child(path: &Path) -> io::Result<()> {
    record(100);
    let recording = Recorder::new().file(path).start()?;
    record(101);
    std::thread::spawn(|| record(102)).join().expect("no panic");
    recording.stop()
}

#[test]
fn child_of_a_fork_writes_only_its_own_recording() -> io::Result<()> {
    let _alone = alone();
    let (ours, others) = (Temporary::new("parent.mctrace"), Temporary::new("child.mctrace"));
    let recording = Recorder::new().file(ours.as_ref()).start()?;
    record(0);
    // Threads that record and take slots beside the fork.
    let stop = AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                std::thread::spawn(|| event!(TEST, Other)).join().expect("no panic");
            }
        });
        let _end = AtEnd(&stop);
        std::thread::sleep(std::time::Duration::from_millis(20));
        // SAFETY: the child does what this crate and the standard library allow after a fork, and
        // leaves at once.
        unsafe {
            let process = libc::fork();
            if process == 0 {
                let result = std::panic::catch_unwind(|| child(others.as_ref()));
                libc::_exit(i32::from(!matches!(result, Ok(Ok(())))));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
            status
        }
    });
    assert_eq!(status, 0, "the child failed");
    record(1);
    recording.stop()?;
    let mut trace = Trace::open(&ours)?;
    assert_eq!(numbers(&mut trace, "n"), [0, 1]);
    assert!(trace.account().is_closed());
    let mut trace = Trace::open(&others)?;
    assert_eq!(numbers(&mut trace, "n"), [101, 102]);
    assert!(trace.account().is_closed());
    Ok(())
}
