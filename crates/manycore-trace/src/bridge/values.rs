//! The fields of a call: their types, and what a record keeps of them.

use crate::format::{MAX_RECORD, MAX_TEXT, TRUNCATED};
use crate::local;
use crate::site::{Event, FieldType};
use crate::sync::Ordering;
use std::cell::Cell;
use std::fmt::{self, Write};

/// Maximal fields of a call, as in tracing.
const FIELDS: usize = 32;

/// Maximal bytes of texts, so that each record has room for all fields.
const TEXTS: usize = 8 * (MAX_RECORD - 1 - FIELDS);

/// The fields of one call.
pub(super) struct Values {
    /// The fixed part of the field at each position.
    fixed: [u64; FIELDS],
    /// Where the text of each position begins in `texts`.
    starts: [u16; FIELDS],
    texts: [u8; TEXTS],
    /// Used bytes of `texts`, a multiple of eight.
    end: usize,
    /// Four bits for each position: the field's type, or 0 without a value.
    types: u128,
}

/// Returns the type that four bits of [`Values::types`] stand for.
fn type_of(bits: u128) -> Option<FieldType> {
    match bits & 0xf {
        1 => Some(FieldType::Unsigned(8)),
        2 => Some(FieldType::Signed(8)),
        3 => Some(FieldType::Float(8)),
        4 => Some(FieldType::Bool),
        5 => Some(FieldType::Text),
        6 => Some(FieldType::Bytes),
        _ => None,
    }
}

/// Returns the positions and types of a call's fields.
pub(super) fn types_of(types: u128) -> impl Iterator<Item = (usize, FieldType)> {
    let mut rest = types;
    std::iter::from_fn(move || {
        let at = rest.trailing_zeros() as usize / 4;
        let of = type_of(rest.checked_shr(4 * at as u32)?)?;
        rest &= !(0xf << (4 * at));
        Some((at, of))
    })
}

impl Values {
    const fn new() -> Self {
        Self { fixed: [0; FIELDS], starts: [0; FIELDS], texts: [0; TEXTS], end: 0, types: 0 }
    }

    fn clear(&mut self) {
        (self.end, self.types) = (0, 0);
    }

    /// Returns which fields have a value, and their types.
    #[cfg(feature = "tracing")]
    pub(super) fn types(&self) -> u128 {
        self.types
    }

    /// Gives the field at this position a value. The last value of a field counts.
    #[inline]
    fn put(&mut self, at: usize, code: u128, value: u64) {
        if at < FIELDS {
            self.types = self.types & !(0xf << (4 * at)) | code << (4 * at);
            self.fixed[at] = value;
        }
    }

    pub(super) fn put_unsigned(&mut self, at: usize, value: u64) {
        self.put(at, 1, value);
    }

    #[cfg(feature = "tracing")]
    pub(super) fn put_signed(&mut self, at: usize, value: i64) {
        self.put(at, 2, value as u64);
    }

    #[cfg(feature = "tracing")]
    pub(super) fn put_float(&mut self, at: usize, value: f64) {
        self.put(at, 3, value.to_bits());
    }

    #[cfg(feature = "tracing")]
    pub(super) fn put_bool(&mut self, at: usize, value: bool) {
        self.put(at, 4, value.into());
    }

    /// Formats a text into the buffer, as far as there is room.
    pub(super) fn put_text(&mut self, at: usize, text: fmt::Arguments<'_>) {
        let room = MAX_TEXT.min(TEXTS - self.end);
        let bytes = &mut self.texts[self.end..self.end + room];
        let mut tail = Tail { bytes, end: 0, is_cut: false };
        // An error comes from the value, or says that the text did not fit.
        let is_cut = tail.write_fmt(text).is_err() || tail.is_cut;
        let length = tail.end;
        self.put_tail(at, 5, length, is_cut);
    }

    #[cfg(feature = "tracing")]
    pub(super) fn put_bytes(&mut self, at: usize, bytes: &[u8]) {
        let kept = bytes.len().min(MAX_TEXT).min(TEXTS - self.end);
        self.texts[self.end..self.end + kept].copy_from_slice(&bytes[..kept]);
        self.put_tail(at, 6, kept, kept < bytes.len());
    }

    /// Makes the text of this length, after the last one, the text of the field.
    fn put_tail(&mut self, at: usize, code: u128, length: usize, is_cut: bool) {
        self.put(at, code, length as u64 | if is_cut { TRUNCATED } else { 0 });
        if let Some(start) = self.starts.get_mut(at) {
            *start = self.end as u16;
        }
        // Fill the rest of the last word with 0.
        let end = self.end + length;
        self.end = end.next_multiple_of(8);
        self.texts[end..self.end].fill(0);
    }

    /// Passes on the words of a record after its first word.
    fn each_word(&self, mut to: impl FnMut(u64)) {
        let (mut word, mut bits) = (0, 0);
        for (at, of) in types_of(self.types) {
            let (value, width) = (self.fixed[at], 8 * of.fixed());
            word |= value << bits;
            bits += width;
            if bits >= 64 {
                to(word);
                bits -= 64;
                word = if bits == 0 { 0 } else { value >> (width - bits) };
            }
        }
        if bits != 0 {
            to(word);
        }
        for (at, of) in types_of(self.types) {
            if matches!(of, FieldType::Text | FieldType::Bytes) {
                let start = usize::from(self.starts[at]);
                let length = (self.fixed[at] & !TRUNCATED) as usize;
                let bytes = &self.texts[start..start + length.next_multiple_of(8)];
                for bytes in bytes.chunks_exact(8) {
                    to(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
                }
            }
        }
    }

    /// Returns the number of these words.
    fn length(&self) -> usize {
        let (mut bytes, mut words) = (0, 0);
        for (at, of) in types_of(self.types) {
            bytes += of.fixed();
            if matches!(of, FieldType::Text | FieldType::Bytes) {
                words += ((self.fixed[at] & !TRUNCATED) as usize).div_ceil(8);
            }
        }
        bytes.div_ceil(8) + words
    }

    /// Returns a copy of the words of a record after its first word.
    #[cfg(feature = "tracing")]
    pub(super) fn to_words(&self) -> Box<[u64]> {
        let mut words = Vec::with_capacity(self.length());
        self.each_word(|word| words.push(word));
        words.into()
    }

    /// Records an event with these fields.
    pub(super) fn record(&self, event: &'static Event) {
        local::record(event, 1 + self.length(), |to| {
            let mut to = to.iter();
            self.each_word(|word| {
                if let Some(to) = to.next() {
                    // ORDER: Relaxed; the ring's commit publishes it.
                    to.store(word, Ordering::Relaxed);
                }
            });
        });
    }
}

/// Writes a text into a part of the buffer.
struct Tail<'a> {
    bytes: &'a mut [u8],
    end: usize,
    is_cut: bool,
}

impl Write for Tail<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.len() - self.end;
        let mut length = text.len().min(room);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        self.bytes[self.end..self.end + length].copy_from_slice(&text.as_bytes()[..length]);
        self.end += length;
        self.is_cut |= length < text.len();
        // Stop formatting, since the rest does not fit.
        if self.is_cut { Err(fmt::Error) } else { Ok(()) }
    }
}

thread_local! {
    static BUFFER: Cell<Option<Box<Values>>> = const { Cell::new(None) };
}

/// Runs `f` with the calling thread's buffer, emptied (bridge.B1).
pub(super) fn with_values<R>(f: impl FnOnce(&mut Values) -> R) -> R {
    let kept = BUFFER.try_with(Cell::take).unwrap_or_default();
    let mut values = kept.unwrap_or_else(|| Box::new(Values::new()));
    values.clear();
    let result = f(&mut values);
    // In a thread's last destructors this fails, and the buffer is dropped.
    let _ = BUFFER.try_with(|place| place.set(Some(values)));
    result
}
