//! Numbers of the command line.

pub(crate) fn positive(text: &str) -> Result<usize, &'static str> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("a whole number from 1 is needed"),
    }
}
