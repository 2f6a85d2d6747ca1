//! The layer for subscribers of the crate tracing.

use super::values::{Values, types_of, with_values};
use super::{FIRST, classes};
use crate::class::Class;
use crate::local;
use crate::session;
use crate::site::{Event, FieldType, Kind};
use crate::sync::Ordering;
use manycore::percpu::AtFork;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

/// Records the spans and events of the crate tracing: a layer for its subscribers.
///
/// ```
/// use manycore_trace::{Recorder, Trace, TracingLayer};
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let recording = Recorder::new().start()?;
/// let subscriber = tracing_subscriber::registry().with(TracingLayer::new());
/// tracing::subscriber::with_default(subscriber, || {
///     let _span = tracing::info_span!("request", id = 17_u64).entered();
///     tracing::warn!(key = "user:7", bytes = 300, "cache miss");
/// });
/// let mut trace = Trace::from_bytes(recording.finish()?)?;
/// let mut merge = trace.merge();
/// assert_eq!(merge.next().unwrap().to_string(), "info request id=17");
/// let miss = merge.next().unwrap();
/// assert_eq!(miss.info.class_name, "warn");
/// assert_eq!(miss.field("message").unwrap().to_string(), "\"cache miss\"");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// *For* programs and libraries that call tracing already. *Not for* the hottest paths. tracing
/// itself takes some tens of nanoseconds for an event and more for a span; [`event!`](crate::event)
/// and [`span!`](crate::span) save that time.
///
/// Each level is a class, so a recording can switch levels while it runs. The classes are numbered
/// from 56 (`error`) to 60 (`trace`).
///
/// Numbers, `bool`, `&str` and bytes keep their types. A value that has only `Debug` or `Display`
/// is formatted into the record, up to 480 bytes. If a call gives other types than before, or lacks
/// a field, the file's schema gets another entry for it.
///
/// A span is recorded each time a thread enters and leaves it, with the fields of its creation.
/// Fields that it gets later become an event of its name.
///
/// Cost: an event takes no lock and allocates nothing, except for the first events of a call site
/// or a thread. A span keeps its fields in the registry, which is one allocation.
#[derive(Debug, Clone)]
pub struct TracingLayer {
    classes: [Class; 5],
}

impl Default for TracingLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl TracingLayer {
    /// Creates a layer with the classes from 56 on.
    #[must_use]
    pub const fn new() -> Self {
        Self::with_classes_from(FIRST)
    }

    /// Creates a layer with five other classes, from this number on; the first is for errors.
    ///
    /// A call site keeps the classes of the first layer of the process that records it.
    ///
    /// # Panics
    /// If the number is above 59.
    #[must_use]
    pub const fn with_classes_from(first: u8) -> Self {
        Self { classes: classes(first) }
    }

    fn class(&self, level: &Level) -> Class {
        let at = match *level {
            Level::ERROR => 0,
            Level::WARN => 1,
            Level::INFO => 2,
            Level::DEBUG => 3,
            Level::TRACE => 4,
        };
        self.classes[at]
    }
}

/// Identifies an event of a call site: the site's address, the kind, and the fields' types.
type Key = (usize, u8, u128);

/// The events of all call sites.
static SITES: Mutex<Option<HashMap<Key, &'static Event>>> = Mutex::new(None);

/// Holds [`SITES`] over a fork.
static AT_FORK: AtFork = AtFork::new(|| Box::new(locked_sites()), || ());

fn locked_sites() -> MutexGuard<'static, Option<HashMap<Key, &'static Event>>> {
    SITES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Maximal events of one call site with different types of fields.
const VARIANTS: usize = 64;

/// Entries of a thread's own cache of [`SITES`].
const CACHED: usize = 64;

thread_local! {
    static CACHE: [Cell<(Key, Option<&'static Event>)>; CACHED] =
        const { [const { Cell::new(((0, 0, 0), None)) }; CACHED] };
    /// The open, recorded spans of this thread.
    static OPEN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns the event of a call site for fields of these types, or `None` if the site has too many.
fn site(
    metadata: &'static Metadata<'static>,
    class: Class,
    kind: Kind,
    types: u128,
) -> Option<&'static Event> {
    let address = std::ptr::from_ref(metadata).addr();
    let key = (address, kind as u8, types);
    // Call sites are some tens of words apart.
    let at = (address >> 4 ^ address >> 10 ^ kind as usize) % CACHED;
    let cached = CACHE.try_with(|cache| cache[at].get()).ok();
    if let Some((_, Some(event))) = cached.filter(|(found, _)| *found == key) {
        return Some(event);
    }
    let event = find_site(metadata, class, kind, key)?;
    let _ = CACHE.try_with(|cache| cache[at].set((key, Some(event))));
    Some(event)
}

#[cold]
fn find_site(
    metadata: &'static Metadata<'static>,
    class: Class,
    kind: Kind,
    key: Key,
) -> Option<&'static Event> {
    AT_FORK.list();
    let mut sites = locked_sites();
    let sites = sites.get_or_insert_default();
    if let Some(event) = sites.get(&key) {
        return Some(event);
    }
    if sites.keys().filter(|(address, ..)| *address == key.0).count() == VARIANTS {
        return None;
    }
    let names: Vec<&'static str> = metadata.fields().iter().map(|field| field.name()).collect();
    let fields: Vec<(&'static str, FieldType)> =
        types_of(key.2).filter_map(|(at, of)| Some((*names.get(at)?, of))).collect();
    // The name of a tracing event is its place, which the schema has already. So take its target.
    let name = if metadata.is_event() { metadata.target() } else { metadata.name() };
    let place = (
        metadata.module_path().unwrap_or(metadata.target()),
        metadata.file().unwrap_or_default(),
        metadata.line().unwrap_or(0),
    );
    // Leaked on purpose: a call site lives as long as the process.
    let event = Box::leak(Box::new(Event::new(class, kind, name, place, fields.leak())));
    sites.insert(key, event);
    Some(event)
}

impl Visit for Values {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put_float(field.index(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put_signed(field.index(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put_unsigned(field.index(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put_bool(field.index(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field.index(), format_args!("{value}"));
    }

    fn record_bytes(&mut self, field: &Field, value: &[u8]) {
        self.put_bytes(field.index(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put_text(field.index(), format_args!("{value:?}"));
    }
}

/// The part of a span that the registry keeps, if its class was on when it was made.
struct Made {
    begin: &'static Event,
    words: Box<[u64]>,
}

fn record_words(event: &'static Event, words: &[u64]) {
    local::record(event, 1 + words.len(), |to| {
        // ORDER: Relaxed; the ring's commit publishes them.
        to.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
    });
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TracingLayer {
    fn on_event(&self, event: &tracing_core::Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        let class = self.class(metadata.level());
        if !class.takes_next() {
            return;
        }
        with_values(|values| {
            event.record(values);
            match site(metadata, class, Kind::Instant, values.types()) {
                Some(event) => values.record(event),
                None => session::refuse_event(),
            }
        });
    }

    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let metadata = span.metadata();
        let class = self.class(metadata.level());
        let Some(kept) = context.span(id).filter(|_| class.is_on()) else { return };
        let made = with_values(|values| {
            span.record(values);
            let begin = site(metadata, class, Kind::Begin, values.types())?;
            Some(Made { begin, words: values.to_words() })
        });
        if let Some(made) = made {
            kept.extensions_mut().insert(made);
        }
    }

    fn on_record(&self, id: &Id, late: &Record<'_>, context: Context<'_, S>) {
        let Some(metadata) = context.metadata(id) else { return };
        let class = self.class(metadata.level());
        if !class.takes_next() {
            return;
        }
        with_values(|values| {
            late.record(values);
            match site(metadata, class, Kind::Instant, values.types()) {
                Some(event) => values.record(event),
                None => session::refuse_event(),
            }
        });
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let class = self.class(span.metadata().level());
        if !class.takes_next() {
            return;
        }
        if let Some(made) = span.extensions().get::<Made>() {
            record_words(made.begin, &made.words);
        } else if let Some(begin) = site(span.metadata(), class, Kind::Begin, 0) {
            record_words(begin, &[]);
        }
        let _ = OPEN.try_with(|open| open.borrow_mut().push(id.into_u64()));
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        // Even if the class is off by now, so that the trace has both ends.
        let is_open = OPEN.try_with(|open| {
            let mut open = open.borrow_mut();
            let found = open.iter().rposition(|open| *open == id.into_u64());
            found.map(|at| open.remove(at)).is_some()
        });
        let Some(metadata) = context.metadata(id).filter(|_| is_open.is_ok_and(|is| is)) else {
            return;
        };
        let class = self.class(metadata.level());
        if let Some(end) = site(metadata, class, Kind::End, 0) {
            record_words(end, &[]);
        }
    }
}

#[cfg(test)]
mod tests;
