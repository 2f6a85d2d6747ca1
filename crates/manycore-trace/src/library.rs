//! Events of the library's objects.

use crate::class::Class;
use crate::event::kept;
use crate::session;
use crate::site::{Event, FieldType, Kind};
use manycore::profile::{self, EventKind};
use std::panic::Location;
use std::sync::OnceLock;

/// The events of one class.
struct Events {
    wait: Event,
    promotion: Event,
    demotion: Event,
    merge: Event,
    grace_period: Event,
}

static EVENTS: OnceLock<Events> = OnceLock::new();

type Fields = &'static [(&'static str, FieldType)];

const OBJECT: (&str, FieldType) = ("object", FieldType::Unsigned(8));
const KIND: (&str, FieldType) = ("kind", FieldType::Text);
const NANOS: (&str, FieldType) = ("nanos", FieldType::Unsigned(8));
const WAIT: Fields =
    &[OBJECT, NANOS, ("line", FieldType::Unsigned(4)), KIND, ("file", FieldType::Text)];
const CHANGE: Fields = &[OBJECT, KIND];
const MERGE: Fields = &[OBJECT, ("updates", FieldType::Unsigned(8)), KIND];
const TIMED: Fields = &[OBJECT, NANOS, KIND];

/// Records events of the library's objects, in the whole process and from now on.
///
/// The events are in the given class:
///
/// - `Wait` of a thread at a lock or a log, with the source line that waited
/// - `Promotion` of an object to a form with a log or a cell for each thread, and `Demotion`
/// - `Merge` of logs by a read
/// - `GracePeriod` of a domain of sections
///
/// Returns true for the first call. Its class stays: later calls do not change it.
///
/// ```
/// use manycore::collections::Counter;
/// use manycore_trace::{Class, Recorder, Trace};
///
/// const LIBRARY: Class = Class::new(7, "library");
/// assert!(manycore_trace::observe_library(LIBRARY));
/// let recording = Recorder::new().start()?;
/// let counter = Counter::new(0);
/// counter.promote();
/// let mut trace = Trace::from_bytes(recording.finish()?)?;
/// let mut merge = trace.merge();
/// let record = merge.next().unwrap();
/// assert_eq!(record.info.name, "Promotion");
/// assert_eq!(record.field("kind").unwrap().to_string(), "\"Counter\"");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// *For* the question what else a slow request waited for. This is an observer of
/// [`manycore::profile`] and costs as much. Only a thread pays that waits, merges, or changes an
/// object's form.
pub fn observe_library(class: Class) -> bool {
    let event = |name, fields| {
        let place = (module_path!(), file!(), line!());
        Event::new(class, Kind::Instant, name, place, fields)
    };
    let events = || Events {
        wait: event("Wait", WAIT),
        promotion: event("Promotion", CHANGE),
        demotion: event("Demotion", CHANGE),
        merge: event("Merge", MERGE),
        grace_period: event("GracePeriod", TIMED),
    };
    {
        // Registers under the lock that a fork holds. Otherwise a child could wait forever for a
        // thread that was half-way through.
        #[cfg(unix)]
        session::fork::register();
        let _held = session::lock();
        EVENTS.get_or_init(events);
    }
    profile::observe(record)
}

fn record(happening: &profile::Event) {
    let Some(events) = EVENTS.get() else { return };
    if !events.wait.class.takes_next() {
        return;
    }
    let profile::Event { what, kind, address, location, amount, .. } = *happening;
    let file = location.map_or("", Location::file);
    let line = location.map_or(0, Location::line);
    match what {
        EventKind::Waited => events.wait.record([
            kept(&address),
            kept(&amount),
            kept(&line),
            kept(&kind),
            kept(&file),
        ]),
        EventKind::Promoted => events.promotion.record([kept(&address), kept(&kind)]),
        EventKind::Demoted => events.demotion.record([kept(&address), kept(&kind)]),
        EventKind::Merged => events.merge.record([kept(&address), kept(&amount), kept(&kind)]),
        EventKind::GracePeriod => {
            events.grace_period.record([kept(&address), kept(&amount), kept(&kind)]);
        }
        _ => {}
    }
}
