//! The metrics of one name.

use crate::names::Labels;
use crate::{Counter, Gauge, Histogram};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A family's series, by their labels.
#[derive(Clone)]
pub(crate) enum Members {
    Counters(BTreeMap<Labels, Arc<Counter>>),
    Gauges(BTreeMap<Labels, Arc<Gauge>>),
    Histograms(BTreeMap<Labels, Arc<Histogram>>),
}

/// What a report needs of a family.
#[derive(Clone)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) help: String,
    pub(crate) members: Members,
}
