//! Replies: their bound, and writing of lines and numbers.

/// Bytes of unsent replies at which a session stops answering until they are sent.
pub const OUT_MAX: usize = 256 << 10;

/// The error if no more flushes of prefixes can be remembered.
pub(crate) const TOO_MANY_PREFIXES: &str =
    "SERVER_ERROR too many prefixes flushed, try again later";

/// Writes a line of a reply.
pub(crate) fn write_reply(out: &mut Vec<u8>, words: &str) {
    out.extend_from_slice(words.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a number.
pub(crate) fn digits(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
