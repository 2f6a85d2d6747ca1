//! Files that are cut, damaged or foreign: an error with its offset, and everything before it.

use crate::{TEST, alone, lines};
use manycore_trace::{Damage, Recorder, Trace, event};
use std::io;

/// A recording of some sub-buffers, of two threads.
fn bytes() -> Vec<u8> {
    let recording = Recorder::new().ring_bytes(1 << 15).block_bytes(1 << 12).start();
    let recording = recording.expect("a recording");
    let record = || (0..1000_u64).for_each(|n| event!(TEST, Step { n: u64, text: &str = "some" }));
    record();
    std::thread::scope(|scope| drop(scope.spawn(record)));
    recording.finish().expect("a recording")
}

fn damage_of(error: &io::Error) -> Option<&Damage> {
    error.get_ref()?.downcast_ref()
}

#[test]
fn foreign_files_are_refused_at_their_first_byte() {
    for text in ["", "x", "{\"traceEvents\":[]}", "MCTRACE1"] {
        let error = Trace::from_bytes(text.as_bytes().to_vec()).expect_err("foreign");
        let offset = damage_of(&error).expect("damage").offset;
        assert_eq!(offset, if text == "MCTRACE1" { 8 } else { 0 }, "{text}: {error}");
    }
}

#[test]
fn cut_files_have_an_error_at_their_end_and_all_before_it() -> io::Result<()> {
    let _alone = alone();
    let whole = bytes();
    let all = lines(&mut Trace::from_bytes(whole.clone())?);
    let mut before = 0;
    for cut in (0..whole.len()).step_by(509) {
        let Ok(mut trace) = Trace::from_bytes(whole[..cut].to_vec()) else {
            assert!(cut < 512, "cut at {cut}");
            continue;
        };
        let account = trace.account();
        // Between two chunks a file looks whole.
        let at = account.damage.iter().find(|damage| damage.offset <= cut as u64);
        assert!(at.is_some() || account.damage.is_empty(), "cut at {cut}: {account}");
        let found = lines(&mut trace);
        assert!(found.len() >= before || found.len() == all.len(), "cut at {cut}");
        assert!(
            found
                .iter()
                .all(|line| all.binary_search_by(|other| { key(other).cmp(&key(line)) }).is_ok()),
            "cut at {cut}"
        );
        before = found.len();
    }
    assert!(before > all.len() / 2);
    Ok(())
}

/// (time, slot, sequence) of a line.
fn key(line: &str) -> Vec<u64> {
    line.split(' ').take(3).map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn changed_bytes_cost_no_panic_and_what_is_missing_is_said() -> io::Result<()> {
    let _alone = alone();
    let whole = bytes();
    let count = lines(&mut Trace::from_bytes(whole.clone())?).len();
    let mut random = 0x1234_5678_u64;
    let mut damaged = 0;
    for _ in 0..500 {
        let mut bytes = whole.clone();
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (random >> 33) as usize % bytes.len();
        bytes[at] ^= (random >> 24) as u8 | 1;
        if let Ok(mut trace) = Trace::from_bytes(bytes) {
            let found = lines(&mut trace).len();
            let account = trace.account();
            assert_eq!(account.merged, found as u64);
            assert!(found == count || !account.is_closed() || account.lost > 0, "{at}: {account}");
            damaged += usize::from(!account.is_closed());
        }
    }
    assert!(damaged > 5, "only {damaged} were found damaged");
    Ok(())
}

#[test]
fn damaged_sub_buffer_costs_what_is_behind_it_there_and_no_other() -> io::Result<()> {
    let _alone = alone();
    let whole = bytes();
    // The length of a record in the second of the copied sub-buffers.
    let marks: Vec<usize> =
        whole.windows(8).enumerate().filter(|(_, w)| w == b"MCTBLOCK").map(|(at, _)| at).collect();
    let mut bytes = whole.clone();
    let record = marks[1] + 8 * (4 + 8);
    bytes[record + 4] = 0;
    let mut trace = Trace::from_bytes(bytes)?;
    let account = trace.account();
    assert_eq!(account.damage.len(), 1, "{account}");
    assert_eq!(account.damage[0].offset, record as u64);
    let before = Trace::from_bytes(whole)?.account();
    assert_eq!(account.merged + account.missing, before.merged);
    assert!(account.missing > 50 && account.missing < 512, "{account}");
    Ok(())
}
