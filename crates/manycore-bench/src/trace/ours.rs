//! The library's recorder.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use manycore_trace::{Class, Classes, Kind, Recorder, Recording, Trace, Value, event, span};

use super::{Kept, TraceHandle, TraceImpl, ring_bytes};

const ON: Class = Class::new(0, "on");
const OFF: Class = Class::new(1, "off");

/// A process has one recording at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A recording that runs, the only one.
pub(super) struct Running {
    recording: Recording,
    _alone: MutexGuard<'static, ()>,
}

impl Running {
    pub(super) fn start(choose: impl FnOnce(Recorder) -> Recorder) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (bytes, classes) = (ring_bytes(), Classes::of(&[ON]));
        let recorder = Recorder::new().classes(classes).ring_bytes(bytes).block_bytes(bytes / 8);
        let recording = choose(recorder).start().expect("a recording can start");
        Self { recording, _alone: alone }
    }

    /// What the rings hold of events and beginnings.
    pub(super) fn kept(self) -> Kept {
        let bytes = self.recording.finish().expect("the recording runs");
        let mut trace = Trace::from_bytes(bytes).expect("a whole recording");
        let (mut kept, mut merge) = (Kept::default(), trace.merge());
        while let Some(record) = merge.next() {
            if record.info.kind != Kind::End {
                let number = |(_, value)| if let Value::Unsigned(n) = value { n } else { 0 };
                kept.add(record.fields().map(number).sum());
            }
        }
        kept
    }
}

/// Rings in memory.
pub(super) struct Memory(Running);

/// Through the crate's macros.
pub(super) struct Macros;

impl TraceImpl for Memory {
    type Handle<'a> = Macros;

    fn new(_keeps: bool) -> Self {
        Self(Running::start(|recorder| recorder))
    }

    fn handle(&self) -> Macros {
        Macros
    }

    fn kept(self) -> Kept {
        self.0.kept()
    }
}

impl TraceHandle for Macros {
    #[inline(always)]
    fn event(&mut self, a: u64, b: u64) {
        event!(ON, Sample { a: u64, b: u64 });
    }

    #[inline(always)]
    fn span(&mut self, a: u64, b: u64) {
        let _span = span!(ON, Part { a: u64, b: u64 });
    }

    #[inline(always)]
    fn off(&mut self, a: u64, b: u64) {
        event!(OFF, Hidden { a: u64, b: u64 });
    }
}

/// Rings in a mapped file, in the system's folder for temporary files.
pub(super) struct File {
    running: Option<Running>,
    path: PathBuf,
}

impl TraceImpl for File {
    type Handle<'a> = Macros;

    fn new(_keeps: bool) -> Self {
        let name = format!("manycore-bench-{}.mctrace", std::process::id());
        let path = std::env::temp_dir().join(name);
        let running = Running::start(|recorder| {
            #[cfg(unix)]
            let recorder = recorder.file(&path);
            #[cfg(not(unix))]
            let recorder = recorder.stream(&path);
            recorder
        });
        Self { running: Some(running), path }
    }

    fn handle(&self) -> Macros {
        Macros
    }

    fn kept(mut self) -> Kept {
        self.running.take().map_or_else(Kept::default, Running::kept)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // Before the next recording can make a file of this name.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The layer for tracing's subscribers, on tracing-subscriber's registry.
#[cfg(feature = "trace-rivals")]
pub(super) struct Layer {
    running: Running,
    dispatch: tracing::Dispatch,
}

#[cfg(feature = "trace-rivals")]
impl TraceImpl for Layer {
    type Handle<'a> = super::tracing_crate::Macros;

    fn new(_keeps: bool) -> Self {
        use tracing_subscriber::layer::SubscriberExt;
        let running = Running::start(|recorder| recorder.classes(Classes::ALL));
        let subscriber = tracing_subscriber::registry()
            .with(manycore_trace::TracingLayer::new())
            .with(tracing::level_filters::LevelFilter::INFO);
        Self { running, dispatch: tracing::Dispatch::new(subscriber) }
    }

    fn handle(&self) -> Self::Handle<'_> {
        super::tracing_crate::Macros(tracing::dispatcher::set_default(&self.dispatch))
    }

    fn kept(self) -> Kept {
        self.running.kept()
    }
}
