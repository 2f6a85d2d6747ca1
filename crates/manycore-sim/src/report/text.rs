//! The report for a terminal.

use std::fmt::{self, Display, Formatter};

use manycore_page::number;

use super::{COLUMNS, Curve, HotLine, LINE_COLUMNS, Report};

/// Places that are shown for each line.
const SITES: usize = 4;

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.first_lines().iter().try_for_each(|warning| writeln!(f, "Warning: {warning}"))?;
        writeln!(f, "{}, on {}: {}", self.title, self.machine.name, self.machine.about)?;
        writeln!(f, "{}", self.claim)?;
        for curve in &self.curves {
            self.curve(curve, f)?;
        }
        writeln!(f, "\nThe columns:")?;
        COLUMNS.iter().try_for_each(|column| writeln!(f, "- {column}"))?;
        if self.curves.iter().any(|curve| !curve.lines.is_empty()) {
            writeln!(f, "\nThe lines:")?;
            LINE_COLUMNS.iter().try_for_each(|column| writeln!(f, "- {column}"))?;
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        if let Some(blind) = self.blind.as_deref().filter(|blind| !blind.is_empty()) {
            writeln!(f, "\nUninstrumented, of the instructions executed:")?;
            blind.iter().try_for_each(|blind| writeln!(f, "- {blind}"))?;
        }
        writeln!(f, "\nThe model leaves out:")?;
        for missing in &self.missing {
            writeln!(f, "- {missing}")?;
        }
        Ok(())
    }
}

impl Report {
    fn curve(&self, curve: &Curve, f: &mut Formatter<'_>) -> fmt::Result {
        let mhz = self.machine.mhz;
        let (rate, unit) = if self.counts_operations() {
            ("ops/us", "for each operation")
        } else {
            ("runs/s", "for the whole run; the program counted no operations")
        };
        writeln!(f, "\n{} ({unit})", curve.name)?;
        let heads = ["band", "core cycles", "waiting", "remote reads", "shared writes", "locked"];
        write!(f, "{:>5} {rate:>10}", "cores")?;
        heads.iter().try_for_each(|head| write!(f, " {head:>13}"))?;
        writeln!(f)?;
        for (at, point) in curve.points.iter().enumerate() {
            let (low, high) = curve.band(at, mhz);
            let band = format!("{}..{}", number(low), number(high));
            write!(f, "{:>5} {:>10}", point.cores, number(point.rate(mhz)))?;
            write!(f, " {:>13}", if curve.variations.is_empty() { "-" } else { band.as_str() })?;
            let waiting = point.each(point.waited);
            let counts = [point.remote_reads, point.shared_writes, point.rmws];
            write!(f, " {:>13} {:>13}", number(point.core_cycles()), number(waiting))?;
            counts.iter().try_for_each(|count| write!(f, " {:>13}", number(point.each(*count))))?;
            writeln!(f)?;
        }
        curve.write_interval(mhz, f)?;
        self.variations(curve, f)?;
        if let Some(last) = curve.points.last().filter(|_| !curve.lines.is_empty()) {
            writeln!(f, "\nThe lines that cost most, on {} cores:", last.cores)?;
            curve.lines.iter().try_for_each(|line| write_line(line, f))?;
        }
        Ok(())
    }

    fn variations(&self, curve: &Curve, f: &mut Formatter<'_>) -> fmt::Result {
        if curve.variations.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nUncertain parameters may change the rate by:")?;
        for variation in &curve.variations {
            write!(f, "{:>22}", variation.change)?;
            for (changed, point) in variation.points.iter().zip(&curve.points) {
                let factor = changed.rate(self.machine.mhz) / point.rate(self.machine.mhz);
                write!(f, "  {}: x{factor:.2}", point.cores)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn write_line(line: &HotLine, f: &mut Formatter<'_>) -> fmt::Result {
    let share = line.share * 100.0;
    let why = line.why();
    writeln!(
        f,
        "{share:5.1} % of waiting: {why}, {} misses, line {:#x}",
        line.misses, line.address
    )?;
    for held in &line.holds {
        writeln!(f, "        bytes {:<14} {}", held.bytes_text(), held.what)?;
    }
    for site in line.sites.iter().take(SITES) {
        let mean = number(site.cycles as f64 / site.misses.max(1) as f64);
        writeln!(
            f,
            "        {:6} {:>8} x {mean:>7} cycles, bytes {}, {}: {}",
            site.kind,
            site.misses,
            site.bytes_text(),
            site.cores_text(),
            site.place
        )?;
    }
    let more = line.sites.len().saturating_sub(SITES);
    if more > 0 {
        writeln!(f, "        and {more} places more")?;
    }
    Ok(())
}
