//! A run's waits as a recording of `manycore-trace`, in virtual time. A viewer then shows what each
//! virtual thread waited for, and on which core.

use std::{collections::BTreeMap, path::Path};

use manycore_sim::{Machine, symbols::Symbols};
use manycore_trace::{Class, Kind, Lane, Trace, TraceWriter, Value, convert};

use super::outcome::{Run, Wait};
use crate::failure::Failure;

/// The most waits of a run that are kept.
pub(crate) const WAITS: u32 = 1 << 20;
/// The name of the count of other waits in a run's result.
pub(crate) const LEFT_OUT: &str = "waits-left-out";

/// Waits for other threads, and sleeps.
const THREADS: Class = Class::new(1, "threads");
/// Waits for cache lines.
const LINES: Class = Class::new(2, "lines");
/// Waits for files and for child processes.
const FILES: Class = Class::new(3, "files");

/// Returns the recording in the format for this file name: Perfetto's format, if the name ends in
/// `.pftrace`.
pub(crate) fn file(path: &Path, recording: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let ending = path.extension().unwrap_or_default();
    if ending != "pftrace" && ending != "perfetto-trace" {
        return Ok(recording);
    }
    let mut text = Vec::new();
    let cannot = |error| Failure::run(format_args!("cannot write {}: {error}", path.display()));
    let mut trace = Trace::from_bytes(recording).map_err(cannot)?;
    convert::perfetto(&mut trace, &convert::Filter::default(), &mut text).map_err(cannot)?;
    Ok(text)
}

/// Returns the recording's bytes. It has a thread for each virtual thread, and a span for each
/// wait.
pub(crate) fn trace(run: &Run, machine: &Machine) -> Vec<u8> {
    let mut writer = TraceWriter::new(u64::from(machine.mhz) * 1_000_000);
    let mut symbols = Symbols::new();
    let mut places: BTreeMap<&[u64], String> = BTreeMap::new();
    let mut lanes: BTreeMap<u64, Lane> = BTreeMap::new();
    // In a thread, a wait begins when its previous wait is over.
    let mut waits: Vec<&Wait> = run.waits.iter().collect();
    waits.sort_by_key(|wait| (wait.thread, wait.begin, wait.end));
    for wait in waits {
        let lane = *lanes
            .entry(wait.thread)
            .or_insert_with(|| writer.thread(wait.thread, &format!("thread {}", wait.thread)));
        let place = places
            .entry(&wait.addresses)
            .or_insert_with(|| symbols.place(&run.modules, &wait.addresses));
        let (kind, call) = wait.kind.split_once(':').unwrap_or((&wait.kind, ""));
        let (class, name) = match kind {
            "call" if call.starts_with("wait") => (FILES, "Child"),
            "call" => (FILES, "File"),
            "line" => (LINES, "Line"),
            "futex" => (THREADS, "Futex"),
            "join" => (THREADS, "Join"),
            "sleep" => (THREADS, "Sleep"),
            _ => (THREADS, "Other"),
        };
        let of = if kind == "call" { call.to_owned() } else { format!("{:#x}", wait.of) };
        let fields = [
            ("core", Value::Unsigned(wait.core)),
            ("of", Value::Text(of)),
            ("place", Value::Text(place.clone())),
        ];
        writer.record(lane, wait.begin, class, Kind::Begin, name, &fields);
        writer.record(lane, wait.end, class, Kind::End, name, &[]);
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use manycore_trace::Trace;

    use super::*;

    #[test]
    fn waits_are_spans_of_their_threads_in_virtual_time() {
        let text = "manycore-sim 2\nwait 2 5 2400 4800 line 40 1010\nwait 1 0 0 24000 join 2 1020\n\
            wait 2 5 7200 9600 futex 80 1010\nwait 2 5 12000 14400 call:recvfrom 0 1010\n\
            wait 2 5 16800 19200 call:wait4 0 1010\n";
        let machine = Machine::named("opteron-8x6").expect("a shipped model");
        let run = Run::parse(text).expect("a run's result");
        let mut trace = Trace::from_bytes(trace(&run, &machine)).expect("a whole recording");
        let (mut merge, mut found) = (trace.merge(), Vec::new());
        while let Some(record) = merge.next() {
            let core = record.field("core").map(|core| core.to_string());
            found.push((record.nanos(), record.thread, record.info.name.clone(), core));
        }
        let row = |nanos, thread, name: &str, core: Option<&str>| {
            (nanos, thread, name.to_owned(), core.map(str::to_owned))
        };
        let expected = [
            row(0, 1, "Join", Some("0")),
            row(1000, 2, "Line", Some("5")),
            row(2000, 2, "Line", None),
            row(3000, 2, "Futex", Some("5")),
            row(4000, 2, "Futex", None),
            row(5000, 2, "File", Some("5")),
            row(6000, 2, "File", None),
            row(7000, 2, "Child", Some("5")),
            row(8000, 2, "Child", None),
            row(10_000, 1, "Join", None),
        ];
        assert_eq!(found, expected);
        assert!(merge.into_account().is_closed());
    }
}
