//! Parsers of numbers on the command line.

use std::time::Duration;

/// Reads a whole number from 1.
pub fn positive(text: &str) -> Result<usize, &'static str> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("a whole number from 1 is needed"),
    }
}

/// Reads a time, such as 300ms or 2s.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if duration.is_zero() || duration > Duration::from_secs(24 * 60 * 60) {
        return Err("a time above zero and up to a day is needed".to_owned());
    }
    Ok(duration)
}
