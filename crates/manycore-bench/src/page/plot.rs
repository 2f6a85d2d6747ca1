//! Plots as SVG, written by hand. A plot here consists of rectangles, lines and text, and the
//! page's style sheet must reach all of them for light and dark. A plotting library writes fixed
//! colours.
//!
//! The picture is 400 units wide, about the width of a phone, so its text stays readable there.
//! Each implementation's name stands above its bars, so that the bars have the whole width.

use std::fmt::Write;

use manycore_page::{escape, number};

use crate::row::Row;

const WIDTH: f64 = 400.0;
/// Where bars begin and may end.
const LEFT: f64 = 2.0;
const RIGHT: f64 = WIDTH - 58.0;
const TOP: f64 = 62.0;
const NAME_HEIGHT: f64 = 17.0;
const BAR_HEIGHT: f64 = 11.0;
const BAR_STEP: f64 = 14.0;
const GAP: f64 = 6.0;

/// Horizontal bars: for each implementation one bar for each thread count, best first.
pub(super) fn bars(heading: &str, rows: &[&Row]) -> String {
    let (baseline, mut names) = split(rows);
    let height_of = |bars: usize| NAME_HEIGHT + BAR_STEP * bars as f64 + GAP;
    // What was written by hand for the workload comes last: it is no alternative for others.
    let by_hand = |rows: &[&Row]| rows.first().is_some_and(|row| row.kind() == "by-hand");
    names.sort_by(|a, b| {
        by_hand(&a.1)
            .cmp(&by_hand(&b.1))
            .then_with(|| last_median(&b.1).total_cmp(&last_median(&a.1)))
    });
    let height = TOP + names.iter().map(|(_, rows)| height_of(rows.len())).sum::<f64>() + 4.0;
    // The baseline may be far beyond everything shared; it must not squeeze the bars together.
    let shared = rows.iter().filter(|row| row.kind() != "baseline");
    let largest = shared.map(|row| row.max).fold(f64::MIN_POSITIVE, f64::max);
    let x = |value: f64| LEFT + (RIGHT - LEFT) * value / largest;
    let unit = rows.first().map_or("", |row| row.unit);
    let label = escape(heading);

    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\"");
    let _ = writeln!(svg, " aria-label=\"{label}, {}\">", escape(unit));
    let _ = writeln!(svg, "<text class=\"heading\" x=\"{LEFT}\" y=\"16\">{label}</text>");
    let counts = thread_counts(rows);
    let _ = writeln!(
        svg,
        "<text class=\"soft\" x=\"{LEFT}\" y=\"33\">{}, more is better; bars: {counts}</text>",
        escape(unit)
    );
    let mut y = TOP;
    let mut is_above = true;
    for (name, rows) in &names {
        if by_hand(rows) && std::mem::take(&mut is_above) {
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
        }
        svg.push_str(&one_name(name, rows, y, &x));
        y += height_of(rows.len());
    }
    if let Some(baseline) = baseline {
        svg.push_str(&baseline_mark(baseline, x(baseline.median), height));
    }
    svg.push_str("</svg>\n");
    svg
}

type Named<'a> = (&'a str, Vec<&'a Row>);

/// The baseline, and the other rows by implementation, each with rising thread counts.
fn split<'a>(rows: &[&'a Row]) -> (Option<&'a Row>, Vec<Named<'a>>) {
    let mut names: Vec<Named<'a>> = Vec::new();
    for row in rows.iter().filter(|row| row.kind() != "baseline") {
        match names.iter_mut().find(|(name, _)| *name == row.impl_name) {
            Some((_, rows)) => rows.push(row),
            None => names.push((row.impl_name, vec![row])),
        }
    }
    for (_, rows) in &mut names {
        rows.sort_by_key(|row| row.threads);
    }
    (rows.iter().find(|row| row.kind() == "baseline").copied(), names)
}

fn last_median(rows: &[&Row]) -> f64 {
    rows.last().map_or(0.0, |row| row.median)
}

/// "1, 2 threads".
fn thread_counts(rows: &[&Row]) -> String {
    let mut counts: Vec<_> = rows.iter().map(|row| row.threads).collect();
    counts.sort_unstable();
    counts.dedup();
    let words: Vec<_> = counts.iter().map(usize::to_string).collect();
    format!("{} thread{}", words.join(", "), if counts == [1] { "" } else { "s" })
}

fn one_name(name: &str, rows: &[&Row], top: f64, x: &impl Fn(f64) -> f64) -> String {
    let kind = rows.first().map_or("rival", |row| row.kind());
    let mut svg = String::from("<g>\n");
    let _ = writeln!(
        svg,
        "<text class=\"name {kind}\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>",
        top + NAME_HEIGHT - 5.0,
        escape(name)
    );
    for (index, row) in rows.iter().enumerate() {
        let shade = match (index + 1 == rows.len(), index) {
            (true, _) => "all",
            (false, 0) => "few",
            (false, _) => "some",
        };
        let y = top + NAME_HEIGHT + BAR_STEP * index as f64;
        let (width, middle) = ((x(row.median) - LEFT).max(1.0), y + BAR_HEIGHT / 2.0);
        let [median, min, max] = [row.median, row.min, row.max].map(number);
        let _ = writeln!(
            svg,
            "<g><title>{}, threads: {}, median {median}, min {min}, max {max} {}</title>",
            escape(name),
            row.threads,
            escape(row.unit)
        );
        let _ = writeln!(
            svg,
            "<rect class=\"{kind} {shade}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{BAR_HEIGHT}\" rx=\"2\"/>"
        );
        let _ = writeln!(
            svg,
            "<line class=\"spread\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" \
             y2=\"{middle:.1}\"/>",
            x(row.min),
            x(row.max)
        );
        let _ = writeln!(
            svg,
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{median}</text></g>",
            WIDTH - 2.0,
            y + BAR_HEIGHT - 1.5
        );
    }
    svg.push_str("</g>\n");
    svg
}

/// The dashed line of the baseline, with its figure; at the edge if it is off the scale.
fn baseline_mark(row: &Row, x: f64, height: f64) -> String {
    let (x, off_scale) = if x > RIGHT { (RIGHT, ", off the scale") } else { (x, "") };
    let anchor = if x > WIDTH / 2.0 { "end" } else { "start" };
    format!(
        "<line class=\"baseline-mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" \
         y2=\"{height:.1}\"/>\n\
         <text class=\"baseline-text\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">\
         one thread, unshared: {}{off_scale}</text>\n",
        TOP - 8.0,
        TOP - 12.0,
        number(row.median)
    )
}
