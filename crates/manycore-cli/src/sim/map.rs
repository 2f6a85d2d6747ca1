//! The files that show a program the virtual machine.
//!
//! Owns: a folder in the format of Linux's `/sys/devices/system`, and beside it a `cpuinfo` as in
//! `/proc`. The runtime opens these files where the program opens the real ones. The library reads
//! them through the variable `MANYCORE_TOPOLOGY`.

use std::{fmt::Write, path::Path};

use manycore_sim::Machine;

/// Writes which virtual cores there are, what they are called, and which of them share a core, a
/// complex and a socket.
pub(crate) fn write(root: &Path, machine: &Machine, cores: u32) -> std::io::Result<()> {
    let write = |path: String, text: String| {
        let path = root.join(path);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, text)
    };
    // The cores that have the same number as this core.
    let like = |core: u32, number: &dyn Fn(u32) -> u32| {
        let same: Vec<u32> = (0..cores).filter(|other| number(*other) == number(core)).collect();
        let runs = same.chunk_by(|a, b| a + 1 == *b);
        let runs = runs.map(|run| match *run {
            [alone] => alone.to_string(),
            _ => format!("{}-{}", run[0], run[run.len() - 1]),
        });
        runs.collect::<Vec<_>>().join(",") + "\n"
    };
    for list in ["online", "possible", "present"] {
        write(format!("cpu/{list}"), range(cores))?;
    }
    write("cpu/kernel_max".to_owned(), format!("{}\n", cores - 1))?;
    write("cpuinfo".to_owned(), cpuinfo(machine, cores, &host_lines()))?;
    let mut nodes = 0;
    for core in 0..cores {
        let socket = machine.socket(core);
        let of = |name: &str| format!("cpu/cpu{core}/{name}");
        write(of("topology/physical_package_id"), format!("{socket}\n"))?;
        write(of("topology/core_id"), format!("{}\n", core_id(machine, core)))?;
        let siblings = like(core, &|core| core % machine.physical_cores());
        write(of("topology/thread_siblings_list"), siblings)?;
        if machine.cores_per_complex > 0 {
            write(of("cache/index3/level"), "3\n".to_owned())?;
            write(of("cache/index3/type"), "Unified\n".to_owned())?;
            let sharing = like(core, &|core| machine.complex(core));
            write(of("cache/index3/shared_cpu_list"), sharing)?;
        }
        if socket == nodes {
            write(format!("node/node{socket}/cpulist"), like(core, &|core| machine.socket(core)))?;
            let is_here = |core: u32| machine.socket(core) == socket;
            write(format!("node/node{socket}/cpumap"), mask(cores, is_here))?;
            nodes += 1;
        }
    }
    for list in ["online", "possible"] {
        write(format!("node/{list}"), range(nodes))?;
    }
    Ok(())
}

/// Returns the numbers below `count`, as the kernel lists them.
fn range(count: u32) -> String {
    if count == 1 { "0\n".to_owned() } else { format!("0-{}\n", count - 1) }
}

/// Returns the kernel's mask of some cores: words of 32 bits, the highest first.
fn mask(cores: u32, is_in: impl Fn(u32) -> bool) -> String {
    let words = (0..cores.div_ceil(32)).rev().map(|word| {
        let bits = (0..32).filter(|bit| word * 32 + bit < cores && is_in(word * 32 + bit));
        format!("{:08x}", bits.fold(0_u32, |all, bit| all | 1 << bit))
    });
    words.collect::<Vec<_>>().join(",") + "\n"
}

/// Returns the number of a core within its socket.
fn core_id(machine: &Machine, core: u32) -> u32 {
    core % machine.physical_cores() % machine.cores_per_socket
}

/// Returns the lines of the host's `cpuinfo` that hold for the virtual cores too: the host runs
/// their instructions.
fn host_lines() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let first = text.split("\n\n").next().unwrap_or_default().lines();
    let holds = |line: &&str| ["vendor_id", "flags"].iter().any(|name| line.starts_with(name));
    first.filter(holds).map(str::to_owned).collect()
}

/// Returns the text of `/proc/cpuinfo`.
fn cpuinfo(machine: &Machine, cores: u32, host: &[String]) -> String {
    // How many cores, and how many hardware threads, each socket has in use.
    let mut in_use = vec![[0_u32; 2]; machine.sockets as usize];
    for core in 0..cores {
        let [own, all] = &mut in_use[machine.socket(core) as usize];
        *own += u32::from(core < machine.physical_cores());
        *all += 1;
    }
    let caches = [machine.l3_kib, machine.l2_kib, machine.l1_kib];
    let mut text = String::new();
    for core in 0..cores {
        let socket = machine.socket(core);
        let [own, all] = in_use[socket as usize];
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}\t: {value}");
        };
        line("processor", core.to_string());
        line("model name", machine.processor());
        line("cpu MHz", format!("{}.000", machine.mhz));
        if let Some(kib) = caches.into_iter().find(|kib| *kib > 0) {
            line("cache size", format!("{kib} KB"));
        }
        line("physical id", socket.to_string());
        line("siblings", all.to_string());
        line("core id", core_id(machine, core).to_string());
        line("cpu cores", own.to_string());
        line("apicid", core.to_string());
        for host in host {
            let _ = writeln!(text, "{host}");
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_has_the_sockets_of_the_cores_in_use() {
        let machine = Machine::named("opteron-8x6").expect("a shipped model");
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &machine, 8).unwrap();
        let map = manycore::percpu::topology::Topology::from_root(folder.path());
        let cpus = |groups: &[manycore::percpu::topology::Group]| {
            groups.iter().map(|group| group.cpus.clone()).collect::<Vec<_>>()
        };
        let sockets = [vec![0, 1, 2, 3, 4, 5], vec![6, 7]];
        assert_eq!(cpus(map.llc_groups()), sockets);
        assert_eq!(cpus(map.nodes()), sockets);
        assert_eq!(map.cores().len(), 8);
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!([read("cpu/present"), read("cpu/possible")], ["0-7\n", "0-7\n"]);
        assert_eq!([read("node/online"), read("node/possible")], ["0-1\n", "0-1\n"]);
        let masks = [read("node/node0/cpumap"), read("node/node1/cpumap")];
        assert_eq!(masks, ["0000003f\n", "000000c0\n"]);
        assert_eq!(mask(40, |core| core >= 31), "000000ff,80000000\n");
        assert!(read("cpuinfo").contains("model name\t: opteron-8x6 (manycore sim)\n"));
    }

    #[test]
    fn the_map_has_the_complexes_and_the_hardware_threads() {
        let machine = Machine::named("epyc-9654").expect("a shipped model");
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &machine, machine.cores()).unwrap();
        let map = manycore::percpu::topology::Topology::from_root(folder.path());
        assert_eq!(map.cores().len(), 192);
        assert_eq!(map.cores()[3].cpus, [3, 195]);
        assert_eq!(map.llc_groups().len(), 24);
        assert_eq!(map.llc_groups()[1].cpus[..9], [8, 9, 10, 11, 12, 13, 14, 15, 200]);
        assert_eq!(map.nodes().len(), 2);
    }

    #[test]
    fn cpuinfo_counts_what_is_in_use_of_each_socket() {
        let machine = Machine::named("epyc-9654").expect("a shipped model");
        let text = cpuinfo(&machine, 194, &["flags\t\t: fpu".to_owned()]);
        let of = |core: usize, name: &str| {
            let block = text.split("\n\n").nth(core).expect("a core");
            let line = block.lines().find(|line| line.starts_with(name)).expect("a line");
            line.split_once(": ").expect("a value").1.to_owned()
        };
        assert_eq!(text.matches("processor\t").count(), 194);
        // The last two are second threads of the first socket.
        let names = ["physical id", "siblings", "core id", "cpu cores", "cache size", "flags"];
        assert_eq!(names.map(|name| of(97, name)), ["1", "96", "1", "96", "32768 KB", "fpu"]);
        assert_eq!(names.map(|name| of(193, name)), ["0", "98", "1", "96", "32768 KB", "fpu"]);
    }
}
