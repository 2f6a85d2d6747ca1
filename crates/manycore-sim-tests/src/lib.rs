//! Programs for `ci/sim.sh`, which runs them on virtual cores, and tests for `manycore sim test`.
//!
//! They have a crate of their own so that little has to be instrumented.

/// Compiles and runs the snippets of the guide. They are here because this package is not
/// published: those that are do not reach above their folder.
#[cfg(doctest)]
mod guide {
    #[doc = include_str!("../../../docs/guide/async.md")]
    struct Async;
    #[doc = include_str!("../../../docs/guide/deferred-updates.md")]
    struct DeferredUpdates;
    #[doc = include_str!("../../../docs/guide/first-hour.md")]
    struct FirstHour;
    #[doc = include_str!("../../../docs/guide/reclamation.md")]
    struct Reclamation;
    #[doc = include_str!("../../../docs/guide/simulator.md")]
    struct Simulator;
}
