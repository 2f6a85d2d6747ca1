//! Events: the types of fields, and the macros.

use crate::format::{MAX_TEXT, TRUNCATED};
use crate::local;
use crate::site::{Event, FieldType};
use crate::sync::{AtomicU64, Ordering};

mod sealed {
    pub trait Sealed {}
}

/// A type that a field can have: a number, `bool`, `&str` or `&[u8]`.
///
/// ```
/// use manycore_trace::{Class, event};
///
/// const QUERIES: Class = Class::new(3, "queries");
/// let (rows, name) = (7_u32, "users");
/// event!(QUERIES, Scanned { rows: u32, table: &str = name, share: f32 = 0.5 });
/// ```
///
/// A record keeps up to 480 bytes of a text or of bytes, and marks a longer value as truncated.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be a field of an event",
    note = "numbers, `bool`, `&str` and `&[u8]` can; turn others into one of these at the call"
)]
pub trait Field: sealed::Sealed {
    #[doc(hidden)]
    const TYPE: FieldType;
    #[doc(hidden)]
    fn fixed(&self) -> u64;
    #[doc(hidden)]
    #[inline(always)]
    fn tail(&self) -> &[u8] {
        &[]
    }
}

macro_rules! numbers {
    ($($type:ty, $as:ty, $field:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Field for $type {
            const TYPE: FieldType = $field;
            #[inline(always)]
            fn fixed(&self) -> u64 {
                u64::from(*self as $as)
            }
        }
    )*};
}
numbers! {
    u8, u8, FieldType::Unsigned(1);
    u16, u16, FieldType::Unsigned(2);
    u32, u32, FieldType::Unsigned(4);
    u64, u64, FieldType::Unsigned(8);
    usize, u64, FieldType::Unsigned(8);
    i8, u8, FieldType::Signed(1);
    i16, u16, FieldType::Signed(2);
    i32, u32, FieldType::Signed(4);
    i64, u64, FieldType::Signed(8);
    isize, u64, FieldType::Signed(8);
    bool, u8, FieldType::Bool;
}

impl sealed::Sealed for f32 {}
impl Field for f32 {
    const TYPE: FieldType = FieldType::Float(4);
    #[inline(always)]
    fn fixed(&self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl sealed::Sealed for f64 {}
impl Field for f64 {
    const TYPE: FieldType = FieldType::Float(8);
    #[inline(always)]
    fn fixed(&self) -> u64 {
        self.to_bits()
    }
}

/// Returns the length as it is recorded, with the mark of a truncated value.
#[inline(always)]
fn kept_length(whole: usize, kept: usize) -> u64 {
    kept as u64 | if kept < whole { TRUNCATED } else { 0 }
}

impl sealed::Sealed for &[u8] {}
impl Field for &[u8] {
    const TYPE: FieldType = FieldType::Bytes;
    #[inline(always)]
    fn fixed(&self) -> u64 {
        kept_length(self.len(), self.tail().len())
    }
    #[inline(always)]
    fn tail(&self) -> &[u8] {
        if self.len() <= MAX_TEXT { self } else { &self[..MAX_TEXT] }
    }
}

/// Bytes that are read as text, for keys and names that are mostly UTF-8. Reading replaces what is
/// not UTF-8.
///
/// ```
/// use manycore_trace::{Class, TextBytes, event};
///
/// const KEYS: Class = Class::new(3, "keys");
/// event!(KEYS, Removed { key: TextBytes<'_> = TextBytes(b"user:7") });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextBytes<'a>(pub &'a [u8]);

impl sealed::Sealed for TextBytes<'_> {}
impl Field for TextBytes<'_> {
    const TYPE: FieldType = FieldType::Text;
    #[inline(always)]
    fn fixed(&self) -> u64 {
        self.0.fixed()
    }
    #[inline(always)]
    fn tail(&self) -> &[u8] {
        self.0.tail()
    }
}

impl sealed::Sealed for &str {}
impl Field for &str {
    const TYPE: FieldType = FieldType::Text;
    #[inline(always)]
    fn fixed(&self) -> u64 {
        kept_length(self.len(), self.tail().len())
    }
    #[inline(always)]
    fn tail(&self) -> &[u8] {
        if self.len() <= MAX_TEXT { self.as_bytes() } else { truncated(self) }
    }
}

#[cold]
fn truncated(text: &str) -> &[u8] {
    let end = (0..=MAX_TEXT).rev().find(|at| text.is_char_boundary(*at));
    &text.as_bytes()[..end.unwrap_or(0)]
}

impl Event {
    /// Records the event.
    #[inline(always)]
    pub fn record<const N: usize>(&'static self, fields: [(u64, u8, &[u8]); N]) {
        // Computed from the fields and not from the site, so that the compiler knows the result.
        let fixed: usize = fields.iter().map(|(_, bytes, _)| usize::from(*bytes)).sum();
        let tails: usize = fields.iter().map(|(.., tail)| tail.len().div_ceil(8)).sum();
        local::record(self, 1 + fixed.div_ceil(8) + tails, |words| fill(words, &fields));
    }
}

/// Returns what a record keeps of a value. Used by the macros.
#[doc(hidden)]
#[inline(always)]
pub fn kept<F: Field>(value: &F) -> (u64, u8, &[u8]) {
    (value.fixed(), const { F::TYPE.fixed() as u8 }, value.tail())
}

/// Stores the fixed parts one after the other, then each text, which begins at a word.
#[inline(always)]
pub(crate) fn fill(words: &[AtomicU64], fields: &[(u64, u8, &[u8])]) {
    // ORDER: Relaxed, here and below; the ring's commit publishes them.
    let (mut word, mut bits, mut at) = (0_u64, 0_u32, 0);
    for (value, bytes, _) in fields {
        let width = 8 * u32::from(*bytes);
        word |= value << bits;
        bits += width;
        if bits >= 64 {
            words[at].store(word, Ordering::Relaxed);
            at += 1;
            bits -= 64;
            word = if bits == 0 { 0 } else { value >> (width - bits) };
        }
    }
    if bits != 0 {
        words[at].store(word, Ordering::Relaxed);
        at += 1;
    }
    for (.., tail) in fields {
        for bytes in tail.chunks(8) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            words[at].store(u64::from_le_bytes(all), Ordering::Relaxed);
            at += 1;
        }
    }
}

/// An open span of this thread. It ends when this is dropped. See [`span!`](crate::span).
///
/// ```
/// use manycore_trace::{Class, Span, span};
///
/// const QUERIES: Class = Class::new(3, "queries");
/// fn query() -> Span {
///     span!(QUERIES, Query { table: u32 = 7 })
/// }
/// let open = query();
/// drop(open);
/// ```
#[derive(Debug)]
#[must_use = "a span ends when this is dropped"]
pub struct Span {
    end: Option<&'static Event>,
    /// A span ends in the thread in which it began, so this is not `Send`.
    thread: std::marker::PhantomData<*const ()>,
}

impl Span {
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(end: Option<&'static Event>) -> Self {
        Self { end, thread: std::marker::PhantomData }
    }
}

impl Drop for Span {
    #[inline(always)]
    fn drop(&mut self) {
        // Even if the class is off by now, so that the trace has both ends.
        if let Some(end) = self.end {
            end.record([]);
        }
    }
}

/// Returns a new number that links events of different threads: a request that is handed on, or a
/// task that is woken.
///
/// ```
/// use manycore_trace::{Class, flow_begin, flow_end, new_flow};
///
/// const REQUESTS: Class = Class::new(1, "requests");
/// let flow = new_flow();
/// flow_begin!(REQUESTS, Queued, flow);
/// std::thread::spawn(move || flow_end!(REQUESTS, Queued, flow)).join().unwrap();
/// ```
///
/// Cost: an addition in the thread's own memory. Threads share a word only once in 65,536 calls.
#[must_use]
pub fn new_flow() -> u64 {
    const EACH: u64 = 1 << 16;
    static NEXT: AtomicU64 = AtomicU64::new(EACH);
    thread_local! {
        static OWN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    OWN.with(|own| {
        let mut flow = own.get();
        if flow % EACH == 0 {
            // ORDER: Relaxed; only uniqueness matters.
            flow = NEXT.fetch_add(EACH, Ordering::Relaxed);
        }
        own.set(flow + 1);
        flow
    })
}

/// Defines the static of a call site. Used by the other macros.
#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($class:expr, $kind:ident, $name:expr, { $($field:ident : $type:ty),* }) => {{
        static EVENT: $crate::Event = $crate::Event::new(
            $class,
            $crate::Kind::$kind,
            $name,
            (module_path!(), file!(), line!()),
            &[$((stringify!($field), <$type as $crate::Field>::TYPE)),*],
        );
        &EVENT
    }};
}

/// Returns true if the next event of a class is recorded. Used by the other macros.
///
/// The class is a constant, so that the compiler knows its bit.
#[doc(hidden)]
#[macro_export]
macro_rules! __takes {
    ($class:expr) => {
        $crate::Class::takes_next(const { $class })
    };
}

/// Returns a field's value: the given expression, or the variable of the field's name. Used by the
/// other macros.
#[doc(hidden)]
#[macro_export]
macro_rules! __value {
    ($field:ident) => {
        $field
    };
    ($field:ident, $value:expr) => {
        $value
    };
}

/// Records an event: `event!(CLASS, Name { field: type = value, variable: type })`.
///
/// The values are computed only if the class is on. The macro does not allocate, lock or format.
/// The names are in the file's schema, once.
///
/// ```
/// use manycore_trace::{Class, Recorder, Trace, event};
///
/// const NET: Class = Class::new(1, "net");
/// let recording = Recorder::new().start()?;
/// let port = 80_u16;
/// event!(NET, Accepted { port: u16, peer: &str = "::1" });
/// let mut trace = Trace::from_bytes(recording.snapshot()?)?;
/// let mut merge = trace.merge();
/// let record = merge.next().unwrap();
/// assert_eq!(record.to_string(), "net Accepted port=80 peer=\"::1\"");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! event {
    ($class:expr, $name:ident { $($field:ident : $type:ty $(= $value:expr)?),* $(,)? }) => {{
        let event = $crate::__site!($class, Instant, stringify!($name), { $($field: $type),* });
        if $crate::__takes!($class) {
            // All at once: a value may use a variable with the name of an earlier field.
            let ($($field,)*): ($($type,)*) = ($($crate::__value!($field $(, $value)?),)*);
            event.record([$($crate::kept(&$field)),*]);
        }
    }};
    ($class:expr, $name:ident) => {
        $crate::event!($class, $name {})
    };
}

/// Begins a span that ends when the result is dropped: `let _span = span!(CLASS, Name { ... });`
///
/// The fields are as in [`event!`](crate::event). The end is a record of one word, and it is
/// recorded if the beginning was. A span stays in its thread. Work that changes threads is a flow
/// ([`flow_begin!`](crate::flow_begin)).
///
/// ```
/// use manycore_trace::{Class, span};
///
/// const QUERIES: Class = Class::new(3, "queries");
/// {
///     let _span = span!(QUERIES, Query { id: u32 = 17 });
///     // ... the query
/// }
/// ```
#[macro_export]
macro_rules! span {
    ($class:expr, $name:ident { $($field:ident : $type:ty $(= $value:expr)?),* $(,)? }) => {{
        let begin = $crate::__site!($class, Begin, stringify!($name), { $($field: $type),* });
        $crate::Span::new(if $crate::__takes!($class) {
            // All at once: a value may use a variable with the name of an earlier field.
            let ($($field,)*): ($($type,)*) = ($($crate::__value!($field $(, $value)?),)*);
            begin.record([$($crate::kept(&$field)),*]);
            ::core::option::Option::Some($crate::__site!($class, End, stringify!($name), {}))
        } else {
            ::core::option::Option::None
        })
    }};
    ($class:expr, $name:ident) => {
        $crate::span!($class, $name {})
    };
}

/// Records the value of a counter: `counter!(CLASS, Name: type = value)`.
///
/// ```
/// use manycore_trace::{Class, counter};
///
/// const POOL: Class = Class::new(4, "pool");
/// counter!(POOL, QueueLength: u64 = 12);
/// ```
#[macro_export]
macro_rules! counter {
    ($class:expr, $name:ident : $type:ty = $value:expr) => {{
        let event = $crate::__site!($class, Counter, stringify!($name), { value: $type });
        if $crate::__takes!($class) {
            let value: $type = $value;
            event.record([$crate::kept(&value)]);
        }
    }};
}

/// Records that work leaves this thread: `flow_begin!(CLASS, Name, flow)`.
///
/// See [`new_flow`](crate::new_flow) for an example.
#[macro_export]
macro_rules! flow_begin {
    ($class:expr, $name:ident, $flow:expr) => {{
        let event = $crate::__site!($class, FlowBegin, stringify!($name), { flow: u64 });
        if $crate::__takes!($class) {
            let flow: u64 = $flow;
            event.record([$crate::kept(&flow)]);
        }
    }};
}

/// Records that work arrives in this thread: `flow_end!(CLASS, Name, flow)`.
///
/// See [`new_flow`](crate::new_flow) for an example.
#[macro_export]
macro_rules! flow_end {
    ($class:expr, $name:ident, $flow:expr) => {{
        let event = $crate::__site!($class, FlowEnd, stringify!($name), { flow: u64 });
        if $crate::__takes!($class) {
            let flow: u64 = $flow;
            event.record([$crate::kept(&flow)]);
        }
    }};
}
