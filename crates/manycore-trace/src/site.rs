//! Call sites: the description of an event in the schema.

use crate::class::Class;
use crate::format::MAX_RECORD;
use crate::sync::AtomicU64;

/// The kind of a record: an instant, an end of a span, the value of a counter, or an end of a flow.
///
/// See [`Trace`](crate::Trace) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// Something happened.
    Instant,
    /// A span of this name begins in this thread.
    Begin,
    /// The innermost open span of this thread ends.
    End,
    /// The field `value` has this value from now on.
    Counter,
    /// Work leaves this thread under the number in the field `flow`.
    FlowBegin,
    /// Work with that number arrives in this thread.
    FlowEnd,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Instant, Self::Begin, Self::End, Self::Counter, Self::FlowBegin, Self::FlowEnd];
}

/// The type of a field in the file.
///
/// See [`Trace`](crate::Trace) for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldType {
    /// An unsigned number of 1, 2, 4 or 8 bytes.
    Unsigned(u8),
    /// A signed number of 1, 2, 4 or 8 bytes.
    Signed(u8),
    /// A floating-point number of 4 or 8 bytes.
    Float(u8),
    /// True or false.
    Bool,
    /// UTF-8.
    Text,
    /// Bytes.
    Bytes,
}

impl FieldType {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Unsigned(bytes) => bytes,
            Self::Signed(bytes) => 0x10 | bytes,
            Self::Float(bytes) => 0x20 | bytes,
            Self::Bool => 0x30,
            Self::Text => 0x40,
            Self::Bytes => 0x50,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        let bytes = code & 0xf;
        match (code & 0xf0, bytes) {
            (0, 1 | 2 | 4 | 8) => Some(Self::Unsigned(bytes)),
            (0x10, 1 | 2 | 4 | 8) => Some(Self::Signed(bytes)),
            (0x20, 4 | 8) => Some(Self::Float(bytes)),
            (0x30, 0) => Some(Self::Bool),
            (0x40, 0) => Some(Self::Text),
            (0x50, 0) => Some(Self::Bytes),
            _ => None,
        }
    }

    /// Returns the bytes in the fixed part of a record. For a text that is its length.
    pub(crate) const fn fixed(self) -> usize {
        match self {
            Self::Unsigned(bytes) | Self::Signed(bytes) | Self::Float(bytes) => bytes as usize,
            Self::Bool => 1,
            Self::Text | Self::Bytes => 2,
        }
    }
}

/// A call site. Made by the macros.
#[doc(hidden)]
#[derive(Debug)]
pub struct Event {
    /// The first word's class and number. 0 until the event is registered.
    pub(crate) tag: AtomicU64,
    pub(crate) class: Class,
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) place: (&'static str, &'static str, u32),
    pub(crate) fields: &'static [(&'static str, FieldType)],
}

impl Event {
    /// Creates a call site. `place` is its module, file and line.
    #[must_use]
    pub const fn new(
        class: Class,
        kind: Kind,
        name: &'static str,
        place: (&'static str, &'static str, u32),
        fields: &'static [(&'static str, FieldType)],
    ) -> Self {
        let (mut bytes, mut at) = (0, 0);
        while at < fields.len() {
            bytes += fields[at].1.fixed();
            at += 1;
        }
        let fixed = bytes.div_ceil(8);
        assert!(fixed < MAX_RECORD, "an event has at most 2,032 bytes of fixed fields");
        Self { tag: AtomicU64::new(0), class, kind, name, place, fields }
    }
}
