//! Where on the machine the calling thread is: its group of CPUs, by last-level cache or by memory
//! node.
//!
//! Owns: the table from CPU to group, read once. A hint: the thread may move at any moment.
//! Law: groups are numbered densely from zero, and everybody is in group zero where the machine
//! does not tell.

use super::cid;
use super::topology::Topology;

/// Of which kind of group the number is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Llc,
    Node,
}

/// The groups of one CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Groups {
    llc: u32,
    node: u32,
}

/// A table by CPU number.
struct Map(Vec<Groups>);

impl Map {
    fn of(topology: &Topology) -> Self {
        let cpus = topology.cpus();
        let len = cpus.last().map_or(0, |cpu| cpu.id + 1);
        let mut groups = vec![Groups::default(); len];
        for cpu in cpus {
            groups[cpu.id] = Groups { llc: cpu.llc as u32, node: cpu.node as u32 };
        }
        Self(groups)
    }

    #[inline(always)]
    fn group(&self, cpu: usize, kind: Kind) -> usize {
        let Some(groups) = self.0.get(cpu) else { return 0 };
        match kind {
            Kind::Llc => groups.llc as usize,
            Kind::Node => groups.node as usize,
        }
    }
}

crate::sync::global! {
    static MAP: Map = Map::of(&Topology::detect());
}

/// The calling thread's group.
///
/// Cost: some loads where libc keeps the CPU's number in memory, else a call into libc.
#[inline(always)]
pub(crate) fn group(kind: Kind) -> usize {
    match cid::cpu() {
        Some(cpu) => MAP.group(cpu, kind),
        None => group_slow(kind),
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

    #[test]
    fn every_cpu_of_this_machine_is_in_its_groups() {
        let topology = Topology::detect();
        let map = Map::of(&topology);
        for cpu in topology.cpus() {
            assert_eq!(map.group(cpu.id, Kind::Llc), cpu.llc);
            assert_eq!(map.group(cpu.id, Kind::Node), cpu.node);
        }
        assert_eq!(map.group(1 << 20, Kind::Llc), 0, "an unknown CPU is in group zero");
        assert!(group(Kind::Llc) < topology.llc_groups().len());
        assert!(group(Kind::Node) < topology.nodes().len());
    }
}
