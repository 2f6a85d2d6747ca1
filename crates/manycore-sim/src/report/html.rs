//! The report as one HTML page.

use std::fmt::Write;

use manycore_page::{Curve as Drawn, Plot, escape, number};

use super::{COLUMNS, Curve, HotLine, LINE_COLUMNS, Point, Report};

/// Formats strings as an HTML list.
fn list(items: &[String]) -> String {
    let items: Vec<String> =
        items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    format!("<ul>\n{}</ul>\n", items.concat())
}

/// Formats a table. The first cell of a row is text, the others are figures.
fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &mut dyn Iterator<Item = &str>| {
        let cells: Vec<String> =
            cells.map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{}</tr>\n", cells.concat())
    };
    let body: Vec<String> =
        rows.iter().map(|row| cells("td", &mut row.iter().map(String::as_str))).collect();
    format!(
        "<div class=\"scroll\"><table>\n<thead>{}</thead>\n<tbody>{}</tbody></table></div>\n",
        cells("th", &mut heads.iter().copied()),
        body.concat()
    )
}

impl Report {
    /// Returns the report as one HTML file that loads nothing else.
    pub fn html(&self) -> String {
        let mut body = String::with_capacity(32 * 1024);
        let _ = writeln!(body, "<h1>{}</h1>", escape(&self.title));
        for warning in self.first_lines() {
            let _ = writeln!(body, "<p><b>Warning: {}</b></p>", escape(&warning));
        }
        let machine = format!("{}: {}", self.machine.name, self.machine.about);
        let _ = writeln!(body, "<p class=\"machine\">{}</p>", escape(&machine));
        let _ = writeln!(body, "<p><b>{}</b></p>", escape(&self.claim));
        self.plots(&mut body);
        for curve in &self.curves {
            self.curve_part(curve, &mut body);
        }
        let columns = COLUMNS.map(str::to_owned);
        let _ = writeln!(body, "<h2>The columns</h2>\n{}", list(&columns));
        let columns = LINE_COLUMNS.map(str::to_owned);
        let _ = writeln!(body, "<h2>The lines</h2>\n{}", list(&columns));
        if !self.notes.is_empty() {
            let _ = writeln!(body, "<h2>Notes</h2>\n{}", list(&self.notes));
        }
        if let Some(blind) = self.blind.as_deref().filter(|blind| !blind.is_empty()) {
            let blind: Vec<String> = blind.iter().map(ToString::to_string).collect();
            let heading = "<h2>Uninstrumented, of the instructions executed</h2>";
            let _ = writeln!(body, "{heading}\n{}", list(&blind));
        }
        let _ = writeln!(body, "<h2>What the model leaves out</h2>\n{}", list(&self.missing));
        self.parameters(&mut body);
        manycore_page::frame(&self.title, &body)
    }

    fn plots(&self, body: &mut String) {
        let mhz = self.machine.mhz;
        let counted = self.counts_operations();
        let rate_unit = if counted { "operations a microsecond" } else { "runs a second" };
        let cost_unit =
            if counted { "core cycles for an operation" } else { "core cycles of a run" };
        let rates = self.drawn(true, |point| point.rate(mhz));
        let costs = self.drawn(false, Point::core_cycles);
        body.push_str("<div class=\"plots\">\n");
        for (heading, y, curves) in [("Throughput", rate_unit, rates), ("Cost", cost_unit, costs)] {
            let (heading, x) = (heading.to_string(), "virtual cores".to_string());
            let plot = Plot { heading, x, y: y.to_string(), curves };
            let _ = writeln!(body, "<figure>\n{}</figure>", plot.svg());
        }
        body.push_str("</div>\n");
        let drawn = "A bar through a point is the interval, over runs with other seeds and some \
            jitter; the shade is the band, over what is not known of the machine.";
        let _ = writeln!(body, "<p>{}</p>", escape(drawn));
    }

    /// Returns the curves for a plot. Curves of rates also have the interval and the band.
    fn drawn(&self, rates: bool, value: impl Fn(&Point) -> f64) -> Vec<Drawn> {
        let mut drawn = Vec::new();
        for (colour, curve) in self.curves.iter().enumerate() {
            let places = curve.points.iter().enumerate();
            let band = places.filter(|_| rates && !curve.variations.is_empty());
            let band = band.map(|(at, point)| {
                let (low, high) = curve.band(at, self.machine.mhz);
                (f64::from(point.cores), low, high)
            });
            let places = curve.points.iter().enumerate().filter(|_| rates);
            let interval = places.filter_map(|(at, point)| {
                let (low, high) = curve.interval(at, self.machine.mhz)?;
                Some((f64::from(point.cores), low, high))
            });
            drawn.push(Drawn {
                name: curve.name.clone(),
                points: curve.points.iter().map(|p| (f64::from(p.cores), value(p))).collect(),
                band: band.collect(),
                interval: interval.collect(),
                colour,
                published: false,
            });
        }
        drawn
    }

    fn curve_part(&self, curve: &Curve, body: &mut String) {
        let _ = writeln!(body, "<h2>{}</h2>", escape(&curve.name));
        let rate = if self.counts_operations() { "ops/us" } else { "runs/s" };
        let heads = [
            "cores",
            rate,
            "lowest",
            "highest",
            "core cycles",
            "waiting",
            "remote reads",
            "shared writes",
            "locked",
        ];
        let row = |(at, point): (usize, &Point)| {
            let (low, high) = curve.band(at, self.machine.mhz);
            let counts = [point.waited, point.remote_reads, point.shared_writes, point.rmws];
            let mut row = vec![point.cores.to_string(), number(point.rate(self.machine.mhz))];
            row.extend([low, high, point.core_cycles()].map(number));
            row.extend(counts.map(|count| number(point.each(count))));
            row
        };
        let rows: Vec<Vec<String>> = curve.points.iter().enumerate().map(row).collect();
        body.push_str(&table(&heads, &rows));
        let interval = curve.interval_line(self.machine.mhz);
        let _ = writeln!(body, "<p>{}</p>", escape(&interval));
        if let Some(last) = curve.points.last().filter(|_| !curve.lines.is_empty()) {
            let _ = writeln!(body, "<p>The lines that cost most, on {} cores:</p>", last.cores);
            let rows: Vec<Vec<String>> = curve.lines.iter().flat_map(line_rows).collect();
            body.push_str(&table(
                &["place", "access", "bytes", "by", "misses", "cycles each", "of waiting"],
                &rows,
            ));
        }
    }

    fn parameters(&self, body: &mut String) {
        let parameters = self.machine.parameters.iter();
        let rows: Vec<Vec<String>> =
            parameters.map(|p| vec![p.name.clone(), p.value.clone(), p.source.clone()]).collect();
        let table = table(&["parameter", "value", "source"], &rows);
        let _ =
            writeln!(body, "<details>\n<summary>The machine model</summary>\n{table}</details>");
    }
}

/// Returns the rows of a line of memory, of the data that lie on it, and of the places.
fn line_rows(line: &HotLine) -> Vec<Vec<String>> {
    let mean = |cycles: u64, misses: u64| number(cycles as f64 / misses.max(1) as f64);
    let share = format!("{:.1} %", line.share * 100.0);
    let mut rows = vec![vec![
        format!("line {:#x}: {}", line.address, line.why()),
        String::new(),
        String::new(),
        String::new(),
        line.misses.to_string(),
        mean(line.cycles, line.misses),
        share,
    ]];
    rows.extend(line.holds.iter().map(|held| {
        let mut row = vec![held.what.clone(), "holds".to_string(), held.bytes_text()];
        row.resize(7, String::new());
        row
    }));
    rows.extend(line.sites.iter().map(|site| {
        let (bytes, cores) = (site.bytes_text(), site.cores_text());
        let (misses, mean) = (site.misses.to_string(), mean(site.cycles, site.misses));
        vec![site.place.clone(), site.kind.clone(), bytes, cores, misses, mean, String::new()]
    }));
    rows
}
