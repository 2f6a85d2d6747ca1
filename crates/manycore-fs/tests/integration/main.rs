//! Tests of the file system by its public interface.

mod base;
mod basics;
mod commits;
mod many;
mod model;
mod names;
mod oracle;
mod threads;
