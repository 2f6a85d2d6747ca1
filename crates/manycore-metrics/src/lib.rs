//! Metrics that scale: counters, gauges and histograms of [`manycore`], by name and labels, for
//! [`metrics`](https://docs.rs/metrics), [`prometheus-client`](https://docs.rs/prometheus-client)
//! and [OpenTelemetry](https://docs.rs/opentelemetry).
//!
//! ```
//! use manycore_metrics::MetricRegistry;
//!
//! let registry = MetricRegistry::new();
//! let requests = registry.counter("requests_total", &[("path", "/")]); // kept by the handler
//! let latency = registry.histogram("latency_seconds", &[]);
//!
//! requests.inc();
//! latency.record(0.02);
//!
//! let text = registry.render(); // for Prometheus
//! assert!(text.contains("requests_total{path=\"/\"} 1"));
//! assert!(text.contains("latency_seconds_bucket{le=\"0.025\"} 1"));
//! ```
//!
//! *For* metrics that many threads update all the time, and that a scraper reads every few seconds.
//! As soon as a metric is contended, each thread counts on cache lines of its own. *Not for* counts
//! that are read as often as they are changed. *Not for* exact values of single events (use a log
//! or a trace).
//!
//! # Which way
//!
//! | You have | Take |
//! |---|---|
//! | nothing yet | a [`MetricRegistry`], whose [`render`](MetricRegistry::render) answers a scrape |
//! | code, or crates, with the macros `counter!`, `gauge!`, `histogram!` | [`Recorder`], feature `metrics` (on by default) |
//! | a registry of `prometheus-client` | module [`prometheus`], feature `prometheus-client` |
//! | a meter provider of OpenTelemetry | module [`otel`], feature `opentelemetry` |
//!
//! All of them report the same three types: [`Counter`], [`Gauge`] and [`Histogram`]. These can
//! also be `static`s.
//!
//! # Histograms
//!
//! A histogram counts all values, from the first one, with a relative error of at most 1.6 %. It
//! takes about 1 KiB for a few values and at most 18 KiB. [`HistogramOptions`] chooses what it
//! *reports*. The default is cumulative counts for bounds of your own, since these can be added up
//! over processes. The other choice is quantiles of the last minute. Values do not pile up between
//! two scrapes, and a scrape takes nothing away. So there may be several scrapers, or none.
//!
//! # Cost
//!
//! Two threads that share one metric, on a virtual machine with two cores:
//!
//! | million updates a second | one counter | one histogram |
//! |---|---|---|
//! | this crate, a kept handle | 254 | 86 |
//! | ... behind a handle of `metrics` | 184 | 88 |
//! | `prometheus-client` | 71 | 9 |
//! | `opentelemetry_sdk`, no attributes | 47 | 17 |
//! | `metrics-exporter-prometheus`, a kept handle | 39 | 9 |
//!
//! On one thread a counter is as fast as an atomic word (122, and 131 for `prometheus-client`).
//! Each look-up by a macro costs some 50 ns more, and is contended. `manycore-bench bench metrics`
//! and `latencies`, with the feature `metrics-rivals`, measure your machine.
//!
//! A report reads each metric once, and an update takes no lock that a report holds. The type of a
//! metric says how much memory it takes.
//!
//! # Panics
//!
//! The builders panic on options that make no sense. A [`MetricRegistry`] panics on a reserved
//! label, in calls without `try_`.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg_attr(docsrs, doc(cfg(feature = "opentelemetry")))]
#[cfg(feature = "opentelemetry")]
pub mod otel;
#[cfg_attr(docsrs, doc(cfg(feature = "prometheus-client")))]
#[cfg(feature = "prometheus-client")]
pub mod prometheus;

mod counter;
mod error;
mod family;
mod gauge;
mod histogram;
mod metric_vec;
mod names;
#[cfg(feature = "metrics")]
mod recorder;
mod registry;
mod text;
mod window;

pub use counter::Counter;
pub use error::RegisterError;
pub use gauge::Gauge;
pub use histogram::{Histogram, HistogramOptions, HistogramReading};
pub use metric_vec::MetricVec;
#[cfg(feature = "metrics")]
pub use recorder::Recorder;
pub use registry::{MetricRegistry, MetricRegistryBuilder};
