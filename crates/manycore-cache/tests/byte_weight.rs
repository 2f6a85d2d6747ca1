//! Resident memory of a cache whose capacity is in bytes. This test has a process of its own,
//! because it looks at all resident memory.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use manycore_cache::{Builder, Cache};

const MIB: u64 = 1 << 20;
const CAPACITY: u64 = 8 * MIB;
/// Room for one thread's batches of garbage, and for chunks of memory that are not full.
const BESIDE: u64 = 2 * MIB;

/// Returns the resident memory of this process in bytes, without pages of files.
fn resident() -> u64 {
    // SAFETY: a function of libc that gives free memory back to the system, and touches nothing
    // else.
    unsafe { libc::malloc_trim(0) };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Returns the memory that a cache of `CAPACITY` has made resident after `count` insertions.
fn grown(
    what: &str,
    set: impl FnOnce(Builder<u64, Vec<u8>>) -> Builder<u64, Vec<u8>>,
    count: u64,
    value: impl Fn(u64) -> Vec<u8>,
) -> u64 {
    let before = resident();
    let cache = set(Cache::builder(CAPACITY)).build().unwrap();
    let mut most = 0;
    for number in 0..count {
        cache.insert(number, value(number));
        if number % (count / 16) == 0 {
            most = most.max(resident());
        }
    }
    let grown = most.max(resident()).saturating_sub(before);
    let (len, weight) = (cache.len(), cache.weight());
    println!("{what}: {len} entries, weight {weight}, {:.1} MiB", grown as f64 / MIB as f64);
    assert!(weight <= CAPACITY);
    grown
}

/// Returns the size of glibc's block for this number of bytes.
fn block(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { (bytes + 8).next_multiple_of(16).max(32) }
}

#[test]
fn a_capacity_in_bytes_is_what_the_process_grows_by() {
    let owned = |builder: Builder<u64, Vec<u8>>| builder.byte_weigher(|_, v| v.capacity());
    let blocks = |builder: Builder<u64, Vec<u8>>| builder.byte_weigher(|_, v| block(v.capacity()));
    let roomy = |_| {
        let mut value = Vec::with_capacity(4000);
        value.resize(4000, 1);
        value.truncate(1);
        value
    };
    for (most, grown) in [
        (CAPACITY, grown("values of 1000 bytes", owned, 40_000, |_| vec![1; 1000])),
        (CAPACITY, grown("values of 60,000 bytes", owned, 2_000, |_| vec![1; 60_000])),
        (CAPACITY, grown("one byte in 4000", owned, 20_000, roomy)),
        (CAPACITY, grown("empty values", owned, 200_000, |_| Vec::new())),
        (CAPACITY, grown("one byte, as a block", blocks, 200_000, |_| vec![1])),
        // The allocator's overhead for a block of one byte is not counted.
        (CAPACITY * 4 / 3, grown("one byte", owned, 200_000, |_| vec![1])),
    ] {
        assert!(grown <= most + BESIDE, "{grown} bytes, at most {most} and {BESIDE}");
    }
    // The test notices a bound that does not hold: here the weigher counts lengths.
    let lengths = |builder: Builder<u64, Vec<u8>>| builder.weigher(|_, v| v.len() as u32);
    let grown = grown("values of 4 bytes, by length", lengths, 600_000, |_| vec![1; 4]);
    assert!(grown > 6 * CAPACITY, "{grown}");
}
