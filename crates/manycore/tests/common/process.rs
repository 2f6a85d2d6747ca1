//! Support for tests that need their own process, and for forked children.

use std::process::Command;

const OWN: &str = "MANYCORE_OWN_PROCESS";

/// Runs the body of the test `name` here if this process was started for it alone. Otherwise starts
/// such a process, demands that it passes, and returns what it printed. No other test of the
/// program may have `name` as a part of its own name.
pub fn in_own_process(name: &str, body: impl FnOnce()) -> Option<String> {
    if std::env::var(OWN).as_deref() == Ok(name) {
        body();
        return None;
    }
    let run = Command::new(std::env::current_exe().unwrap())
        .args([name, "--nocapture", "--test-threads=1"])
        .env(OWN, name)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(said.contains("running 1 test"), "{name} is not one test:\n{said}");
    let wrong = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name} failed:\n{said}{wrong}");
    Some(said)
}

/// Runs `child` in a forked process and returns its exit status: 0 if it returned true, or else 1.
/// [`status_of_child`] says where to call it.
#[cfg(unix)]
pub fn in_child(child: impl FnOnce() -> bool) -> i32 {
    let status = status_of_child(|| if child() { 0 } else { 1 });
    i32::from(status != 0)
}

/// Runs `child` in a forked process and returns its exit status: what it returned, up to 100, and
/// 101 if it panicked.
///
/// Call it within [`in_own_process`]. The child has a copy of every lock as it was at the fork,
/// including those of the standard library and of the loader. If another thread of the parent held
/// one then, it is never released in the child. Such a thread may be the harness that starts a
/// thread, or a test that panics.
#[cfg(unix)]
pub fn status_of_child(child: impl FnOnce() -> i32) -> i32 {
    use std::time::{Duration, Instant};

    assert!(std::env::var(OWN).is_ok(), "a test that forks needs a process of its own");
    // SAFETY: the child uses memory of its own alone and ends by `_exit`; the harness's thread
    // waits for it, and the C library keeps its allocator usable after a fork.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "fork failed: {}", std::io::Error::last_os_error());
    if process == 0 {
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends this process at once, without running what the parent is to run.
        unsafe { libc::_exit(status.unwrap_or(101)) };
    }
    let end = Instant::now() + Duration::from_secs(120);
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live integer, and the process is this one's child.
        match unsafe { libc::waitpid(process, &mut status, libc::WNOHANG) } {
            0 if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            0 => {
                // SAFETY: the process is this one's child and has not been waited for.
                unsafe { libc::kill(process, libc::SIGKILL) };
                panic!("the child hangs");
            }
            waited => break assert_eq!(waited, process),
        }
    }
    assert!(libc::WIFEXITED(status), "the child was killed: status {status:#x}");
    libc::WEXITSTATUS(status)
}

/// Runs the caller's tests, and each of them again in a forked child, where the library is already
/// in use. `name` is the calling test.
#[cfg(unix)]
pub fn again_in_children(name: &str, tests: &[fn()]) {
    in_own_process(name, || {
        for (number, test) in tests.iter().enumerate() {
            test();
            let again = || {
                test();
                true
            };
            assert_eq!(in_child(again), 0, "test {number} of the list, in a child");
        }
    });
}
