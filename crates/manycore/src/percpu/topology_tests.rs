//! Tests of the map on synthetic machines.

use super::*;
use crate::sync::{AtomicUsize, Ordering};

/// A tree of files that is removed when the value is dropped.
struct Tree(PathBuf);

impl Tree {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // ORDER: Relaxed; only distinctness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("manycore-topology-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
        self
    }

    /// One CPU with a private first-level cache and a shared third-level cache.
    fn cpu(&self, id: usize, package: &str, siblings: &str, llc: &str) -> &Self {
        let cpu = format!("cpu/cpu{id}");
        self.file(&format!("{cpu}/topology/physical_package_id"), package);
        self.file(&format!("{cpu}/topology/core_id"), "0");
        self.file(&format!("{cpu}/topology/thread_siblings_list"), siblings);
        for (index, level, kind, shared) in
            [(0, "1", "Data", siblings), (1, "1", "Instruction", "0-63"), (3, "3", "Unified", llc)]
        {
            let dir = format!("{cpu}/cache/index{index}");
            self.file(&format!("{dir}/level"), level);
            self.file(&format!("{dir}/type"), kind);
            self.file(&format!("{dir}/shared_cpu_list"), shared);
        }
        self
    }

    fn read(&self) -> Topology {
        Topology::from_root(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn members(groups: &[Group]) -> Vec<&[usize]> {
    groups.iter().map(|group| group.cpus.as_slice()).collect()
}

/// topology.M1, and that the indices of the CPUs and the members of the groups agree.
fn check(topology: &Topology) {
    assert!(!topology.cpus().is_empty());
    assert!(topology.cpus().is_sorted_by(|a, b| a.id < b.id));
    for (groups, index) in [
        (topology.cores(), (|cpu: &Cpu| cpu.core) as fn(&Cpu) -> usize),
        (topology.llc_groups(), |cpu| cpu.llc),
        (topology.nodes(), |cpu| cpu.node),
    ] {
        assert!(groups.is_sorted_by(|a, b| a.id < b.id));
        let total: usize = groups.iter().map(|group| group.cpus.len()).sum();
        assert_eq!(total, topology.cpus().len(), "each CPU in exactly one group");
        for cpu in topology.cpus() {
            assert!(groups[index(cpu)].cpus.contains(&cpu.id));
        }
    }
}

#[test]
fn two_sockets_with_threads_and_sparse_nodes() {
    let tree = Tree::new();
    tree.file("cpu/online", "0-7");
    for id in 0..8 {
        let (package, llc) = if id < 4 { ("0", "0-3") } else { ("1", "4-7") };
        let first = id / 2 * 2;
        tree.cpu(id, package, &format!("{first}-{}", first + 1), llc);
    }
    tree.file("node/node0/cpulist", "0-3").file("node/node8/cpulist", "4-7");
    tree.file("node/node255/cpulist", ""); // memory only
    let topology = tree.read();
    check(&topology);
    assert_eq!(topology.source(), &Source::Sysfs(tree.0.clone()));
    assert_eq!(members(topology.cores()), [[0, 1], [2, 3], [4, 5], [6, 7]]);
    assert_eq!(members(topology.llc_groups()), [[0, 1, 2, 3], [4, 5, 6, 7]]);
    assert_eq!(members(topology.nodes()), [[0, 1, 2, 3], [4, 5, 6, 7]]);
    assert_eq!(topology.nodes().iter().map(|node| node.id).collect::<Vec<_>>(), [0, 8]);
    let cpu = topology.cpus()[5];
    assert_eq!(cpu, Cpu { id: 5, core: 2, package: 1, llc: 1, node: 1 });
}

#[test]
fn cpus_off_line_are_left_out_even_as_the_lowest_of_a_group() {
    let tree = Tree::new();
    tree.file("cpu/online", "1-3");
    for id in 0..4 {
        tree.cpu(id, "0", "0-3", "0-3");
    }
    tree.file("node/node0/cpulist", "0-3");
    let topology = tree.read();
    check(&topology);
    assert_eq!(members(topology.llc_groups()), [[1, 2, 3]]);
    assert_eq!(topology.cores()[0], Group { id: 1, cpus: vec![1, 2, 3] });
}

#[test]
fn several_caches_per_package_as_on_chiplets() {
    let tree = Tree::new();
    tree.file("cpu/online", "0-7");
    for id in 0..8 {
        tree.cpu(id, "0", &id.to_string(), if id % 2 == 0 { "0,2,4,6" } else { "1,3,5,7" });
    }
    let topology = tree.read();
    check(&topology);
    assert_eq!(members(topology.llc_groups()), [[0, 2, 4, 6], [1, 3, 5, 7]]);
    assert_eq!(topology.nodes().len(), 1, "no node files: one node");
}

#[test]
fn without_cache_files_a_package_shares_one() {
    let tree = Tree::new();
    tree.file("cpu/online", "0-3");
    for id in 0..4 {
        tree.file(&format!("cpu/cpu{id}/topology/physical_package_id"), &(id / 2).to_string());
    }
    let topology = tree.read();
    check(&topology);
    assert_eq!(members(topology.llc_groups()), [[0, 1], [2, 3]]);
    assert_eq!(topology.cores().len(), 4);
}

/// Seven bytes name 65,536 CPUs, in each of 1,024 folders and 400 nodes.
#[cfg(unix)]
#[test]
fn lists_cost_no_more_than_the_cpus_that_are_online() {
    let tree = Tree::new();
    tree.file("cpu/online", "0-1023").cpu(0, "0", "0-65535", "0-65535");
    let link = std::os::unix::fs::symlink::<&str, PathBuf>;
    (1..1024).for_each(|id| link("cpu0", tree.0.join(format!("cpu/cpu{id}"))).unwrap());
    tree.file("node/node0/cpulist", "1-65535");
    (1..400).for_each(|id| link("node0", tree.0.join(format!("node/node{id}"))).unwrap());
    let topology = tree.read();
    check(&topology);
    assert_eq!((topology.cores().len(), topology.llc_groups().len()), (1, 1));
    assert_eq!(topology.nodes().len(), 1);
}

#[test]
fn overlapping_ranges_are_one() {
    let cpus = parse_cpulist(&"0-65535,".repeat(100_000)[..799_999]).unwrap();
    assert!(cpus.iter().copied().eq(0..65536));
    assert_eq!(parse_cpulist("7,1-3,3-4,9,2").unwrap(), [1, 2, 3, 4, 7, 9]);
    assert_eq!(parse_ranges("5-6,0-3,4").unwrap(), [0..=6]);
}

#[cfg(unix)]
#[test]
fn files_that_are_too_long_are_bad_ones() {
    let tree = Tree::new();
    tree.file("cpu/online", "0-1").cpu(0, "0", "0-1", "0-1").cpu(1, "0", "0-1", "0-1");
    let long =
        |path: &str| File::options().write(true).open(tree.0.join(path)).unwrap().set_len(40 << 30);
    long("cpu/cpu1/topology/thread_siblings_list").unwrap();
    assert_eq!(tree.read().cores().len(), 2);
    long("cpu/online").unwrap();
    let Source::Assumed { reason } = tree.read().source().clone() else { panic!() };
    assert!(reason.ends_with("longer than 1 MiB"), "{reason}");
}

#[test]
fn absent_tree_gives_one_node_and_says_so() {
    let tree = Tree::new();
    let topology = tree.read();
    check(&topology);
    assert_eq!((topology.nodes().len(), topology.llc_groups().len()), (1, 1));
    assert_eq!(topology.cores().len(), topology.cpus().len());
    let Source::Assumed { reason } = topology.source() else { panic!("{:?}", topology.source()) };
    assert!(reason.contains("cpu/online"), "{reason}");
    assert_eq!(topology.allowed(), topology.cpus());
}

#[test]
fn garbage_in_the_list_of_cpus_gives_one_node_and_says_so() {
    for garbage in ["", "x", "3-1", "0-4294967295", "-1", "0,,1", "\u{1F980}"] {
        let tree = Tree::new();
        tree.file("cpu/online", garbage);
        let topology = tree.read();
        check(&topology);
        assert!(matches!(topology.source(), Source::Assumed { .. }), "{garbage:?}");
    }
}

#[test]
fn garbage_in_one_file_costs_that_fact_only() {
    let tree = Tree::new();
    tree.file("cpu/online", "0-3");
    for id in 0..4 {
        tree.cpu(id, "0", "0-3", "0-3");
    }
    tree.cpu(1, "-1", "2-3", "zero"); // lists that do not name CPU 1 itself
    tree.file("node/node0/cpulist", "0-3").file("node/node1/cpulist", "2-9");
    let topology = tree.read();
    check(&topology);
    let cpu = topology.cpus()[1];
    assert_eq!(topology.cores()[cpu.core].cpus, [1]);
    // The third-level cache is unreadable, so the first level is the last one; that list does not
    // name CPU 1 either.
    assert_eq!(cpu.package, 0);
    assert_eq!(members(topology.nodes()), [[0, 1, 2, 3]], "the first node to claim a CPU has it");
}

/// A small seeded generator for the property tests.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

#[test]
fn any_tree_gives_a_partition() {
    let mut random = Random(7);
    for _ in 0..60 {
        let tree = Tree::new();
        let count = 1 + random.below(9);
        tree.file("cpu/online", &format!("0-{}", count - 1));
        for id in 0..count {
            let list = |random: &mut Random| match random.below(4) {
                0 => id.to_string(),
                1 => format!("{}-{}", id.saturating_sub(1), id + random.below(3)),
                2 => format!("0-{}", random.below(12)),
                _ => "?".to_owned(),
            };
            let (siblings, llc) = (list(&mut random), list(&mut random));
            tree.cpu(id, &random.below(3).to_string(), &siblings, &llc);
            let node = format!("node/node{}/cpulist", random.below(3));
            tree.file(&node, &list(&mut random));
        }
        check(&tree.read());
    }
}

#[test]
fn this_machine_has_a_map_and_we_may_run_on_some_of_it() {
    let topology = Topology::detect();
    check(&topology);
    let allowed = topology.allowed();
    assert!(!allowed.is_empty());
    assert!(allowed.iter().all(|cpu| topology.cpus().contains(cpu)));
}

#[cfg(target_os = "linux")]
#[test]
fn allowed_follows_the_mask_of_the_thread() {
    let topology = Topology::detect();
    let cpu = topology.allowed()[0];
    let pinned = pin::Pinned::to(cpu.id).unwrap();
    assert_eq!(topology.allowed(), [cpu]);
    drop(pinned);
}

#[test]
fn cpulist_reads_what_it_wrote() {
    let mut random = Random(11);
    for _ in 0..2_000 {
        let mut cpus: Vec<_> = (0..random.below(40)).map(|_| random.below(100)).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut parts = Vec::new();
        for run in cpus.chunk_by(|a, b| a + 1 == *b) {
            parts.push(match run {
                [one] => one.to_string(),
                [first, .., last] => format!("{first}-{last}"),
                [] => unreachable!("chunks are not empty"),
            });
        }
        assert_eq!(parse_cpulist(&parts.join(",")).unwrap(), cpus);
        // Order, repetition and spaces do not matter.
        parts.reverse();
        parts.extend(parts.first().cloned());
        assert_eq!(parse_cpulist(&format!(" {}\n", parts.join(", "))).unwrap(), cpus);
    }
}

#[test]
fn cpulist_errors_name_the_part() {
    for (text, message) in [
        ("0-3,eight", "bad CPU list: \"eight\" is not a number"),
        ("0,,1", "bad CPU list: \"\" is not a number"),
        ("-1", "bad CPU list: \"-1\" is not a number"),
        ("1-", "bad CPU list: \"1-\" is not a number"),
        ("+1", "bad CPU list: \"+1\" is not a number"),
        ("1-2-3", "bad CPU list: \"1-2-3\" is not a number"),
        ("7-3", "bad CPU list: \"7-3\" is a falling range"),
        ("0-65536", "bad CPU list: \"0-65536\" is beyond every machine"),
        ("99999999999999999999", "bad CPU list: \"99999999999999999999\" is beyond every machine"),
    ] {
        assert_eq!(parse_cpulist(text).unwrap_err().to_string(), message);
    }
    let long = parse_cpulist(&"x".repeat(10_000)).unwrap_err().to_string();
    assert!(long.len() < 100, "{long}");
}

#[test]
fn cpulist_survives_any_bytes() {
    let mut random = Random(13);
    let alphabet: Vec<_> = "0123456789-, \n+x\u{e9}".chars().collect();
    for _ in 0..20_000 {
        let text: String =
            (0..random.below(12)).map(|_| alphabet[random.below(alphabet.len())]).collect();
        if let Ok(cpus) = parse_cpulist(&text) {
            assert!(cpus.is_sorted_by(|a, b| a < b) && cpus.iter().all(|cpu| *cpu < CPUS_MAX));
        }
    }
}
