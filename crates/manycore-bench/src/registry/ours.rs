//! The library's registry.

use manycore::{
    collections::{Entry, Registry},
    ldu::Queue,
    oplog::Logs,
};

use super::{RegistryHandle, RegistryImpl};

/// With the defaults: one locked list until threads contend for it.
pub(super) struct Auto(Registry<u64>);

impl RegistryImpl for Auto {
    type Handle<'a> = &'a Registry<u64>;

    fn new(_: usize) -> Self {
        Self(Registry::new())
    }

    fn handle(&self, _: usize) -> &Registry<u64> {
        &self.0
    }
}

/// Told from the start to keep a log for each thread.
pub(super) struct Logged(Registry<u64>);

impl RegistryImpl for Logged {
    type Handle<'a> = &'a Registry<u64>;

    fn new(_: usize) -> Self {
        let registry = Registry::builder().logs(Logs::Always).build();
        Self(registry.expect("the bounds are the defaults"))
    }

    fn handle(&self, _: usize) -> &Registry<u64> {
        &self.0
    }
}

/// With marks on the entries; one queue for all threads if `GLOBAL`.
pub(super) struct Marked<const GLOBAL: bool>(Registry<u64>);

impl<const GLOBAL: bool> RegistryImpl for Marked<GLOBAL> {
    type Handle<'a> = &'a Registry<u64>;

    fn new(_: usize) -> Self {
        let queue = if GLOBAL { Queue::Global } else { Queue::PerThread };
        let registry = Registry::builder().marks(queue).build();
        Self(registry.expect("the bounds are the defaults"))
    }

    fn handle(&self, _: usize) -> &Registry<u64> {
        &self.0
    }
}

impl<'a> RegistryHandle for &'a Registry<u64> {
    type Entry = Entry<'a, u64>;

    #[inline]
    fn register(&mut self, value: u64) -> Entry<'a, u64> {
        Registry::register(self, value)
    }

    #[inline]
    fn unregister(&mut self, entry: Entry<'a, u64>) {
        drop(entry);
    }

    fn for_each(&mut self, mut f: impl FnMut(u64)) {
        Registry::for_each(self, |value| f(*value));
    }
}
