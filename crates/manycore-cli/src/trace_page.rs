//! A page with a trace's timeline: a lane for each thread, with its spans and events.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
};

use manycore_page::{escape, frame};
use manycore_trace::{
    Account, Kind, Trace,
    convert::{Filter, Summary},
};

/// The most spans and events that a page draws. If there are more, it draws the longest spans and
/// the first events.
const SPANS_MAX: usize = 4000;
const EVENTS_MAX: usize = 2000;
/// Widths and heights, in pixels.
const WIDTH: f64 = 1400.0;
const LABEL: f64 = 110.0;
const ROW: usize = 16;

/// A span, or an event, which has no length.
struct Bar {
    thread: u64,
    depth: usize,
    from: i64,
    to: i64,
    text: String,
}

/// The spans and events that are drawn.
#[derive(Default)]
struct Timeline {
    spans: Vec<Bar>,
    events: Vec<Bar>,
    threads: BTreeMap<u64, (String, usize)>,
    left_out: usize,
}

/// Writes the page.
pub fn write(
    trace: &mut Trace,
    filter: &Filter,
    title: &str,
    mut to: impl Write,
) -> io::Result<Account> {
    let mut timeline = collect(trace, filter);
    timeline.shorten(SPANS_MAX);
    let summary = Summary::of(trace, filter);
    let mut body = format!("<h1>{}</h1>\n", escape(title));
    let _ = write!(body, "<p>{}</p>\n{}", escape(&summary.account.to_string()), timeline.draw());
    let _ = writeln!(body, "<pre>{}</pre>", escape(&summary.to_string()));
    to.write_all(frame(title, &body).as_bytes())?;
    to.flush()?;
    Ok(summary.account)
}

fn collect(trace: &mut Trace, filter: &Filter) -> Timeline {
    let mut timeline = Timeline::default();
    let mut open: BTreeMap<u64, Vec<(String, i64, String)>> = BTreeMap::new();
    // How many spans of each name are open in a thread. Without these counts, each end without a
    // beginning would search the whole stack.
    let mut counts: BTreeMap<(u64, String), usize> = BTreeMap::new();
    let mut last = 0;
    let mut merge = trace.merge();
    while let Some(record) = merge.next() {
        if !filter.takes(&record) {
            continue;
        }
        let (thread, now) = (record.thread, record.nanos());
        last = now;
        let lane = timeline.threads.entry(thread).or_default();
        record.thread_name().clone_into(&mut lane.0);
        let stack = open.entry(thread).or_default();
        match record.info.kind {
            Kind::Begin => {
                let name = record.info.name.clone();
                *counts.entry((thread, name.clone())).or_default() += 1;
                stack.push((name, now, record.to_string()));
                lane.1 = lane.1.max(stack.len());
            }
            Kind::End => {
                let key = (thread, record.info.name.clone());
                if counts.get(&key).is_none_or(|count| *count == 0) {
                    continue;
                }
                while let Some((name, from, text)) = stack.pop() {
                    let (depth, is_last) = (stack.len(), name == key.1);
                    *counts.entry((thread, name)).or_insert(1) -= 1;
                    timeline.spans.push(Bar { thread, depth, from, to: now, text });
                    if is_last {
                        break;
                    }
                }
                // This bounds memory to what is drawn, and not to all that was recorded.
                if timeline.spans.len() > 4 * SPANS_MAX {
                    timeline.shorten(SPANS_MAX);
                }
            }
            _ if timeline.events.len() == EVENTS_MAX => timeline.left_out += 1,
            _ => {
                let (depth, text) = (stack.len(), record.to_string());
                lane.1 = lane.1.max(depth + 1);
                timeline.events.push(Bar { thread, depth, from: now, to: now, text });
            }
        }
    }
    for (thread, stack) in open {
        for (depth, (_, from, text)) in stack.into_iter().enumerate() {
            timeline.spans.push(Bar { thread, depth, from, to: last, text: text + " (open)" });
        }
    }
    timeline
}

impl Timeline {
    /// Keeps the `most` longest spans.
    fn shorten(&mut self, most: usize) {
        self.left_out += self.spans.len().saturating_sub(most);
        self.spans.sort_by_key(|bar| (bar.from.saturating_sub(bar.to), bar.from));
        self.spans.truncate(most);
    }

    fn draw(&self) -> String {
        let bars = || self.spans.iter().chain(&self.events);
        let (Some(from), Some(to)) =
            (bars().map(|bar| bar.from).min(), bars().map(|bar| bar.to).max())
        else {
            return "<p>Nothing is recorded.</p>\n".to_owned();
        };
        // In a crafted file, times may be as far apart as numbers allow.
        let scale = (WIDTH - LABEL) / to.saturating_sub(from).max(1) as f64;
        let x = |nanos: i64| LABEL + nanos.saturating_sub(from) as f64 * scale;
        let mut lanes: BTreeMap<u64, Vec<&Bar>> = BTreeMap::new();
        bars().for_each(|bar| lanes.entry(bar.thread).or_default().push(bar));
        let mut svg = String::new();
        let mut top = 0;
        for (thread, (name, depth)) in &self.threads {
            let label = if name.is_empty() { thread.to_string() } else { name.clone() };
            let _ = writeln!(
                svg,
                "<text x=\"0\" y=\"{}\" font-size=\"11\" fill=\"currentColor\">{}</text>",
                top + 12,
                escape(&label)
            );
            for bar in lanes.remove(thread).unwrap_or_default() {
                let length = bar.to.saturating_sub(bar.from);
                let width = (length as f64 * scale).max(1.0);
                // A colour for each name, which is the same each time.
                let name = bar.text.split(' ').nth(1).unwrap_or_default();
                let hue = name.bytes().fold(7_u32, |hue, byte| hue * 31 % 360 + u32::from(byte));
                let _ = writeln!(
                    svg,
                    "<rect x=\"{:.2}\" y=\"{}\" width=\"{width:.2}\" height=\"{}\" \
                     fill=\"hsl({} 60% 55%)\"><title>{} at {} ns, {} ns</title></rect>",
                    x(bar.from),
                    top + bar.depth * ROW,
                    ROW - 2,
                    hue % 360,
                    escape(&bar.text),
                    bar.from,
                    length
                );
            }
            top += depth.max(&1) * ROW + 6;
        }
        let mut text = format!(
            "<p>{:.6} s to {:.6} s after the start. Point at a bar to read it.</p>\n",
            from as f64 / 1e9,
            to as f64 / 1e9
        );
        if self.left_out > 0 {
            let _ =
                writeln!(text, "<p>{} shorter spans and later events left out.</p>", self.left_out);
        }
        format!(
            "{text}<svg viewBox=\"0 0 {WIDTH} {top}\" width=\"100%\" role=\"img\" \
             aria-label=\"timeline\">\n{svg}</svg>\n"
        )
    }
}
