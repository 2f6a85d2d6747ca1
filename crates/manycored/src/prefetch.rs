//! Prefetch: loads the bucket lines of the next requests' keys together.

use crate::protocol::{Words, number};
use crate::store::Handle;
use memchr::{memchr, memchr2};

/// The most keys in one prefetch of bucket lines. After it, the keys are looked up one by one.
const KEYS_MAX: usize = 16;

/// Returns the key of a common request that begins at `from`, and the start of the next request.
/// Both are guesses, which only prefetches use. `None` if the input does not reach so far.
pub(crate) fn scan_key(input: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(from..)?;
    let (start, length_at) = match rest.first_chunk()? {
        b"get " => (4, None),
        b"set " => (4, Some(2)),
        [b'm', b'g', b' ', _] => (3, None),
        [b'm', b's', b' ', _] => (3, Some(0)),
        _ => return None,
    };
    let rest = &rest[start..];
    let end = memchr(b'\n', rest)?;
    let key = memchr2(b' ', b'\r', &rest[..end]).unwrap_or(end);
    let mut next = from + start + end + 1;
    if let Some(words) = length_at {
        let line = rest[key..end].strip_suffix(b"\r").unwrap_or(&rest[key..end]);
        next = next.checked_add(number(Words::new(line).nth(words)?)? as usize)?.checked_add(2)?;
    }
    Some((&rest[..key], next))
}

/// Prefetches the bucket lines of the keys of the requests from `from` on. Returns the position
/// behind the last request. `scan_key` finds the keys.
pub(crate) fn prefetch_keys(
    handle: &Handle<'_>,
    input: &[u8],
    from: usize,
    scan_key: impl Fn(&[u8], usize) -> Option<(&[u8], usize)>,
) -> usize {
    let (mut keys, mut count, mut at) = ([&[][..]; KEYS_MAX], 0, from);
    while count < KEYS_MAX {
        let Some((key, next)) = scan_key(input, at) else { break };
        debug_assert!(next > at, "a scan for keys does not advance");
        keys[count] = key;
        count += 1;
        at = next;
    }
    if count > 1 {
        handle.prefetch(&keys[..count]);
    }
    at.max(from + 1)
}

#[cfg(test)]
mod tests {
    use super::scan_key;

    #[test]
    fn a_glance_finds_keys_and_the_next_request() {
        let text = b"get a\r\nmg bc v\r\nset d 0 0 5\r\n12345\r\nms ef 2 T0\r\n12\r\nget g\n";
        let (mut at, mut keys) = (0, Vec::new());
        while let Some((key, next)) = scan_key(text, at) {
            keys.push(String::from_utf8_lossy(key));
            at = next;
        }
        assert_eq!((keys.join(" "), at), ("a bc d ef g".to_owned(), text.len()));
        for text in
            [&b"get a"[..], b"set a 0 0\r\n", b"set a 0 0 x\r\n", b"delete a\r\n", b"ms\r\n"]
        {
            assert_eq!(scan_key(text, 0), None);
        }
        let huge = format!("set a 0 0 {}\r\n", u64::MAX);
        assert_eq!(scan_key(huge.as_bytes(), 0), None);
        assert_eq!(scan_key(b"get a\r\n", 100), None);
    }
}
