//! The page of the tour: one HTML file with everything in it.
//!
//! Owns: its structure and words. The frame and the style belong to `manycore-page`.

mod curve;
mod plot;

use std::fmt::Write;

use manycore_page::{escape, number};

use crate::{
    machine::Machine,
    row::Row,
    tour::{Findings, Verdict},
};

/// The whole page.
pub fn render(machine: &Machine, findings: &[Findings]) -> String {
    let mut body = String::with_capacity(64 * 1024);
    let machine = escape(&machine.to_string());
    body.push_str("<h1>manycore: a tour of this machine</h1>\n");
    body.push_str(&format!("<p class=\"machine\">{machine}</p>\n"));
    body.push_str(INTRODUCTION);
    body.push_str(HOW_TO_READ);
    curve::section(&mut body, findings);
    headlines(&mut body, findings);
    body.push_str(LEGEND);
    for chapter in findings {
        self::chapter(&mut body, chapter);
    }
    body.push_str(CLOSING);
    manycore_page::frame("manycore: a tour", &body)
}

const INTRODUCTION: &str = "<p>Structures that several cores write to get slower, not faster, \
with every core: the cores pass one cache line around. Here the usual answers run next to this \
library's, in one process, taking turns, so that whatever else this machine was doing disturbed \
all alike.</p>\n";

const LEGEND: &str = "<ul class=\"legend\">\n\
<li><span class=\"key ours\"></span>this library</li>\n\
<li><span class=\"key rival\"></span>general rivals</li>\n\
<li><span class=\"key by-hand\"></span>written by hand for this one workload</li>\n\
<li><span class=\"key baseline\"></span>one thread, unshared (dashed line)</li>\n\
</ul>\n";

const HOW_TO_READ: &str = "<h2>How to read this</h2>\n\
<p>Each bar is the median of its repeats, the thin line its smallest and largest. The pale bar is \
one thread, the full bar all threads. A structure that scales has a full bar as many times the \
pale one as there are threads; one whose full bar is shorter than its pale one would have been \
better off with a single thread. The dashed line is the honest comparison: what one thread does \
with a plain structure of its own. Below the line in each plot stand structures written by hand \
for this one workload, which no library can offer.</p>\n\
<p>Updates that are deferred must be applied by the reader. The more often a program reads, the \
less there is to gain, and below about ten updates for each read a plain lock is the better \
choice.</p>\n";

const CLOSING: &str = "<h2>More</h2>\n\
<p>Measure more with <code>manycore-bench bench list --help</code>.</p>\n";

/// What a hurried reader should know: how many times the best general rival ours is.
fn headlines(page: &mut String, findings: &[Findings]) {
    page.push_str("<h2>This machine, in short</h2>\n<div class=\"headlines\">\n");
    for chapter in findings {
        for (title, verdict) in chapter.headlines() {
            let Verdict { ours, rival, .. } = &verdict;
            let _ = writeln!(
                page,
                "<div class=\"headline {0}\"><b>{1}&times;</b><span>{0}: {2}, {3}</span>\
                 <small>{4} {5}, {6} {7}; {8}</small></div>",
                verdict.standing().word(),
                number(verdict.times()),
                escape(chapter.bench),
                escape(title),
                escape(ours.impl_name),
                number(ours.median),
                escape(rival.impl_name),
                number(rival.median),
                escape(ours.unit)
            );
        }
    }
    page.push_str("</div>\n");
}

fn chapter(page: &mut String, chapter: &Findings) {
    let Findings { title, story, plotted, groups, .. } = chapter;
    page.push_str(&format!("<h2>{}</h2>\n<p>{}</p>\n", escape(title), escape(story)));
    let settings = settings(groups);
    page.push_str("<div class=\"plots\">\n");
    for (setting, rows) in &settings {
        let rows: Vec<_> = rows.iter().filter(|row| row.metric == *plotted).copied().collect();
        page.push_str("<figure>\n");
        page.push_str(&plot::bars(setting, &rows));
        page.push_str("</figure>\n");
    }
    page.push_str("</div>\n<ul class=\"verdicts\">\n");
    for (title, rows) in groups {
        if let Some(verdict) = Verdict::of(rows, plotted) {
            let (title, sentence) = (escape(title), escape(&verdict.sentence()));
            page.push_str(&format!("<li><b>{title}:</b> {sentence}</li>\n"));
        }
    }
    page.push_str("</ul>\n");
    for (title, rows) in groups {
        table(page, title, rows);
    }
}

/// The rows of all groups, sorted by what they share besides the thread count.
fn settings(groups: &[(String, Vec<Row>)]) -> Vec<(String, Vec<&Row>)> {
    let mut settings: Vec<(String, String, Vec<&Row>)> = Vec::new();
    for (title, rows) in groups {
        let Some(shared) = rows.first().map(Row::settings) else { continue };
        // The title without its first part, the thread count.
        let heading = title.split_once(", ").map_or(title.as_str(), |(_, rest)| rest);
        match settings.iter_mut().find(|(known, ..)| *known == shared) {
            Some((.., known)) => known.extend(rows),
            None => settings.push((shared, heading.to_owned(), rows.iter().collect())),
        }
    }
    settings.into_iter().map(|(_, heading, rows)| (heading, rows)).collect()
}

fn table(page: &mut String, title: &str, rows: &[Row]) {
    let title = escape(title);
    page.push_str(&format!("<details>\n<summary>Figures: {title}</summary>\n"));
    page.push_str(
        "<div class=\"scroll\"><table>\n<thead><tr><th>implementation</th><th>threads</th>",
    );
    page.push_str("<th>unit</th><th>median</th><th>min</th><th>max</th></tr></thead>\n<tbody>\n");
    for row in rows {
        let kind = escape(row.kind());
        let _ = write!(page, "<tr class=\"{kind}\"><td>{}</td>", escape(row.impl_name));
        let _ = write!(page, "<td>{}</td><td>{}</td>", row.threads, escape(row.unit));
        for value in [row.median, row.min, row.max] {
            let _ = write!(page, "<td>{}</td>", number(value));
        }
        page.push_str("</tr>\n");
    }
    let repeats = rows.first().map_or(0, |row| row.repeats);
    let settings = rows.first().map(Row::settings).unwrap_or_default();
    page.push_str("</tbody></table></div>\n");
    let _ = writeln!(page, "<p class=\"small\">{repeats} repeats; {}</p>", escape(&settings));
    page.push_str("</details>\n");
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::{
        machine::Machine,
        row::{Params, Row},
        tour::Findings,
    };

    fn row(impl_name: &'static str, kind: &str, threads: usize, median: f64) -> Row {
        let mut params = Params::new();
        params.insert("kind".into(), kind.into());
        Row {
            bench: "list",
            impl_name,
            ours: kind == "ours",
            threads,
            params,
            metric: "throughput",
            unit: "pairs/ms",
            median,
            min: median * 0.9,
            max: median * 1.1,
            repeats: 5,
        }
    }

    fn page() -> String {
        let group = |threads| {
            vec![
                row("unshared", "baseline", 1, 40.0),
                row("mutex", "rival", threads, 10.0),
                row("deferred", "ours", threads, 70.0),
            ]
        };
        let findings = [Findings {
            bench: "list",
            title: "A <shared> list",
            story: "words",
            plotted: "throughput",
            groups: vec![
                ("1 thread, no reads".to_owned(), group(1)),
                ("2 threads, no reads".to_owned(), group(2)),
            ],
        }];
        let machine = Machine { cpu: "CPU <x> & co".to_owned(), ..crate::machine::here() };
        render(&machine, &findings)
    }

    #[test]
    fn page_is_self_contained() {
        let page = page();
        for word in ["http:", "https:", "src=", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn page_has_one_plot_for_each_setting_and_a_table_for_each_group() {
        let page = page();
        assert_eq!(page.matches("<svg").count(), 1 + 1, "the setting's, and the recorded curve");
        assert_eq!(page.matches("<table>").count(), 2);
        assert!(page.contains("7.00 times the best general rival"), "{page}");
    }

    #[test]
    fn text_is_escaped_and_every_tag_is_closed() {
        let page = page();
        assert!(page.contains("CPU &lt;x&gt; &amp; co") && !page.contains("<shared>"));
        let tags =
            ["main", "h2", "ul", "li", "p", "div", "figure", "svg", "table", "tr", "td", "g"];
        for tag in tags {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
