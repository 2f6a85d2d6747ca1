//! Prometheus' text format, version 0.0.4.
//!
//! Source: prometheus.io, "Exposition formats".

use crate::Histogram;
use crate::family::{Family, Members, Series};
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
            each(counters, |labels, counter| line(out, name, "", (labels, ""), counter.get()))
        }
        Members::Gauges(gauges) => {
            writeln!(out, "# TYPE {name} gauge")?;
            each(gauges, |labels, gauge| line(out, name, "", (labels, ""), Number(gauge.get())))
        }
        Members::Histograms(histograms) => write_histograms(out, name, histograms),
    }
}

/// Calls `write` with each series' labels, formatted.
fn each<M>(series: &Series<M>, mut write: impl FnMut(&str, &M) -> fmt::Result) -> fmt::Result {
    let mut written = String::new();
    series.iter().try_for_each(|(labels, metric)| {
        written.clear();
        for (label, text) in labels.iter() {
            let comma = if written.is_empty() { "" } else { "," };
            write!(written, "{comma}{label}=\"{}\"", Escaped { text, quote: true })?;
        }
        write(&written, metric)
    })
}

fn write_histograms(
    out: &mut impl Write,
    name: &str,
    histograms: &Series<Histogram>,
) -> fmt::Result {
    // All histograms of one name have the same options.
    let Some(options) = histograms.values().next().map(|histogram| histogram.options()) else {
        return Ok(());
    };
    let added = |label, values: &[f64]| -> Vec<String> {
        values.iter().map(|value| format!("{label}=\"{}\"", Number(*value))).collect()
    };
    let is_summary = options.has_quantiles();
    writeln!(out, "# TYPE {name} {}", if is_summary { "summary" } else { "histogram" })?;
    let (bounds, quantiles) =
        (added("le", options.bounds()), added("quantile", options.quantiles_asked()));
    each(histograms, |labels, histogram| {
        let seen = histogram.read();
        if is_summary {
            for (added, (_, value)) in quantiles.iter().zip(seen.quantiles()) {
                line(out, name, "", (labels, added), Number(*value))?;
            }
        } else {
            for (added, (_, count)) in bounds.iter().zip(seen.buckets()) {
                line(out, name, "_bucket", (labels, added), count)?;
            }
            line(out, name, "_bucket", (labels, "le=\"+Inf\""), seen.count())?;
        }
        line(out, name, "_sum", (labels, ""), Number(seen.sum()))?;
        line(out, name, "_count", (labels, ""), seen.count())
    })
}

/// Writes one sample: a metric's name with a suffix, the formatted labels of the series and an
/// added label, and the value.
fn line(
    out: &mut impl Write,
    name: &str,
    suffix: &str,
    (labels, added): (&str, &str),
    value: impl Display,
) -> fmt::Result {
    let comma = if labels.is_empty() || added.is_empty() { "" } else { "," };
    if labels.is_empty() && added.is_empty() {
        writeln!(out, "{name}{suffix} {value}")
    } else {
        writeln!(out, "{name}{suffix}{{{labels}{comma}{added}}} {value}")
    }
}

/// Escapes backslashes and line feeds, and quotes in labels' values.
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

/// A number in Prometheus' notation for infinity.
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
