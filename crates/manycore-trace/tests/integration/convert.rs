//! What other programs read.

use crate::{TEST, Temporary, alone};
use manycore_trace::{
    Recorder, Trace, convert, convert::Filter, counter, event, flow_begin, flow_end, span,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;

/// A recording of all kinds of events, of the thread `worker`.
fn trace() -> Trace {
    let recording = Recorder::new().start().expect("a recording");
    let record = || {
        let _span = span!(TEST, Job { id: u32 = 7, name: &str = "a \"b\"\n" });
        event!(TEST, Hit { big: u64 = u64::MAX, share: f32 = 0.5, is_last: bool = true });
        counter!(TEST, Length: i64 = -3);
        flow_begin!(TEST, Handed, 5);
        flow_end!(TEST, Handed, 5);
    };
    let worker = std::thread::Builder::new().name("worker".to_owned());
    worker.spawn(record).expect("a thread").join().expect("no panic");
    Trace::from_bytes(recording.finish().expect("a recording")).expect("a trace")
}

#[test]
fn chrome_s_events_are_json_with_all_fields() -> io::Result<()> {
    let _alone = alone();
    let mut bytes = Vec::new();
    let account = convert::chrome(&mut trace(), &Filter::default(), &mut bytes)?;
    assert_eq!(account.merged, 6);
    let json: Value = serde_json::from_slice(&bytes)?;
    let events = json["traceEvents"].as_array().expect("a list");
    let phases: Vec<&str> = events.iter().filter_map(|event| event["ph"].as_str()).collect();
    assert_eq!(phases, ["B", "i", "C", "s", "f", "E", "M"]);
    assert_eq!(events[0]["args"], json!({"id": 7, "name": "a \"b\"\n"}));
    let hit = json!({"big": "18446744073709551615", "share": 0.5, "is_last": true});
    assert_eq!(events[1]["args"], hit);
    assert_eq!((&events[3]["id"], &events[4]["id"]), (&json!("5"), &json!("5")));
    assert_eq!(events[6]["args"]["name"], "worker");
    let times: Vec<f64> = events[..6].iter().filter_map(|event| event["ts"].as_f64()).collect();
    assert!(times.len() == 6 && times.is_sorted(), "{times:?}");
    Ok(())
}

/// A field of a protocol buffer.
#[derive(Debug, Clone, PartialEq)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message, by number.
fn message(mut bytes: &[u8]) -> BTreeMap<u64, Vec<Field>> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut fields: BTreeMap<u64, Vec<Field>> = BTreeMap::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (number, rest) = bytes.split_first_chunk().expect("eight bytes");
                bytes = rest;
                Field::Number(u64::from_le_bytes(*number))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(content.to_vec())
            }
            wire => panic!("no type {wire}"),
        };
        fields.entry(key >> 3).or_default().push(field);
    }
    fields
}

fn inner(field: &Field) -> BTreeMap<u64, Vec<Field>> {
    let Field::Bytes(bytes) = field else { panic!("no message") };
    message(bytes)
}

#[test]
fn perfetto_s_packets_have_tracks_events_and_fields() -> io::Result<()> {
    let _alone = alone();
    let mut bytes = Vec::new();
    convert::perfetto(&mut trace(), &Filter::default(), &mut bytes)?;
    let all = message(&bytes);
    let packets: Vec<_> = all[&1].iter().map(inner).collect();
    // The process, the thread and the counter, then the events that are on them.
    let tracks: Vec<_> =
        packets.iter().filter_map(|packet| packet.get(&60)).map(|track| inner(&track[0])).collect();
    assert_eq!(tracks.len(), 3);
    assert_eq!(inner(&tracks[1][&4][0])[&5], [Field::Bytes(b"worker".to_vec())]);
    assert_eq!(tracks[2][&2], [Field::Bytes(b"Length".to_vec())]);
    let events: Vec<_> =
        packets.iter().filter_map(|packet| packet.get(&11)).map(|event| inner(&event[0])).collect();
    let kinds: Vec<_> = events.iter().map(|event| event[&9][0].clone()).collect();
    assert_eq!(kinds, [1, 3, 4, 3, 3, 2].map(Field::Number));
    assert_eq!(events[0][&23], [Field::Bytes(b"Job".to_vec())]);
    let id = inner(&events[0][&4][0]);
    assert_eq!((&id[&10][0], &id[&3][0]), (&Field::Bytes(b"id".to_vec()), &Field::Number(7)));
    assert_eq!(events[2][&30], [Field::Number(-3_i64 as u64)]);
    assert_eq!(events[2][&11], tracks[2][&1]);
    assert_eq!(
        (&events[3][&47], &events[4][&48]),
        (&vec![Field::Number(5)], &vec![Field::Number(5)])
    );
    Ok(())
}

#[test]
fn common_trace_format_has_metadata_in_json_and_records_of_their_length() -> io::Result<()> {
    let _alone = alone();
    let folder = Temporary::new("ctf");
    convert::ctf(&mut trace(), &Filter::default(), &folder)?;
    let text = std::fs::read_to_string(folder.as_ref().join("metadata"))?;
    let fragments: Vec<Value> = text
        .split('\u{1e}')
        .filter(|fragment| !fragment.is_empty())
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    assert_eq!(fragments[0], json!({"type": "preamble", "version": 2}));
    let class = |name: &str| {
        let found = fragments.iter().find(|fragment| fragment["name"] == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    let members = &class("test:Hit:Instant")["payload-field-class"]["member-classes"];
    assert_eq!(members[1]["field-class"]["type"], "fixed-length-floating-point-number");
    let stream = std::fs::read(folder.as_ref().join("slot-0"))?;
    // A packet's head; six of 20 bytes; a number and a text, 8 + 4 + 1, and three of 8.
    let text = "a \"b\"\n".len() + 1;
    assert_eq!(stream.len(), 36 + 6 * 20 + 4 + text + 13 + 3 * 8);
    let id = u32::from_le_bytes(stream[36..40].try_into().expect("four bytes"));
    assert_eq!(class("test:Job:Begin")["id"], id);
    std::fs::remove_dir_all(&folder)
}

/// In a child of `fork`, which has a limit of its own.
#[cfg(target_os = "linux")]
#[test]
fn common_trace_format_takes_more_slots_than_there_are_descriptors() -> io::Result<()> {
    const SLOTS: usize = 40;
    let _alone = alone();
    let folder = Temporary::new("ctf-slots");
    let recording = Recorder::new().start()?;
    let all = std::sync::Barrier::new(SLOTS);
    std::thread::scope(|scope| {
        for n in 0..SLOTS {
            let all = &all;
            scope.spawn(move || {
                event!(TEST, Step { n: usize });
                all.wait();
            });
        }
    });
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let mut convert = || {
        let limit = libc::rlimit { rlim_cur: 16, rlim_max: 16 };
        // SAFETY: `limit` is valid, and the limit is this process's alone.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
        convert::ctf(&mut trace, &Filter::default(), &folder)
    };
    let mut status = 0;
    // SAFETY: the child does what this crate and the standard library allow after a fork, and
    // leaves at once.
    unsafe {
        let process = libc::fork();
        if process == 0 {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut convert));
            libc::_exit(i32::from(!matches!(result, Ok(Ok(_)))));
        }
        assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
    }
    assert_eq!(status, 0, "the child failed");
    assert_eq!(std::fs::read_dir(&folder)?.count(), SLOTS + 1);
    std::fs::remove_dir_all(&folder)
}

/// babeltrace2 that reads version 2 of the format: that of `MANYCORE_BABELTRACE`, or the system's.
fn babeltrace() -> Option<std::process::Command> {
    let program = std::env::var_os("MANYCORE_BABELTRACE");
    let program = program.unwrap_or_else(|| "babeltrace2".into());
    let version = std::process::Command::new(&program).arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let number = version.split_whitespace().nth(1)?.to_owned();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    let is_new = (parts.next()?, parts.next()?) >= (2, 1);
    is_new.then(|| std::process::Command::new(program))
}

#[test]
fn babeltrace_reads_the_common_trace_format() -> io::Result<()> {
    let _alone = alone();
    let Some(mut babeltrace) = babeltrace() else {
        eprintln!("skipped: no babeltrace2 from 2.1 on");
        return Ok(());
    };
    let folder = Temporary::new("ctf-foreign");
    convert::ctf(&mut trace(), &Filter::default(), &folder)?;
    let output = babeltrace.arg(folder.as_ref()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "{text}");
    assert!(lines[0].contains("test:Job:Begin: { tid = ") && lines[0].contains("id = 7"), "{text}");
    assert!(lines[1].contains("test:Hit:Instant:"), "{text}");
    std::fs::remove_dir_all(&folder)?;

    // Of many packets, too.
    let recording = Recorder::new().ring_bytes(4 << 20).start()?;
    (0..100_000_u64).for_each(|n| event!(TEST, Step { n: u64 }));
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    convert::ctf(&mut trace, &Filter::default(), &folder)?;
    let output = babeltrace.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = text.lines().map(|line| line.rsplit_once(" n = ").expect("a number").1);
    let numbers = numbers.map(|rest| rest.trim_end_matches(" }").parse::<u64>().expect("a number"));
    assert!(numbers.eq(0..100_000_u64), "in their order");
    std::fs::remove_dir_all(&folder)
}

#[test]
fn summary_has_the_times_of_spans_and_takes_a_filter() {
    let _alone = alone();
    let recording = Recorder::new().start().expect("a recording");
    for n in 1..=100_u64 {
        let _span = span!(TEST, Step);
        event!(TEST, Inner { n: u64 });
        if n == 100 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    let bytes = recording.finish().expect("a recording");
    let mut trace = Trace::from_bytes(bytes).expect("a trace");
    let summary = convert::Summary::of(&mut trace, &Filter::default());
    let key = |name: &str| ("test".to_owned(), name.to_owned());
    let times = &summary.spans[&key("Step")];
    assert_eq!((times.count, summary.events[&key("Inner")]), (100, 100));
    assert!(times.max.as_millis() >= 20 && times.p50.as_millis() < 10, "{times:?}");
    assert!(times.total >= times.max && times.p99 <= times.max, "{times:?}");

    let mut filter = Filter::default();
    filter.names.push("Inner".to_owned());
    let filtered = convert::Summary::of(&mut trace, &filter);
    assert_eq!((filtered.events.len(), filtered.spans.len()), (1, 0));
    filter.to_nanos = i64::MIN + 1;
    assert!(convert::Summary::of(&mut trace, &filter).events.is_empty());
}
