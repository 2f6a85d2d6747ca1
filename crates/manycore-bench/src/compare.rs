//! Compares the library with each other implementation, from the CSV that a benchmark wrote.
//!
//! Owns: the output of `manycore-bench compare`. `ci/rivals.sh` runs benchmarks on virtual cores
//! and passes it their files.

use std::{collections::HashMap, fmt::Write};

/// Which of two figures is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The larger, as of a rate.
    More,
    /// The smaller, as of a time.
    Less,
}

/// The first fields of a row, if it has so many.
fn fields(line: &str) -> Option<[&str; 8]> {
    let mut fields = line.split(',');
    let mut first = [""; 8];
    for field in &mut first {
        *field = fields.next()?;
    }
    Some(first)
}

/// The medians of an implementation's rows, by their number of threads.
pub fn by_threads(csv: &str, metric: &str, implementation: &str) -> Vec<(f64, f64)> {
    let point = |line: &str| {
        let [_, name, _, threads, _, of, _, median] = fields(line)?;
        let wanted = name == implementation && of == metric;
        wanted.then_some((threads.parse().ok()?, median.parse().ok()?))
    };
    csv.lines().filter_map(point).collect()
}

/// What a comparison needs of a row.
struct Figure<'a> {
    implementation: &'a str,
    kind: &'a str,
    /// The settings in which groups differ, a space behind each.
    setting: String,
    value: f64,
}

/// The rows of a metric.
fn figures<'a>(csv: &'a str, metric: &str) -> Vec<Figure<'a>> {
    csv.lines().filter_map(|line| figure(line, metric)).collect()
}

fn figure<'a>(line: &'a str, metric: &str) -> Option<Figure<'a>> {
    let [_, implementation, _, _, params, of, _, median] = fields(line)?;
    if of != metric {
        return None;
    }
    let (mut kind, mut setting) = ("", String::new());
    for word in params.split(' ') {
        match word.split_once('=') {
            Some(("kind", value)) => kind = value,
            Some(("read_every" | "update" | "pause" | "burst" | "gap", _)) => {
                setting += &format!("{word} ")
            }
            _ => {}
        }
    }
    Some(Figure { implementation, kind, setting, value: median.parse().ok()? })
}

/// The last figure of an implementation.
pub fn figure_of(csv: &str, metric: &str, implementation: &str) -> Option<f64> {
    let of = |figure: &Figure<'_>| figure.implementation == implementation;
    figures(csv, metric).into_iter().rfind(of).map(|figure| figure.value)
}

/// A line for each implementation but the baseline: how many times as good the best of ours is
/// under the same settings.
pub fn factors(workload: &str, csv: &str, metric: &str, better: Better) -> String {
    let figures = figures(csv, metric);
    let mut best: HashMap<&str, &Figure<'_>> = HashMap::new();
    for figure in figures.iter().filter(|figure| figure.kind == "ours") {
        let known = best.entry(&figure.setting).or_insert(figure);
        let beats = match better {
            Better::More => figure.value > known.value,
            Better::Less => figure.value < known.value,
        };
        if beats {
            *known = figure;
        }
    }
    let mut text = String::new();
    for figure in figures.iter().filter(|figure| figure.kind != "baseline") {
        let Some(ours) = best.get(&*figure.setting) else { continue };
        if figure.implementation == ours.implementation {
            continue;
        }
        let times = match better {
            Better::More if figure.value > 0.0 => ours.value / figure.value,
            Better::More => 0.0,
            Better::Less => figure.value / ours.value,
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{workload:<9} {:<18} {:<14} {:>10}  {:<18} {:<8} {:>10}  {times:>8.2}",
            figure.setting,
            ours.implementation,
            four_digits(ours.value),
            figure.implementation,
            figure.kind,
            four_digits(figure.value),
        );
    }
    text
}

/// A number with four significant digits, as C's `%.4g` writes it.
pub fn four_digits(value: f64) -> String {
    let scientific = format!("{value:.3e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |digits: &str| {
        let zeros_off =
            |digits: &str| digits.trim_end_matches('0').trim_end_matches('.').to_owned();
        if digits.contains('.') { zeros_off(digits) } else { digits.to_owned() }
    };
    if (-4..4).contains(&exponent) {
        return trimmed(&format!("{value:.*}", (3 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::{Better, factors, figure_of, four_digits};

    #[test]
    fn numbers_have_four_significant_digits() {
        let cases = [
            (0.0, "0"),
            (12.0, "12"),
            (2.5, "2.5"),
            (9999.6, "1e+04"),
            (1_287_000.0, "1.287e+06"),
            (48_500.0, "4.85e+04"),
            (0.000_123_45, "0.0001234"),
            (0.000_012_345, "1.234e-05"),
            (999.96, "1000"),
            (72.345, "72.34"),
        ];
        for (value, text) in cases {
            assert_eq!(four_digits(value), text);
        }
    }

    /// What `manycore-bench bench list` and `manycore-bench bench smr` wrote, and what was printed
    /// of it (by a program in awk that this one replaced).
    #[test]
    fn recorded_rows_are_compared_as_ever() {
        let list = include_str!("compare/list.csv");
        let found = factors("list", list, "throughput", Better::More);
        assert_eq!(found, include_str!("compare/list.txt"));
        let smr = include_str!("compare/smr.csv");
        let found = factors("smr", smr, "section", Better::Less);
        assert_eq!(found, include_str!("compare/smr.txt"));
    }

    #[test]
    fn last_figure_of_an_implementation_is_found() {
        let csv = include_str!("compare/list.csv");
        let mut lines = csv.lines().filter(|line| line.starts_with("list,harris,"));
        let last = lines.next_back().and_then(|line| line.split(',').nth(7)).unwrap();
        assert_eq!(figure_of(csv, "throughput", "harris"), last.parse().ok());
        assert_eq!(figure_of(csv, "throughput", "no such"), None);
        assert_eq!(figure_of(csv, "no such", "harris"), None);
    }
}
