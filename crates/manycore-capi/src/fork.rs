//! The child of `fork`, which has only the forking thread (capi.A8).
//!
//! A fork holds the locks of this crate (`list`, `late`, `call`). A thread holds each of them only
//! for some instructions. The child then ends the other threads in its copy of each domain, and
//! counts what waits there without them.

use crate::{list, retire, running};
use manycore::percpu::AtFork;
use std::any::Any;

static AT_FORK: AtFork = AtFork::new(hold, in_child);

/// Installs the fork handler. Called when a domain is made.
pub(crate) fn prepare() {
    AT_FORK.list();
}

fn hold() -> Box<dyn Any> {
    Box::new(list::hold())
}

fn in_child() {
    running::forked();
    list::in_child(retire::in_child);
}
