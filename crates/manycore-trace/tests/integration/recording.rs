//! What is recorded is read, in order.

use crate::{AtEnd, TEST, Temporary, alone, lines, numbers};
use manycore_trace::{
    Class, Classes, Kind, Policy, Recorder, Trace, Value, counter, event, flow_begin, flow_end,
    new_flow, span,
};
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

#[test]
fn fields_of_each_type_are_read_as_they_were_recorded() -> io::Result<()> {
    let _alone = alone();
    let recording = Recorder::new().start()?;
    let long = "é".repeat(400);
    let bytes: &[u8] = &[1, 2, 255];
    event!(
        TEST,
        All {
            a: u8 = 1,
            b: u16 = 2,
            c: u32 = 3,
            d: u64 = u64::MAX,
            e: i8 = -1,
            f: i16 = -2,
            g: i32 = -3,
            h: i64 = i64::MIN,
            i: bool = true,
            j: f32 = 0.5,
            k: f64 = -0.25,
            l: &str = "text",
            m: &[u8] = bytes,
            n: &str = &long,
            o: usize = 9,
            p: isize = -9,
            q: &str = "",
        }
    );
    event!(TEST, Nothing);
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let mut merge = trace.merge();
    let record = merge.next().expect("the event");
    let values: Vec<Value> = record.fields().map(|(_, value)| value).collect();
    let text = |text: &str| Value::Text(text.to_owned());
    let expected = [
        Value::Unsigned(1),
        Value::Unsigned(2),
        Value::Unsigned(3),
        Value::Unsigned(u64::MAX),
        Value::Signed(-1),
        Value::Signed(-2),
        Value::Signed(-3),
        Value::Signed(i64::MIN),
        Value::Bool(true),
        Value::Float(0.5),
        Value::Float(-0.25),
        text("text"),
        Value::Bytes(vec![1, 2, 255]),
        text(&("é".repeat(240) + "...")),
        Value::Unsigned(9),
        Value::Signed(-9),
        text(""),
    ];
    assert_eq!(values, expected);
    assert_eq!(record.info.fields.len(), values.len());
    assert_eq!(merge.next().expect("another").to_string(), "test Nothing");
    assert!(merge.next().is_none());
    Ok(())
}

#[test]
fn values_may_name_variables_that_are_called_as_earlier_fields() -> io::Result<()> {
    let _alone = alone();
    let recording = Recorder::new().start()?;
    let (x, y) = (1_u32, 2_u32);
    event!(TEST, Swapped { x: u32 = y, y: u32 = x });
    let _span = span!(TEST, Turned { x: u32 = y, y: u32 = x });
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let mut merge = trace.merge();
    for name in ["Swapped", "Turned"] {
        let record = merge.next().expect("a record");
        assert_eq!(record.to_string(), format!("test {name} x=2 y=1"));
    }
    Ok(())
}

#[test]
fn events_that_are_too_long_are_counted_as_lost() -> io::Result<()> {
    let _alone = alone();
    let recording = Recorder::new().start()?;
    let long: &str = &"x".repeat(480);
    event!(TEST, Long { a: &str = long, b: &str = long, c: &str = long, d: &str = long });
    event!(
        TEST,
        Longer { a: &str = long, b: &str = long, c: &str = long, d: &str = long, e: &str = long }
    );
    event!(TEST, Short);
    let account = Trace::from_bytes(recording.finish()?)?.account();
    assert_eq!((account.produced, account.merged, account.lost), (3, 2, 1));
    assert!(account.is_closed());
    Ok(())
}

#[test]
fn kinds_are_told_apart_and_spans_end() -> io::Result<()> {
    let _alone = alone();
    let recording = Recorder::new().start()?;
    let flow = new_flow();
    assert_ne!(flow, new_flow());
    {
        let _outer = span!(TEST, Outer { id: u32 = 1 });
        let _inner = span!(TEST, Inner);
        counter!(TEST, Length: i32 = -4);
        flow_begin!(TEST, Handed, flow);
        recording.set_classes(Classes::NONE); // both spans end nevertheless
    }
    recording.set_classes(Classes::ALL);
    flow_end!(TEST, Handed, flow);
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let mut merge = trace.merge();
    let mut found = Vec::new();
    while let Some(record) = merge.next() {
        found.push((record.info.kind, record.to_string()));
    }
    let expected = [
        (Kind::Begin, "test Outer id=1".to_owned()),
        (Kind::Begin, "test Inner".to_owned()),
        (Kind::Counter, "test Length value=-4".to_owned()),
        (Kind::FlowBegin, format!("test Handed flow={flow}")),
        (Kind::End, "test Inner".to_owned()),
        (Kind::End, "test Outer".to_owned()),
        (Kind::FlowEnd, format!("test Handed flow={flow}")),
    ];
    assert_eq!(found, expected);
    Ok(())
}

#[test]
fn classes_are_switched_while_the_recording_runs() -> io::Result<()> {
    let _alone = alone();
    const OTHER: Class = Class::new(63, "other");
    let recording = Recorder::new().classes(Classes::of(&[TEST])).start()?;
    let round = |n: u32| {
        event!(TEST, First { n: u32 });
        event!(OTHER, Second { m: u32 = n });
    };
    round(0);
    recording.set_classes(Classes::of(&[OTHER]));
    round(1);
    recording.set_classes(Classes::ALL);
    round(2);
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    round(3); // no recording runs
    assert_eq!(numbers(&mut trace, "n"), [0, 2]);
    assert_eq!(numbers(&mut trace, "m"), [1, 2]);
    Ok(())
}

/// Threads one after the other share a slot; threads at the same time do not.
#[test]
fn slots_are_handed_on_and_records_name_their_threads() -> io::Result<()> {
    let _alone = alone();
    let recording = Recorder::new().ring_bytes(1 << 16).block_bytes(1 << 12).start()?;
    let record = |n: u32| event!(TEST, Number { n: u32 });
    for n in 0..20 {
        thread::spawn(move || record(n)).join().expect("no panic");
    }
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        for n in [20, 21] {
            let barrier = &barrier;
            scope.spawn(move || {
                record(n);
                barrier.wait();
            });
        }
    });
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    assert_eq!(trace.slots(), 2);
    let mut merge = trace.merge();
    let mut threads = std::collections::BTreeSet::new();
    while let Some(record) = merge.next() {
        threads.insert(record.thread);
    }
    assert_eq!(threads.len(), 22, "{threads:?}");
    assert!(merge.into_account().is_closed());
    Ok(())
}

#[test]
fn times_go_forward_and_gaps_of_seconds_are_kept() -> io::Result<()> {
    let _alone = alone();
    let recording = Recorder::new().start()?;
    event!(TEST, Early { n: u32 = 0 });
    thread::sleep(Duration::from_millis(2500)); // more than 2^32 ticks on a fast counter
    event!(TEST, Late { n: u32 = 1 });
    let mut trace = Trace::from_bytes(recording.finish()?)?;
    let mut merge = trace.merge();
    let early = merge.next().expect("an event").time;
    let late = merge.next().expect("an event").time;
    let gap = trace.nanos(late) - trace.nanos(early);
    assert!((2_400_000_000..4_000_000_000).contains(&gap), "{gap} ns");
    Ok(())
}

#[test]
fn two_merges_are_equal_and_keep_each_slots_order() -> io::Result<()> {
    let _alone = alone();
    let file = Temporary::new("merges.mctrace");
    let recording = Recorder::new().stream(file.as_ref()).policy(Policy::Block).start()?;
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                (0..20_000_u64).for_each(|n| event!(TEST, Step { thread: u8, n: u64 }))
            });
        }
    });
    recording.stop()?;
    let first = lines(&mut Trace::open(&file)?);
    assert_eq!(first.len(), 80_000);
    assert_eq!(first, lines(&mut Trace::open(&file)?));
    // The order of the file's chunks is of no consequence.
    let bytes = std::fs::read(&file)?;
    assert_eq!(first, lines(&mut Trace::from_bytes(bytes)?));

    let mut trace = Trace::open(&file)?;
    let mut merge = trace.merge();
    let mut next = [0_u64; 4];
    let mut last = (0, 0, 0);
    while let Some(record) = merge.next() {
        let key = (record.time, record.slot, record.sequence);
        assert!(last < key, "{last:?} before {key:?}");
        last = key;
        let values: Vec<_> = record.fields().map(|(_, value)| value).collect();
        let [Value::Unsigned(thread), Value::Unsigned(n)] = values[..] else {
            panic!("{values:?}")
        };
        assert_eq!(next[thread as usize], n, "out of its thread's order");
        next[thread as usize] += 1;
    }
    assert_eq!(next, [20_000; 4]);
    assert!(merge.into_account().is_closed());
    Ok(())
}

#[test]
fn recording_starts_only_with_options_that_make_sense_and_alone() -> io::Result<()> {
    let _alone = alone();
    let kind = |recorder: Recorder| recorder.start().map(drop).map_err(|error| error.kind());
    let invalid = Err(io::ErrorKind::InvalidInput);
    assert_eq!(kind(Recorder::new().block_bytes(5000)), invalid);
    assert_eq!(kind(Recorder::new().block_bytes(2048)), invalid);
    assert_eq!(kind(Recorder::new().ring_bytes(1 << 16)), invalid);
    assert_eq!(kind(Recorder::new().policy(Policy::Block)), invalid);
    let recording = Recorder::new().start()?;
    assert_eq!(kind(Recorder::new()), Err(io::ErrorKind::AlreadyExists));
    recording.stop()?;
    assert_eq!(kind(Recorder::new()), Ok(()));
    Ok(())
}

/// An event in a destructor of the thread's, after its ring is given back.
#[test]
fn events_of_late_destructors_are_counted() -> io::Result<()> {
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            event!(TEST, Last { n: u32 = 1 });
        }
    }
    thread_local!(static LATE: Late = const { Late });
    let _alone = alone();
    let recording = Recorder::new().start()?;
    thread::spawn(|| {
        LATE.with(|_| ()); // its destructor runs after that of what comes into being later
        event!(TEST, First { n: u32 = 0 });
    })
    .join()
    .expect("no panic");
    let account = Trace::from_bytes(recording.finish()?)?.account();
    assert_eq!((account.produced, account.merged + account.lost), (2, 2), "{account}");
    Ok(())
}

#[test]
fn snapshots_beside_writers_are_closed() -> io::Result<()> {
    let _alone = alone();
    let recording = Recorder::new().ring_bytes(1 << 14).block_bytes(1 << 12).start()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut n = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    event!(TEST, Step { n: u64, twice: u64 = 2 * n });
                    n += 1;
                }
            });
        }
        let _end = AtEnd(&is_over);
        for _ in 0..100 {
            let mut trace = Trace::from_bytes(recording.snapshot()?)?;
            let mut merge = trace.merge();
            while let Some(record) = merge.next() {
                let values: Vec<_> = record.fields().map(|(_, value)| value).collect();
                let [Value::Unsigned(n), Value::Unsigned(twice)] = values[..] else { panic!() };
                assert_eq!((record.sequence, twice), (n, 2 * n));
            }
            let account = merge.into_account();
            assert!(account.is_closed(), "{account}");
        }
        Ok(())
    })
}
