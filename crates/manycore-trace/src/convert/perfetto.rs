//! Writes Perfetto's protocol buffers.
//!
//! The encoder is written by hand. It needs six of the two hundred messages of Perfetto's schema,
//! with twenty fields whose numbers never change. A generated crate for all messages, with its
//! runtime, is a thousand times as much code.

use super::Filter;
use crate::{Account, Kind, Record, Trace, Value};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Numbers of fields, by message, from `protos/perfetto/trace`.
mod field {
    pub(super) const TRACE_PACKET: u64 = 1;

    pub(super) const PACKET_TIMESTAMP: u64 = 8;
    pub(super) const PACKET_SEQUENCE: u64 = 10;
    pub(super) const PACKET_EVENT: u64 = 11;
    pub(super) const PACKET_DESCRIPTOR: u64 = 60;

    pub(super) const TRACK_UUID: u64 = 1;
    pub(super) const TRACK_NAME: u64 = 2;
    pub(super) const TRACK_PROCESS: u64 = 3;
    pub(super) const TRACK_THREAD: u64 = 4;
    pub(super) const TRACK_PARENT: u64 = 5;
    pub(super) const TRACK_COUNTER: u64 = 8;

    pub(super) const PROCESS_PID: u64 = 1;
    pub(super) const THREAD_PID: u64 = 1;
    pub(super) const THREAD_TID: u64 = 2;
    pub(super) const THREAD_NAME: u64 = 5;

    pub(super) const EVENT_ANNOTATION: u64 = 4;
    pub(super) const EVENT_TYPE: u64 = 9;
    pub(super) const EVENT_TRACK: u64 = 11;
    pub(super) const EVENT_CATEGORY: u64 = 22;
    pub(super) const EVENT_NAME: u64 = 23;
    pub(super) const EVENT_COUNTER: u64 = 30;
    pub(super) const EVENT_DOUBLE_COUNTER: u64 = 44;
    pub(super) const EVENT_FLOW: u64 = 47;
    pub(super) const EVENT_LAST_FLOW: u64 = 48;

    pub(super) const ANNOTATION_BOOL: u64 = 2;
    pub(super) const ANNOTATION_UNSIGNED: u64 = 3;
    pub(super) const ANNOTATION_SIGNED: u64 = 4;
    pub(super) const ANNOTATION_DOUBLE: u64 = 5;
    pub(super) const ANNOTATION_STRING: u64 = 6;
    pub(super) const ANNOTATION_NAME: u64 = 10;
}

/// A message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn fixed(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, build: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        build(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// The tracks of a trace: the process, its threads and its counters.
#[derive(Default)]
struct Tracks {
    threads: BTreeMap<u64, String>,
    counters: BTreeMap<(String, String), u64>,
}

/// The number of the process's own track. Threads' and counters' tracks have higher numbers.
const PROCESS_TRACK: u64 = 1;
const THREAD_TRACKS: u64 = 1 << 40;
const COUNTER_TRACKS: u64 = 1 << 41;

/// Writes the records as a trace of Perfetto.
///
/// ```
/// use manycore_trace::{Recorder, Trace, convert};
///
/// let mut trace = Trace::from_bytes(Recorder::new().start()?.finish()?)?;
/// let mut bytes = Vec::new();
/// convert::perfetto(&mut trace, &convert::Filter::default(), &mut bytes)?;
/// assert!(!bytes.is_empty()); // a packet that names the process
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of `to`.
pub fn perfetto(trace: &mut Trace, filter: &Filter, mut to: impl Write) -> io::Result<Account> {
    let (process, start) = (trace.process(), trace.start());
    let mut tracks = Tracks::default();
    describe(&mut to, PROCESS_TRACK, |track| {
        track.message(field::TRACK_PROCESS, |of| of.number(field::PROCESS_PID, process));
    })?;
    let mut merge = trace.merge();
    while let Some(record) = merge.next() {
        if !filter.takes(&record) {
            continue;
        }
        let track = tracks.of(&mut to, process, &record)?;
        let time = start.saturating_add_signed(record.nanos());
        packet(&mut to, Some(time), |packet| {
            packet.message(field::PACKET_EVENT, |event| fill(event, track, &record));
        })?;
    }
    to.flush()?;
    Ok(merge.into_account())
}

fn packet(
    to: &mut impl Write,
    time: Option<u64>,
    build: impl FnOnce(&mut Message),
) -> io::Result<()> {
    let mut trace = Message::default();
    trace.message(field::TRACE_PACKET, |packet| {
        if let Some(time) = time {
            packet.number(field::PACKET_TIMESTAMP, time);
        }
        packet.number(field::PACKET_SEQUENCE, 1);
        build(packet);
    });
    to.write_all(&trace.0)
}

fn describe(to: &mut impl Write, uuid: u64, build: impl FnOnce(&mut Message)) -> io::Result<()> {
    packet(to, None, |packet| {
        packet.message(field::PACKET_DESCRIPTOR, |track| {
            track.number(field::TRACK_UUID, uuid);
            build(track);
        });
    })
}

impl Tracks {
    /// Returns the track of a record. Describes the track first if it is new.
    fn of(&mut self, to: &mut impl Write, process: u64, record: &Record<'_>) -> io::Result<u64> {
        if record.info.kind == Kind::Counter {
            let key = (record.info.class_name.clone(), record.info.name.clone());
            let next = COUNTER_TRACKS + self.counters.len() as u64;
            let uuid = *self.counters.entry(key).or_insert(next);
            if uuid == next {
                describe(to, uuid, |track| {
                    track.bytes(field::TRACK_NAME, record.info.name.as_bytes());
                    track.number(field::TRACK_PARENT, PROCESS_TRACK);
                    track.message(field::TRACK_COUNTER, |_| {});
                })?;
            }
            return Ok(uuid);
        }
        let uuid = THREAD_TRACKS.wrapping_add(record.thread);
        let known = self.threads.get(&record.thread);
        if known.is_none_or(|name| name != record.thread_name()) {
            let name = record.thread_name().to_owned();
            describe(to, uuid, |track| {
                track.number(field::TRACK_PARENT, PROCESS_TRACK);
                track.message(field::TRACK_THREAD, |of| {
                    of.number(field::THREAD_PID, process);
                    of.number(field::THREAD_TID, record.thread);
                    of.bytes(field::THREAD_NAME, name.as_bytes());
                });
            })?;
            self.threads.insert(record.thread, name);
        }
        Ok(uuid)
    }
}

fn fill(event: &mut Message, track: u64, record: &Record<'_>) {
    let info = record.info;
    let kind = match info.kind {
        Kind::Begin => 1,
        Kind::End => 2,
        Kind::Counter => 4,
        Kind::Instant | Kind::FlowBegin | Kind::FlowEnd => 3,
    };
    event.number(field::EVENT_TYPE, kind);
    event.number(field::EVENT_TRACK, track);
    if info.kind == Kind::End {
        return;
    }
    event.bytes(field::EVENT_CATEGORY, info.class_name.as_bytes());
    event.bytes(field::EVENT_NAME, info.name.as_bytes());
    for (name, value) in record.fields() {
        match (info.kind, &value) {
            (Kind::Counter, Value::Unsigned(value)) => event.number(field::EVENT_COUNTER, *value),
            (Kind::Counter, Value::Signed(value)) => {
                event.number(field::EVENT_COUNTER, *value as u64);
            }
            (Kind::Counter, Value::Float(value)) => {
                event.fixed(field::EVENT_DOUBLE_COUNTER, value.to_bits());
            }
            (Kind::FlowBegin, Value::Unsigned(flow)) => event.fixed(field::EVENT_FLOW, *flow),
            (Kind::FlowEnd, Value::Unsigned(flow)) => event.fixed(field::EVENT_LAST_FLOW, *flow),
            _ => event.message(field::EVENT_ANNOTATION, |of| annotate(of, name, &value)),
        }
    }
}

fn annotate(of: &mut Message, name: &str, value: &Value) {
    of.bytes(field::ANNOTATION_NAME, name.as_bytes());
    match value {
        Value::Unsigned(value) => of.number(field::ANNOTATION_UNSIGNED, *value),
        Value::Signed(value) => of.number(field::ANNOTATION_SIGNED, *value as u64),
        Value::Float(value) => of.fixed(field::ANNOTATION_DOUBLE, value.to_bits()),
        Value::Bool(value) => of.number(field::ANNOTATION_BOOL, u64::from(*value)),
        Value::Text(text) => of.bytes(field::ANNOTATION_STRING, text.as_bytes()),
        Value::Bytes(_) => of.bytes(field::ANNOTATION_STRING, value.to_string().as_bytes()),
    }
}
