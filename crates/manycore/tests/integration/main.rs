//! The library, through its public interface.
//!
//! Each file of tests is a module of this one program, so that what they share is compiled once:
//!
//!     cargo test -p manycore --test integration FILE::
//!
//! Programs of their own, in the folder above, are the tests that measure or limit their process,
//! and those that run for long and are built optimised.

#[path = "../common/mod.rs"]
mod common;

mod adaptive;
mod allocations;
mod budget;
mod callbacks;
mod circles;
mod cluster;
mod collection_histories;
mod configurations;
mod counter;
mod deferred;
mod dhash;
mod dhash_spread;
mod event_queue;
mod event_queue_tasks;
mod gates;
mod hash_map;
mod intervals;
mod ldu;
mod ldu_combined;
mod ldu_faults;
mod ldu_reentry;
mod ldu_set_domain;
mod ldu_set_domain_random;
mod ldu_shared;
mod ldu_stress;
mod liars;
mod locks;
mod log_panics;
mod lru;
mod namespace;
mod node_lock;
mod object_pool;
mod oplog_faults;
mod oplog_inside;
mod oplog_own_end;
mod oplog_reentrancy;
mod oplog_tree;
mod order;
mod own_type;
mod page_cache;
mod private_pages;
mod private_pages_shared;
mod profile;
mod properties;
mod registry;
mod replicated_map;
mod scalable_arc;
mod section;
mod section_list;
mod slab;
mod swap;
mod timer_queue;
