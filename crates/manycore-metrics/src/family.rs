//! Families: the metrics of one name.

use crate::names::Labels;
use crate::{Counter, Gauge, Histogram};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Metrics by their labels. A report clones them, so it is written without a lock.
pub(crate) type Series<M> = BTreeMap<Arc<Labels>, Arc<M>>;

/// A family's series.
#[derive(Clone)]
pub(crate) enum Members {
    Counters(Series<Counter>),
    Gauges(Series<Gauge>),
    Histograms(Series<Histogram>),
}

/// A family, as a report needs it.
#[derive(Clone)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) members: Members,
}
