//! Bugs that a test plants, to show that it would find them.
//!
//! Owns: [`seeded_bug!`]. Each bug stands beside the law that it breaks, with a comment `// BUG:
//! ...` that says what it does. A test that passes with its bug in place tests nothing. So loom
//! models, shuttle histories and histories of real threads run once without a bug, and once with
//! each bug that they claim to catch. Each run is in a separate process, because a planted bug may
//! do anything, even crash. `tests/tree` checks that each bug has a test that must catch it.

/// Returns true if the bug with this name is planted: the environment variable
/// `MANYCORE_SEEDED_BUG` holds the name. A constant `false` in ordinary builds.
macro_rules! seeded_bug {
    ($name:literal) => {
        $crate::sync::is_planted($name)
    };
}
pub(crate) use seeded_bug;

/// See [`seeded_bug!`].
#[cfg(any(manycore_loom, manycore_shuttle, manycore_seeded_bugs))]
pub(crate) fn is_planted(bug: &str) -> bool {
    static PLANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    PLANTED.get_or_init(|| std::env::var("MANYCORE_SEEDED_BUG").ok()).as_deref() == Some(bug)
}
/// See [`seeded_bug!`].
#[cfg(not(any(manycore_loom, manycore_shuttle, manycore_seeded_bugs)))]
#[inline(always)]
pub(crate) const fn is_planted(_bug: &str) -> bool {
    false
}
