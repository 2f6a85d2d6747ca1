//! The crate tracing, with the cheapest subscriber that keeps what is recorded.

use std::{
    cell::RefCell,
    sync::{Mutex, PoisonError},
};

use tracing::{
    Dispatch, Event, Id, Level, Metadata, Subscriber,
    dispatcher::{self, DefaultGuard},
    field::{Field, Visit},
    level_filters::LevelFilter,
    span::{Attributes, Record},
    subscriber::Interest,
};

use super::{Kept, TraceHandle, TraceImpl, ring_bytes};
use crate::ticks;

/// Through the crate's macros, with the thread's subscriber set.
pub(super) struct Macros(#[expect(dead_code, reason = "for its drop")] pub(super) DefaultGuard);

impl TraceHandle for Macros {
    #[inline(always)]
    fn event(&mut self, a: u64, b: u64) {
        tracing::event!(Level::INFO, a, b);
    }

    #[inline(always)]
    fn span(&mut self, a: u64, b: u64) {
        drop(tracing::span!(Level::INFO, "part", a, b).entered());
    }

    #[inline(always)]
    fn off(&mut self, a: u64, b: u64) {
        tracing::event!(Level::TRACE, a, b);
    }
}

/// A thread's ring: of each record its number of fields and the address of its call site, the time,
/// and the fields.
struct Ring {
    words: Box<[u64]>,
    next: usize,
}

thread_local! {
    static RING: RefCell<Ring> =
        RefCell::new(Ring { words: vec![0; ring_bytes() / 8].into(), next: 0 });
}

impl Ring {
    #[inline]
    fn push(&mut self, word: u64) {
        let at = self.next & (self.words.len() - 1);
        self.words[at] = word;
        self.next += 1;
    }

    #[inline]
    fn begin(&mut self, metadata: &'static Metadata<'static>) {
        let fields = metadata.fields().len() as u64;
        self.push(fields << 56 | std::ptr::from_ref(metadata).addr() as u64);
        self.push(ticks::now());
    }

    /// What is in it; it is empty afterwards.
    fn take(&mut self) -> Kept {
        let mut kept = Kept::default();
        let end = std::mem::take(&mut self.next).min(self.words.len());
        let mut words = &self.words[..end];
        while let [first, _time, rest @ ..] = words {
            let (fields, after) = rest.split_at(((first >> 56) as usize).min(rest.len()));
            if *first != 0 {
                kept.add(fields.iter().sum());
            }
            words = after;
        }
        kept
    }
}

impl Visit for Ring {
    #[inline]
    fn record_u64(&mut self, _field: &Field, value: u64) {
        self.push(value);
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {
        self.push(0);
    }
}

/// The subscriber.
struct ToRing;

impl Subscriber for ToRing {
    fn register_callsite(&self, _metadata: &'static Metadata<'static>) -> Interest {
        Interest::always()
    }

    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    #[inline]
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        RING.with_borrow_mut(|ring| {
            ring.begin(span.metadata());
            span.record(ring);
        });
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    #[inline]
    fn event(&self, event: &Event<'_>) {
        RING.with_borrow_mut(|ring| {
            ring.begin(event.metadata());
            event.record(ring);
        });
    }

    fn enter(&self, _span: &Id) {}

    #[inline]
    fn exit(&self, _span: &Id) {
        RING.with_borrow_mut(|ring| {
            ring.push(0);
            ring.push(ticks::now());
        });
    }
}

/// tracing alone.
pub(super) struct Bare {
    dispatch: Dispatch,
    kept: Mutex<Kept>,
}

/// A thread's subscriber, and where its ring's contents go at the end.
pub(super) struct BareHandle<'a> {
    macros: Macros,
    kept: &'a Mutex<Kept>,
}

impl Drop for BareHandle<'_> {
    fn drop(&mut self) {
        let own = RING.with_borrow_mut(Ring::take);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).merge(own);
    }
}

impl TraceImpl for Bare {
    type Handle<'a> = BareHandle<'a>;

    fn new(_keeps: bool) -> Self {
        Self { dispatch: Dispatch::new(ToRing), kept: Mutex::default() }
    }

    fn handle(&self) -> BareHandle<'_> {
        let macros = Macros(dispatcher::set_default(&self.dispatch));
        BareHandle { macros, kept: &self.kept }
    }

    fn kept(self) -> Kept {
        self.kept.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceHandle for BareHandle<'_> {
    #[inline(always)]
    fn event(&mut self, a: u64, b: u64) {
        self.macros.event(a, b);
    }

    #[inline(always)]
    fn span(&mut self, a: u64, b: u64) {
        self.macros.span(a, b);
    }

    #[inline(always)]
    fn off(&mut self, a: u64, b: u64) {
        self.macros.off(a, b);
    }
}
