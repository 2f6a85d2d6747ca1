//! Tests of the file system by its public interface.

mod base;
mod basics;
mod commits;
#[cfg(not(miri))] // the host's files
mod kept;
mod many;
mod model;
mod names;
mod oracle;
mod threads;

/// Returns how many rounds a long test makes: a tenth with `MANYCORE_TESTS=short`.
fn rounds(full: u64) -> u64 {
    let is_short = std::env::var("MANYCORE_TESTS").is_ok_and(|value| value == "short");
    if is_short { full / 10 } else { full }
}
