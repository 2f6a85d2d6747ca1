//! Recordings: their options, their start and their end.

use crate::busy;
use crate::class::{self, Class, Classes};
use crate::format;
use crate::ring::{Policy, Sizes};
use crate::sampling;
use crate::session::{Session, lock, number_of};
use crate::stream::{self, Stream};
use crate::sync::Ordering;
use manycore::clock::Clock;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The place where the rings lie.
#[derive(Debug, Clone)]
enum Medium {
    Heap,
    #[cfg(unix)]
    File(PathBuf),
    #[cfg(target_os = "linux")]
    Memfd,
    Stream(PathBuf),
}

/// Starts a recording.
///
/// ```
/// use manycore_trace::{Class, Classes, Policy, Recorder, event};
///
/// const NET: Class = Class::new(1, "net");
/// let folder = std::env::temp_dir();
/// let path = folder.join(format!("manycore-trace-{}.mctrace", std::process::id()));
/// let recording = Recorder::new()
///     .classes(Classes::of(&[NET]))
///     .ring_bytes(1 << 20)
///     .stream(&path)
///     .policy(Policy::Block)
///     .start()?;
/// event!(NET, Accepted { port: u16 = 80 });
/// recording.stop()?;
///
/// let mut trace = manycore_trace::Trace::open(&path)?;
/// assert_eq!(trace.account().merged, 1);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// There is one recording at a time in a process.
///
/// | Rings | After a crash | What is kept |
/// |---|---|---|
/// | in memory (default) | gone | the last events of each thread, for [`Recording::snapshot`] |
/// | [`file`](Self::file) | in the file | the last events of each thread |
/// | [`memfd`](Self::memfd) | with another process that has it open | the same |
/// | [`stream`](Self::stream) | copied sub-buffers are in the file | all, as the policy says |
///
/// Memory: [`ring_bytes`](Self::ring_bytes) for each thread alive at once, from its first event.
#[derive(Debug, Clone)]
pub struct Recorder {
    classes: Classes,
    rates: Vec<(Class, u32)>,
    policy: Policy,
    block_bytes: usize,
    ring_bytes: usize,
    medium: Medium,
    packs: bool,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Creates a recorder of all classes. The rings lie in memory, have 1 MiB each, and overwrite
    /// old events.
    #[must_use]
    pub fn new() -> Self {
        Self {
            classes: Classes::ALL,
            rates: Vec::new(),
            policy: Policy::Overwrite,
            block_bytes: 64 << 10,
            ring_bytes: 1 << 20,
            medium: Medium::Heap,
            packs: false,
        }
    }

    /// Creates the recorder that `manycore trace record` asks for, or `None` if `MANYCORE_TRACE` is
    /// not set.
    ///
    /// `MANYCORE_TRACE` names the file. `MANYCORE_TRACE_CLASSES` has a bit set for each class (a
    /// number, with `0x` if hexadecimal). Without it, all classes are on.
    ///
    /// ```
    /// if let Some(recorder) = manycore_trace::Recorder::from_env() {
    ///     let recording = recorder.start()?;
    ///     std::mem::forget(recording); // runs until the process ends
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn from_env() -> Option<Self> {
        let path = std::env::var_os("MANYCORE_TRACE").filter(|path| !path.is_empty())?;
        let bits = std::env::var("MANYCORE_TRACE_CLASSES").ok().and_then(|text| {
            text.strip_prefix("0x")
                .map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
        });
        let recorder = Self::new().classes(bits.map_or(Classes::ALL, Classes::from_bits));
        #[cfg(unix)]
        let recorder = recorder.file(path);
        #[cfg(not(unix))]
        let recorder = recorder.stream(path);
        Some(recorder)
    }

    /// Sets the classes that are on at first.
    #[must_use]
    pub fn classes(mut self, classes: Classes) -> Self {
        self.classes = classes;
        self
    }

    /// Records one in `every` events of this class, on average.
    ///
    /// Each thread draws a random gap to the next recorded event. With `every` up to 1, and for all
    /// other classes, all events are recorded.
    ///
    /// ```
    /// use manycore_trace::{Class, Recorder, Trace, convert::{Filter, Summary}, event};
    ///
    /// const GETS: Class = Class::new(3, "gets");
    /// let recording = Recorder::new().sample(GETS, 100).start()?;
    /// (0..100_000).for_each(|key| event!(GETS, Get { key: u32 }));
    /// let mut trace = Trace::from_bytes(recording.finish()?)?;
    /// let summary = Summary::of(&mut trace, &Filter::default());
    /// let recorded = summary.events[&("gets".to_owned(), "Get".to_owned())];
    /// assert!((500..2_000).contains(&recorded));
    /// assert_eq!(summary.sampled["gets"], 100);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// *For* classes with too many events to record them all. *Not* for classes with flows, because
    /// the two ends of a flow are sampled independently. A span has both ends or none. The file has
    /// the rate with each event, so that figures can be scaled.
    ///
    /// A skipped event costs a count in the thread's own memory (about 2 ns). Its values are not
    /// computed, and [`Account`](crate::Account) does not count it as produced. The rate is fixed
    /// for the whole recording.
    #[must_use]
    pub fn sample(mut self, class: Class, every: u32) -> Self {
        self.rates.push((class, every));
        self
    }

    /// Sets what happens when a ring is full.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the bytes of each thread's ring: at least two sub-buffers.
    #[must_use]
    pub fn ring_bytes(mut self, bytes: usize) -> Self {
        self.ring_bytes = bytes;
        self
    }

    /// Sets the bytes of a sub-buffer, the unit of overwriting. A power of two from 4 KiB to 8 MiB.
    #[must_use]
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Puts the rings into this file and maps it. After the process was killed, the last events are
    /// there.
    ///
    /// Replaces a file of that name. Disk space is allocated when a thread gets its ring, so a full
    /// disk costs events (which are counted), not the process. No other program may truncate the
    /// file.
    #[cfg(unix)]
    #[must_use]
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.medium = Medium::File(path.into());
        self
    }

    /// Puts the rings into an anonymous file in memory. A supervisor gets
    /// [`Recording::descriptor`], or opens the file below `/proc`.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn memfd(mut self) -> Self {
        self.medium = Medium::Memfd;
        self
    }

    /// Streams full sub-buffers into this file, which then holds more than the rings.
    ///
    /// A thread of this crate copies them. Replaces a file of that name. [`Policy::Overwrite`]
    /// becomes [`Policy::Drop`].
    #[must_use]
    pub fn stream(mut self, path: impl Into<PathBuf>) -> Self {
        self.medium = Medium::Stream(path.into());
        self
    }

    /// Compresses the file of [`stream`](Self::stream) with LZ4.
    ///
    /// Small events take a quarter to a third of their bytes. The copying thread takes more time
    /// (about 10 ns an event). Readers need the feature `lz4`. The rings are not compressed.
    ///
    /// ```
    /// use manycore_trace::{Class, Policy, Recorder, Trace, event};
    ///
    /// const NET: Class = Class::new(1, "net");
    /// let name = format!("manycore-trace-lz4-{}.mctrace", std::process::id());
    /// let path = std::env::temp_dir().join(name);
    /// let recorder = Recorder::new().policy(Policy::Block).stream(&path).compressed();
    /// let recording = recorder.start()?;
    /// (0..10_000).for_each(|port| event!(NET, Accepted { port: u32, peer: u64 = 7 }));
    /// recording.stop()?;
    /// assert!(std::fs::metadata(&path)?.len() < 10_000 * 24 / 2);
    /// assert_eq!(Trace::open(&path)?.account().merged, 10_000);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "lz4")]
    #[must_use]
    pub fn compressed(mut self) -> Self {
        self.packs = true;
        self
    }

    /// Starts the recording.
    ///
    /// # Errors
    /// If a recording runs already, the sizes make no sense, or the file can't be made.
    pub fn start(self) -> io::Result<Recording> {
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        let block_words = self.block_bytes / 8;
        let is_fit = (format::MIN_BLOCK_WORDS..=format::MAX_BLOCK_WORDS).contains(&block_words);
        if !self.block_bytes.is_power_of_two() || !is_fit {
            return invalid("a sub-buffer has a power of two of bytes, from 4 KiB to 8 MiB");
        }
        let blocks = self.ring_bytes / self.block_bytes;
        if blocks < 2 {
            return invalid("a ring has at least two sub-buffers");
        }
        let is_stream = matches!(self.medium, Medium::Stream(_));
        let policy = match self.policy {
            Policy::Block if !is_stream => {
                return invalid("a thread that waits needs a stream that makes room");
            }
            _ if self.packs && !is_stream => {
                return invalid("what lies in rings is not compressed: a stream is");
            }
            Policy::Overwrite if is_stream => Policy::Drop,
            policy => policy,
        };
        #[cfg(unix)]
        crate::session::fork::register();
        Clock::system().ticks_per_second(); // measures the clock now, if it must be measured
        busy::quietly(|| self.start_quietly(Sizes { block_words, blocks }, policy))
    }

    fn start_quietly(self, sizes: Sizes, policy: Policy) -> io::Result<Recording> {
        let mut state = lock();
        if state.session.is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a recording runs already"));
        }
        let file = match &self.medium {
            Medium::Heap => None,
            #[cfg(unix)]
            Medium::File(path) => Some(create(path)?),
            #[cfg(target_os = "linux")]
            Medium::Memfd => Some(memfd()?),
            Medium::Stream(path) => Some(create(path)?),
        };
        let stream = match (&self.medium, &file) {
            (Medium::Stream(_), Some(file)) => Some(file.try_clone()?),
            _ => None,
        };
        let mapped = if stream.is_some() { None } else { file };
        let generation = class::next_generation();
        let descriptor = mapped.as_ref().map(File::try_clone).transpose()?;
        sampling::set_rates(&self.rates);
        let mut session = Session::new(generation, mapped, sizes, policy)?;
        for (at, event) in state.events.iter().enumerate() {
            session.describe(number_of(at), event)?;
        }
        state.session = Some(session);
        drop(state);
        let stream = stream.map(|file| Stream::start(file, generation, self.packs)).transpose();
        if stream.is_err() {
            lock().session = None;
        } else {
            class::set_mask(self.classes);
        }
        Ok(Recording { generation, descriptor, stream: stream?, is_over: false })
    }
}

fn create(path: &Path) -> io::Result<File> {
    // A new file, not a truncated one: a process that has the old one mapped would fault.
    if std::fs::metadata(path).is_ok_and(|old| old.is_file()) {
        std::fs::remove_file(path)?;
    }
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

#[cfg(target_os = "linux")]
fn memfd() -> io::Result<File> {
    use std::os::fd::FromRawFd;
    // SAFETY: the name ends with a zero byte.
    let descriptor = unsafe { libc::memfd_create(c"manycore-trace".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened the descriptor, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// A running recording. It ends when this is dropped.
///
/// See [`Recorder`] for an example. In a child of `fork` the recording is over.
#[derive(Debug)]
#[must_use = "the recording ends when this is dropped"]
pub struct Recording {
    generation: u64,
    descriptor: Option<File>,
    stream: Option<Stream>,
    is_over: bool,
}

impl Recording {
    /// Switches classes on and off. Threads see the change soon, but not ordered with anything
    /// else.
    pub fn set_classes(&self, classes: Classes) {
        if lock().session.as_ref().is_some_and(|session| session.generation == self.generation) {
            class::set_mask(classes);
        }
    }

    /// Returns everything that the rings hold now, as the bytes of a file for
    /// [`crate::Trace::from_bytes`].
    ///
    /// The recording goes on. Each thread's events are complete up to a moment during the call.
    ///
    /// # Errors
    /// If the recording is over (in a child of `fork`).
    pub fn snapshot(&self) -> io::Result<Vec<u8>> {
        busy::quietly(|| stream::snapshot(self.generation))
    }

    /// Ends the recording and returns what the rings hold, like [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    /// Those of [`snapshot`](Self::snapshot) and [`stop`](Self::stop).
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        class::set_mask(Classes::NONE);
        let bytes = self.snapshot()?;
        self.end()?;
        Ok(bytes)
    }

    /// Returns the file that holds the rings, if they lie in a file.
    #[must_use]
    pub fn descriptor(&self) -> Option<&File> {
        self.descriptor.as_ref()
    }

    /// Ends the recording.
    ///
    /// An event that another thread records at this moment may or may not be in the file.
    ///
    /// # Errors
    /// If the stream could not be written. The file has everything before the error.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        busy::quietly(|| {
            let mut state = lock();
            let Some(session) = state.session_of(self.generation) else {
                // The parent's: its thread does not exist here.
                std::mem::forget(self.stream.take());
                return Ok(());
            };
            class::set_mask(Classes::NONE);
            class::next_generation();
            session.finish();
            let rings = session.rings.clone();
            drop(state);
            // ORDER: Relaxed; a hint to waiting writers.
            rings.iter().for_each(|ring| ring.is_closed.store(true, Ordering::Relaxed));
            let result = self.stream.take().map_or(Ok(()), Stream::finish);
            let session = lock().session.take();
            drop(session); // not under the lock, since this unmaps
            result
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // A drop cannot return an error; `stop` does.
        let _ = self.end();
    }
}
