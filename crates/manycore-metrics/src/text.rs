//! Prometheus' text format, version 0.0.4.
//!
//! Source: prometheus.io, "Exposition formats".

use crate::HistogramReading;
use crate::family::{Family, Members};
use crate::names::Labels;
use std::fmt::{self, Display, Write};

/// Writes all families.
pub(crate) fn write(families: &[Family], out: &mut impl Write) -> fmt::Result {
    families.iter().try_for_each(|family| write_family(family, out))
}

fn write_family(family: &Family, out: &mut impl Write) -> fmt::Result {
    let Family { name, help, members } = family;
    if !help.is_empty() {
        writeln!(out, "# HELP {name} {}", Escaped { text: help, quote: false })?;
    }
    match members {
        Members::Counters(counters) => {
            writeln!(out, "# TYPE {name} counter")?;
            let mut each = counters.iter();
            each.try_for_each(|(labels, counter)| line(out, (name, "", labels), counter.get()))
        }
        Members::Gauges(gauges) => {
            writeln!(out, "# TYPE {name} gauge")?;
            let mut each = gauges.iter();
            each.try_for_each(|(labels, gauge)| line(out, (name, "", labels), Number(gauge.get())))
        }
        Members::Histograms(histograms) => {
            // All of one name have the same options.
            let is_summary = histograms.values().any(|each| each.options().has_quantiles());
            let kind = if is_summary { "summary" } else { "histogram" };
            writeln!(out, "# TYPE {name} {kind}")?;
            let mut each = histograms.iter();
            each.try_for_each(|(labels, each)| write_histogram(out, name, labels, &each.read()))
        }
    }
}

fn write_histogram(
    out: &mut impl Write,
    name: &str,
    labels: &Labels,
    seen: &HistogramReading,
) -> fmt::Result {
    let with = |label: &str, value: f64| {
        let mut labels = labels.clone();
        labels.push((label.to_owned(), Number(value).to_string()));
        labels
    };
    for (q, value) in seen.quantiles() {
        line(out, (name, "", &with("quantile", *q)), Number(*value))?;
    }
    if seen.quantiles().is_empty() {
        for (bound, count) in seen.buckets() {
            line(out, (name, "_bucket", &with("le", *bound)), count)?;
        }
        line(out, (name, "_bucket", &with("le", f64::INFINITY)), seen.count())?;
    }
    line(out, (name, "_sum", labels), Number(seen.sum()))?;
    line(out, (name, "_count", labels), seen.count())
}

/// One sample: of a metric, the suffix of its name, and its labels.
fn line(
    out: &mut impl Write,
    (name, suffix, labels): (&str, &str, &Labels),
    value: impl Display,
) -> fmt::Result {
    write!(out, "{name}{suffix}")?;
    for (index, (label, text)) in labels.iter().enumerate() {
        let before = if index == 0 { '{' } else { ',' };
        write!(out, "{before}{label}=\"{}\"", Escaped { text, quote: true })?;
    }
    let end = if labels.is_empty() { "" } else { "}" };
    writeln!(out, "{end} {value}")
}

/// Backslashes and line feeds, and in labels' values quotes, are escaped.
struct Escaped<'a> {
    text: &'a str,
    quote: bool,
}

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            '"' if self.quote => f.write_str("\\\""),
            _ => f.write_char(c),
        })
    }
}

/// A number, with Prometheus' words for infinity.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            number => number.fmt(f),
        }
    }
}
