//! Programs as users of the packages write them, each in `examples`. (Their names differ from those
//! of the packages' own examples, because both are built into one folder in CI.)
//!
//! - `axum_metrics`: a web service whose requests are counted and timed, and its `/metrics`;
//! - `leader_board`: a sorted list that is read without a lock, on `manycore::section`;
//! - `leases`: leases that end by themselves, and a timekeeper under tokio that sleeps until then;
//! - `own_log`: an object with a kind of log of its own, on `manycore::oplog`;
//! - `read_through`: a cache in front of SQLite, in async code;
//! - `swapped_pricing`: a strategy that is replaced while it is in use, and a table that adapts to
//!   its load.
