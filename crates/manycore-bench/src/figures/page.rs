//! The page of the figures: published, simulated and measured results beside each other.
//!
//! Owns: its structure and words. The frame, the style and the plots belong to `manycore-page`.

use std::fmt::Write;

use manycore_page::{Curve as Drawn, Plot, escape, number};

use super::{
    Figure, Finding, Series, all, claim,
    fresh::{self, Compared},
    list, origin,
};

/// One figure with what was run for it.
pub struct Shown {
    /// The figure.
    pub figure: &'static Figure,
    /// From virtual cores.
    pub simulated: Series,
    /// From this machine's cores.
    pub measured: Series,
    /// What else a reader should know of it.
    pub notes: Vec<String>,
}

/// What all of a page's figures share.
pub struct Setting {
    /// This machine.
    pub here: String,
    /// What a simulation is worth, in the simulator's words.
    pub claim: String,
    /// What the model leaves out.
    pub missing: Vec<String>,
    /// The quick form was run.
    pub quick: bool,
    /// Why nothing was simulated, if nothing was.
    pub without: Option<String>,
}

/// The simulator against this machine's own cores.
pub struct Real {
    /// The model of this machine, in words.
    pub model: Vec<String>,
    /// Each workload.
    pub compared: Vec<Compared>,
}

const INTRODUCTION: &str = "<p>Each figure of the papers stands here three times: what the paper's \
text says of it, what this project's code does on a virtual machine of the same shape, and what \
it does on this machine. Published numbers are those that a text states; nothing was read off a \
picture, so where a paper gives only a picture there is an order and no number. Published values \
are the hollow squares.</p>\n\
<p>One figure is a <b>calibration</b>: OpLog's Figure 4, with which the order in which waiting \
cores are served was chosen. It is no evidence for the model. K42's Figure 4 decided one rule, \
that conditional stores never fail. Apart from that, all others are <b>validation</b>: the model \
was not changed for them, and each difference is listed.</p>\n";

/// The whole page.
pub fn render(setting: &Setting, shown: &[Shown], real: Option<&Real>) -> String {
    let mut body = String::with_capacity(64 * 1024);
    body.push_str("<h1>Figures: published, simulated, measured</h1>\n");
    let _ = writeln!(body, "<p class=\"machine\">{}</p>", escape(&setting.here));
    let _ = writeln!(body, "<p><b>{}</b></p>", escape(&setting.claim));
    body.push_str(INTRODUCTION);
    let _ = writeln!(body, "<p>{}</p>", escape(&claim::rule()));
    if setting.quick {
        body.push_str("<p>This is the quick form: few points, short runs.</p>\n");
    }
    if let Some(why) = &setting.without {
        let _ = writeln!(body, "<p><b>Nothing was simulated: {}</b></p>", escape(why));
    }
    body.push_str("<h2>All differences</h2>\n");
    summary(&mut body, shown);
    for one in shown {
        figure(&mut body, one);
    }
    if let Some(real) = real {
        on_real_cores(&mut body, real);
    }
    body.push_str("<h2>What the model leaves out</h2>\n<ul>\n");
    for item in &setting.missing {
        let _ = writeln!(body, "<li>{}</li>", escape(item));
    }
    body.push_str("</ul>\n");
    manycore_page::frame("manycore: figures", &body)
}

/// The same in Markdown, without curves: every published figure, every claim and what became of it.
/// Of a page that was there `before`, the sections of figures that are not shown stay.
pub fn markdown(setting: &Setting, shown: &[Shown], date: &str, before: &str) -> String {
    let mut text = String::from(
        "# The papers' figures\n\n\
         Each figure and table of the five papers, and what stands for it here. Then, for each \
         that runs, what the paper says and what became of it.\n\n\
         Written by `manycore-bench report --markdown docs/papers.md`; the page that the same \
         command writes in HTML has the curves and all points. With `--figures` it writes the \
         sections of these figures, and leaves the others as they were.\n\n",
    );
    let kept = |id| kept(before, id).map(|section| origin::whole(before, section));
    let mut sections: Vec<(&str, String)> = all()
        .filter_map(|figure| {
            let new = shown.iter().find(|one| one.figure.id == figure.id);
            let new = new.map(|one| section(setting, one, date));
            Some((figure.id, new.or_else(|| kept(figure.id))?))
        })
        .collect();
    let run = origin::gather(sections.iter_mut().map(|section| &mut section.1));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}\n", setting.claim);
    let is_there = |id: &str| sections.iter().any(|section| section.0 == id);
    let _ = writeln!(text, "{}\n\n{}", claim::rule(), list::markdown(is_there));
    if sections.len() < all().count() {
        text.push_str("What has no link was not run for this page.\n\n");
    }
    text.push_str(&run);
    for (_, section) in &sections {
        text.push_str(section.trim_end());
        text.push_str("\n\n");
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// How a figure's section begins.
fn anchor(id: &str) -> String {
    format!("<a id=\"{id}\"></a>\n")
}

/// The section of a figure in a page.
fn kept<'a>(page: &'a str, id: &str) -> Option<&'a str> {
    let section = &page[page.find(&anchor(id))?..];
    let end = section[1..].find("\n<a id=\"").map_or(section.len(), |end| end + 1);
    Some(&section[..end])
}

/// A figure with what became of its claims.
fn section(setting: &Setting, one: &Shown, date: &str) -> String {
    let figure = one.figure;
    let mut text = anchor(figure.id);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n## {}\n", figure.title);
    let role = if figure.calibration { "Calibration. " } else { "" };
    let _ = writeln!(text, "{role}{}\n", figure.story);
    let arguments = [&[figure.workload], figure.arguments].concat().join(" ");
    let _ = writeln!(text, "On `{}`: `manycore-bench bench {arguments}`.\n", figure.machine);
    text.push_str("| what | published | simulated | difference | |\n|---|---|---|---|---|\n");
    for finding in figure.findings(&one.simulated) {
        let (off, word) = (difference(&finding), word(figure, &finding));
        let Finding { about, published, simulated, .. } = finding;
        let _ = writeln!(text, "| {about} | {published} | {simulated} | {off} | {word} |");
    }
    for note in one.notes.iter().map(String::as_str).chain(figure.why.iter().copied()) {
        let _ = writeln!(text, "\n{note}");
    }
    let here = at_the_ends(&one.measured);
    if !here.is_empty() {
        let _ = writeln!(text, "\nMeasured here, {}: {here}.", figure.unit);
    }
    let form = if setting.quick { ", in the quick form (few points, short runs)" } else { "" };
    let _ = write!(text, "\n{}", origin::line(&format!("{date}{form}"), &setting.here));
    text
}

/// The first and the last point of each curve, in words.
fn at_the_ends(series: &Series) -> String {
    let ends = series.curves.iter().filter_map(|(_, name, points)| {
        let (first, last) = (points.first()?, points.last()?);
        let mut ends = format!("{name} {} at {}", number(first.1), first.0);
        if last.0 > first.0 {
            ends += &format!(", {} at {}", number(last.1), last.0);
        }
        Some(ends)
    });
    ends.collect::<Vec<_>>().join("; ")
}

/// The difference in percent, where there are two numbers.
pub fn difference(finding: &Finding) -> String {
    finding.off.map_or_else(|| "-".to_owned(), |off| format!("{off:+.0} %"))
}

/// What became of it, in a word.
pub fn word(figure: &Figure, finding: &Finding) -> &'static str {
    match finding.holds {
        None => "not seen",
        Some(_) if figure.calibration => "calibration",
        Some(true) => "borne out",
        Some(false) => "not borne out",
    }
}

fn row(body: &mut String, tag: &str, cells: &[&str]) {
    let cells: Vec<String> =
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
    let _ = writeln!(body, "<tr>{}</tr>", cells.concat());
}

fn table(body: &mut String, heads: &[&str], rows: &[Vec<String>]) {
    body.push_str("<div class=\"scroll\"><table>\n<thead>");
    row(body, "th", heads);
    body.push_str("</thead>\n<tbody>");
    for cells in rows {
        row(body, "td", &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    body.push_str("</tbody></table></div>\n");
}

fn summary(body: &mut String, shown: &[Shown]) {
    let mut rows = Vec::new();
    for one in shown {
        for finding in one.figure.findings(&one.simulated) {
            let (off, word) = (difference(&finding), word(one.figure, &finding).to_owned());
            let Finding { about, published, simulated, .. } = finding;
            rows.push(vec![one.figure.id.to_owned(), about, published, simulated, off, word]);
        }
    }
    table(body, &["figure", "what", "published", "simulated", "difference", ""], &rows);
}

fn figure(body: &mut String, one: &Shown) {
    let figure = one.figure;
    let _ = writeln!(body, "<h2 id=\"{}\">{}</h2>", figure.id, escape(figure.title));
    let role = if figure.calibration { "Calibration" } else { "Validation" };
    let _ = writeln!(body, "<p><b>{role}.</b> {}</p>", escape(figure.story));
    let run = format!(
        "{} on {}: manycore-bench bench {} {}",
        figure.id,
        figure.machine,
        figure.workload,
        figure.arguments.join(" ")
    );
    let _ = writeln!(body, "<p class=\"small\">{}</p>", escape(&run));
    body.push_str("<div class=\"plots\">\n");
    plot(body, figure, "published and simulated", drawn(figure, &one.simulated, true));
    plot(body, figure, "measured on this machine", drawn(figure, &one.measured, false));
    body.push_str("</div>\n");
    for note in &one.notes {
        let _ = writeln!(body, "<p>{}</p>", escape(note));
    }
    let findings = figure.findings(&one.simulated).into_iter().map(|finding| {
        let (off, word) = (difference(&finding), word(figure, &finding).to_owned());
        vec![finding.about, finding.published, finding.simulated, off, word]
    });
    let findings: Vec<_> = findings.collect();
    table(body, &["what", "published", "simulated", "difference", ""], &findings);
    if !figure.why.is_empty() {
        body.push_str("<p><b>Why they differ.</b></p>\n<ul>\n");
        for why in figure.why {
            let _ = writeln!(body, "<li>{}</li>", escape(why));
        }
        body.push_str("</ul>\n");
    }
    points(body, one);
}

/// What the median of the errors is, in a sentence.
pub fn verdict(compared: &[Compared]) -> String {
    let Some(median) = fresh::median(compared) else { return "Nothing was compared.".to_owned() };
    let word = if median < fresh::BOUND { "within" } else { "NOT within" };
    let mut text = format!(
        "Median error {:.0} % over {} workloads: {word} the bound of {:.0} %.",
        median * 100.0,
        compared.len(),
        fresh::BOUND * 100.0
    );
    for threads in [1, 2] {
        let Some(score) = fresh::score(compared, threads) else { continue };
        let on: Vec<Compared> =
            compared.iter().filter(|one| one.case.threads == threads).copied().collect();
        let _ = write!(
            text,
            " On {threads} of its cores: the faster of two ways to do one thing is said rightly \
             for {} of {} pairs ({} of {} without the {} whose repeats overlap, as their rank was \
             not measured), their ratio is off by {:.2} times and a time by {:.0} % in the middle",
            score.right,
            score.pairs,
            score.right_apart,
            score.pairs - score.ties,
            score.ties,
            score.factor,
            fresh::median(&on).unwrap_or_default() * 100.0
        );
        let mut sep = "; wrong are";
        for fresh::Pair { names: [one, other], ratios, is_tie } in score.wrong {
            let [measured, simulated] = ratios;
            let tie = if is_tie { " (a tie)" } else { "" };
            let _ = write!(
                text,
                "{sep} {one} to {other}, measured {measured:.2} times{tie}, simulated \
                 {simulated:.2}"
            );
            sep = ",";
        }
        text.push('.');
    }
    text
}

/// The cells of one comparison: workload, implementation, threads, both times, and the error.
pub fn cells(one: &Compared) -> [String; 6] {
    let fresh = one.case.fresh;
    let workload = [&[fresh.workload], fresh.arguments].concat().join(" ");
    [
        workload,
        fresh.implementation.to_owned(),
        one.case.threads.to_string(),
        number(one.measured),
        number(one.simulated),
        format!("{:+.0} %", one.off() * 100.0),
    ]
}

fn on_real_cores(body: &mut String, real: &Real) {
    body.push_str(
        "<h2 id=\"fresh\">Workloads that the model has not seen, on this machine's cores</h2>\n\
         <p>Each on one core and on two, simulated with a model of this machine and measured on \
         it. The figures are rates, in the workload's own unit; the error is that of the time of \
         an operation. The list was fixed before any of it was run, and all of it is here.</p>\n",
    );
    let _ = writeln!(body, "<p><b>{}</b></p>", escape(&verdict(&real.compared)));
    let rows: Vec<Vec<String>> = real.compared.iter().map(|one| cells(one).to_vec()).collect();
    let heads = ["workload", "implementation", "threads", "measured", "simulated", "error"];
    table(body, &heads, &rows);
    body.push_str("<details>\n<summary>The model of this machine</summary>\n<ul>\n");
    for line in &real.model {
        let _ = writeln!(body, "<li>{}</li>", escape(line));
    }
    body.push_str("</ul>\n</details>\n");
}

fn plot(body: &mut String, figure: &Figure, heading: &str, curves: Vec<Drawn>) {
    if curves.iter().all(|curve| curve.points.is_empty()) {
        return;
    }
    let plot = Plot {
        heading: heading.to_owned(),
        x: figure.axis_label().to_owned(),
        y: figure.unit.to_owned(),
        curves,
    };
    let _ = writeln!(body, "<figure>\n{}</figure>", plot.svg());
}

fn drawn(figure: &Figure, series: &Series, published: bool) -> Vec<Drawn> {
    let mut drawn = Vec::new();
    for (colour, (_, name, points)) in series.curves.iter().enumerate() {
        drawn.push(Drawn {
            name: (*name).to_owned(),
            points: points.clone(),
            colour,
            ..Drawn::default()
        });
        let theirs = figure.curves[colour].published;
        if published && !theirs.is_empty() {
            drawn.push(Drawn {
                name: format!("{name}, published"),
                points: theirs.to_vec(),
                colour,
                published: true,
                ..Drawn::default()
            });
        }
    }
    drawn
}

/// Every point, folded away.
fn points(body: &mut String, one: &Shown) {
    let mut rows = Vec::new();
    for (curve, (_, name, points)) in one.figure.curves.iter().zip(&one.simulated.curves) {
        let theirs = |x: f64| {
            let mut published = curve.published.iter();
            published.find(|point| (point.0 - x).abs() < 1e-6).map(|point| point.1)
        };
        for &(x, value) in points {
            let published = theirs(x);
            let off = published.map(|p| format!("{:+.0} %", (value / p - 1.0) * 100.0));
            let here = one.measured.at(curve.implementation, x).map(number);
            let dash = || "-".to_owned();
            let mut cells = vec![(*name).to_owned(), x.to_string(), number(value)];
            cells.push(published.map_or_else(dash, number));
            cells.extend([off.unwrap_or_else(dash), here.unwrap_or_else(dash)]);
            rows.push(cells);
        }
    }
    if rows.is_empty() {
        return;
    }
    body.push_str("<details>\n<summary>All points</summary>\n");
    let place = one.figure.axis_label();
    table(body, &["curve", place, "simulated", "published", "difference", "measured here"], &rows);
    body.push_str("</details>\n");
}
