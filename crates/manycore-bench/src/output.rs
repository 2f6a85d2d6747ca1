//! Prints rows as text: a table for people, CSV and JSON lines for programs.
//!
//! Owns: the three forms. Each starts with the machine. Rows follow group by group as they are
//! measured, so a long run shows its first results early.

pub use manycore_page::number;

use std::io::{self, Write};

use crate::{
    machine::Machine,
    row::{Row, plain},
};

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns under a heading for each group.
    Table,
    /// A comment line, a line of names, a line for each row.
    Csv,
    /// One object a line; the first is the machine.
    Json,
}

/// The columns of CSV and the keys of a JSON row.
pub const KEYS: [&str; 11] = [
    "bench", "impl", "ours", "threads", "params", "metric", "unit", "median", "min", "max",
    "repeats",
];

/// Writes results in one form.
pub struct Writer<W> {
    out: W,
    format: Format,
    is_coloured: bool,
}

impl<W: Write> Writer<W> {
    /// Writes the machine, and what comes before the first row.
    ///
    /// # Errors
    /// If the output fails.
    pub fn start(mut out: W, format: Format, machine: &Machine) -> io::Result<Self> {
        match format {
            Format::Table => writeln!(out, "# {machine}")?,
            Format::Csv => writeln!(out, "# {machine}\n{}", KEYS.join(","))?,
            Format::Json => writeln!(out, "{}", serde_json::to_string(machine)?)?,
        }
        out.flush()?;
        Ok(Self { out, format, is_coloured: false })
    }

    /// Sets off ours in tables by a terminal's escape sequences.
    #[must_use]
    pub fn coloured(mut self, is_coloured: bool) -> Self {
        self.is_coloured = is_coloured;
        self
    }

    /// Writes the rows of one group.
    ///
    /// # Errors
    /// If the output fails.
    pub fn group(&mut self, title: &str, rows: &[Row]) -> io::Result<()> {
        match self.format {
            Format::Table => self.out.write_all(table(title, rows, self.is_coloured).as_bytes())?,
            Format::Csv => {
                for row in rows {
                    writeln!(self.out, "{}", csv_line(row))?;
                }
            }
            Format::Json => {
                for row in rows {
                    writeln!(self.out, "{}", serde_json::to_string(row)?)?;
                }
            }
        }
        self.out.flush()
    }

    /// Writes prose between groups, where the form has room for it.
    ///
    /// # Errors
    /// If the output fails.
    pub fn prose(&mut self, text: &str) -> io::Result<()> {
        if self.format == Format::Table {
            writeln!(self.out, "{text}")?;
        }
        self.out.flush()
    }

    /// Gives the output back.
    pub fn into_inner(self) -> W {
        self.out
    }
}

fn csv_line(row: &Row) -> String {
    let settings = row.params.iter().map(|(key, value)| format!("{key}={}", plain(value)));
    let fields = [
        row.bench.to_owned(),
        row.impl_name.to_owned(),
        row.ours.to_string(),
        row.threads.to_string(),
        settings.collect::<Vec<_>>().join(" "),
        row.metric.to_owned(),
        row.unit.to_owned(),
        row.median.to_string(),
        row.min.to_string(),
        row.max.to_string(),
        row.repeats.to_string(),
    ];
    fields.map(|field| csv_field(&field)).join(",")
}

/// Quotes a field that needs it.
fn csv_field(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A table for each metric of the rows, under one heading.
fn table(title: &str, rows: &[Row], is_coloured: bool) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut text = format!("\n{}: {title}   [{}]\n", first.bench, first.settings());
    let mut metrics = Vec::new();
    for row in rows {
        if !metrics.contains(&(row.metric, row.unit)) {
            metrics.push((row.metric, row.unit));
        }
    }
    for (metric, unit) in metrics {
        let chosen = rows.iter().filter(|row| (row.metric, row.unit) == (metric, unit));
        text.push_str(&metric_table(unit, chosen.collect(), is_coloured));
    }
    text
}

fn metric_table(unit: &str, rows: Vec<&Row>, is_coloured: bool) -> String {
    let mut lines = vec![["implementation", "threads", "median", "min", "max"].map(str::to_owned)];
    lines[0][2] = unit.to_owned();
    for row in &rows {
        lines.push([
            format!("{}{}", row.impl_name, mark(row)),
            row.threads.to_string(),
            number(row.median),
            number(row.min),
            number(row.max),
        ]);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        // The heading is underlined, ours is bold and green.
        let style = match index.checked_sub(1) {
            _ if !is_coloured => "",
            None => "\x1b[4m",
            Some(row) if rows[row].ours => "\x1b[1;32m",
            Some(_) => "",
        };
        text.push_str(&format!("  {style}{:<1$}", line[0], widths[0]));
        for (field, width) in line.iter().zip(widths).skip(1) {
            text.push_str(&format!("  {field:>width$}"));
        }
        text.push_str(if style.is_empty() { "\n" } else { "\x1b[0m\n" });
    }
    text
}

/// What a reader of a table should know about a row: ours, or no general rival.
fn mark(row: &Row) -> &'static str {
    match row.kind() {
        "ours" => "  <- ours",
        "by-hand" => " (by hand)",
        "baseline" => " (baseline)",
        "floor" => " (floor)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, KEYS, Writer, number};
    use crate::row::{Params, Row};

    fn row(metric: &'static str) -> Row {
        let mut params = Params::new();
        params.insert("kind".into(), "rival".into());
        params.insert("read_every".into(), "never".into());
        Row {
            bench: "list",
            impl_name: "a,b",
            ours: false,
            threads: 2,
            params,
            metric,
            unit: "pairs/ms",
            median: 1234.5,
            min: 1.0,
            max: 20.25,
            repeats: 5,
        }
    }

    fn written(format: Format, rows: &[Row]) -> String {
        let mut writer = Writer::start(Vec::new(), format, &crate::machine::here()).unwrap();
        writer.group("2 threads", rows).unwrap();
        String::from_utf8(writer.into_inner()).unwrap()
    }

    #[test]
    fn json_rows_have_exactly_the_agreed_keys_in_order() {
        let text = written(Format::Json, &[row("throughput")]);
        let line = text.lines().nth(1).unwrap();
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object.as_object().unwrap().len(), KEYS.len());
        let places: Vec<_> = KEYS.iter().map(|key| line.find(&format!("\"{key}\":"))).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{line}");
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let text = written(Format::Csv, &[row("throughput")]);
        let last = text.lines().last().unwrap();
        let expected =
            "list,\"a,b\",false,2,kind=rival read_every=never,throughput,pairs/ms,1234.5,1,20.25,5";
        assert_eq!(last, expected);
    }

    #[test]
    fn table_shows_each_metric_once_with_spread() {
        let rows = [row("throughput"), row("latency"), row("throughput"), row("latency")];
        let text = written(Format::Table, &rows);
        assert!(text.starts_with("# machine: "), "{text}");
        assert_eq!(text.matches("implementation").count(), 2, "{text}");
        assert_eq!(text.matches("1,234  1.00  20.2").count(), 4, "{text}");
    }

    #[test]
    fn only_ours_and_the_heading_are_coloured_and_only_where_it_is_wanted() {
        let rows = [Row { ours: true, ..row("throughput") }, row("throughput")];
        let writer = Writer::start(Vec::new(), Format::Table, &crate::machine::here()).unwrap();
        let mut writer = writer.coloured(true);
        writer.group("2 threads", &rows).unwrap();
        let text = String::from_utf8(writer.into_inner()).unwrap();
        assert_eq!(text.matches("\x1b[0m").count(), 2, "{text:?}");
        assert_eq!(text.matches("\x1b[1;32ma,b").count(), 1, "{text:?}");
        assert!(!written(Format::Table, &rows).contains('\x1b'));
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([0.123, 12.34, 1234.6].map(number), ["0.12", "12.3", "1,235"]);
        assert_eq!([100.0, 1e6, -123_456.0].map(number), ["100", "1,000,000", "-123,456"]);
    }
}
