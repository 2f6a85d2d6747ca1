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
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() && time <= Duration::from_secs(24 * 60 * 60) => Ok(time),
        _ => Err("a time above zero and up to a day is needed, such as 300ms, 15s or 2min"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;
    use std::time::Duration;

    #[test]
    fn time_that_is_refused_gets_the_format_named() {
        for text in ["abc", "", "15", "0s", "25h", "-1s"] {
            let error = duration(text).expect_err(text);
            assert!(error.contains("15s"), "{text}: {error}");
        }
        assert_eq!(duration("2min"), Ok(Duration::from_secs(120)));
    }
}
