//! What happens when a ring is full.

use crate::{TEST, Temporary, alone, numbers};
use manycore_trace::{Policy, Recorder, Trace, convert, event};
use std::io;

const EVENTS: u64 = 100_000;

fn record() {
    (0..EVENTS).for_each(|n| event!(TEST, Step { n: u64 }));
}

fn small() -> Recorder {
    Recorder::new().ring_bytes(1 << 14).block_bytes(1 << 12)
}

#[test]
fn overwriting_ring_keeps_the_last_events_and_counts_the_others() -> io::Result<()> {
    let _alone = alone();
    let recording = small().start()?;
    record();
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let account = trace.account();
    assert_eq!((account.produced, account.produced - account.lost), (EVENTS, account.merged));
    assert!(account.is_closed() && account.merged > 700, "{account}");
    let kept = numbers(&mut trace, "n");
    assert!(kept.iter().copied().eq(EVENTS - kept.len() as u64..EVENTS));
    Ok(())
}

#[test]
fn dropping_ring_keeps_the_first_events_and_counts_the_others() -> io::Result<()> {
    let _alone = alone();
    let recording = small().policy(Policy::Drop).start()?;
    record();
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let account = trace.account();
    assert_eq!((account.produced, account.merged + account.lost), (EVENTS, EVENTS));
    assert!(account.is_closed() && account.merged > 900, "{account}");
    assert!(numbers(&mut trace, "n").iter().copied().eq(0..account.merged));
    Ok(())
}

/// In a thread of this name, or without one.
fn record_in_thread(name: Option<&str>) {
    let builder = std::thread::Builder::new();
    let builder = name.map_or(std::thread::Builder::new(), |name| builder.name(name.into()));
    builder.spawn(record).expect("a thread").join().expect("no panic");
}

/// The names of the threads of all records, in their order, each once.
fn thread_names(trace: &mut Trace) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut merge = trace.merge();
    while let Some(record) = merge.next() {
        if names.last().is_none_or(|last| last != record.thread_name()) {
            names.push(record.thread_name().to_owned());
        }
    }
    names
}

/// Each thread goes on in the ring of the one before it, and overwrites its first record.
#[test]
fn threads_keep_their_names_in_rings_that_were_overwritten() -> io::Result<()> {
    let _alone = alone();
    let long = "n".repeat(64);
    for name in [Some("busy"), None, Some(&long)] {
        let recording = small().start()?;
        record_in_thread(Some("first"));
        record_in_thread(name);
        let mut trace = Trace::from_bytes(recording.finish()?)?;
        assert_eq!(trace.slots(), 1);
        assert_eq!(thread_names(&mut trace), [name.unwrap_or_default()]);
        let account = trace.account();
        assert!(account.is_closed() && account.lost > EVENTS, "{account}");
        let mut json = Vec::new();
        convert::chrome(&mut trace, &convert::Filter::default(), &mut json)?;
        let named = format!("\"args\":{{\"name\":\"{}\"}}", name.unwrap_or_default());
        let json = String::from_utf8(json).expect("UTF-8");
        assert_eq!(json.contains(&named), name.is_some(), "{name:?}");
    }
    Ok(())
}

/// A thread that begins where the ring is full is named in what is recorded of it later.
#[test]
fn threads_keep_their_names_in_streams_that_drop() -> io::Result<()> {
    let _alone = alone();
    let file = Temporary::new("names.mctrace");
    let recording = small().policy(Policy::Drop).stream(file.as_ref()).start()?;
    let names = ["one", "two", "three"];
    for name in names {
        record_in_thread(Some(name));
        std::thread::sleep(std::time::Duration::from_millis(40)); // the stream makes room
    }
    recording.stop()?;
    let mut trace = Trace::open(&file)?;
    assert!(trace.account().is_closed());
    let found = thread_names(&mut trace);
    assert!(!found.is_empty() && found.iter().all(|name| names.contains(&&**name)), "{found:?}");
    Ok(())
}

#[test]
fn blocking_stream_has_all_events() -> io::Result<()> {
    let _alone = alone();
    let file = Temporary::new("blocking.mctrace");
    let recording = small().policy(Policy::Block).stream(file.as_ref()).start()?;
    record();
    recording.stop()?;
    let mut trace = Trace::open(&file)?;
    assert!(numbers(&mut trace, "n").iter().copied().eq(0..EVENTS));
    let account = trace.account();
    assert_eq!((account.produced, account.lost), (EVENTS, 0));
    assert!(account.is_closed() && trace.drift().is_some());
    Ok(())
}

#[test]
fn dropping_stream_counts_what_the_file_lacks() -> io::Result<()> {
    let _alone = alone();
    let file = Temporary::new("dropping.mctrace");
    let recording = small().policy(Policy::Drop).stream(file.as_ref()).start()?;
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(record))));
    recording.stop()?;
    let mut trace = Trace::open(&file)?;
    let account = trace.account();
    assert_eq!(account.produced, 3 * EVENTS);
    assert!(account.is_closed() && account.merged > 1000, "{account}");
    assert_eq!(numbers(&mut trace, "n").len() as u64, account.merged);
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn memfd_is_read_through_its_descriptor_while_the_recording_runs() -> io::Result<()> {
    let _alone = alone();
    let recording = small().memfd().start()?;
    record();
    let file = recording.descriptor().expect("the file").try_clone()?;
    let mut trace = Trace::from_file(file)?;
    let account = trace.account();
    assert!(account.is_closed() && account.produced == EVENTS, "{account}");
    recording.stop()
}

#[cfg(feature = "lz4")]
#[test]
fn compressed_stream_has_all_events_in_half_the_bytes_and_tells_damage() -> io::Result<()> {
    let _alone = alone();
    let file = Temporary::new("compressed.mctrace");
    assert!(small().compressed().start().is_err(), "what lies in rings is not compressed");
    let recorder = small().policy(Policy::Block).stream(file.as_ref()).compressed();
    let recording = recorder.start()?;
    record();
    recording.stop()?;
    let mut trace = Trace::open(&file)?;
    assert!(numbers(&mut trace, "n").iter().copied().eq(0..EVENTS));
    let account = trace.account();
    assert_eq!((account.merged, account.lost), (EVENTS, 0));
    assert!(account.is_closed(), "{account}");
    let mut bytes = std::fs::read(&file)?;
    assert!(bytes.len() as u64 <= EVENTS * 16 / 2, "{} bytes", bytes.len());
    // The second half of a chunk in the middle: its records can't be unpacked, and are missing. All
    // others are there. (Records that were changed and can be unpacked would be wrong ones.)
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let mut chunk = 0..0;
    while chunk.end < bytes.len() / 2 {
        chunk = chunk.end..chunk.end + word(chunk.end + 8) as usize;
    }
    bytes[(chunk.start + chunk.end) / 2..chunk.end].fill(0xff);
    let mut trace = Trace::from_bytes(bytes)?;
    let account = trace.account();
    assert_eq!(account.produced, account.merged + account.lost + account.missing);
    assert!(!account.damage.is_empty() && account.merged < EVENTS, "{account}");
    assert!(account.merged > EVENTS * 9 / 10, "{account}");
    Ok(())
}
