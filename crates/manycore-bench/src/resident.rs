//! How much memory the process has.

/// Resident bytes, with what was freed before given back to the system; zero where the system does
/// not say.
pub(crate) fn resident() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn malloc_trim(pad: usize) -> i32;
        }
        // SAFETY: the allocator's own function; it takes no memory that is in use.
        unsafe { malloc_trim(0) };
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64) * 4096
}
