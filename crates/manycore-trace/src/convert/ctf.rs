//! The Common Trace Format, version 2: a folder with metadata and a stream for each slot.

use super::Filter;
use super::chrome::quoted;
use crate::{Account, EventInfo, FieldType, Record, Trace, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Writes the records into a new folder as a trace of the Common Trace Format 2 (`CTF2-SPEC-2.0`).
///
/// ```
/// use manycore_trace::{Recorder, Trace, convert};
///
/// let mut trace = Trace::from_bytes(Recorder::new().start()?.finish()?)?;
/// let folder = std::env::temp_dir().join(format!("manycore-trace-ctf-{}", std::process::id()));
/// convert::ctf(&mut trace, &convert::Filter::default(), &folder)?;
/// assert!(folder.join("metadata").exists());
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// If the folder or a file in it can't be made.
pub fn ctf(trace: &mut Trace, filter: &Filter, folder: impl AsRef<Path>) -> io::Result<Account> {
    let folder = folder.as_ref();
    fs::create_dir(folder)?;
    let ids: BTreeMap<(String, u32, String), u64> =
        trace.events().enumerate().map(|(at, info)| (key(info), at as u64)).collect();
    let mut metadata = BufWriter::new(File::create(folder.join("metadata"))?);
    write_metadata(&mut metadata, trace, &ids)?;
    metadata.flush()?;
    let mut streams: BTreeMap<u32, Stream> = BTreeMap::new();
    let start = trace.start();
    let mut merge = trace.merge();
    while let Some(record) = merge.next() {
        if !filter.takes(&record) {
            continue;
        }
        let stream = match streams.entry(record.slot) {
            Entry::Occupied(stream) => stream.into_mut(),
            Entry::Vacant(place) => {
                let path = folder.join(format!("slot-{}", record.slot));
                place.insert(Stream { path, packet: Vec::new(), first: 0, last: 0 })
            }
        };
        let time = start.saturating_add_signed(record.nanos());
        stream.put(ids[&key(record.info)], time, &record)?;
    }
    streams.values_mut().try_for_each(Stream::end_packet)?;
    Ok(merge.into_account())
}

/// The first word of each packet.
const MAGIC: u32 = 0xc1fc_1fc1;
/// Bytes of the magic number, and of the two lengths and two times after it.
const PACKET_HEAD: usize = 4 + 4 * 8;
/// A packet ends after this many bytes.
const PACKET: usize = 64 << 10;

/// A slot's file, and its unfinished packet. The file is open only while a packet is written, since
/// there may be more slots than a process may have descriptors.
struct Stream {
    path: PathBuf,
    packet: Vec<u8>,
    first: u64,
    last: u64,
}

impl Stream {
    fn put(&mut self, id: u64, time: u64, record: &Record<'_>) -> io::Result<()> {
        if self.packet.is_empty() {
            self.packet.resize(PACKET_HEAD, 0);
            self.first = time;
        }
        self.last = time;
        write_record(&mut self.packet, id, time, record)?;
        if self.packet.len() >= PACKET { self.end_packet() } else { Ok(()) }
    }

    fn end_packet(&mut self) -> io::Result<()> {
        if self.packet.is_empty() {
            return Ok(());
        }
        let bits = 8 * self.packet.len() as u64;
        self.packet[..4].copy_from_slice(&MAGIC.to_le_bytes());
        for (at, value) in [bits, bits, self.first, self.last].into_iter().enumerate() {
            self.packet[4 + 8 * at..][..8].copy_from_slice(&value.to_le_bytes());
        }
        File::options().append(true).create(true).open(&self.path)?.write_all(&self.packet)?;
        self.packet.clear();
        Ok(())
    }
}

/// Returns what identifies a call site.
fn key(info: &EventInfo) -> (String, u32, String) {
    let EventInfo { kind, class_name, name, .. } = info;
    (info.file.clone(), info.line, format!("{kind:?} {class_name} {name}"))
}

fn fragment(to: &mut impl Write, json: &str) -> io::Result<()> {
    writeln!(to, "\u{1e}{json}")
}

/// Describes a class of fixed-length fields.
fn fixed(kind: &str, bytes: u8, role: &str) -> String {
    let roles = if role.is_empty() { String::new() } else { format!(",\"roles\":[\"{role}\"]") };
    let bits = 8 * u32::from(bytes);
    let order = "\"byte-order\":\"little-endian\"";
    format!("{{\"type\":\"fixed-length-{kind}\",\"length\":{bits},{order}{roles}}}")
}

fn structure(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, class)| format!("{{\"name\":{},\"field-class\":{class}}}", quoted(name)))
        .collect();
    format!("{{\"type\":\"structure\",\"member-classes\":[{}]}}", members.join(","))
}

fn class_of(field: FieldType) -> String {
    match field {
        FieldType::Unsigned(bytes) => fixed("unsigned-integer", bytes, ""),
        FieldType::Signed(bytes) => fixed("signed-integer", bytes, ""),
        FieldType::Float(bytes) => fixed("floating-point-number", bytes, ""),
        FieldType::Bool => fixed("boolean", 1, ""),
        FieldType::Text | FieldType::Bytes => "{\"type\":\"null-terminated-string\"}".to_owned(),
    }
}

fn write_metadata(
    to: &mut impl Write,
    trace: &Trace,
    ids: &BTreeMap<(String, u32, String), u64>,
) -> io::Result<()> {
    fragment(to, "{\"type\":\"preamble\",\"version\":2}")?;
    let header = structure(&[("magic", fixed("unsigned-integer", 4, "packet-magic-number"))]);
    fragment(to, &format!("{{\"type\":\"trace-class\",\"packet-header-field-class\":{header}}}"))?;
    fragment(
        to,
        "{\"type\":\"clock-class\",\"id\":\"real\",\"frequency\":1000000000,\
         \"origin\":\"unix-epoch\"}",
    )?;
    // The times are required in practice: babeltrace2 2.1 aborts without them.
    let packet = structure(&[
        ("total", fixed("unsigned-integer", 8, "packet-total-length")),
        ("content", fixed("unsigned-integer", 8, "packet-content-length")),
        ("first", fixed("unsigned-integer", 8, "default-clock-timestamp")),
        ("last", fixed("unsigned-integer", 8, "packet-end-default-clock-timestamp")),
    ]);
    let header = structure(&[
        ("id", fixed("unsigned-integer", 4, "event-record-class-id")),
        ("time", fixed("unsigned-integer", 8, "default-clock-timestamp")),
    ]);
    let context = structure(&[("tid", fixed("unsigned-integer", 8, ""))]);
    fragment(
        to,
        &format!(
            "{{\"type\":\"data-stream-class\",\"id\":0,\"default-clock-class-id\":\"real\",\
             \"packet-context-field-class\":{packet},\
             \"event-record-header-field-class\":{header},\
             \"event-record-common-context-field-class\":{context}}}"
        ),
    )?;
    for info in trace.events() {
        let members: Vec<(&str, String)> =
            info.fields.iter().map(|(name, of)| (name.as_str(), class_of(*of))).collect();
        fragment(
            to,
            &format!(
                "{{\"type\":\"event-record-class\",\"id\":{},\"data-stream-class-id\":0,\
                 \"name\":{},\"payload-field-class\":{}}}",
                ids[&key(info)],
                quoted(&format!("{}:{}:{:?}", info.class_name, info.name, info.kind)),
                structure(&members)
            ),
        )?;
    }
    Ok(())
}

fn write_record(to: &mut impl Write, id: u64, time: u64, record: &Record<'_>) -> io::Result<()> {
    to.write_all(&(id as u32).to_le_bytes())?;
    to.write_all(&time.to_le_bytes())?;
    to.write_all(&record.thread.to_le_bytes())?;
    for ((_, of), (_, value)) in record.info.fields.iter().zip(record.fields()) {
        let bytes = of.fixed();
        let number = match (of, &value) {
            (_, Value::Unsigned(value)) => *value,
            (_, Value::Signed(value)) => *value as u64,
            (_, Value::Bool(value)) => u64::from(*value),
            (FieldType::Float(4), Value::Float(value)) => u64::from((*value as f32).to_bits()),
            (_, Value::Float(value)) => value.to_bits(),
            (_, Value::Text(text)) => {
                // A zero byte would end the text.
                to.write_all(text.replace('\0', "\u{fffd}").as_bytes())?;
                to.write_all(&[0])?;
                continue;
            }
            (_, Value::Bytes(_)) => {
                to.write_all(value.to_string().as_bytes())?;
                to.write_all(&[0])?;
                continue;
            }
        };
        to.write_all(&number.to_le_bytes()[..bytes])?;
    }
    Ok(())
}
