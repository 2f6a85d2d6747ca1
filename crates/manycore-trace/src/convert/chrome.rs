//! Chrome's trace events, as JSON.

use super::Filter;
use crate::{Account, Kind, Record, Trace, Value};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the records as Chrome's trace events.
///
/// ```
/// use manycore_trace::{Recorder, Trace, convert};
///
/// let mut trace = Trace::from_bytes(Recorder::new().start()?.finish()?)?;
/// let mut json = Vec::new();
/// convert::chrome(&mut trace, &convert::Filter::default(), &mut json)?;
/// assert!(json.starts_with(b"{\"traceEvents\":["));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of `to`.
pub fn chrome(trace: &mut Trace, filter: &Filter, mut to: impl Write) -> io::Result<Account> {
    let process = trace.process();
    write!(to, "{{\"traceEvents\":[")?;
    let mut separator = "\n";
    let mut threads: BTreeMap<u64, String> = BTreeMap::new();
    let mut merge = trace.merge();
    while let Some(record) = merge.next() {
        if !filter.takes(&record) {
            continue;
        }
        if threads.get(&record.thread).is_none_or(|name| name != record.thread_name()) {
            threads.insert(record.thread, record.thread_name().to_owned());
        }
        write!(to, "{separator}")?;
        separator = ",\n";
        event(&mut to, process, &record)?;
    }
    for (thread, name) in threads.iter().filter(|(_, name)| !name.is_empty()) {
        write!(to, "{separator}{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{process}")?;
        write!(to, ",\"tid\":{thread},\"args\":{{\"name\":{}}}}}", quoted(name))?;
        separator = ",\n";
    }
    writeln!(to, "\n],\"displayTimeUnit\":\"ns\"}}")?;
    to.flush()?;
    Ok(merge.into_account())
}

/// Formats microseconds with three decimals.
fn micros(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    format!("{sign}{}.{:03}", nanos / 1000, nanos % 1000)
}

fn event(to: &mut impl Write, process: u64, record: &Record<'_>) -> io::Result<()> {
    let info = record.info;
    let phase = match info.kind {
        Kind::Instant => "i\",\"s\":\"t",
        Kind::Begin => "B",
        Kind::End => "E",
        Kind::Counter => "C",
        Kind::FlowBegin => "s",
        Kind::FlowEnd => "f\",\"bp\":\"e",
    };
    write!(
        to,
        "{{\"name\":{},\"cat\":{},\"ph\":\"{phase}\",\"ts\":{},\"pid\":{process},\"tid\":{}",
        quoted(&info.name),
        quoted(&info.class_name),
        micros(record.nanos()),
        record.thread
    )?;
    if let (Kind::FlowBegin | Kind::FlowEnd, Some(flow)) = (info.kind, record.field("flow")) {
        write!(to, ",\"id\":\"{flow}\"")?;
    }
    write!(to, ",\"args\":{{")?;
    for (at, (name, value)) in record.fields().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(to, "{comma}{}:{}", quoted(name), json(&value))?;
    }
    write!(to, "}}}}")
}

/// Formats a value as JSON. Numbers that a reader would round become texts.
pub(super) fn json(value: &Value) -> String {
    const EXACT: u64 = 1 << 53;
    match value {
        Value::Unsigned(value) if *value > EXACT => format!("\"{value}\""),
        Value::Signed(value) if value.unsigned_abs() > EXACT => format!("\"{value}\""),
        Value::Float(value) if !value.is_finite() => format!("\"{value}\""),
        Value::Text(text) => quoted(text),
        Value::Bytes(_) => format!("\"{value}\""),
        value => value.to_string(),
    }
}

/// Formats a text as JSON.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
