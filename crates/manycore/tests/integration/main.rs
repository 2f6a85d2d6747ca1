//! The library, through its public interface.
//!
//! Each file of tests is a module of this one program, so that the shared code is compiled once:
//!
//!     cargo test -p manycore --test integration FILE::
//!
//! Some tests are programs of their own, in the folder above. They measure or limit their process,
//! or they run for long and are built optimised.

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "cluster")]
mod adaptive;
#[cfg(feature = "ldu")]
mod allocations;
#[cfg(feature = "collections")]
mod budget;
#[cfg(feature = "collections")]
mod budget_reclaim;
#[cfg(feature = "collections")]
mod callbacks;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "collections")]
mod collection_faults;
#[cfg(feature = "collections")]
mod collection_histories;
#[cfg(feature = "oplog")]
mod configurations;
#[cfg(feature = "collections")]
mod counter;
#[cfg(feature = "collections")]
mod deadlocks;
#[cfg(feature = "oplog")]
mod deferred;
#[cfg(feature = "derive")]
mod derive;
#[cfg(feature = "collections")]
mod dhash;
#[cfg(feature = "collections")]
mod dhash_distribution;
#[cfg(all(feature = "ldu", feature = "section"))]
mod domains;
#[cfg(feature = "collections")]
mod event_queue;
#[cfg(feature = "collections")]
mod event_queue_channel;
#[cfg(feature = "collections")]
mod event_queue_single;
#[cfg(feature = "collections")]
mod event_queue_tasks;
#[cfg(feature = "oplog")]
mod evictions;
#[cfg(feature = "collections")]
mod flat_hash_map;
#[cfg(feature = "section")]
mod gates;
#[cfg(feature = "collections")]
mod hash_map;
#[cfg(feature = "collections")]
mod hash_map_direct;
#[cfg(feature = "collections")]
mod intervals;
#[cfg(feature = "ldu")]
mod ldu;
#[cfg(feature = "collections")]
mod ldu_faults;
#[cfg(feature = "collections")]
mod ldu_reentry;
#[cfg(feature = "collections")]
mod ldu_shared;
#[cfg(feature = "ldu")]
mod ldu_stress;
#[cfg(feature = "collections")]
mod liars;
#[cfg(feature = "lock_api")]
mod lock_api;
mod locks;
#[cfg(feature = "oplog")]
mod log_panics;
#[cfg(feature = "collections")]
mod lru;
#[cfg(feature = "collections")]
mod map_faults;
#[cfg(feature = "namespace")]
mod namespace;
#[cfg(feature = "section")]
mod node_lock;
#[cfg(feature = "collections")]
mod object_pool;
#[cfg(feature = "collections")]
mod object_pool_wait;
#[cfg(feature = "cluster")]
mod oplog_faults;
#[cfg(feature = "oplog")]
mod oplog_inside;
#[cfg(feature = "cluster")]
mod oplog_own_end;
#[cfg(feature = "cluster")]
mod oplog_reentrancy;
#[cfg(feature = "oplog")]
mod oplog_room;
#[cfg(feature = "oplog")]
mod oplog_tree;
#[cfg(feature = "oplog")]
mod order;
#[cfg(feature = "collections")]
mod ordered_map;
#[cfg(feature = "collections")]
mod own_type;
#[cfg(feature = "collections")]
mod owned_handles;
#[cfg(feature = "collections")]
mod page_cache;
#[cfg(feature = "collections")]
mod private_pages;
#[cfg(feature = "collections")]
mod private_pages_shared;
#[cfg(feature = "collections")]
mod profile;
#[cfg(feature = "oplog")]
mod properties;
#[cfg(feature = "collections")]
mod range_map;
#[cfg(feature = "rayon")]
mod rayon;
#[cfg(feature = "collections")]
mod registry;
#[cfg(feature = "collections")]
mod replicated_map;
#[cfg(feature = "collections")]
mod reserved;
#[cfg(feature = "collections")]
mod scalable_arc;
#[cfg(feature = "section")]
mod section;
#[cfg(feature = "section")]
mod section_inline;
#[cfg(feature = "collections")]
mod section_list;
#[cfg(feature = "section")]
mod section_reuse;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "collections")]
mod sizes;
#[cfg(feature = "slab")]
mod slab;
#[cfg(feature = "collections")]
mod statics;
#[cfg(feature = "cluster")]
mod swap;
#[cfg(feature = "section")]
mod textbook;
#[cfg(feature = "collections")]
mod timer_queue;
