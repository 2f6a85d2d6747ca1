//! Crates that write what is recorded as text, or pass it to a collector.

use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tracing::{Dispatch, dispatcher};
use tracing_chrome::{ChromeLayerBuilder, FlushGuard};
use tracing_subscriber::{fmt::format::FmtSpan, layer::SubscriberExt, registry::Registry};

use super::{Kept, TraceHandle, TraceImpl, tracing_crate::Macros};

/// What a rival has of the process alone.
static ALONE: Mutex<()> = Mutex::new(());

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that are kept, or dropped.
#[derive(Clone)]
struct Sink(Option<Arc<Mutex<Vec<u8>>>>);

impl Sink {
    fn new(keeps: bool) -> Self {
        Self(keeps.then(Arc::default))
    }

    fn text(&self) -> String {
        let kept = self.0.as_ref().map(|bytes| lock(bytes).clone());
        String::from_utf8(kept.unwrap_or_default()).expect("text")
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(kept) = &self.0 {
            lock(kept).extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The number behind `name`, if it is there.
fn number(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The fields of a text that has both, in front of each a name.
pub(super) fn fields(text: &str, names: [&str; 2]) -> Option<u64> {
    Some(number(text, names[0])? + number(text, names[1])?)
}

/// tracing-subscriber's lines.
pub(super) struct Fmt {
    dispatch: Dispatch,
    sink: Sink,
}

impl TraceImpl for Fmt {
    type Handle<'a> = Macros;

    fn new(keeps: bool) -> Self {
        let sink = Sink::new(keeps);
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_span_events(FmtSpan::ENTER | FmtSpan::EXIT)
            .with_writer(move || writer.clone())
            .finish();
        Self { dispatch: Dispatch::new(subscriber), sink }
    }

    fn handle(&self) -> Macros {
        Macros(dispatcher::set_default(&self.dispatch))
    }

    fn kept(self) -> Kept {
        let mut kept = Kept::default();
        for line in self.sink.text().lines().filter(|line| !line.ends_with("exit")) {
            let found = fields(line, [" a=", " b="]).or_else(|| fields(line, ["{a=", " b="]));
            if let Some(sum) = found {
                kept.add(sum);
            }
        }
        kept
    }
}

/// tracing-chrome's file.
pub(super) struct Chrome {
    dispatch: Dispatch,
    /// Ends the thread that writes.
    flush: Mutex<FlushGuard>,
    sink: Sink,
}

impl TraceImpl for Chrome {
    type Handle<'a> = Macros;

    fn new(keeps: bool) -> Self {
        let sink = Sink::new(keeps);
        let builder = ChromeLayerBuilder::new().writer(sink.clone()).include_args(true);
        let (layer, flush) = builder.build();
        let filter = tracing::level_filters::LevelFilter::INFO;
        let subscriber = Registry::default().with(layer).with(filter);
        Self { dispatch: Dispatch::new(subscriber), flush: Mutex::new(flush), sink }
    }

    fn handle(&self) -> Macros {
        Macros(dispatcher::set_default(&self.dispatch))
    }

    fn kept(self) -> Kept {
        drop(self.flush);
        let mut kept = Kept::default();
        for line in self.sink.text().lines().filter(|line| !line.contains("\"ph\":\"E\"")) {
            if let Some(sum) = fields(line, ["\"a\":\"", "\"b\":\""]) {
                kept.add(sum);
            }
        }
        kept
    }
}

/// What fastrace has collected, while it is kept.
static COLLECTED: Mutex<Option<Kept>> = Mutex::new(None);

struct Collect;

type Property = (Cow<'static, str>, Cow<'static, str>);

fn sum(properties: &[Property]) -> u64 {
    properties.iter().map(|(_, value)| value.parse().unwrap_or(0)).sum()
}

impl fastrace::collector::Reporter for Collect {
    fn report(&mut self, spans: Vec<fastrace::collector::SpanRecord>) {
        let mut collected = lock(&COLLECTED);
        let Some(kept) = &mut *collected else { return };
        for span in &spans {
            if !span.properties.is_empty() {
                kept.add(sum(&span.properties));
            }
            for event in &span.events {
                kept.add(sum(&event.properties));
            }
        }
    }
}

/// fastrace.
pub(super) struct Fastrace {
    _alone: MutexGuard<'static, ()>,
}

/// Properties are text.
fn properties(a: u64, b: u64) -> [Property; 2] {
    [("a".into(), a.to_string().into()), ("b".into(), b.to_string().into())]
}

pub(super) struct ToFastrace;

impl TraceImpl for Fastrace {
    type Handle<'a> = ToFastrace;

    fn new(keeps: bool) -> Self {
        let alone = lock(&ALONE);
        fastrace::set_reporter(Collect, fastrace::collector::Config::default());
        *lock(&COLLECTED) = keeps.then(Kept::default);
        Self { _alone: alone }
    }

    fn handle(&self) -> ToFastrace {
        ToFastrace
    }

    fn kept(self) -> Kept {
        fastrace::flush();
        lock(&COLLECTED).take().unwrap_or_default()
    }
}

impl TraceHandle for ToFastrace {
    #[inline(always)]
    fn event(&mut self, a: u64, b: u64) {
        let event = fastrace::Event::new("sample").with_properties(|| properties(a, b));
        fastrace::local::LocalSpan::add_event(event);
    }

    #[inline(always)]
    fn span(&mut self, a: u64, b: u64) {
        let span = fastrace::local::LocalSpan::enter_with_local_parent("part");
        drop(span.with_properties(|| properties(a, b)));
    }

    /// It has no levels: without a root nothing is kept.
    #[inline(always)]
    fn off(&mut self, _a: u64, _b: u64) {}

    #[inline(always)]
    fn batch(&mut self, body: impl FnOnce(&mut Self)) {
        let context = fastrace::collector::SpanContext::random();
        let root = fastrace::Span::root("batch", context);
        let _parent = root.set_local_parent();
        body(self);
    }
}

/// puffin.
pub(super) struct Puffin {
    /// Whether a thread makes the frames.
    has_leader: AtomicBool,
    frames: Arc<Mutex<Option<Kept>>>,
    sink: puffin::FrameSinkId,
    _alone: MutexGuard<'static, ()>,
}

/// The scopes of one level, and those below them.
fn scopes(stream: &puffin::Stream, reader: puffin::Reader<'_>, kept: &mut Kept) {
    for scope in reader.flatten() {
        if let Some((a, b)) = scope.record.data.split_once(' ') {
            kept.add(a.parse().unwrap_or(0) + b.parse::<u64>().unwrap_or(0));
        }
        if let Ok(below) = puffin::Reader::with_offset(stream, scope.child_begin_position) {
            scopes(stream, below, kept);
        }
    }
}

impl TraceImpl for Puffin {
    type Handle<'a> = ToPuffin;

    fn new(keeps: bool) -> Self {
        let alone = lock(&ALONE);
        puffin::set_scopes_on(true);
        let frames = Arc::new(Mutex::new(keeps.then(Kept::default)));
        let to = Arc::clone(&frames);
        let sink = puffin::GlobalProfiler::lock().add_sink(Box::new(move |frame| {
            let mut kept = lock(&to);
            let (Some(kept), Ok(frame)) = (&mut *kept, frame.unpacked()) else { return };
            for stream in frame.thread_streams.values() {
                let reader = puffin::Reader::from_start(&stream.stream);
                scopes(&stream.stream, reader, kept);
            }
        }));
        Self { has_leader: AtomicBool::new(false), frames, sink, _alone: alone }
    }

    fn handle(&self) -> ToPuffin {
        // ORDER: Relaxed; only that one thread finds it so.
        ToPuffin { batches: 0, is_leader: !self.has_leader.swap(true, Ordering::Relaxed) }
    }

    fn kept(self) -> Kept {
        puffin::GlobalProfiler::lock().new_frame();
        lock(&self.frames).take().unwrap_or_default()
    }
}

impl Drop for Puffin {
    fn drop(&mut self) {
        puffin::GlobalProfiler::lock().remove_sink(self.sink);
        puffin::set_scopes_on(false);
    }
}

pub(super) struct ToPuffin {
    batches: u64,
    is_leader: bool,
}

impl ToPuffin {
    /// Batches of the leader in a frame: without frames, the scopes pile up.
    const FRAME: u64 = 1_000;
}

impl TraceHandle for ToPuffin {
    /// It has only scopes.
    #[inline(always)]
    fn event(&mut self, a: u64, b: u64) {
        self.span(a, b);
    }

    #[inline(always)]
    fn span(&mut self, a: u64, b: u64) {
        puffin::profile_scope!("part", format!("{a} {b}"));
    }

    /// It is switched off as a whole.
    #[inline(always)]
    fn off(&mut self, _a: u64, _b: u64) {}

    #[inline(always)]
    fn batch(&mut self, body: impl FnOnce(&mut Self)) {
        {
            puffin::profile_scope!("batch");
            body(self);
        }
        self.batches += 1;
        if self.is_leader && self.batches.is_multiple_of(Self::FRAME) {
            puffin::GlobalProfiler::lock().new_frame();
        }
    }
}
