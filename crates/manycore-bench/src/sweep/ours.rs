//! The library's ways to share the list, the adaptive one among them.

use crossbeam_utils::CachePadded;
use manycore::{
    cluster::{Adaptive, adaptive::Mode},
    lock::BrLock,
    oplog::{Cancelling, Deferred},
};

use super::{SweepImpl, walk};
use crate::list::{ElementList, ListOp};

type Object = Adaptive<ElementList, Cancelling<ListOp>>;

macro_rules! adaptive {
    ($($(#[$doc:meta])* $name:ident: $pin:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name(CachePadded<Object>);

        impl SweepImpl for $name {
            fn new(list: ElementList) -> Self {
                let object = Object::new(list);
                let pin: Option<Mode> = $pin;
                if let Some(mode) = pin {
                    assert!(object.pin(mode), "no other thread has the object");
                }
                Self(CachePadded::new(object))
            }

            #[inline(always)]
            fn update(&self, op: ListOp) {
                self.0.update(op);
            }

            #[inline(always)]
            fn read(&self) -> u64 {
                walk(&self.0.read())
            }
        }
    )*};
}

adaptive! {
    /// As it is.
    Free: None;
    /// A lock.
    Direct: Some(Mode::Direct);
    /// A log for each thread.
    Logs: Some(Mode::Logs);
    /// Readers side by side.
    Shared: Some(Mode::Shared);
}

/// The deferred object with its defaults.
pub(super) struct Auto(CachePadded<Deferred<ElementList, Cancelling<ListOp>>>);

impl SweepImpl for Auto {
    fn new(list: ElementList) -> Self {
        Self(CachePadded::new(Deferred::new(list)))
    }

    #[inline(always)]
    fn update(&self, op: ListOp) {
        self.0.append(op);
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        walk(&self.0.read())
    }
}

/// The big-reader lock.
pub(super) struct Br(CachePadded<BrLock<ElementList>>);

impl SweepImpl for Br {
    fn new(list: ElementList) -> Self {
        Self(CachePadded::new(BrLock::new(list)))
    }

    #[inline(always)]
    fn update(&self, op: ListOp) {
        self.0.write().apply(op);
    }

    #[inline(always)]
    fn read(&self) -> u64 {
        walk(&self.0.read())
    }
}
