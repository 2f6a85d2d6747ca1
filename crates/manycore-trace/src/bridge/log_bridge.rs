//! The logger for the crate log.

use super::values::with_values;
use super::{FIRST, classes};
use crate::site::{Event, FieldType, Kind};

/// A logger that records the messages of the crate log.
///
/// ```
/// use manycore_trace::{LogBridge, Recorder, Trace};
///
/// LogBridge::new().install()?;
/// let recording = Recorder::new().start()?;
/// log::warn!("cache miss of {}", 7);
/// let mut trace = Trace::from_bytes(recording.finish()?)?;
/// let mut merge = trace.merge();
/// let record = merge.next().unwrap();
/// assert_eq!(record.info.class_name, "warn");
/// assert_eq!(record.field("message").unwrap().to_string(), "\"cache miss of 7\"");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// *For* programs whose libraries use the crate log. *Not* beside another logger: a process has
/// only one.
///
/// Each level is a class, so a recording can switch levels while it runs. The classes are numbered
/// from 56 (`error`) to 60 (`trace`). A record has the target, up to 480 bytes of the message, the
/// file and the line. An event takes no lock and allocates nothing. It formats the message.
#[derive(Debug)]
pub struct LogBridge {
    events: [&'static Event; 5],
}

impl Default for LogBridge {
    fn default() -> Self {
        Self::new()
    }
}

const FIELDS: &[(&str, FieldType)] = &[
    ("target", FieldType::Text),
    ("message", FieldType::Text),
    ("file", FieldType::Text),
    ("line", FieldType::Unsigned(8)),
];

impl LogBridge {
    /// Creates a logger with the classes from 56 on.
    #[must_use]
    pub fn new() -> Self {
        Self::with_classes_from(FIRST)
    }

    /// Creates a logger with five other classes, from this number on; the first is for errors.
    ///
    /// # Panics
    /// If the number is above 59.
    #[must_use]
    pub fn with_classes_from(first: u8) -> Self {
        let event = |class| {
            let place = (module_path!(), file!(), line!());
            // Leaked on purpose: a logger lives as long as the process.
            &*Box::leak(Box::new(Event::new(class, Kind::Instant, "log", place, FIELDS)))
        };
        Self { events: classes(first).map(event) }
    }

    /// Makes this the process's logger, for all levels.
    ///
    /// # Errors
    /// If the process has a logger already.
    pub fn install(self) -> Result<(), log::SetLoggerError> {
        log::set_boxed_logger(Box::new(self))?;
        log::set_max_level(log::LevelFilter::Trace);
        Ok(())
    }

    fn event(&self, level: log::Level) -> &'static Event {
        self.events[level as usize - log::Level::Error as usize]
    }
}

impl log::Log for LogBridge {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        self.event(metadata.level()).class.is_on()
    }

    fn log(&self, record: &log::Record<'_>) {
        let event = self.event(record.level());
        if !event.class.takes_next() {
            return;
        }
        with_values(|values| {
            values.put_text(0, format_args!("{}", record.target()));
            values.put_text(1, *record.args());
            values.put_text(2, format_args!("{}", record.file().unwrap_or_default()));
            values.put_unsigned(3, record.line().unwrap_or(0).into());
            values.record(event);
        });
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests;
