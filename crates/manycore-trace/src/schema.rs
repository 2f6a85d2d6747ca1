//! The schema: entries in the file that describe each event's number.
//!
//! An entry begins with its length, so a reader skips what a later version appends. Names are
//! truncated, so an entry has at most [`MAX_ENTRY`] bytes.

use crate::format::{MAX_ENTRY, MAX_NAME, MAX_PATH};
use crate::site::{Event, FieldType, Kind};
use std::fmt;

/// An event's description in the file: its call site.
///
/// See [`Trace`](crate::Trace) for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventInfo {
    /// Its kind.
    pub kind: Kind,
    /// Its class's number.
    pub class: u8,
    /// Its class's name.
    pub class_name: String,
    /// Its name.
    pub name: String,
    /// The module that records it.
    pub module: String,
    /// The source file and line that record it.
    pub file: String,
    /// The line.
    pub line: u32,
    /// Its fields' names and types.
    pub fields: Vec<(String, FieldType)>,
    /// One in `every` events was recorded, on average ([`sample`](crate::Recorder::sample)).
    pub every: u32,
}

impl fmt::Display for EventInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.class_name, self.name)
    }
}

impl EventInfo {
    /// Returns the bytes of a record's fixed part.
    pub(crate) fn fixed(&self) -> usize {
        self.fields.iter().map(|(_, of)| of.fixed()).sum()
    }
}

/// Appends a text, truncated to `most` bytes.
fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let end = (0..=text.len().min(most)).rfind(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let bytes = &text.as_bytes()[..end];
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Returns the entry of an event with these fields, sampled one in `every`, in whole words.
pub(crate) fn encode(
    number: u16,
    event: &Event,
    fields: &[(&str, FieldType)],
    every: u32,
) -> Vec<u8> {
    let (module, file, line) = event.place;
    let mut out = vec![0; 4];
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&[event.class.number(), event.kind as u8]);
    out.extend_from_slice(&line.to_le_bytes());
    out.push(fields.len() as u8);
    let texts = [
        (event.class.name(), MAX_NAME),
        (event.name, MAX_NAME),
        (module, MAX_PATH),
        (file, MAX_PATH),
    ];
    for (text, most) in texts {
        put_text(&mut out, text, most);
    }
    for (name, of) in fields {
        out.push(of.code());
        put_text(&mut out, name, MAX_NAME);
    }
    out.extend_from_slice(&every.to_le_bytes());
    out.resize(out.len().next_multiple_of(8), 0);
    let length = (out.len() as u32).to_le_bytes();
    out[..4].copy_from_slice(&length);
    out
}

/// The unread rest of an entry.
struct Entry<'a>(&'a [u8]);

impl<'a> Entry<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn text(&mut self, most: usize) -> Option<String> {
        let bytes = usize::from(u16::from_le_bytes(self.number()?));
        if bytes > most {
            return None;
        }
        Some(String::from_utf8_lossy(self.take(bytes)?).into_owned())
    }
}

/// Decodes the first entry of `bytes`. Returns its number, its contents and its length, or `None`
/// if it makes no sense.
pub(crate) fn decode(bytes: &[u8]) -> Option<(u16, EventInfo, usize)> {
    let length = u32::from_le_bytes(bytes.first_chunk().copied()?) as usize;
    if length > MAX_ENTRY {
        return None;
    }
    let mut entry = Entry(bytes.get(4..length)?);
    let number = u16::from_le_bytes(entry.number()?);
    let [class, kind] = entry.number()?;
    let kind = *Kind::ALL.get(usize::from(kind))?;
    let line = u32::from_le_bytes(entry.number()?);
    let [count] = entry.number()?;
    let (class_name, name) = (entry.text(MAX_NAME)?, entry.text(MAX_NAME)?);
    let (module, file) = (entry.text(MAX_PATH)?, entry.text(MAX_PATH)?);
    let mut fields = Vec::new();
    for _ in 0..count {
        let [code] = entry.number()?;
        let of = FieldType::from_code(code)?;
        fields.push((entry.text(MAX_NAME)?, of));
    }
    // Older files do not have it, or have zeros.
    let every = entry.number().map_or(1, u32::from_le_bytes).max(1);
    let info = EventInfo { kind, class, class_name, name, module, file, line, fields, every };
    Some((number, info, length))
}
