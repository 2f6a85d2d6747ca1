//! `mc_recording` and `struct mc_event`: tracing.

use crate::versioned::{self, Versioned};
use libc::c_int;
use manycore_trace::{Class, Classes, Event as Site, FieldType, Kind, Policy, Recorder};
use manycore_trace::{TextBytes, kept};
use std::ffi::{CStr, OsStr, c_char};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `mc_recording`.
pub type Recording = manycore_trace::Recording;

/// `struct mc_recording_options`. Zero is the default of each field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RecordingOptions {
    /// Size of the struct as the caller knows it.
    pub size: usize,
    /// Bit 0: the file gets events as they come.
    pub flags: u64,
    /// The file, or null.
    pub path: *const c_char,
    /// A bit for each class that is on; zero for all.
    pub classes: u64,
    /// Bytes of a thread's ring.
    pub ring_bytes: usize,
    /// The action when a ring is full.
    pub policy: u64,
}

const STREAM: u64 = 1;

// SAFETY: `repr(C)`, the size first; then numbers and a pointer.
unsafe impl Versioned for RecordingOptions {}

/// `struct mc_field`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// A string that ends with a zero.
    pub name: *const c_char,
    /// The type of its value.
    pub kind: u64,
}

/// Maximal fields of an event.
pub const EVENT_FIELDS: usize = 8;

/// `struct mc_event`: a place in the program.
#[repr(C)]
#[derive(Debug)]
pub struct Event {
    /// The event's name.
    pub name: *const c_char,
    /// The name of its class.
    pub class_name: *const c_char,
    /// The source file.
    pub file: *const c_char,
    /// The source line.
    pub line: u32,
    /// The number of its class, below 64.
    pub class_number: u32,
    /// Its kind.
    pub kind: u32,
    /// The number of its fields.
    pub field_count: u32,
    /// Its fields.
    pub fields: [Field; EVENT_FIELDS],
    /// The registered call site, or null.
    pub site: AtomicPtr<Site>,
}

/// `union mc_value`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Value {
    /// The bits of a number.
    pub number: u64,
    /// A string that ends with a zero.
    pub text: *const c_char,
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Value")
    }
}

fn errno(error: &io::Error) -> c_int {
    -error.raw_os_error().unwrap_or(match error.kind() {
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::InvalidInput => libc::EINVAL,
        _ => libc::EIO,
    })
}

/// # Safety
/// The string ends with a zero, and lives as long as the result.
unsafe fn path_of<'a>(path: *const c_char) -> Option<&'a Path> {
    // SAFETY: the caller promises a string that ends with a zero.
    let bytes = unsafe { CStr::from_ptr(path) };
    #[cfg(unix)]
    return Some(Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes.to_bytes())));
    #[cfg(not(unix))]
    bytes.to_str().ok().map(|text| Path::new(OsStr::new(text)))
}

/// Starts a recording.
///
/// # Safety
/// `out` is null or may be written. `options` is null, or has as many bytes as its first field
/// says; its path is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_recording_start(
    out: *mut *mut Recording,
    options: *const RecordingOptions,
) -> c_int {
    let size = size_of::<RecordingOptions>();
    let (path, classes) = (ptr::null(), 0);
    let none = RecordingOptions { size, flags: 0, path, classes, ring_bytes: 0, policy: 0 };
    // SAFETY: the caller promises that it is null, or as long as it says.
    let options = unsafe { versioned::read(options, none) };
    let known = |options: &RecordingOptions| options.flags & !STREAM == 0 && !out.is_null();
    let Some(options) = options.filter(known) else { return -libc::EINVAL };
    let policy = match options.policy {
        0 => Policy::Overwrite,
        1 => Policy::Drop,
        2 => Policy::Block,
        _ => return -libc::EINVAL,
    };
    let mut recorder = Recorder::new().policy(policy);
    if options.classes != 0 {
        recorder = recorder.classes(Classes::from_bits(options.classes));
    }
    if options.ring_bytes != 0 {
        let blocks = (options.ring_bytes / 16).next_power_of_two().clamp(4 << 10, 64 << 10);
        recorder = recorder.ring_bytes(options.ring_bytes).block_bytes(blocks);
    }
    if options.path.is_null() && options.flags & STREAM != 0 {
        return -libc::EINVAL;
    }
    if !options.path.is_null() {
        // SAFETY: the caller promises a string that ends with a zero.
        let Some(path) = (unsafe { path_of(options.path) }) else { return -libc::EINVAL };
        recorder = match options.flags & STREAM {
            0 if cfg!(unix) => in_file(recorder, path),
            _ => recorder.stream(path),
        };
    }
    match recorder.start() {
        // SAFETY: not null, and the caller promises that it may be written.
        Ok(recording) => unsafe { out.write(Box::into_raw(Box::new(recording))) },
        Err(error) => return errno(&error),
    }
    0
}

fn in_file(recorder: Recorder, path: &Path) -> Recorder {
    #[cfg(unix)]
    return recorder.file(path);
    #[cfg(not(unix))]
    recorder.stream(path)
}

/// Switches classes on and off.
///
/// # Safety
/// The recording was not stopped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_recording_set_classes(recording: *const Recording, classes: u64) {
    // SAFETY: the caller promises a recording that was not stopped.
    unsafe { &*recording }.set_classes(Classes::from_bits(classes));
}

/// Writes what the rings hold now to a file.
///
/// # Safety
/// Null, or a recording that was not stopped; the path is null or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_recording_save(
    recording: *const Recording,
    path: *const c_char,
) -> c_int {
    if recording.is_null() || path.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: not null, and the caller promises a string that ends with a zero.
    let Some(path) = (unsafe { path_of(path) }) else { return -libc::EINVAL };
    // SAFETY: not null, and the caller promises a recording that was not stopped.
    let saved = unsafe { &*recording }.snapshot().and_then(|bytes| std::fs::write(path, bytes));
    saved.map_or_else(|error| errno(&error), |()| 0)
}

/// Ends the recording and frees it.
///
/// # Safety
/// Null, or from `mc_recording_start`, and stopped once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_recording_stop(recording: *mut Recording) -> c_int {
    if recording.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: from the box of `mc_recording_start`; the caller promises that it comes back once.
    let stopped = unsafe { Box::from_raw(recording) }.stop();
    stopped.map_or_else(|error| errno(&error), |()| 0)
}

/// Returns 1 if the event would be recorded now, else 0.
///
/// # Safety
/// The event is as the header's macro makes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_event_is_on(event: *const Event) -> c_int {
    // SAFETY: the caller promises an event.
    is_on(unsafe { (*event).class_number }).into()
}

fn is_on(class: u32) -> bool {
    class < 64 && Class::new(class as u8, "").is_on()
}

/// Records an event, if its class is on.
///
/// # Safety
/// The header's macro made the event; its strings end with a zero. `values` has a value for each
/// field, and its texts end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_event_record(event: *const Event, values: *const Value) -> c_int {
    // SAFETY: the caller promises an event.
    let event = unsafe { &*event };
    if !is_on(event.class_number) {
        return if event.class_number < 64 { 0 } else { -libc::EINVAL };
    }
    // ORDER: Acquire; pairs with the exchange in `register`: the site before its address.
    let mut site = event.site.load(Ordering::Acquire);
    if site.is_null() {
        // SAFETY: the caller promises it of the event.
        match unsafe { register(event) } {
            Some(made) => site = made,
            None => return -libc::EINVAL,
        }
    }
    let count = event.field_count as usize;
    let mut texts = [TextBytes(&[]); EVENT_FIELDS];
    let mut fields = [(0, 0, &[][..]); EVENT_FIELDS];
    for (at, text) in texts.iter_mut().enumerate().take(count) {
        if event.fields[at].kind == TEXT {
            // SAFETY: the caller promises a value for each field, and a string for a text.
            *text = TextBytes(unsafe { CStr::from_ptr((*values.add(at)).text) }.to_bytes());
        }
    }
    for (at, field) in fields.iter_mut().enumerate().take(count) {
        *field = match event.fields[at].kind {
            TEXT => kept(&texts[at]),
            // SAFETY: the caller promises a value for each field; any bits are a number.
            _ => (unsafe { (*values.add(at)).number }, 8, &[][..]),
        };
    }
    // SAFETY: from a box that is never freed.
    unsafe { &*site }.record(fields);
    0
}

const TEXT: u64 = 4;

/// Makes the site of an event, which lives forever, or finds the site that another thread made.
///
/// # Safety
/// The event's strings end with a zero.
#[cold]
unsafe fn register(event: &Event) -> Option<*mut Site> {
    let text = |text: *const c_char| -> Option<&'static str> {
        if text.is_null() {
            return None;
        }
        // SAFETY: not null, and the caller promises that it ends with a zero. Copied, because a
        // plug-in's strings go away with it.
        let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        Some(String::leak(text))
    };
    let kind = match event.kind {
        0 => Kind::Instant,
        1 => Kind::Begin,
        2 => Kind::End,
        3 => Kind::Counter,
        4 => Kind::FlowBegin,
        5 => Kind::FlowEnd,
        _ => return None,
    };
    let mut fields = Vec::new();
    for field in event.fields.get(..event.field_count as usize)? {
        let kind = match field.kind {
            1 => FieldType::Unsigned(8),
            2 => FieldType::Signed(8),
            3 => FieldType::Float(8),
            TEXT => FieldType::Text,
            _ => return None,
        };
        fields.push((text(field.name)?, kind));
    }
    let class = Class::new(event.class_number as u8, text(event.class_name)?);
    let place = ("", text(event.file)?, event.line);
    let site = Site::new(class, kind, text(event.name)?, place, Vec::leak(fields));
    let site = Box::into_raw(Box::new(site));
    // ORDER: AcqRel; pairs with Acquire above, and with itself if another thread was first.
    let (new, old) = (Ordering::AcqRel, Ordering::Acquire);
    Some(match event.site.compare_exchange(ptr::null_mut(), site, new, old) {
        Ok(_) => site,
        Err(theirs) => {
            // SAFETY: made above, and known to no other thread.
            drop(unsafe { Box::from_raw(site) });
            theirs
        }
    })
}
