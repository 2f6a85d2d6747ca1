//! The list as a deferred object: the same sequential list, with updates in logs.
//!
//! This file holds all the glue that a program would write. [`Op`] defines how an update is
//! applied, and [`Cancel`] which updates undo each other.

use manycore::oplog::{
    Cancel, Cancelling, Deferred, Log, Logs, MergeStrategy, Op, Ordered, Publish,
};

use super::{
    Element, ElementList, ListHandle, ListImpl, ListOp, absorbing::Absorbing, locks::sequential,
};

impl Op<ElementList> for ListOp {
    #[inline]
    fn apply(self, list: &mut ElementList) {
        ElementList::apply(list, self);
    }
}

impl Cancel for ListOp {
    type Key = Element;

    #[inline]
    fn key(&self) -> Element {
        let (ListOp::Add(element) | ListOp::Remove(element)) = self;
        *element
    }

    #[inline]
    fn inserts(&self) -> bool {
        matches!(self, ListOp::Add(_))
    }
}

/// How the object is set up.
pub(super) trait Setup: Sync + Send + 'static {
    /// The kind of log.
    type Log: Log<ElementList, Op = ListOp>;
    /// When it has logs.
    const LOGS: Logs;
    /// How an update is published.
    const PUBLISH: Publish;
    /// How a read gets at the logs.
    const MERGE: MergeStrategy;
}

macro_rules! setup {
    ($(#[$doc:meta])* $name:ident, $log:ty, $logs:ident, $publish:ident) => {
        setup!($(#[$doc])* $name, $log, $logs, $publish, Auto);
    };
    ($(#[$doc:meta])* $name:ident, $log:ty, $logs:ident, $publish:ident, $merge:ident) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Setup for $name {
            type Log = $log;
            const LOGS: Logs = Logs::$logs;
            const PUBLISH: Publish = Publish::$publish;
            const MERGE: MergeStrategy = MergeStrategy::$merge;
        }
    };
}

setup!(
    /// The paper's basic form: every update stamped, applied in the order of stamps.
    Basic, Ordered<ListOp>, Always, Auto
);
setup!(
    /// Absorption at the merge: a removal meets its addition there.
    Global, Absorbing, Always, Auto
);
setup!(
    /// Absorption at append: a removal takes its addition out of the log.
    Local, Cancelling<ListOp>, Always, Auto
);
setup!(
    /// The same with one locked instruction for each update.
    LocalLocked, Cancelling<ListOp>, Always, Locked
);
setup!(
    /// The same with plain stores, and a membarrier for each read.
    LocalBiased, Cancelling<ListOp>, Always, Biased
);
setup!(
    /// The same as `Local`, where a read fetches each log by itself.
    LocalFlat, Cancelling<ListOp>, Always, Auto, Flat
);
setup!(
    /// The same with the combining tree: threads that wait for a read collect for it.
    LocalTree, Cancelling<ListOp>, Always, Auto, Tree
);
setup!(
    /// The defaults: a plain locked list until logs pay.
    Auto, Cancelling<ListOp>, Auto, Auto
);

/// A list behind deferred updates.
pub(super) struct DeferredList<S: Setup>(Deferred<ElementList, S::Log>);

impl<S: Setup> ListImpl for DeferredList<S> {
    type Handle<'a> = &'a DeferredList<S>;

    fn new(threads: usize) -> Self {
        let builder = Deferred::builder().logs(S::LOGS).publish(S::PUBLISH).merge(S::MERGE);
        Self(builder.build(sequential(threads)).expect("the bounds are the defaults"))
    }

    fn handle(&self, _: usize) -> &DeferredList<S> {
        self
    }
}

impl<S: Setup> ListHandle for &DeferredList<S> {
    #[inline]
    fn add(&mut self, element: Element) {
        self.0.append(ListOp::Add(element));
    }

    #[inline]
    fn remove(&mut self, element: Element) {
        self.0.append(ListOp::Remove(element));
    }

    fn for_each(&mut self, f: impl FnMut(Element) + Send) {
        self.0.read().for_each(f);
    }
}
