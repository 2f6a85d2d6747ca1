//! What must hold whatever is in a file of `manycore-trace`.
//!
//! An input is such a file. Demanded is:
//! - The reader ends, without a panic, and its memory and its steps follow the length of the file.
//! - Records come in the order of (time, slot, sequence), the same a second time.
//! - What was produced is merged, lost or missing; of a file with damage, the damage lies in it.
//! - The converters take what the reader gives.

use crate::bounds::Bound;
use manycore_trace::{Trace, convert};

/// What the reader may take, as its documentation has it.
const BOUND: Bound = Bound { each: 48, besides: 1 << 20 };

/// Checks the reader with this file.
pub fn trace(data: &[u8]) {
    let read = || Trace::from_bytes(data.to_vec());
    let account = BOUND.hold(data.len(), || read().map(|mut trace| trace.account()));
    let Ok(account) = account else { return };
    // A record has eight bytes, and a packed one a sixteenth of them.
    assert!(account.merged <= 2 * data.len() as u64, "{account}");
    let mut trace = read().expect("as before");
    let mut first = Vec::new();
    let mut merge = trace.merge();
    let mut last = None;
    while let Some(record) = merge.next() {
        let key = (record.time, record.slot, record.sequence);
        assert!(last < Some(key), "{last:?} before {key:?}");
        last = Some(key);
        first.push((key, record.to_string()));
    }
    let account = merge.into_account();
    assert_eq!(account.merged, first.len() as u64);
    let all = account.merged.saturating_add(account.lost).saturating_add(account.missing);
    assert_eq!(account.produced, all, "{account}");
    for damage in &account.damage {
        assert!(damage.offset <= data.len() as u64, "{damage}");
    }
    let mut again = read().expect("as before");
    let mut merge = again.merge();
    for (key, text) in &first {
        let record = merge.next().expect("as before");
        assert_eq!(*key, (record.time, record.slot, record.sequence));
        assert_eq!(*text, record.to_string());
    }
    assert!(merge.next().is_none());
    let filter = convert::Filter::default();
    convert::chrome(&mut again, &filter, std::io::sink()).expect("a sink takes all");
    convert::perfetto(&mut again, &filter, std::io::sink()).expect("a sink takes all");
    // Its files cost more than all else, so that what has no records goes without.
    if !first.is_empty() {
        ctf(&mut again, &filter);
    }
    let _ = convert::Summary::of(&mut again, &filter).to_string();
}

/// Writes the Common Trace Format into a new folder, which is removed.
fn ctf(trace: &mut Trace, filter: &convert::Filter) {
    // In memory, where Linux has a folder for that.
    let shared = std::path::Path::new("/dev/shm");
    let temporary = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    let name = format!("fuzz-ctf-{}-{:?}", std::process::id(), std::thread::current().id());
    let folder = temporary.join(name);
    let _ = std::fs::remove_dir_all(&folder);
    convert::ctf(trace, filter, &folder).expect("a folder for it");
    std::fs::remove_dir_all(&folder).expect("it was made");
}
