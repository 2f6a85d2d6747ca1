//! Programs for `ci/sim.sh`, which runs them on virtual cores, and tests for `manycore sim test`.
//!
//! They have a crate of their own so that little has to be instrumented.
