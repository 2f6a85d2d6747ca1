//! Machine models: the numbers that the engine charges with.
//!
//! Owns [`Machine`], the list of its [`PARAMETERS`] and the shipped models. Every parameter of
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

/// Most cores that a model may have, hardware threads counted: the engine keeps sets of them.
pub const MAX_CORES: u32 = 1024;

/// Most lines in the caches of one level of a model, all cores together: the engine has four bytes
/// for each.
const MAX_LINES: u64 = 64 << 20;

/// Which core gets a contended line next, when the transfer under way ends.
///
/// No data sheet says this, and nothing else in the model moves the results as much: with all else
/// equal, 48 cores that write one line need 700 cycles a write under `Nearest` and 15,000 under
/// `Random`. `Rounds` and `Turns` are what the published curve (OpLog, Figure 4) leaves possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Arbitration {
    /// The first request.
    Fifo,
    /// Requests that wait when a round begins are served before later ones; in a round, the nearest
    /// to the last holder goes first.
    #[default]
    Rounds,
    /// Like `Rounds`, but a round visits the sockets in the order of their numbers.
    Turns,
    /// Always the nearest to the last holder. Far cores can starve.
    Nearest,
    /// Any core, chosen by the engine's seed.
    Random,
}

/// How sockets are wired, which gives the number of hops between two of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Topology {
    /// Every socket is one hop from every other.
    #[default]
    Full,
    /// A hypercube: as many hops as the socket numbers differ in bits, at most three.
    Hypercube,
    /// A ring: at most three hops are told apart.
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
    /// Cores of one complex inside a socket, which are nearer to each other than to the rest: AMD's
    /// core complex, a tile. The last complex of a socket may have fewer. 0: sockets have none.
    pub cores_per_complex: u32,
    /// Hardware threads of a core, which share its caches. Virtual cores are numbered as Linux
    /// does it: the first threads of all cores, then the second ones.
    pub threads_per_core: u32,
    /// Computation of each hardware thread while another one of its core is in use, in percent of
    /// what it has alone.
    pub thread_share: u32,
    /// Million cycles per second, to turn cycles into time.
    pub mhz: u32,
    /// How sockets are wired.
    pub topology: Topology,
    /// Moving a line between two cores of one complex.
    pub same_complex: u32,
    /// Moving a line between two cores of one socket; of two complexes, if it has any.
    pub same_socket: u32,
    /// Moving a line to a socket one, two and three hops away.
    pub hops: [u32; 3],
    /// An access that the core's own cache answers.
    pub hit: u32,
    /// What a locked instruction costs on top.
    pub rmw: u32,
    /// Whether a locked instruction is a load and a conditional store (LL/SC), which fetches the
    /// line twice if it is shared.
    pub llsc: bool,
    /// Fetching a line that no cache has.
    pub memory: u32,
    /// What each hop to the home of the line adds to `memory`. A page's home is the socket that
    /// touched it first. 0: memory is equally far from everywhere.
    pub memory_hop: u32,
    /// How long a fetch keeps the home socket's memory busy. 0: memory has no limit.
    pub memory_occupancy: u32,
    /// Lines that each socket's memory can deliver, as million bytes a second. 0: no limit.
    pub memory_bandwidth: u32,
    /// Size of each core's first cache. 0: no limit.
    pub l1_kib: u32,
    /// Size of each core's second cache, which has all that the first one has. 0: no limit.
    pub l2_kib: u32,
    /// Size of the cache that the cores of a complex share, or those of a socket without any: it
    /// has what they gave up. 0: there is none.
    pub l3_kib: u32,
    /// An access that the core's second cache answers.
    pub l2_hit: u32,
    /// Fetching a line from the own complex's shared cache.
    pub l3_hit: u32,
    /// How long a read of a shared line keeps the line busy.
    pub read_occupancy: u32,
    /// How long the old holder may go on using a line that has been granted to another core: the
    /// time until the request reaches it.
    pub linger: u32,
    /// How many cycles later than it should a line may arrive, by the seed: a run for each of some
    /// seeds shows what a curve owes to threads that move in step. 0: none.
    pub jitter: u32,
    /// Which core gets a contended line next.
    pub arbitration: Arbitration,
    /// Stores that may be under way while the core goes on. 0: the core waits for each.
    pub store_buffer: u32,
    /// Lines that one wide access (a copy, a fill) may fetch at a time.
    pub parallel_misses: u32,
    /// Power of two of the line size in bytes.
    pub line_shift: u32,
    /// How far, in cycles, a thread may run ahead of the others before they get their turn. 0 is
    /// exact, more is faster.
    pub quantum: u32,
    /// How far pure computation may run ahead, since it is not visible to other threads.
    pub drift: u32,
    /// Time slice of a thread, where a core has several.
    pub slice: u32,
    /// What creating a thread costs its creator, beyond a system call.
    pub spawn: u32,
    /// Switching a core from one thread to the next.
    pub context_switch: u32,
    /// Entering and leaving the kernel.
    pub syscall: u32,
    /// From waking a thread until it runs.
    pub wake: u32,
    /// One call of the allocator.
    pub malloc: u32,
    /// One `pause` instruction.
    pub pause: u32,
    /// Reading the time stamp counter.
    pub clock_read: u32,
    /// An instruction that waits until all before it is done, as `cpuid`, once that is so.
    pub serialize: u32,
    /// How far the clocks of neighbouring sockets are apart. 0: one time everywhere.
    pub clock_skew: u32,
    /// Instructions in ten cycles, for code that waits for nothing.
    pub instructions_per_10_cycles: u32,
    /// Instructions that a core has under way at a time, out of order. 0: it takes them at the rate
    /// above, whatever they wait for.
    pub window: u32,
    /// From a load that hits to what reads its result; with a window.
    pub load: u32,
    /// From a branch that was not foreseen to the next instruction; with a window.
    pub mispredict: u32,
    /// What a division costs beyond another instruction.
    pub division: u32,
    /// What a square root costs beyond another instruction.
    pub square_root: u32,
    /// What a vector instruction of 256 bits or more costs beyond another instruction.
    pub vector: u32,
    sources: BTreeMap<&'static str, Cow<'static, str>>,
}

impl Machine {
    /// The shipped model of that name.
    pub fn named(name: &str) -> Option<Machine> {
        named::named(name)
    }

    /// The shipped models.
    pub fn shipped() -> impl Iterator<Item = Machine> {
        named::shipped()
    }

    /// The names of the shipped models, with commas between.
    pub fn names() -> String {
        Self::shipped().map(|machine| machine.name).collect::<Vec<_>>().join(", ")
    }

    /// A model with that name whose every value is a guess, to be changed by hand.
    pub fn guessed(name: &str) -> Machine {
        guess::guessed(name)
    }

    /// Cores of the whole machine as a program sees them: each hardware thread is one.
    pub fn cores(&self) -> u32 {
        self.physical_cores() * self.threads_per_core
    }

    /// Cores of the whole machine, each counted once however many hardware threads it has.
    pub fn physical_cores(&self) -> u32 {
        self.sockets * self.cores_per_socket
    }

    /// Complexes of the whole machine; a socket without any is one.
    pub fn complexes(&self) -> u32 {
        self.sockets * self.complexes_per_socket()
    }

    fn complexes_per_socket(&self) -> u32 {
        match self.cores_per_complex {
            0 => 1,
            cores => self.cores_per_socket.div_ceil(cores),
        }
    }

    /// The same machine with as many more sockets as `cores` needs.
    ///
    /// No such machine exists; it shows how a curve continues.
    #[must_use]
    pub fn grown_to(mut self, cores: u32) -> Machine {
        if cores > self.cores() {
            self.sockets = cores.div_ceil(self.cores_per_socket * self.threads_per_core);
        }
        self
    }

    /// Where the value of a parameter comes from; `guess` if none is given.
    pub fn source(&self, parameter: &str) -> &str {
        self.sources.get(parameter).map_or("guess", |source| source)
    }

    /// How many values are guesses, by their sources.
    pub fn guesses(&self) -> usize {
        let sources = PARAMETERS.iter().map(|parameter| self.source(parameter.name));
        sources.filter(|source| source.starts_with("guess")).count()
    }

    /// Sets one parameter by name, as a machine file or `--set name=value` does.
    ///
    /// # Errors
    ///
    /// The name is unknown, or the value is not one of the parameter's.
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

    /// One parameter as text.
    pub fn get(&self, name: &str) -> Option<String> {
        parameter::find(name).map(|p| (p.show)((p.get)(self)))
    }

    /// What makes the model unusable, if anything does.
    ///
    /// # Errors
    ///
    /// Names the parameter that is out of its bounds.
    pub fn check(&self) -> Result<(), ModelError> {
        let range = |name, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(ModelError::OutOfRange { name, value, least, most })
            }
        };
        range("sockets", self.sockets, 1, MAX_CORES)?;
        range("cores_per_socket", self.cores_per_socket, 1, MAX_CORES / self.sockets)?;
        range("cores_per_complex", self.cores_per_complex, 0, self.cores_per_socket)?;
        let most = MAX_CORES / self.physical_cores();
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

    /// The socket of a core.
    pub fn socket(&self, core: u32) -> u32 {
        core % self.physical_cores() / self.cores_per_socket
    }

    /// The complex of a core, numbered through all sockets; without complexes, its socket.
    pub fn complex(&self, core: u32) -> u32 {
        let within = core % self.physical_cores() % self.cores_per_socket;
        let complex = within.checked_div(self.cores_per_complex).unwrap_or(0);
        self.socket(core) * self.complexes_per_socket() + complex
    }

    /// Hops between two sockets; 0 for a socket and itself.
    pub fn hops_between(&self, a: u32, b: u32) -> u32 {
        let apart = match self.topology {
            Topology::Full => u32::from(a != b),
            Topology::Hypercube => (a ^ b).count_ones(),
            Topology::Ring => a.abs_diff(b).min(self.sockets - a.abs_diff(b)),
        };
        apart.min(3)
    }

    /// Cycles to move a line between cores of two sockets.
    pub fn transfer(&self, a: u32, b: u32) -> u32 {
        match self.hops_between(a, b) {
            0 => self.same_socket,
            hops => self.hops[hops as usize - 1],
        }
    }

    /// Cycles to move a line between cores of two complexes, numbered through all sockets.
    pub fn complex_transfer(&self, a: u32, b: u32) -> u32 {
        if a == b && self.cores_per_complex > 0 {
            return self.same_complex;
        }
        let each = self.complexes_per_socket();
        self.transfer(a / each, b / each)
    }

    /// Hundredths of a cycle that a line takes of its memory's bandwidth.
    pub(crate) fn bandwidth_occupancy(&self) -> u64 {
        let bytes = (100 * u64::from(self.mhz)) << self.line_shift;
        bytes.checked_div(u64::from(self.memory_bandwidth)).unwrap_or(0)
    }

    /// Nanoseconds in cycles of this machine.
    pub fn cycles(&self, nanos: u64) -> u64 {
        (u128::from(nanos) * u128::from(self.mhz) / 1000).min(u128::from(u64::MAX)) as u64
    }

    /// Cycles of this machine in nanoseconds.
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
    /// The value is no value of this parameter.
    BadValue {
        /// The parameter.
        name: String,
        /// The value that was given.
        value: String,
        /// What it takes.
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
