//! The limits of this system: cores, threads, pinning.
//!
//! Owns: the check of a thread count before anything is built, and the choice of a core for a
//! thread. The check only gives a better message than the system's own refusal. The runner handles
//! the refusal, too.

pub use manycore_cli::machine::cores;

use std::fmt;

use manycore::percpu::pin;

/// A thread count beyond what the system allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooManyThreads {
    /// How many were asked for.
    pub wanted: usize,
    /// How many the system allows.
    pub limit: usize,
    /// Which of the system's limits that is.
    pub source: &'static str,
}

impl fmt::Display for TooManyThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, limit, source } = self;
        write!(f, "cannot start {wanted} threads: this system allows {limit} ({source})")
    }
}

impl std::error::Error for TooManyThreads {}

/// Accepts a count of threads that the system's limits allow.
///
/// # Errors
/// If a limit is below the count.
pub fn check(wanted: usize) -> Result<(), TooManyThreads> {
    match limits().into_iter().min() {
        Some((limit, source)) if wanted > limit => Err(TooManyThreads { wanted, limit, source }),
        _ => Ok(()),
    }
}

/// The limits that this system states, each with its name.
fn limits() -> Vec<(usize, &'static str)> {
    let mut limits = Vec::new();
    for (path, source, per_thread) in [
        ("/proc/sys/kernel/threads-max", "kernel.threads-max", 1),
        ("/proc/sys/kernel/pid_max", "kernel.pid_max", 1),
        // The stack, the stack for signals, and a guard page for each.
        ("/proc/sys/vm/max_map_count", "vm.max_map_count, four mappings a thread", 4),
        ("/sys/fs/cgroup/pids.max", "pids.max of the control group", 1),
        ("/sys/fs/cgroup/pids/pids.max", "pids.max of the control group", 1),
    ] {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Ok(limit) = text.trim().parse::<usize>() {
            limits.push((limit / per_thread, source));
        }
    }
    limits
}

/// Keeps the calling thread on the nth core that this process may use (counted round). Where that
/// is not possible, nothing happens: pinning steadies figures, it does not make them.
pub fn pin_to_nth_core(n: usize) {
    if let Ok(cores) = pin::allowed()
        && let Some(core) = cores.get(n % cores.len().max(1))
    {
        let _as_before_if_refused = pin::pin_to(*core);
    }
}

#[cfg(test)]
mod tests {
    use super::{check, cores};

    #[test]
    fn a_thread_per_core_is_allowed() {
        assert_eq!(check(cores()), Ok(()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn ten_million_threads_are_refused_with_the_limit() {
        let error = check(10_000_000).unwrap_err();
        assert!(error.limit < 10_000_000 && error.to_string().contains("10000000"), "{error}");
    }
}
