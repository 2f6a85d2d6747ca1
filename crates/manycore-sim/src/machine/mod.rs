//! Machine models: the numbers that the engine charges with.
//!
//! Contains [`Machine`], the list of its [`PARAMETERS`] and the shipped models. Every parameter of
//! every model says where its value comes from: a paper and a section, a measurement, or the word
//! `guess`. All times are cycles of the modelled machine.

#[cfg(feature = "report")]
pub mod calibrate;
#[cfg(feature = "report")]
mod file;
mod guess;
#[cfg(feature = "report")]
mod host;
mod named;
mod parameter;
mod servers;
mod text;

use std::{borrow::Cow, collections::BTreeMap, fmt};

#[cfg(feature = "report")]
pub use file::FileError;
pub use parameter::{PARAMETERS, Parameter};

/// Maximal cores on which a program runs, counted as hardware threads. The engine keeps bit sets of
/// them.
pub const MAX_CORES: u32 = 1024;

/// Maximal cores of a machine, of which a program runs on some. Twice as many, so that sockets can
/// be added for all of [`MAX_CORES`], whatever their size.
const MAX_HARDWARE: u32 = 2 * MAX_CORES;

/// Maximal lines in all caches of one level of a model. The engine needs four bytes for each.
const MAX_LINES: u64 = 64 << 20;

/// Decides which core gets a contended line when the current transfer ends.
///
/// No data sheet says this, and nothing else in the model changes the results as much. With all
/// else equal, 48 cores that write one line need 700 cycles a write under `Nearest` and 15,000
/// under `Random`. Only `Rounds` and `Turns` fit the published curve (OpLog, Figure 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Arbitration {
    /// The core that asked first.
    Fifo,
    /// Serves all requests that wait when a round begins before any later request. Within a round,
    /// the request nearest to the last holder goes first.
    #[default]
    Rounds,
    /// Like `Rounds`, but a round visits the sockets in the order of their numbers.
    Turns,
    /// Always the core nearest to the last holder. Far cores can starve.
    Nearest,
    /// Any core, chosen by the engine's seed.
    Random,
}

/// The connections of the sockets, which decide the number of hops between two of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Topology {
    /// Every socket is one hop from every other.
    #[default]
    Full,
    /// A hypercube: the hops are the bits in which the socket numbers differ, at most three.
    Hypercube,
    /// A ring. Distances over three hops count as three.
    Ring,
}

/// One machine: its shape and its costs in cycles.
///
/// # Examples
///
/// ```
/// use manycore_sim::Machine;
///
/// let machine = Machine::named("opteron-8x6").unwrap();
/// assert_eq!(machine.cores(), 48);
/// assert!(machine.source("same_socket").contains("OpLog"));
/// ```
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Machine {
    /// Short name, as the command takes it.
    pub name: String,
    /// One sentence: which machine this stands for.
    pub about: String,
    /// Sockets, each with a cache that its cores share.
    pub sockets: u32,
    /// Cores of one socket. Core `c` belongs to socket `c / cores_per_socket`.
    pub cores_per_socket: u32,
    /// Cores of one complex inside a socket: AMD's core complex, or a tile. They are nearer to each
    /// other than to the rest. The last complex of a socket may have fewer. 0: no complexes.
    pub cores_per_complex: u32,
    /// Hardware threads of a core, which share its caches. Virtual cores are numbered as in Linux:
    /// the first threads of all cores come first, then the second threads.
    pub threads_per_core: u32,
    /// Speed of each hardware thread while another thread of its core is busy, in percent of its
    /// speed alone.
    pub thread_share: u32,
    /// Million cycles per second, to turn cycles into time.
    pub mhz: u32,
    /// The connections of the sockets.
    pub topology: Topology,
    /// Moving a line between two cores of one complex.
    pub same_complex: u32,
    /// Moving a line between two cores of one socket. If the socket has complexes: of two
    /// complexes.
    pub same_socket: u32,
    /// Moving a line to a socket one, two and three hops away.
    pub hops: [u32; 3],
    /// An access that the core's own cache answers.
    pub hit: u32,
    /// Additional cost of a locked instruction.
    pub rmw: u32,
    /// True if a locked instruction is a load and a conditional store (LL/SC), which fetches a
    /// shared line twice.
    pub llsc: bool,
    /// Fetching a line that no cache has.
    pub memory: u32,
    /// Added to `memory` for each hop to the line's home. A page's home is the socket that touched
    /// it first. 0: memory is equally far from all sockets.
    pub memory_hop: u32,
    /// The time for which a fetch keeps the home socket's memory busy. 0: memory has no limit.
    pub memory_occupancy: u32,
    /// Memory bandwidth of each socket, in million bytes a second. 0: no limit.
    pub memory_bandwidth: u32,
    /// Size of each core's first cache. 0: no limit.
    pub l1_kib: u32,
    /// Size of each core's second cache, which includes the contents of the first. 0: no limit.
    pub l2_kib: u32,
    /// Size of the cache that a complex shares (or a socket, if it has no complexes). It holds the
    /// lines that the cores' own caches evicted. 0: there is none.
    pub l3_kib: u32,
    /// An access that the core's second cache answers.
    pub l2_hit: u32,
    /// Fetching a line from the shared cache of the core's own complex.
    pub l3_hit: u32,
    /// The time for which a read of a shared line keeps the line busy.
    pub read_occupancy: u32,
    /// How long the old holder may still use a line that is granted to another core of the socket,
    /// or of another socket. This is the time until the request reaches the old holder. Within a
    /// complex it is shorter, in proportion to the transfer.
    pub linger: u32,
    /// Maximal random delay of a line's arrival, in cycles, drawn from the seed. Runs with several
    /// seeds show how much of a curve comes from threads that move in step. 0: no delay.
    pub jitter: u32,
    /// The rule that chooses the next core for a contended line.
    pub arbitration: Arbitration,
    /// Stores that may be under way while the core goes on. 0: the core waits for each store.
    pub store_buffer: u32,
    /// Lines that one wide access (a copy, a fill) may fetch at the same time.
    pub parallel_misses: u32,
    /// The line size is two to this power, in bytes.
    pub line_shift: u32,
    /// How far a thread may run ahead of the others before they get their turn, in cycles. 0 is
    /// exact; a larger quantum runs faster.
    pub quantum: u32,
    /// The greatest lead of pure computation. Other threads cannot see it.
    pub drift: u32,
    /// Time slice of a thread when several threads share a core.
    pub slice: u32,
    /// Creator's cost of creating a thread, beyond a system call.
    pub spawn: u32,
    /// Switching a core from one thread to the next.
    pub context_switch: u32,
    /// Entering and leaving the kernel.
    pub syscall: u32,
    /// Time from waking a thread until it runs.
    pub wake: u32,
    /// One call of the allocator.
    pub malloc: u32,
    /// One `pause` instruction.
    pub pause: u32,
    /// Reading the time stamp counter.
    pub clock_read: u32,
    /// A serializing instruction such as `cpuid`, after all earlier instructions are done.
    pub serialize: u32,
    /// Difference between the clocks of neighbouring sockets. 0: one time everywhere.
    pub clock_skew: u32,
    /// Instructions in ten cycles, for code that never waits.
    pub instructions_per_10_cycles: u32,
    /// Instructions that a core has under way at a time, out of order. 0: the core runs
    /// instructions at the rate above and ignores their dependencies.
    pub window: u32,
    /// Time from a load that hits to the instruction that reads its result. Used with a window.
    pub load: u32,
    /// Time from a mispredicted branch to the next instruction. Used with a window.
    pub mispredict: u32,
    /// Additional cost of a division.
    pub division: u32,
    /// Additional cost of a square root.
    pub square_root: u32,
    /// Additional cost of a vector instruction of 256 bits or more.
    pub vector: u32,
    sources: BTreeMap<&'static str, Cow<'static, str>>,
}

impl Machine {
    /// Returns the shipped model of that name.
    pub fn named(name: &str) -> Option<Machine> {
        named::named(name)
    }

    /// Iterates over the shipped models.
    pub fn shipped() -> impl Iterator<Item = Machine> {
        named::shipped()
    }

    /// Returns the names of the shipped models, separated by commas.
    pub fn names() -> String {
        Self::shipped().map(|machine| machine.name).collect::<Vec<_>>().join(", ")
    }

    /// Creates a model in which every value is a guess, to be changed by hand.
    pub fn guessed(name: &str) -> Machine {
        guess::guessed(name)
    }

    /// Returns the name of the processor that a program on this machine reads.
    pub fn processor(&self) -> String {
        format!("{} (manycore sim)", self.name)
    }

    /// Returns the number of cores as a program sees them: each hardware thread is a core.
    pub fn cores(&self) -> u32 {
        self.physical_cores() * self.threads_per_core
    }

    /// Returns the number of physical cores, without counting their hardware threads.
    pub fn physical_cores(&self) -> u32 {
        self.sockets * self.cores_per_socket
    }

    /// Returns the number of complexes. A socket without complexes counts as one.
    pub fn complexes(&self) -> u32 {
        self.sockets * self.complexes_per_socket()
    }

    fn complexes_per_socket(&self) -> u32 {
        match self.cores_per_complex {
            0 => 1,
            cores => self.cores_per_socket.div_ceil(cores),
        }
    }

    /// Returns the same machine with enough additional sockets for `cores`.
    ///
    /// No such machine exists. It shows how a curve continues.
    #[must_use]
    pub fn grown_to(mut self, cores: u32) -> Machine {
        if cores > self.cores() {
            self.sockets = cores.div_ceil(self.cores_per_socket * self.threads_per_core);
        }
        self
    }

    /// Returns where a parameter's value comes from, or `guess` if no source is given.
    pub fn source(&self, parameter: &str) -> &str {
        self.sources.get(parameter).map_or("guess", |source| source)
    }

    /// Returns how many values have a source that begins with `guess`.
    pub fn guesses(&self) -> usize {
        let sources = PARAMETERS.iter().map(|parameter| self.source(parameter.name));
        sources.filter(|source| source.starts_with("guess")).count()
    }

    /// Sets one parameter by name, as a machine file or `--set name=value` does.
    ///
    /// # Errors
    ///
    /// The name is unknown, or the parameter does not take this value.
    pub fn set(&mut self, name: &str, value: &str, source: &str) -> Result<(), ModelError> {
        let parameter = parameter::find(name)
            .ok_or_else(|| ModelError::UnknownParameter { name: name.to_string() })?;
        let number = (parameter.parse)(value).ok_or_else(|| ModelError::BadValue {
            name: name.to_string(),
            value: value.to_string(),
            wants: parameter.wants,
        })?;
        (parameter.set)(self, number);
        self.sources.insert(parameter.name, Cow::Owned(source.to_string()));
        Ok(())
    }

    /// Returns one parameter as text.
    pub fn get(&self, name: &str) -> Option<String> {
        parameter::find(name).map(|p| (p.show)((p.get)(self)))
    }

    /// Checks that the engine can run the model.
    ///
    /// # Errors
    ///
    /// Names a parameter that is out of its bounds.
    pub fn check(&self) -> Result<(), ModelError> {
        let range = |name, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(ModelError::OutOfRange { name, value, least, most })
            }
        };
        range("sockets", self.sockets, 1, MAX_CORES)?;
        range("cores_per_socket", self.cores_per_socket, 1, MAX_HARDWARE / self.sockets)?;
        range("cores_per_complex", self.cores_per_complex, 0, self.cores_per_socket)?;
        let most = MAX_HARDWARE / self.physical_cores();
        range("threads_per_core", self.threads_per_core, 1, most)?;
        range("thread_share", self.thread_share, 1, 100)?;
        range("mhz", self.mhz, 1, 1_000_000)?;
        range("hit", self.hit, u32::from(self.window == 0), 1_000)?;
        range("window", self.window, 0, 10_000)?;
        range("line_shift", self.line_shift, 4, 12)?;
        let kib = |caches: u32| (((MAX_LINES << self.line_shift) >> 10) / u64::from(caches)) as u32;
        range("l1_kib", self.l1_kib, 0, kib(self.physical_cores()).min(1 << 20))?;
        range("l2_kib", self.l2_kib, 0, kib(self.physical_cores()).min(1 << 20))?;
        range("l3_kib", self.l3_kib, 0, kib(self.complexes()).min(4 << 20))?;
        range("slice", self.slice, 1_000, u32::MAX)?;
        range("parallel_misses", self.parallel_misses, 1, 64)?;
        range("instructions_per_10_cycles", self.instructions_per_10_cycles, 1, 1_000)
    }

    /// Returns the socket of a core.
    pub fn socket(&self, core: u32) -> u32 {
        core % self.physical_cores() / self.cores_per_socket
    }

    /// Returns the complex of a core, numbered across all sockets. Without complexes, its socket.
    pub fn complex(&self, core: u32) -> u32 {
        let within = core % self.physical_cores() % self.cores_per_socket;
        let complex = within.checked_div(self.cores_per_complex).unwrap_or(0);
        self.socket(core) * self.complexes_per_socket() + complex
    }

    /// Returns the hops between two sockets, 0 for a socket and itself.
    pub fn hops_between(&self, a: u32, b: u32) -> u32 {
        let apart = match self.topology {
            Topology::Full => u32::from(a != b),
            Topology::Hypercube => (a ^ b).count_ones(),
            Topology::Ring => a.abs_diff(b).min(self.sockets - a.abs_diff(b)),
        };
        apart.min(3)
    }

    /// Returns the cycles to move a line between cores of two sockets.
    pub fn transfer(&self, a: u32, b: u32) -> u32 {
        match self.hops_between(a, b) {
            0 => self.same_socket,
            hops => self.hops[hops as usize - 1],
        }
    }

    /// Returns the cycles to move a line between cores of two complexes, numbered across all
    /// sockets.
    pub fn complex_transfer(&self, a: u32, b: u32) -> u32 {
        if a == b && self.cores_per_complex > 0 {
            return self.same_complex;
        }
        let each = self.complexes_per_socket();
        self.transfer(a / each, b / each)
    }

    /// Returns how long the old holder may still use a line whose transfer takes `latency` cycles.
    pub(crate) fn linger_of(&self, latency: u64) -> u64 {
        let (linger, near) = (u64::from(self.linger), u64::from(self.same_complex));
        if self.cores_per_complex > 0 && latency <= near && near < u64::from(self.same_socket) {
            return latency.min(linger * near / u64::from(self.same_socket));
        }
        latency.min(linger)
    }

    /// Returns the hundredths of a cycle for which one line uses the memory's bandwidth.
    pub(crate) fn bandwidth_occupancy(&self) -> u64 {
        let bytes = (100 * u64::from(self.mhz)) << self.line_shift;
        bytes.checked_div(u64::from(self.memory_bandwidth)).unwrap_or(0)
    }

    /// Converts nanoseconds to cycles of this machine.
    pub fn cycles(&self, nanos: u64) -> u64 {
        (u128::from(nanos) * u128::from(self.mhz) / 1000).min(u128::from(u64::MAX)) as u64
    }

    /// Converts cycles of this machine to nanoseconds.
    pub fn nanos(&self, cycles: u64) -> u64 {
        (u128::from(cycles) * 1000 / u128::from(self.mhz)) as u64
    }
}

/// Why a machine model cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ModelError {
    /// No parameter has this name.
    UnknownParameter {
        /// The name that was given.
        name: String,
    },
    /// The parameter does not take this value.
    BadValue {
        /// The parameter.
        name: String,
        /// The value that was given.
        value: String,
        /// The values that it takes.
        wants: &'static str,
    },
    /// A number is out of its bounds.
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: u32,
        /// Least value allowed.
        least: u32,
        /// Greatest value allowed.
        most: u32,
    },
    /// More virtual cores than the machine has.
    TooManyCores {
        /// Cores that were asked for.
        wanted: u32,
        /// Cores of the model.
        cores: u32,
    },
    /// The encoded text is damaged.
    Damaged {
        /// The part that could not be read.
        part: String,
    },
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelError::UnknownParameter { name } => {
                write!(f, "a machine has no parameter {name}; it has ")?;
                let names: Vec<_> = PARAMETERS.iter().map(|p| p.name).collect();
                f.write_str(&names.join(", "))
            }
            ModelError::BadValue { name, value, wants } => {
                write!(f, "{name} cannot be {value}: it takes {wants}")
            }
            ModelError::OutOfRange { name, value, least, most } => {
                write!(f, "{name} is {value}; it must be from {least} to {most}")
            }
            ModelError::TooManyCores { wanted, cores } => {
                write!(f, "{wanted} cores were requested, and the machine has {cores}")
            }
            ModelError::Damaged { part } => write!(f, "not a machine: {part}"),
        }
    }
}

impl std::error::Error for ModelError {}

#[cfg(test)]
#[test]
fn linger_is_half_a_transfer_within_a_complex_and_within_a_socket() {
    for name in ["epyc-9654", "epyc-9965", "xeon-6972p", "graviton4"] {
        let machine = Machine::named(name).expect("a shipped model");
        for transfer in [machine.same_complex, machine.same_socket].map(u64::from) {
            if machine.cores_per_complex > 0 || transfer == u64::from(machine.same_socket) {
                let half = machine.linger_of(transfer);
                assert!((transfer - 1..=transfer + 1).contains(&(2 * half)), "{name}: {half}");
            }
        }
    }
}
