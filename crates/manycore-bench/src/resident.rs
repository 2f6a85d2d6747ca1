//! The amount of memory that the process uses.

/// Resident bytes of no file, with what was freed before given back to the system; zero where the
/// system does not say.
///
/// Of no file, because code is resident from its first use on and is no object's memory. Counted
/// page by page: the kernel's running count (`statm`) is off by up to 64 pages a core.
pub(crate) fn resident() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: the allocator's own function; it takes no memory that is in use.
        unsafe { malloc_trim(0) };
    }
    let counts = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let kilobytes =
        counts.lines().find_map(|line| line.strip_prefix("Anonymous:")?.split_whitespace().next());
    kilobytes.and_then(|count| count.parse().ok()).unwrap_or(0_u64) * 1024
}
