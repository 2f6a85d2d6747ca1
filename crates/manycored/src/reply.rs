//! Words of replies, for all that writes some.

/// The error when no more flushes of prefixes can be remembered.
pub(crate) const TOO_MANY_PREFIXES: &str =
    "SERVER_ERROR too many prefixes flushed, try again later";

/// Writes a line of a reply.
pub(crate) fn say(out: &mut Vec<u8>, words: &str) {
    out.extend_from_slice(words.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a number.
pub(crate) fn digits(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
