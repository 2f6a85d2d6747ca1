//! Recordings with times that the program supplies.

use crate::class::Class;
use crate::event::{fill, kept};
use crate::format::{self, BLOCK, HEAD, SCHEMA, TOTAL, copied, head, id, schema as entries, tag};
use crate::format::{MAX_RECORD, ring, total};
use crate::memory::Words;
use crate::reader::Value;
use crate::ring::{Copied, Policy, Ring, Sizes, Writer};
use crate::schema;
use crate::site::{Event, FieldType, Kind};
use crate::stream::put;
use crate::sync::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// A thread of a [`TraceWriter`].
///
/// See [`TraceWriter`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane(u32);

/// The parts that identify an event.
type Key = (Class, Kind, &'static str, Vec<(&'static str, FieldType)>);

#[derive(Debug)]
struct Slot {
    ring: Arc<Ring>,
    writer: Writer,
    /// The number of the next sub-buffer to be copied.
    next: u64,
}

/// Writes a recording with times that the program supplies: of a simulation, or of another
/// program's log.
///
/// ```
/// use manycore_trace::{Class, Kind, Trace, TraceWriter, Value};
///
/// const WAITS: Class = Class::new(1, "waits");
/// let mut writer = TraceWriter::new(1_000_000_000); // times in nanoseconds
/// let lane = writer.thread(7, "worker");
/// writer.record(lane, 100, WAITS, Kind::Begin, "Wait", &[("line", Value::Unsigned(64))]);
/// writer.record(lane, 350, WAITS, Kind::End, "Wait", &[]);
/// let mut trace = Trace::from_bytes(writer.finish())?;
/// let mut merge = trace.merge();
/// let record = merge.next().unwrap();
/// assert_eq!((record.nanos(), record.thread_name()), (100, "worker"));
/// assert_eq!(record.to_string(), "waits Wait line=64");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// Records of a lane are in order of time: a record with an earlier time than the last gets the
/// last one's time. Memory: 16 KiB for each lane, and the file.
#[derive(Debug)]
pub struct TraceWriter {
    ticks_per_second: u64,
    last: u64,
    slots: Vec<Slot>,
    events: HashMap<Key, u16>,
    schema: Vec<u8>,
    blocks: Vec<u8>,
    /// Events that found no free event number.
    refused: u64,
    words: Vec<u64>,
}

const SIZES: Sizes = Sizes { block_words: 1024, blocks: 2 };

/// Returns the type of a value, and what a record keeps of it.
fn kept_value(value: &Value) -> (FieldType, (u64, u8, &[u8])) {
    match value {
        Value::Unsigned(value) => (FieldType::Unsigned(8), kept(value)),
        Value::Signed(value) => (FieldType::Signed(8), kept(value)),
        Value::Float(value) => (FieldType::Float(8), kept(value)),
        Value::Bool(value) => (FieldType::Bool, kept(value)),
        Value::Text(value) => (FieldType::Text, text(value.as_bytes())),
        Value::Bytes(value) => (FieldType::Bytes, text(value)),
    }
}

fn text(bytes: &[u8]) -> (u64, u8, &[u8]) {
    let kept = &bytes[..bytes.len().min(format::MAX_TEXT)];
    let mark = if kept.len() < bytes.len() { format::TRUNCATED } else { 0 };
    (kept.len() as u64 | mark, FieldType::Text.fixed() as u8, kept)
}

impl TraceWriter {
    /// Creates an empty writer. A second has `ticks_per_second` ticks.
    #[must_use]
    pub fn new(ticks_per_second: u64) -> Self {
        Self {
            ticks_per_second: ticks_per_second.max(1),
            last: 0,
            slots: Vec::new(),
            events: HashMap::new(),
            schema: Vec::new(),
            blocks: Vec::new(),
            refused: 0,
            words: Vec::new(),
        }
    }

    /// Adds a thread with its number and its name.
    pub fn thread(&mut self, number: u64, name: &str) -> Lane {
        let lane = self.slots.len() as u32;
        let ring = Ring::new(Words::on_heap(SIZES.words()), SIZES, lane, Policy::Overwrite);
        let ring = Arc::new(ring);
        let mut writer = Writer::new(Arc::clone(&ring));
        writer.change_thread(number, name.as_bytes(), 0);
        self.slots.push(Slot { ring, writer, next: 0 });
        Lane(lane)
    }

    /// Appends a record. The end of a span needs no fields.
    ///
    /// # Panics
    /// If the lane belongs to another writer and this writer has fewer lanes.
    pub fn record(
        &mut self,
        lane: Lane,
        time: u64,
        class: Class,
        kind: Kind,
        name: &'static str,
        fields: &[(&'static str, Value)],
    ) {
        let (types, values): (Vec<_>, Vec<_>) = fields
            .iter()
            .map(|(name, value)| {
                let (of, kept) = kept_value(value);
                ((*name, of), kept)
            })
            .unzip();
        let Some(number) = self.number_of((class, kind, name, types)) else {
            self.refused += 1;
            return;
        };
        self.last = self.last.max(time);
        let slot = &mut self.slots[lane.0 as usize];
        let bits: usize = values.iter().map(|(_, bytes, _)| usize::from(*bytes)).sum();
        let tails: usize = values.iter().map(|(.., tail)| tail.len().div_ceil(8)).sum();
        let length = 1 + bits.div_ceil(8) + tails;
        let tag = tag(u64::from(number), class.number());
        slot.writer.record(tag, length.min(MAX_RECORD + 1), time, |words| fill(words, &values));
        let newest = slot.ring.newest().unwrap_or(0);
        self.copy(lane.0, newest);
    }

    /// Returns the number of such an event. Describes the event first if it is new.
    fn number_of(&mut self, key: Key) -> Option<u16> {
        if let Some(number) = self.events.get(&key) {
            return Some(*number);
        }
        let number = u16::try_from(id::FIRST as usize + self.events.len()).ok()?;
        let (class, kind, name, fields) = &key;
        let place = ("", "", 0);
        let event = Event::new(*class, *kind, name, place, &[]);
        self.schema.extend_from_slice(&schema::encode(number, &event, fields, 1));
        self.events.insert(key, number);
        Some(number)
    }

    /// Copies the sub-buffers before `before`.
    fn copy(&mut self, lane: u32, before: u64) {
        let slot = &mut self.slots[lane as usize];
        while slot.next < before {
            if slot.ring.copy(slot.next, &mut self.words) == Copied::Whole {
                let bytes = 8 * (copied::WORDS + self.words.len()) as u64;
                write(&mut self.blocks, &[BLOCK, bytes, lane.into(), 0]);
                write(&mut self.blocks, &self.words);
            }
            slot.next += 1;
        }
    }

    /// Returns the bytes of the file.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        for lane in 0..self.slots.len() as u32 {
            let end = self.slots[lane as usize].ring.newest().map_or(0, |newest| newest + 1);
            self.copy(lane, end);
            self.slots[lane as usize].writer.finish();
        }
        let nanos = u128::from(self.last) * 1_000_000_000 / u128::from(self.ticks_per_second);
        let end = [self.last, u64::try_from(nanos).unwrap_or(u64::MAX)];
        let mut out = Vec::new();
        let mut words = [0; head::WORDS];
        words[..2].copy_from_slice(&[HEAD, 8 * head::WORDS as u64]);
        words[head::VERSION] = format::VERSION;
        words[head::TICKS_PER_SECOND] = self.ticks_per_second;
        words[head::BLOCK_WORDS] = SIZES.block_words as u64;
        write(&mut out, &words);
        let bytes = (8 * entries::WORDS + self.schema.len()) as u64;
        write(&mut out, &[SCHEMA, bytes, self.schema.len() as u64, 0]);
        out.append(&mut self.schema);
        out.append(&mut self.blocks);
        let bytes = 8 * (total::WORDS + total::EACH * self.slots.len()) as u64;
        write(&mut out, &[TOTAL, bytes, self.refused, end[0], end[1]]);
        for slot in &self.slots {
            // ORDER: Relaxed; stored by this thread.
            let count = |at: usize| slot.ring.words()[at].load(Ordering::Relaxed);
            let [produced, lost] = [ring::PRODUCED, ring::LOST].map(count);
            write(&mut out, &[slot.ring.number.into(), produced, lost, 0]);
        }
        out
    }
}

/// Appends words.
fn write(to: &mut Vec<u8>, words: &[u64]) {
    put(to, words).expect("a vector takes all");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trace;

    const TEST: Class = Class::new(3, "test");

    #[test]
    fn records_of_many_lanes_are_read_in_the_order_of_their_times() {
        const EACH: u64 = 5_000;
        let mut writer = TraceWriter::new(2_000_000_000);
        let lanes: Vec<Lane> = (0..3).map(|n| writer.thread(n, &format!("thread {n}"))).collect();
        for n in 0..EACH {
            for (at, lane) in (0..).zip(&lanes) {
                let fields = [
                    ("n", Value::Unsigned(n)),
                    ("is_even", Value::Bool(n % 2 == 0)),
                    ("text", Value::Text("x".repeat(n as usize % 20))),
                ];
                // Some times are far apart, so that they have more than 32 bits.
                let time = n * 1000 + at + ((n / 1000) << 33);
                writer.record(*lane, time, TEST, Kind::Instant, "Step", &fields);
            }
        }
        writer.record(lanes[0], 1, TEST, Kind::End, "Back", &[]);
        let mut trace = Trace::from_bytes(writer.finish()).expect("a whole recording");
        let (mut merge, mut count) = (trace.merge(), 0);
        while let Some(record) = merge.next() {
            if record.info.name == "Back" {
                assert_eq!(record.time, (EACH - 1) * 1000 + (4 << 33), "not before the last one");
                continue;
            }
            let (n, at) = (count / 3, count % 3);
            let (slot, time) = (u64::from(record.slot), record.time);
            assert_eq!((slot, time), (at, n * 1000 + at + ((n / 1000) << 33)));
            assert_eq!(record.field("n"), Some(Value::Unsigned(n)));
            assert_eq!(record.field("text"), Some(Value::Text("x".repeat(n as usize % 20))));
            assert_eq!(record.thread_name(), format!("thread {at}"));
            count += 1;
        }
        let account = merge.into_account();
        assert!(account.is_closed(), "{account}");
        assert_eq!((count, account.merged, account.lost), (3 * EACH, 3 * EACH + 1, 0));
    }
}
