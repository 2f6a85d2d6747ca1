//! Page-sized memory that a program hands out, shares and takes back in user space.
//!
//! Some programs do this by the thousand: a database's buffer pool, the instances of a virtual
//! machine, the blocks of a language-model server's key-value cache. Each `mmap` takes a lock of
//! the kernel, and each `munmap` invalidates the TLB of every core. This crate does the bookkeeping
//! itself, with one system call for many pages, or none.
//!
//! ```
//! use manycore_vm::PagePool;
//!
//! let pool = PagePool::new(1 << 10)?; // pages
//! let mut page = pool.alloc_zeroed(1)?;
//! page[0] = 1;
//! drop(page); // back to the pool, for any thread
//! # Ok::<(), manycore_vm::Error>(())
//! ```
//!
//! | What you need | Take |
//! |---|---|
//! | pages with one owner at a time | [PagePool] |
//! | pages that are lent on, with rights, and revoked with all that was derived from them | [MappingDb] |
//! | ... where only the books are needed: a device's memory, a model | [MappingDb] over [Null] |
//! | ... mapped at several addresses, or in other processes | [MappingDb] over [Memfd] |
//! | ... made by your code when they are first touched | [MappingDb] over [Userfault] |
//! | ... behind something else | [MappingDb] over a [Backing] of yours |
//! | pages of files, read when they are touched and written back | [FileCache] |
//! | ... of many files that share a limit | [FileCache] within a [PageManager] |
//! | ... at addresses that you choose | [AddressSpace] |
//!
//! # What is guaranteed
//!
//! - *Revocation*: when [`MappingDb::revoke`] returns, no derived mapping resolves, in any space.
//!   Neither frame nor address is reused before the backing has unmapped it. [`MappingDb::flush`]
//!   unmaps at once; otherwise a later operation does it after a tick.
//! - *Scaling*: operations on different pages write no common cache line, except when a shelf runs
//!   empty or full.
//! - *Errors*: one type, [`Error`], which names the range. A refused operation has changed nothing.
//! - *No helper threads* (except one of [`Userfault`], for the handler), and no work at start-up.
//!
//! Pages have 4,096 bytes. [`PagePool`], [`Memfd`] and [`Userfault`] need Linux; the rest is
//! portable.
//!
//! Source: Q. Wang, T. Stamler, G. Parmer, *Parallel sections: scaling system-level
//! data-structures*, EuroSys 2016, sections 3.6 to 4 and 5.3; the page managers of K42
//! (J. Appavoo and others, *Enabling scalable performance for general purpose workloads on shared
//! memory multiprocessors*, an IBM research report).

mod address_space;
mod backing;
mod error;
mod file_cache;
#[cfg(all(test, manycore_loom))]
mod loom_models;
mod mapping_db;
mod page_manager;
#[cfg(target_os = "linux")]
mod page_pool;
mod rights;
mod runs;
mod sync;
#[cfg(target_os = "linux")]
mod sys;

pub use address_space::{AddressSpace, SpaceView};
pub use backing::{Backing, Frames, Null, Operation, Run, Span};
#[cfg(target_os = "linux")]
pub use backing::{FrameFile, Memfd, Userfault, View};
pub use error::{Error, ErrorKind, PageRange};
pub use file_cache::{
    Builder as FileCacheBuilder, FileCache, FileForm, FilePage, FileSource, MemoryFile,
};
pub use mapping_db::{Mapping, MappingDb, SpaceId};
pub use page_manager::PageManager;
#[cfg(target_os = "linux")]
pub use page_pool::{Builder, PagePool, Pages};
pub use rights::Rights;

/// The size of a page, in bytes.
pub const PAGE_BYTES: usize = 4096;
