//! Checks what the logger records. It is not installed, because a process has only one logger.

use super::{FIRST, LogBridge, classes};
use crate::{Classes, Recorder, Trace};
use log::{Level, Log};

#[test]
fn levels_are_classes_and_a_message_is_kept_with_its_place() {
    let _alone = crate::bridge::alone();
    let bridge = LogBridge::new();
    let shown = Classes::of(&classes(FIRST)[..3]);
    let recording = Recorder::new().classes(shown).start().expect("no other recording");
    for level in Level::iter() {
        let mut record = log::Record::builder();
        record.level(level).target("app::db").file(Some("db.rs")).line(Some(7));
        bridge.log(&record.args(format_args!("{} rows of {level}", 3)).build());
        let metadata = log::Metadata::builder().level(level).build();
        assert_eq!(bridge.enabled(&metadata), level <= Level::Info);
    }
    let bytes = recording.finish().expect("it runs");
    let mut trace = Trace::from_bytes(bytes).expect("a whole recording");
    let (mut merge, mut lines) = (trace.merge(), Vec::new());
    while let Some(record) = merge.next() {
        lines.push(record.to_string());
    }
    let line = |level: &str, word: &str| {
        format!("{level} log target=\"app::db\" message=\"3 rows of {word}\" file=\"db.rs\" line=7")
    };
    let expected = [line("error", "ERROR"), line("warn", "WARN"), line("info", "INFO")];
    assert_eq!(lines, expected);
    assert!(merge.into_account().is_closed());
}
