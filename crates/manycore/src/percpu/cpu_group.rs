//! The group of CPUs that the calling thread runs in, by last-level cache or by NUMA node.
//!
//! Owns: the table from CPU to group, read once, and *branches*: groups that are neither very large
//! nor very many, for combining in two levels. The result is a hint: the thread may migrate at any
//! moment. Law: groups are numbered densely from zero, and all threads are in group zero if the
//! machine does not provide its topology.

use super::rseq;
use super::topology::{Cpu, Topology};
use crate::config;

/// The kind of group that a number is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Llc,
    NumaNode,
}

/// The groups of one CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Groups {
    llc: u32,
    node: u32,
    branch: u32,
}

/// A table by CPU number.
struct Map {
    groups: Vec<Groups>,
    /// The number of branches.
    branches: usize,
}

impl Map {
    fn of(topology: &Topology) -> Self {
        let cpus = topology.cpus();
        let len = cpus.last().map_or(0, |cpu| cpu.id + 1);
        let mut groups = vec![Groups::default(); len];
        for cpu in cpus {
            groups[cpu.id] = Groups { llc: cpu.llc as u32, node: cpu.node as u32, branch: 0 };
        }
        let branches = branches_of(topology);
        let count = branches.iter().map(|(_, branch)| branch + 1).max().unwrap_or(1);
        for (cpu, branch) in branches {
            groups[cpu].branch = branch as u32;
        }
        Self { groups, branches: count }
    }

    #[inline(always)]
    fn group(&self, cpu: usize, kind: Kind) -> usize {
        let Some(groups) = self.groups.get(cpu) else { return 0 };
        match kind {
            Kind::Llc => groups.llc as usize,
            Kind::NumaNode => groups.node as usize,
        }
    }
}

/// Returns each CPU's branch. A branch is the CPUs of a last-level cache, or of a NUMA node if each
/// core has its own last-level cache. A large branch is split into several; neighbours are merged
/// if there are too many.
fn branches_of(topology: &Topology) -> Vec<(usize, usize)> {
    let by_llc = topology.llc_groups().len() < topology.cores().len();
    let key = |cpu: &Cpu| if by_llc { cpu.llc } else { cpu.node };
    let mut cpus: Vec<&Cpu> = topology.cpus().iter().collect();
    // Hardware threads of a core stay together.
    cpus.sort_by_key(|cpu| (key(cpu), cpu.core, cpu.id));
    let mut found = Vec::with_capacity(cpus.len());
    let mut count = 0;
    for group in cpus.chunk_by(|a, b| key(a) == key(b)) {
        let parts = group.len().div_ceil(config::TREE_CPUS_MAX);
        for (position, cpu) in group.iter().enumerate() {
            found.push((cpu.id, count + position * parts / group.len()));
        }
        count += parts;
    }
    if count > config::TREE_BRANCHES_MAX {
        for (_, branch) in &mut found {
            *branch = *branch * config::TREE_BRANCHES_MAX / count;
        }
    }
    found
}

crate::sync::global! {
    made static MAP: Map = Map::of(&Topology::detect());
}

/// Returns the calling thread's group.
///
/// Cost: some loads if libc keeps the CPU's number in memory, else a call into libc.
#[inline(always)]
pub(crate) fn group(kind: Kind) -> usize {
    match rseq::cpu() {
        Some(cpu) => MAP.group(cpu, kind),
        None => group_slow(kind),
    }
}

/// Returns how many branches the machine has. The first call reads the map of the machine.
pub(crate) fn branches() -> usize {
    if cfg!(any(manycore_loom, manycore_shuttle, miri)) {
        return config::TREE_BRANCHES_MAX;
    }
    MAP.branches
}

/// Returns the calling thread's branch, below [`branches`]. If the CPU is not known, the slot
/// decides.
#[inline]
pub(crate) fn branch(slot: usize) -> usize {
    if cfg!(any(manycore_loom, manycore_shuttle, miri)) {
        return slot % branches();
    }
    match rseq::cpu().or_else(|| super::pin::current_cpu().ok()) {
        Some(cpu) => MAP.groups.get(cpu).map_or(0, |groups| groups.branch as usize),
        None => slot % MAP.branches,
    }
}

#[cold]
fn group_slow(kind: Kind) -> usize {
    if cfg!(any(manycore_loom, manycore_shuttle, miri)) {
        return 0;
    }
    super::pin::current_cpu().map_or(0, |cpu| MAP.group(cpu, kind))
}

#[cfg(all(test, not(any(manycore_loom, manycore_shuttle, miri))))]
mod tests {
    use super::*;

    /// The branches of a machine with this many sockets of this many cores each.
    fn branches_of_machine(sockets: usize, cores: usize) -> Vec<usize> {
        let name = format!("manycore-branches-{}-{sockets}-{cores}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let file = |path: String, text: String| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        file("cpu/online".to_owned(), format!("0-{}", sockets * cores - 1));
        for socket in 0..sockets {
            let (first, last) = (socket * cores, (socket + 1) * cores - 1);
            let node = socket / 2 * 2;
            let of_node = format!("{}-{}", node * cores, (node + 2).min(sockets) * cores - 1);
            file(format!("node/node{node}/cpulist"), of_node);
            for cpu in first..=last {
                file(format!("cpu/cpu{cpu}/topology/physical_package_id"), socket.to_string());
            }
        }
        let mut branches = branches_of(&Topology::from_root(&root));
        std::fs::remove_dir_all(&root).unwrap();
        branches.sort_unstable();
        branches.into_iter().map(|(_, branch)| branch).collect()
    }

    fn is_socket_by_socket(branches: &[usize], cores: usize) -> bool {
        branches.iter().enumerate().all(|(cpu, branch)| *branch == cpu / cores)
    }

    #[test]
    fn a_branch_is_a_socket_unless_that_is_too_large_or_they_are_too_many() {
        assert!(is_socket_by_socket(&branches_of_machine(8, 6), 6));
        assert!(is_socket_by_socket(&branches_of_machine(8, 15), 15));
        assert!(is_socket_by_socket(&branches_of_machine(1, 2), 2));
        assert!(is_socket_by_socket(&branches_of_machine(2, 64), 16), "a quarter of a socket each");
        assert!(is_socket_by_socket(&branches_of_machine(32, 4), 8), "two sockets each");
    }

    #[test]
    fn branches_are_of_a_node_where_each_core_has_a_cache_of_its_own() {
        assert_eq!(branches_of_machine(4, 1), [0, 0, 1, 1], "two sockets to a node");
    }

    #[test]
    fn every_cpu_of_this_machine_is_in_its_groups() {
        let topology = Topology::detect();
        let map = Map::of(&topology);
        for cpu in topology.cpus() {
            assert_eq!(map.group(cpu.id, Kind::Llc), cpu.llc);
            assert_eq!(map.group(cpu.id, Kind::NumaNode), cpu.node);
        }
        assert_eq!(map.group(1 << 20, Kind::Llc), 0, "an unknown CPU is in group zero");
        assert!(group(Kind::Llc) < topology.llc_groups().len());
        assert!(group(Kind::NumaNode) < topology.nodes().len());
    }
}
