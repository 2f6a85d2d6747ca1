//! Records events with the C functions, and reads them with the reader of recordings.

use manycore_capi::{
    Event, Field, RecordingOptions, Value, mc_event_record, mc_recording_save, mc_recording_start,
    mc_recording_stop,
};
use manycore_trace::Trace;
use std::ffi::CString;
use std::ptr;
use std::sync::atomic::AtomicPtr;

const NO_FIELD: Field = Field { name: ptr::null(), kind: 0 };

fn event() -> Event {
    let field = |name: &'static std::ffi::CStr, kind| Field { name: name.as_ptr(), kind };
    let fields = [field(c"up", 1), field(c"text", 4), field(c"down", 2), field(c"part", 3)];
    let mut all = [NO_FIELD; 8];
    all[..4].copy_from_slice(&fields);
    Event {
        name: c"Seen".as_ptr(),
        class_name: c"tests".as_ptr(),
        file: c"trace.rs".as_ptr(),
        line: 7,
        class_number: 5,
        kind: 0,
        field_count: 4,
        fields: all,
        site: AtomicPtr::new(ptr::null_mut()),
    }
}

#[test]
fn reader_finds_each_field_as_it_was_recorded() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi.mctrace");
    let c_path = CString::new(path.to_str().unwrap()).unwrap();
    let options = RecordingOptions {
        size: size_of::<RecordingOptions>(),
        flags: 0,
        path: ptr::null(),
        classes: 0,
        ring_bytes: 0,
        policy: 0,
    };
    let (event, mut recording) = (event(), ptr::null_mut());
    let long = CString::new("x".repeat(1000)).unwrap();
    // SAFETY: the options, the event and the values are made as in the header, and the recording is
    // stopped last.
    unsafe {
        assert_eq!(mc_recording_start(&raw mut recording, &raw const options), 0);
        for text in [c"", c"some", &long] {
            let values = [
                Value { number: u64::MAX },
                Value { text: text.as_ptr() },
                Value { number: -7_i64 as u64 },
                Value { number: 0.25_f64.to_bits() },
            ];
            assert_eq!(mc_event_record(&raw const event, values.as_ptr()), 0);
        }
        assert_eq!(mc_recording_save(recording, c_path.as_ptr()), 0);
        assert_eq!(mc_recording_stop(recording), 0);
    }
    let mut trace = Trace::open(&path).unwrap();
    let mut merge = trace.merge();
    let mut lines = Vec::new();
    while let Some(record) = merge.next() {
        lines.push(record.to_string());
    }
    assert!(merge.into_account().is_closed());
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, text) in lines.iter().zip(["\"\"", "\"some\"", &"x".repeat(480)]) {
        assert!(line.contains("tests Seen up=18446744073709551615 text="), "{line}");
        assert!(line.contains(text) && line.ends_with("down=-7 part=0.25"), "{line}");
    }
}
