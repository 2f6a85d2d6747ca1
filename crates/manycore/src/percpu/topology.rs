//! The map of the machine: which CPUs share a core, a last-level cache, a package, a NUMA node.
//!
//! [`Topology::detect`] reads it: for placing the threads of a benchmark, and for merging near data
//! before far data. Each [`Cpu`] says where it is; [`Group`]s are the CPUs of a core, a cache or a
//! node.
//!
//! # Laws
//!
//! Owns: reading the kernel's sysfs tree, and a default where there is none. Does not own: which
//! CPU a thread runs on ([`super::pin`]).
//!
//! - topology.M1 There is at least one CPU, and each CPU is in exactly one core, one LLC group and
//!   one node, whatever the tree says: only a CPU's own files name its group.
//! - topology.M2 Bad or missing files are never an error. What they would have provided gets a sane
//!   default (a core of its own, the package's cache, node 0), and [`Topology::source`] says what
//!   the map is based on.
//! - topology.M3 A tree costs time and memory for the bytes of its files and the CPUs that are
//!   online, not for the CPUs that its lists name. A list stays ranges until it is clear which CPUs
//!   are needed. At most 1 MiB of a file is read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::pin;

/// The folder in which Linux keeps the map.
const SYSFS: &str = "/sys/devices/system";

/// The environment variable that names another tree.
const VARIABLE: &str = "MANYCORE_TOPOLOGY";

/// Bytes of a file, at most: a list of each second CPU up to [`CPUS_MAX`] has 200 kB.
const FILE_MAX: u64 = 1 << 20;

/// CPU numbers from here on are treated as garbage: no kernel supports that many.
const CPUS_MAX: usize = 1 << 16;

/// The position of one CPU in the machine.
///
/// ```
/// use manycore::percpu::topology::Topology;
///
/// let topology = Topology::detect();
/// // One worker for each core, not for each hardware thread.
/// let mut workers: Vec<_> = topology.cpus().iter().map(|cpu| (cpu.core, cpu.id)).collect();
/// workers.sort();
/// workers.dedup_by_key(|(core, _)| *core);
/// assert_eq!(workers.len(), topology.cores().len());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Cpu {
    /// The kernel's number.
    pub id: usize,
    /// Index into [`Topology::cores`]: CPUs with the same core are its hardware threads.
    pub core: usize,
    /// The kernel's number of the package (socket).
    pub package: usize,
    /// Index into [`Topology::llc_groups`]: CPUs that share the last-level cache.
    pub llc: usize,
    /// Index into [`Topology::nodes`]: CPUs of the same NUMA node.
    pub node: usize,
}

/// CPUs that share a core, a cache or a node.
///
/// ```
/// use manycore::percpu::topology::Topology;
///
/// let topology = Topology::detect();
/// let on_nodes: usize = topology.nodes().iter().map(|node| node.cpus.len()).sum();
/// assert_eq!(on_nodes, topology.cpus().len()); // each CPU is on one node
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// The kernel's number of a node; the lowest CPU of a core or an LLC group.
    pub id: usize,
    /// The CPUs, in ascending order; never empty.
    pub cpus: Vec<usize>,
}

/// The source of a [`Topology`].
///
/// ```
/// use manycore::percpu::topology::{Source, Topology};
///
/// match Topology::detect().source() {
///     Source::Sysfs(folder) => println!("read from {}", folder.display()),
///     Source::Assumed { reason } => println!("assumed: {reason}"),
///     _ => unreachable!("no other source so far"),
/// }
/// let nowhere = Topology::from_root("/no/such/folder");
/// assert!(matches!(nowhere.source(), Source::Assumed { .. }));
/// assert_eq!(nowhere.nodes().len(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The kernel's tree below this directory.
    Sysfs(PathBuf),
    /// No usable tree: one node and one last-level cache for the CPUs that the thread may run on
    /// or, if that is unknown too, for as many as the process may use at once.
    Assumed {
        /// The fault in the tree.
        reason: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sysfs(root) => write!(f, "{}", root.display()),
            Self::Assumed { reason } => write!(f, "assumed ({reason})"),
        }
    }
}

/// The map of the machine, as of the call that read it.
///
/// What for: placing the threads of a benchmark, and merging near data before far data. When not:
/// on a hot path; reading takes about ten files per CPU, so keep the value. It does not follow CPUs
/// that go online or offline later.
///
/// ```
/// use manycore::percpu::topology::Topology;
///
/// let topology = Topology::detect();
/// let cpu = topology.cpus()[0];
/// assert!(topology.llc_groups()[cpu.llc].cpus.contains(&cpu.id));
/// println!("{} nodes, from {}", topology.nodes().len(), topology.source());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    cores: Vec<Group>,
    llc_groups: Vec<Group>,
    nodes: Vec<Group>,
    source: Source,
}

impl Topology {
    /// Reads the map of this machine. If the environment variable `MANYCORE_TOPOLOGY` names a
    /// folder, reads the tree there, as [`from_root`](Self::from_root) does. (`manycore sim` sets
    /// it, so that programs find the map of the virtual machine.)
    pub fn detect() -> Self {
        match std::env::var_os(VARIABLE).filter(|root| !root.is_empty()) {
            Some(root) => Self::from_root(root),
            None => Self::from_root(SYSFS),
        }
    }

    /// Reads the map from a tree in the form of Linux's `/sys/devices/system`, perhaps a copy from
    /// another machine.
    pub fn from_root(root: impl AsRef<Path>) -> Self {
        let root = root.as_ref();
        match online(root) {
            Ok(cpus) => Self::read(root, &cpus),
            Err(reason) => Self::assumed(reason),
        }
    }

    /// Returns the CPUs that are online, in ascending order; never empty.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// Returns those [`cpus`](Topology::cpus) that the calling thread may run on (taskset,
    /// cpusets), or all of them if the system does not provide the mask.
    pub fn allowed(&self) -> Vec<Cpu> {
        let Ok(allowed) = pin::allowed() else {
            return self.cpus.clone();
        };
        let cpus: Vec<_> = self
            .cpus
            .iter()
            .copied()
            .filter(|cpu| allowed.binary_search(&cpu.id).is_ok())
            .collect();
        // A map of another machine may have none of this machine's CPUs.
        if cpus.is_empty() { self.cpus.clone() } else { cpus }
    }

    /// Returns the cores, ordered by their lowest CPU.
    pub fn cores(&self) -> &[Group] {
        &self.cores
    }

    /// Returns the sets of CPUs that share a last-level cache, ordered by their lowest CPU.
    pub fn llc_groups(&self) -> &[Group] {
        &self.llc_groups
    }

    /// Returns the NUMA nodes that have CPUs, ordered by the kernel's number.
    pub fn nodes(&self) -> &[Group] {
        &self.nodes
    }

    /// Returns what the map is based on.
    pub fn source(&self) -> &Source {
        &self.source
    }

    fn read(root: &Path, online: &[usize]) -> Self {
        let node_of = nodes(root, online);
        let keys = online.iter().map(|&cpu| Keys::read(root, cpu, online, &node_of)).collect();
        Self::group(keys, Source::Sysfs(root.to_path_buf()))
    }

    fn assumed(reason: String) -> Self {
        let keys = assumed_cpus()
            .into_iter()
            .map(|cpu| Keys { cpu, core: cpu, package: 0, llc: 0, node: 0 })
            .collect();
        Self::group(keys, Source::Assumed { reason })
    }

    fn group(mut keys: Vec<Keys>, source: Source) -> Self {
        // A CPU without cache files shares a cache with its package; the group is named by the
        // lowest such CPU, as the others are.
        let mut lowest = BTreeMap::new();
        for key in keys.iter().filter(|key| key.llc == Keys::PACKAGE_CACHE) {
            lowest.entry(key.package).or_insert(key.cpu);
        }
        for key in keys.iter_mut().filter(|key| key.llc == Keys::PACKAGE_CACHE) {
            key.llc = lowest[&key.package];
        }
        let cores = groups(&keys, |key| key.core);
        let llc_groups = groups(&keys, |key| key.llc);
        let nodes = groups(&keys, |key| key.node);
        let index = |groups: &[Group], id| {
            groups.binary_search_by_key(&id, |group| group.id).expect("every key made a group")
        };
        let cpus = keys
            .iter()
            .map(|key| Cpu {
                id: key.cpu,
                core: index(&cores, key.core),
                package: key.package,
                llc: index(&llc_groups, key.llc),
                node: index(&nodes, key.node),
            })
            .collect();
        Self { cpus, cores, llc_groups, nodes, source }
    }
}

/// Names of the groups of one CPU, from its files.
#[derive(Debug)]
struct Keys {
    cpu: usize,
    core: usize,
    package: usize,
    llc: usize,
    node: usize,
}

impl Keys {
    /// Placeholder for "no cache files" until all CPUs are known.
    const PACKAGE_CACHE: usize = usize::MAX;

    fn read(root: &Path, cpu: usize, online: &[usize], node_of: &BTreeMap<usize, usize>) -> Self {
        let dir = root.join(format!("cpu/cpu{cpu}"));
        // Both names are in use: the first since Linux 5.2 (and the older one stays).
        let siblings = ["topology/core_cpus_list", "topology/thread_siblings_list"]
            .iter()
            .find_map(|name| lowest_of(&dir.join(name), cpu, online));
        Self {
            cpu,
            // topology.M2: the defaults for files that are bad or missing.
            core: siblings.unwrap_or(cpu),
            package: read_number(&dir.join("topology/physical_package_id")).unwrap_or(0),
            llc: last_level_cache(&dir, cpu, online).unwrap_or(Self::PACKAGE_CACHE),
            node: node_of.get(&cpu).copied().unwrap_or(0),
        }
    }
}

/// Returns the lowest CPU that shares the highest cache of `cpu`.
fn last_level_cache(dir: &Path, cpu: usize, online: &[usize]) -> Option<usize> {
    entries(&dir.join("cache"), "index")
        .filter(|(_, index)| read(&index.join("type")).is_none_or(|kind| kind != "Instruction"))
        .filter_map(|(_, index)| {
            let level = read_number(&index.join("level"))?;
            Some((level, lowest_of(&index.join("shared_cpu_list"), cpu, online)?))
        })
        .max_by_key(|(level, _)| *level)
        .map(|(_, lowest)| lowest)
}

/// Returns the lowest online CPU in a list that must contain `cpu` itself.
fn lowest_of(list: &Path, cpu: usize, online: &[usize]) -> Option<usize> {
    let list = parse_ranges(&read(list)?).ok()?;
    list.iter().find(|range| range.contains(&cpu))?;
    list.iter().find_map(|range| {
        let at = online.partition_point(|other| other < range.start());
        online.get(at).copied().filter(|other| range.contains(other))
    })
}

/// Returns the node of each online CPU that is in one.
fn nodes(root: &Path, online: &[usize]) -> BTreeMap<usize, usize> {
    let (mut node_of, mut left) = (BTreeMap::new(), BTreeSet::from_iter(online.iter().copied()));
    for (node, dir) in entries(&root.join("node"), "node") {
        let ranges = read(&dir.join("cpulist")).and_then(|list| parse_ranges(&list).ok());
        for range in ranges.into_iter().flatten() {
            let found: Vec<usize> = left.range(range).copied().collect();
            found.iter().for_each(|cpu| _ = left.remove(cpu));
            node_of.extend(found.into_iter().map(|cpu| (cpu, node)));
        }
    }
    node_of
}

/// Returns the entries of `dir` whose names are `prefix` and a number, by number.
fn entries(dir: &Path, prefix: &str) -> impl Iterator<Item = (usize, PathBuf)> {
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter()
}

fn groups(keys: &[Keys], name: impl Fn(&Keys) -> usize) -> Vec<Group> {
    let mut groups = BTreeMap::<usize, Vec<usize>>::new();
    for key in keys {
        groups.entry(name(key)).or_default().push(key.cpu);
    }
    groups.into_iter().map(|(id, cpus)| Group { id, cpus }).collect()
}

fn online(root: &Path) -> Result<Vec<usize>, String> {
    let path = root.join("cpu/online");
    let text = text_of(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let cpus = parse_cpulist(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    if cpus.is_empty() {
        return Err(format!("{}: no CPU", path.display()));
    }
    Ok(cpus)
}

/// Returns the CPUs of a machine without a usable tree.
fn assumed_cpus() -> Vec<usize> {
    match pin::allowed() {
        Ok(cpus) if !cpus.is_empty() => cpus,
        _ => (0..parallelism()).collect(),
    }
}

#[cfg(not(any(manycore_loom, manycore_shuttle)))]
fn parallelism() -> usize {
    crate::sync::thread::available_parallelism().map_or(1, usize::from)
}

/// A model checker runs on one CPU whatever the machine has.
#[cfg(any(manycore_loom, manycore_shuttle))]
fn parallelism() -> usize {
    1
}

/// Reads a file that is not too long.
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let length = File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if length as u64 > FILE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than 1 MiB"));
    }
    Ok(text)
}

fn read(path: &Path) -> Option<String> {
    Some(text_of(path).ok()?.trim().to_owned())
}

fn read_number(path: &Path) -> Option<usize> {
    read(path)?.parse().ok()
}

/// Error in a list of CPUs.
///
/// See [`parse_cpulist`] for an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuListError {
    part: String,
    problem: &'static str,
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bad CPU list: {:?} {}", self.part, self.problem)
    }
}

impl std::error::Error for CpuListError {}

/// Parses a list of CPUs in the kernel's form, such as `0-3,8,10-11`; an empty list is `""`.
///
/// The result is in ascending order, each CPU once.
///
/// # Errors
/// If a part is not a number or an ascending range, or names a CPU from 65536 on.
///
/// ```
/// use manycore::percpu::topology::parse_cpulist;
///
/// assert_eq!(parse_cpulist("0-3,8,10-11\n").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
/// let error = parse_cpulist("0-3,eight").unwrap_err();
/// assert_eq!(error.to_string(), "bad CPU list: \"eight\" is not a number");
/// ```
pub fn parse_cpulist(text: &str) -> Result<Vec<usize>, CpuListError> {
    Ok(parse_ranges(text)?.into_iter().flatten().collect())
}

/// Parses a list as ranges, in ascending order, without overlaps.
fn parse_ranges(text: &str) -> Result<Vec<RangeInclusive<usize>>, CpuListError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        let error = |problem| CpuListError { part: shortened(part), problem };
        let number = |text: &str| match text.trim() {
            digits if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) => {
                Err(error("is not a number"))
            }
            digits => match digits.parse() {
                Ok(cpu) if cpu < CPUS_MAX => Ok(cpu),
                _ => Err(error("is beyond every machine")),
            },
        };
        match part.split_once('-') {
            None => {
                let cpu = number(part)?;
                ranges.push((cpu, cpu));
            }
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                if first > last {
                    return Err(error("is a falling range"));
                }
                ranges.push((first, last));
            }
        }
    }
    // topology.M3: a hostile list of a thousand overlapping ranges is no longer than one.
    ranges.sort_unstable();
    ranges.dedup_by(|(first, last), (_, end)| {
        let is_joined = *first <= *end + 1;
        *end = if is_joined { (*end).max(*last) } else { *end };
        is_joined
    });
    Ok(ranges.into_iter().map(|(first, last)| first..=last).collect())
}

/// Shortens a part of a list for a message.
fn shortened(part: &str) -> String {
    const CHARS_MAX: usize = 32;
    match part.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &part[..end]),
        None => part.to_owned(),
    }
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle, miri))))]
#[path = "topology_tests.rs"]
mod tests;
