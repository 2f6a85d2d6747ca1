//! Real processes and mappings on this machine: the cost of the kernel's own reverse map.
//!
//! This is context only. A fork does many things besides the reverse map, and this library cannot
//! replace the kernel's map. So nothing here is a row, and nothing is compared with it.

use std::{
    ffi::{c_int, c_long},
    fs::File,
    io::Error,
    os::fd::AsRawFd,
    ptr, thread,
    time::{Duration, Instant},
};

/// How long each figure is measured.
const LONG: Duration = Duration::from_millis(100);
const PAGE: usize = 4096;

/// One line on forks and mappings with so many threads; `None` on virtual cores, where there is no
/// such kernel.
///
/// # Errors
/// If the system refuses a process or a mapping.
pub fn context(threads: &[usize]) -> Result<Option<String>, Error> {
    if manycore_sim::is_simulated() {
        return Ok(None);
    }
    let file = File::open("/proc/self/exe")?;
    let mut forks = Vec::new();
    let mut maps = Vec::new();
    for threads in threads {
        forks.push(format!("{:.1}", rate(*threads, fork_and_wait)?));
        maps.push(format!("{:.0}", rate(*threads, || map_and_unmap(&file))?));
    }
    let threads: Vec<_> = threads.iter().map(ToString::to_string).collect();
    Ok(Some(format!(
        "context, no rival: the kernel of this machine, by real processes on {} threads: fork(2), \
         exit and wait, {} a ms; mmap and munmap of a page of one file, {} a ms",
        threads.join(", "),
        forks.join(", "),
        maps.join(", "),
    )))
}

/// How often a millisecond all threads together do it.
fn rate(threads: usize, once: impl Fn() -> Result<(), Error> + Sync) -> Result<f64, Error> {
    let begin = Instant::now();
    let work = || -> Result<u64, Error> {
        let mut done = 0;
        while begin.elapsed() < LONG {
            once()?;
            done += 1;
        }
        Ok(done)
    };
    let done = thread::scope(|scope| -> Result<u64, Error> {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).sum()
    })?;
    Ok(done as f64 / begin.elapsed().as_secs_f64() / 1e3)
}

fn fork_and_wait() -> Result<(), Error> {
    // The system call itself: no handler of a library runs in the child, which might wait there for
    // a thread that it does not have.
    // SAFETY: a copy of this process, with its own stack (no flags); it ends at once, by a call
    // that runs no code of this program.
    let child = unsafe {
        let (flags, none) = (c_long::from(libc::SIGCHLD), 0 as c_long);
        let child = libc::syscall(libc::SYS_clone, flags, none, none, none, none);
        if child == 0 {
            libc::_exit(0);
        }
        child as libc::pid_t
    };
    if child < 0 {
        return Err(Error::last_os_error());
    }
    let mut status: c_int = 0;
    // SAFETY: the status is ours.
    match unsafe { libc::waitpid(child, &raw mut status, 0) } {
        -1 => Err(Error::last_os_error()),
        _ => Ok(()),
    }
}

fn map_and_unmap(file: &File) -> Result<(), Error> {
    let (access, kind) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping touches nothing that exists, and it is never read.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE, access, kind, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    // SAFETY: mapped above, and no other pointer to it exists.
    match unsafe { libc::munmap(page, PAGE) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn real_processes_and_mappings_are_counted() {
        let line = super::context(&[1, 2]).expect("processes and mappings are to be had");
        let line = line.expect("no test of this crate runs on virtual cores");
        assert!(line.contains("on 1, 2 threads") && !line.contains("NaN"), "{line}");
    }
}
