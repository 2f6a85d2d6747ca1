//! What a read may give, while many clients write and servers come and go.
//!
//! Each key has one writer, which numbers what it does to the key: a version. A value says its key,
//! its version, its length and the second in which it ends, over and over.
//!
//! Laws:
//! - oracle.O1 A read that was sent after the reply to version `v` gives nothing older than `v`.
//! - oracle.O2 It gives nothing newer than what was sent before its own reply came.
//! - oracle.O3 It gives no value of which the time is over, and none that is not whole.
//! - oracle.O4 It may give nothing at all: items are evicted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of the shortest value: all that it says, once.
pub const SHORTEST: usize = 45;
/// Seconds by which a server's clock may be behind.
const LATE: u64 = 2;

/// What was done to one key.
#[derive(Default)]
struct History {
    /// The newest version that was sent.
    begun: AtomicU64,
    /// The newest version that was answered.
    done: AtomicU64,
}

/// What was done to all keys.
pub struct Oracle {
    keys: Vec<History>,
}

/// What a read of a key may give, as far as it is known when it is sent.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    pub key: usize,
    oldest: u64,
    /// Of the writer's own reads: they are behind its writes on their connection.
    newest: Option<u64>,
    second: u64,
}

pub fn second() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

pub fn name(key: usize) -> String {
    format!("key{key}")
}

/// A value, which ends in that second; 0 is never.
pub fn value(key: usize, version: u64, length: usize, end: u64) -> Vec<u8> {
    let pattern = format!("{key}.{version}.{length}.{end};");
    let mut value = pattern.repeat(length / pattern.len() + 1).into_bytes();
    value.truncate(length);
    value
}

impl Oracle {
    pub fn new(keys: usize) -> Self {
        Self { keys: (0..keys).map(|_| History::default()).collect() }
    }

    /// The version of a write that is about to be sent by the key's one writer.
    pub fn begin(&self, key: usize) -> u64 {
        self.keys[key].begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The writer has the reply to this version.
    pub fn end(&self, key: usize, version: u64) {
        self.keys[key].done.store(version, Ordering::SeqCst);
    }

    /// A read that is about to be sent: nothing that was answered before may be missing
    /// (oracle.O1).
    pub fn read(&self, key: usize) -> Read {
        let oldest = self.keys[key].done.load(Ordering::SeqCst);
        Read { key, oldest, newest: None, second: second() }
    }

    /// A read by the key's writer, behind its last version on the same connection.
    pub fn own_read(&self, key: usize, last: u64) -> Read {
        Read { oldest: last, newest: Some(last), ..self.read(key) }
    }

    /// What is wrong with this value.
    pub fn judge(&self, read: &Read, got: &[u8]) -> Result<(), String> {
        let Read { key, oldest, newest, second } = *read;
        let words = got.split(|byte| *byte == b';').next().unwrap_or_default();
        let numbers: Vec<u64> = String::from_utf8_lossy(words)
            .split('.')
            .map_while(|number| number.parse().ok())
            .collect();
        let wrong = |what: String| Err(format!("{key}: {what}, of {:?}", &numbers));
        let [_, version, length, end] = numbers[..] else {
            let begin = String::from_utf8_lossy(&got[..got.len().min(60)]);
            return wrong(format!("no value of ours: {begin:?}"));
        };
        // oracle.O3: whole, and in time.
        if length != got.len() as u64 || value(key, version, got.len(), end) != got {
            return wrong(format!("{} bytes that were never set", got.len()));
        }
        // oracle.O2: what was sent until now may have been done.
        let newest = newest.unwrap_or_else(|| self.keys[key].begun.load(Ordering::SeqCst));
        if !(oldest..=newest).contains(&version) {
            return wrong(format!("not a version of {oldest}..={newest}"));
        }
        if end != 0 && second > end + LATE {
            return wrong(format!("its time was over in {second}"));
        }
        Ok(())
    }
}

#[test]
fn wrong_values_are_noticed() {
    let oracle = Oracle::new(2);
    let write = || oracle.begin(1);
    oracle.end(1, write());
    oracle.end(1, write());
    let read = oracle.read(1);
    let judge = |read: &Read, key, version, end| oracle.judge(read, &value(key, version, 99, end));
    let says = |judged: Result<(), String>, what| assert!(judged.unwrap_err().contains(what));
    assert_eq!(judge(&read, 1, 2, 0), Ok(()));
    assert_eq!(judge(&read, 1, 2, second()), Ok(()));
    says(judge(&read, 0, 2, 0), "never set");
    says(judge(&read, 1, 1, 0), "not a version of 2..=2");
    says(judge(&read, 1, 3, 0), "not a version of 2..=2");
    says(judge(&read, 1, 2, second() - 9), "its time was over");
    // What is sent while the read is under way may be seen.
    oracle.end(1, write());
    assert_eq!(judge(&read, 1, 3, 0), Ok(()));
    says(judge(&oracle.own_read(1, 3), 1, 2, 0), "not a version of 3..=3");
    let whole = value(1, 3, 99, 0);
    says(oracle.judge(&read, &whole[..98]), "never set");
    says(oracle.judge(&read, &[&whole[..98], b"x"].concat()), "never set");
    says(oracle.judge(&read, b"poison"), "no value of ours");
    assert!(value(usize::MAX >> 32, 1 << 30, SHORTEST, 1 << 32).contains(&b';'));
}
