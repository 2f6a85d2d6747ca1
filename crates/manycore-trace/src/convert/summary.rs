//! Figures: events by name, and how long spans take.

use super::Filter;
use crate::{Account, Kind, Trace};
use manycore::collections::Histogram;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Counts of events, and histograms of spans' times.
///
/// ```
/// use manycore_trace::{Class, Recorder, Trace, convert::{Filter, Summary}, span};
///
/// const QUERIES: Class = Class::new(3, "queries");
/// let recording = Recorder::new().start()?;
/// (0..10).for_each(|_| drop(span!(QUERIES, Query)));
/// let mut trace = Trace::from_bytes(recording.finish()?)?;
/// let summary = Summary::of(&mut trace, &Filter::default());
/// assert_eq!(summary.spans[&("queries".to_owned(), "Query".to_owned())].count, 10);
/// println!("{summary}");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Number of events by class and name. A span counts once, at its beginning.
    pub events: BTreeMap<(String, String), u64>,
    /// The sampled classes: one in so many events was recorded, on average.
    pub sampled: BTreeMap<String, u32>,
    /// Times of the spans that have both ends, by class and name.
    pub spans: BTreeMap<(String, String), SpanTimes>,
    /// Time from the first record to the last.
    pub time: Duration,
    /// The account of the whole recording, before the filter.
    pub account: Account,
}

/// The durations of the spans of one name. Quantiles are exact to 2 %.
///
/// See [`Summary`] for an example.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SpanTimes {
    /// The number of spans.
    pub count: u64,
    /// The time of all spans together.
    pub total: Duration,
    /// The median.
    pub p50: Duration,
    /// 99 of 100 spans were shorter.
    pub p99: Duration,
    /// The longest span.
    pub max: Duration,
}

impl Summary {
    /// Summarizes the records that the filter selects.
    pub fn of(trace: &mut Trace, filter: &Filter) -> Self {
        let mut summary = Self::default();
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let mut open: BTreeMap<u64, OpenSpans> = BTreeMap::new();
        let mut times: BTreeMap<(String, String), (Histogram, SpanTimes)> = BTreeMap::new();
        let mut ends: Option<(i64, i64)> = None;
        let mut merge = trace.merge();
        while let Some(record) = merge.next() {
            if !filter.takes(&record) {
                continue;
            }
            if record.info.every > 1 && !summary.sampled.contains_key(&record.info.class_name) {
                summary.sampled.insert(record.info.class_name.clone(), record.info.every);
            }
            let (info, now) = (record.info, record.nanos());
            ends = Some((ends.map_or(now, |(first, _)| first), now));
            let key = || (info.class_name.clone(), info.name.clone());
            match info.kind {
                Kind::Begin => {
                    let next = names.len();
                    let name = *names.entry(info.name.clone()).or_insert(next);
                    open.entry(record.thread).or_default().begin(name, now);
                }
                Kind::End => {
                    // An end without a beginning belongs to a span whose beginning is lost.
                    let name = names.get(&info.name);
                    let spans = open.get_mut(&record.thread);
                    let began = name.zip(spans).and_then(|(name, spans)| spans.end(*name));
                    let Some(began) = began else { continue };
                    let nanos = now.saturating_sub(began).unsigned_abs();
                    let (histogram, of) = times
                        .entry(key())
                        .or_insert_with(|| (Histogram::new(), SpanTimes::default()));
                    histogram.record(nanos);
                    of.count += 1;
                    of.total += Duration::from_nanos(nanos);
                    of.max = of.max.max(Duration::from_nanos(nanos));
                    continue;
                }
                _ => {}
            }
            *summary.events.entry(key()).or_default() += 1;
        }
        summary.account = merge.into_account();
        let (first, last) = ends.unwrap_or_default();
        summary.time = Duration::from_nanos(last.abs_diff(first));
        summary.spans = times.into_iter().map(|(key, found)| (key, quantiles(found))).collect();
        summary
    }
}

/// The open spans of a thread, outermost first.
#[derive(Default)]
struct OpenSpans {
    /// Each span's name, as a number, and its time.
    stack: Vec<(usize, i64)>,
    /// The number of open spans of each name.
    counts: BTreeMap<usize, usize>,
}

impl OpenSpans {
    fn begin(&mut self, name: usize, now: i64) {
        self.stack.push((name, now));
        *self.counts.entry(name).or_default() += 1;
    }

    /// Ends the innermost span of this name and all spans inside it. Returns when it began, or
    /// `None` if no such span is open.
    fn end(&mut self, name: usize) -> Option<i64> {
        // Without this check, each unmatched end would search the whole stack.
        self.counts.get(&name).filter(|count| **count > 0)?;
        while let Some((innermost, began)) = self.stack.pop() {
            if let Some(count) = self.counts.get_mut(&innermost) {
                *count -= 1;
            }
            if innermost == name {
                return Some(began);
            }
        }
        None
    }
}

fn quantiles((histogram, mut times): (Histogram, SpanTimes)) -> SpanTimes {
    let counts = histogram.snapshot();
    let at = |quantile| Duration::from_nanos(counts.quantile(quantile).unwrap_or(0));
    times.p50 = at(0.5).min(times.max);
    times.p99 = at(0.99).min(times.max);
    times
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.account)?;
        writeln!(f, "{:?} from the first record to the last", self.time)?;
        writeln!(f, "\n{:>12}  event", "count")?;
        for ((class, name), count) in &self.events {
            write!(f, "{count:>12}  {class} {name}")?;
            if let Some(every) = self.sampled.get(class) {
                let all = count.saturating_mul(u64::from(*every));
                write!(f, "   one in {every} was recorded: about {all}")?;
            }
            writeln!(f)?;
        }
        if !self.spans.is_empty() {
            writeln!(
                f,
                "\n{:>12} {:>10} {:>10} {:>10} {:>10}  span",
                "count", "total", "p50", "p99", "max"
            )?;
        }
        let time = |time: Duration| format!("{time:.1?}");
        for ((class, name), of) in &self.spans {
            writeln!(
                f,
                "{:>12} {:>10} {:>10} {:>10} {:>10}  {class} {name}",
                of.count,
                time(of.total),
                time(of.p50),
                time(of.p99),
                time(of.max)
            )?;
        }
        Ok(())
    }
}
