//! A record and its fields.

use super::Head;
use crate::format::TRUNCATED;
use crate::schema::EventInfo;
use crate::site::FieldType;
use std::fmt;

/// A record, as returned by [`super::Merge::next`].
///
/// See [`Trace`](crate::Trace) for an example.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Record<'a> {
    /// The time in ticks; see [`super::Trace::nanos`].
    pub time: u64,
    /// The ring that held it.
    pub slot: u32,
    /// Its number among the ring's events.
    pub sequence: u64,
    /// The thread's number in the system, or 0 if unknown.
    pub thread: u64,
    /// The call site.
    pub info: &'a EventInfo,
    /// All words except the first.
    pub(crate) words: &'a [u64],
    pub(crate) head: &'a Head,
    pub(crate) thread_name: &'a str,
}

/// A field's value.
///
/// See [`Trace`](crate::Trace) for an example.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// An unsigned number.
    Unsigned(u64),
    /// A signed number.
    Signed(i64),
    /// A floating-point number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A text. Ends with `...` if it was truncated.
    Text(String),
    /// Bytes, only the first ones if they were truncated.
    Bytes(Vec<u8>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Bool(value) => value.fmt(f),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Bytes(value) => value.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

impl<'a> Record<'a> {
    /// Returns nanoseconds from the start of the recording. Negative before the start.
    #[must_use]
    pub fn nanos(&self) -> i64 {
        self.head.nanos(self.time)
    }

    /// Returns up to 64 bytes of the thread's name, empty if it has none.
    #[must_use]
    pub fn thread_name(&self) -> &'a str {
        self.thread_name
    }

    /// Returns the fields' names and values.
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        let tail = self.info.fixed().div_ceil(8);
        Fields { info: self.info, words: self.words, at: 0, bit: 0, tail }
    }

    /// Returns the value of the field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Value> {
        self.fields().find(|(of, _)| *of == name).map(|(_, value)| value)
    }
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.info.fmt(f)?;
        self.fields().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// The fields of a record. Ends early if the record is too short for its schema.
///
/// See [`Trace`](crate::Trace) for an example.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    info: &'a EventInfo,
    words: &'a [u64],
    /// The next field; below, its first bit in the fixed part, and the next text's word.
    at: usize,
    bit: usize,
    tail: usize,
}

/// Returns the low `bits` bits of `word` as a signed number.
fn signed(word: u64, bits: u32) -> i64 {
    let unused = 64 - bits;
    (word << unused) as i64 >> unused
}

impl Fields<'_> {
    /// Returns the next bytes of the fixed part.
    fn fixed(&mut self, bytes: usize) -> Option<u64> {
        let (at, shift) = (self.bit / 64, self.bit % 64);
        let low = self.words.get(at)? >> shift;
        let is_split = shift + 8 * bytes > 64;
        let high = if is_split { self.words.get(at + 1)? << (64 - shift) } else { 0 };
        self.bit += 8 * bytes;
        Some((low | high) & (u64::MAX >> (64 - 8 * bytes)))
    }

    fn tail(&mut self, length: u64) -> Option<Vec<u8>> {
        let length = (length & !TRUNCATED) as usize;
        let end = self.tail + length.div_ceil(8);
        let words = self.words.get(self.tail..end)?;
        self.tail = end;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(length);
        Some(bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a str, Value);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, of) = self.info.fields.get(self.at)?;
        self.at += 1;
        let word = self.fixed(of.fixed())?;
        let value = match of {
            FieldType::Unsigned(_) => Value::Unsigned(word),
            FieldType::Signed(bytes) => Value::Signed(signed(word, 8 * u32::from(*bytes))),
            FieldType::Float(4) => Value::Float(f64::from(f32::from_bits(word as u32))),
            FieldType::Float(_) => Value::Float(f64::from_bits(word)),
            FieldType::Bool => Value::Bool(word != 0),
            FieldType::Bytes => Value::Bytes(self.tail(word)?),
            FieldType::Text => {
                let mut text = String::from_utf8_lossy(&self.tail(word)?).into_owned();
                if word & TRUNCATED != 0 {
                    text.push_str("...");
                }
                Value::Text(text)
            }
        };
        Some((name, value))
    }
}
