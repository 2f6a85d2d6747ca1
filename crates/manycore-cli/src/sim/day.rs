//! The day on which a simulated program's time of day begins, at midnight UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of a day.
const SECONDS: u64 = 86_400;

/// The day of this project's own programs, 2023-11-15: their figures do not depend on the date.
pub(crate) const OF_OWN_PROGRAMS: u64 = 19_676;

/// Returns the days from 1970 to today.
pub(crate) fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / SECONDS)
}

/// Reads a date of the form YYYY-MM-DD. Returns the days from 1970 to it.
///
/// # Errors
/// The text is no date of the years 1970 to 9999.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    days(text).ok_or_else(|| "a date from 1970-01-01 to 9999-12-31 is needed".to_owned())
}

fn days(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text.split('-').collect();
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    if parts.iter().map(|part| part.len()).ne([4, 2, 2]) || !parts.iter().all(is_number) {
        return None;
    }
    let number = |at: usize| parts[at].parse::<u64>().ok();
    let (year, month, day) = (number(0)?, number(1)?, number(2)?);
    if year < 1970 || !(1..=12).contains(&month) || !(1..=length(year, month)).contains(&day) {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let months: u64 = (1..month).map(|month| length(year, month)).sum();
    Some(years + months + day - 1)
}

/// Returns the days of a month.
fn length(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
#[test]
fn dates_are_days_since_1970_and_nothing_else_is_a_date() {
    let dates = ["1970-01-01", "1972-03-01", "2023-11-15", "2024-02-29", "9999-12-31"];
    let days = [0, 790, OF_OWN_PROGRAMS, 19_782, 2_932_896];
    assert_eq!(dates.map(|date| parse(date).expect(date)), days);
    assert!((parse("2025-01-01").unwrap()..parse("9999-01-01").unwrap()).contains(&today()));
    for text in ["1969-12-31", "2023-02-29", "2100-02-29", "2024-13-01", "2024-1-1", "today", ""] {
        assert!(parse(text).is_err(), "{text}");
    }
}
