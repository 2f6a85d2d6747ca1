//! Checks what the layer records of tracing's calls. It is one test, because a process has one
//! recording.

use super::{TracingLayer, with_values};
use crate::{Classes, Recorder, Trace};
use std::fmt;
use tracing::{Level, subscriber::with_default};
use tracing_subscriber::{layer::SubscriberExt, registry::Registry};

/// Uses the thread's buffer while it is formatted, as an event within an event does, and writes
/// more than a record keeps.
struct Hostile;

impl fmt::Debug for Hostile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_values(|values| values.put_unsigned(0, 1));
        f.write_str(&"é".repeat(400))
    }
}

/// Returns what `f` leaves in a recording of these classes: each record's class and text.
fn recorded(classes: Classes, f: impl FnOnce(&crate::Recording)) -> Vec<String> {
    let _alone = crate::bridge::alone();
    let recording = Recorder::new().classes(classes).start().expect("no other recording");
    with_default(Registry::default().with(TracingLayer::new()), || f(&recording));
    let bytes = recording.finish().expect("it runs");
    let mut trace = Trace::from_bytes(bytes).expect("a whole recording");
    let mut merge = trace.merge();
    let mut lines = Vec::new();
    while let Some(record) = merge.next() {
        lines.push(format!("{:?} {record}", record.info.kind));
    }
    assert!(merge.into_account().is_closed());
    lines
}

const TARGET: &str = module_path!();

#[test]
fn fields_of_all_types_are_kept_in_their_order() {
    let lines = recorded(Classes::ALL, |_| {
        let list = [1, 2];
        tracing::warn!(a = 1_u64, b = -2_i64, c = true, d = 0.5, e = "x", f = ?list, "said {}", 7);
        for value in [Some(3), None] {
            tracing::error!(missing = value, last = 1_u8);
        }
    });
    let expected = [
        format!(
            "Instant warn {TARGET} message=\"said 7\" a=1 b=-2 c=true d=0.5 e=\"x\" f=\"[1, 2]\""
        ),
        format!("Instant error {TARGET} missing=3 last=1"),
        format!("Instant error {TARGET} last=1"),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn span_begins_with_its_fields_each_time_it_is_entered() {
    let lines = recorded(Classes::ALL, |_| {
        let span = tracing::info_span!("request", id = 17_u64, late = tracing::field::Empty);
        for _ in 0..2 {
            let _inner = tracing::debug_span!("inner").entered();
            let _entered = span.enter();
            span.record("late", "now");
        }
    });
    let turn = [
        "Begin debug inner",
        "Begin info request id=17",
        "Instant info request late=\"now\"",
        "End info request",
        "End debug inner",
    ];
    assert_eq!(lines, [turn, turn].concat());
}

#[test]
fn levels_are_switched_and_a_span_that_began_ends() {
    let info = super::classes(super::FIRST)[2];
    let lines = recorded(Classes::of(&[info]), |recording| {
        tracing::debug!("not this");
        let hidden = tracing::debug_span!("hidden").entered();
        let shown = tracing::info_span!("shown").entered();
        recording.set_classes(Classes::NONE);
        drop(shown);
        recording.set_classes(Classes::ALL);
        drop(hidden);
    });
    assert_eq!(lines, ["Begin info shown", "End info shown"]);
}

#[test]
fn field_that_records_while_it_is_formatted_keeps_its_record_and_is_cut_at_a_character() {
    let lines = recorded(Classes::ALL, |_| {
        let four = [0; 4].map(|_| Hostile);
        tracing::info!(a = ?four[0], b = ?four[1], c = ?four[2], d = ?four[3], e = 9);
    });
    assert_eq!(lines.len(), 1);
    assert!(lines[0].ends_with("é...\" e=9"), "{}", lines[0]);
    // The last one gets the room that is left.
    assert_eq!(lines[0].matches('é').count(), (3 * 480 + 336) / 2);
}

#[test]
fn call_site_with_ever_other_types_stays_bounded_and_the_rest_is_counted() {
    let _alone = crate::bridge::alone();
    let recording = Recorder::new().start().expect("no other recording");
    with_default(Registry::default().with(TracingLayer::new()), || {
        for bits in 0..100_u32 {
            let at = |bit: u32| (bits >> bit & 1 == 1).then_some(1_u64);
            tracing::event!(
                Level::INFO,
                a = at(0),
                b = at(1),
                c = at(2),
                d = at(3),
                e = at(4),
                f = at(5),
                g = at(6)
            );
        }
    });
    let mut trace = Trace::from_bytes(recording.finish().expect("it runs")).expect("a recording");
    let account = trace.account();
    assert!(account.is_closed());
    assert_eq!(account.merged, super::VARIANTS as u64);
    assert_eq!(account.lost, 100 - super::VARIANTS as u64);
}
