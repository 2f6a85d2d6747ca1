//! The words of a line, and parsing of numbers.

/// The words of a line, which are separated by spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Words<'a> {
    /// Returns the words of this line.
    #[must_use]
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Returns the rest of the line.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of words left.
    pub(super) fn left(self) -> usize {
        self.count()
    }

    /// Returns true if no word is left.
    pub(super) fn is_empty(mut self) -> bool {
        self.next().is_none()
    }

    /// Returns true if the last word is `noreply`.
    pub(super) fn is_quiet(self) -> bool {
        self.last() == Some(b"noreply")
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let spaces = self.rest.iter().take_while(|byte| **byte == b' ').count();
        let from = &self.rest[spaces..];
        let end = from.iter().position(|byte| *byte == b' ').unwrap_or(from.len());
        let (word, rest) = from.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }
}

/// The longest strict number of 32 bits, its sign included.
const SHORT_MAX: usize = 11;

/// Parses a number leniently: without a sign, or with a plus.
#[must_use]
pub fn number(word: &[u8]) -> Option<u64> {
    let digits = word.strip_prefix(b"+").unwrap_or(word);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses a number strictly: digits only, as in meta flags, deltas and lengths.
pub(super) fn strict(word: &[u8]) -> Option<u64> {
    const LONGEST: usize = 22;
    let is_strict = word.len() <= LONGEST && word.first()?.is_ascii_digit();
    number(word).filter(|_| is_strict)
}

/// As [`strict`], but of at most 11 digits and 32 bits.
pub(crate) fn strict_short(word: &[u8]) -> Option<u32> {
    let is_short = word.len() <= SHORT_MAX;
    strict(word).and_then(|number| u32::try_from(number).ok()).filter(|_| is_short)
}

/// As [`strict_short`], but with a sign. A minus sign alone is 0, as in memcached.
pub(super) fn strict_signed(word: &[u8]) -> Option<i32> {
    let number = match word {
        [b'-'] => 0,
        [b'-', digits @ ..] => -i64::try_from(strict(digits)?).ok()?,
        digits => i64::try_from(strict(digits)?).ok()?,
    };
    i32::try_from(number).ok().filter(|_| word.len() <= SHORT_MAX)
}

/// Parses a number leniently; it may be negative.
pub(super) fn signed(word: &[u8]) -> Option<i64> {
    match word {
        [b'-', digits @ ..] if digits.first().is_some_and(u8::is_ascii_digit) => {
            number(digits).and_then(|size| i64::try_from(size).ok()).map(|size| -size)
        }
        word => number(word).and_then(|size| i64::try_from(size).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_stands_between_spaces() {
        let words = |line: &'static str| Words::new(line.as_bytes()).collect::<Vec<_>>();
        assert_eq!(words("  a  bc "), [&b"a"[..], b"bc"]);
        assert_eq!(words(" "), Vec::<&[u8]>::new());
        assert_eq!(words("a\tb"), [b"a\tb"]);
        assert!(Words::new(b"a noreply").is_quiet() && !Words::new(b"noreply a").is_quiet());
    }

    #[test]
    fn numbers_that_do_not_fit_are_none() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"18446744073709551616"), None);
        assert_eq!([number(b""), number(b"+"), number(b"-1"), number(b"1x")], [None; 4]);
        assert_eq!((signed(b"-5"), signed(b"+5")), (Some(-5), Some(5)));
        assert_eq!([signed(b"--5"), signed(b"-+5"), signed(b"-")], [None; 3]);
        assert_eq!(signed(b"9223372036854775808"), None);
    }

    #[test]
    fn strict_numbers_are_digits_of_a_bounded_count() {
        assert_eq!(strict(b"0000018446744073709551"), Some(18_446_744_073_709_551));
        assert_eq!(strict(b"00000184467440737095516"), None);
        assert_eq!([strict(b"+1"), strict(b"-1"), strict(b""), strict(b"1x")], [None; 4]);
        assert_eq!(strict_short(b"04294967295"), Some(u32::MAX));
        assert_eq!([strict_short(b"4294967296"), strict_short(b"000000000001")], [None; 2]);
        assert_eq!(strict_signed(b"-2147483648"), Some(i32::MIN));
        assert_eq!((strict_signed(b"2147483647"), strict_signed(b"-")), (Some(i32::MAX), Some(0)));
        for wrong in [&b"2147483648"[..], b"-2147483649", b"+1", b"--1", b"", b"000000000001"] {
            assert_eq!(strict_signed(wrong), None);
        }
    }
}
