//! Bytes of memory for each entry, computed and measured. This test has a process of its own,
//! because it looks at all resident memory.

#![cfg(target_os = "linux")]

use manycore_cache::Cache;

const ENTRIES: usize = 100_000;

/// Returns the resident memory of this process in bytes, without pages of files.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Checks the bytes of each entry, by part and as measured, of a cache with room for `room` entries
/// from the start.
#[track_caller]
fn check(what: &str, room: usize, node: f64, most: f64) {
    let before = resident();
    let cache: Cache<[u8; 16], [u8; 32]> =
        Cache::builder(2 * ENTRIES as u64).initial_entries(room).build().unwrap();
    for number in 0..ENTRIES as u128 {
        cache.insert(number.to_le_bytes(), [number as u8; 32]);
    }
    let measured = (resident() - before) as f64 / ENTRIES as f64;
    let parts = cache.footprint();
    let each = |bytes: u64| bytes as f64 / ENTRIES as f64;
    let (entries, tables, chains) = (each(parts.entries), each(parts.tables), each(parts.chains));
    let sum = each(parts.in_use());
    println!("{what}: {entries:.1} + {tables:.1} + {chains:.1} = {sum:.1}, measured {measured:.1}");
    assert_eq!(cache.len(), ENTRIES);
    // In debug builds a chunk of 64 KiB has a kilobyte more of its own.
    assert!((node..node * 1.03).contains(&entries), "{what}: {entries} bytes of entries");
    assert!(sum <= most, "{what}: {sum} bytes of an entry");
    // Fewer bytes are resident if pages of tables were not touched. More are resident for memory
    // that is kept for reuse, for replaced tables, and for a huge page where the system gives huge
    // pages to all processes.
    assert!((sum * 0.95..sum + 30.0).contains(&measured), "{what}: {measured} bytes resident");
}

#[test]
fn an_entry_takes_what_the_documentation_says() {
    check("a table for all from the start", ENTRIES, 56.0, 76.0);
    check("a table that has grown", 1000, 56.0, 82.0);
    check_less();
}

/// Tables that a lower capacity does not need go back to the system.
fn check_less() {
    let cache: Cache<u64, u64> =
        Cache::builder(10 * ENTRIES as u64).initial_entries(10 * ENTRIES).build().unwrap();
    (0..ENTRIES as u64).for_each(|number| _ = cache.insert(number, number));
    let (before, tables) = (resident(), cache.footprint().tables);
    cache.set_capacity(1000);
    let (after, left) = (resident(), cache.footprint().tables);
    println!("less capacity: {tables} bytes of tables, then {left}; {before} resident, {after}");
    assert!(tables > 8 << 20 && left < 64 << 10, "{left} bytes of tables, {tables} before");
    // Most pages of the ghosts were never touched.
    let given_back = before.saturating_sub(after);
    assert!(given_back > tables / 4 * 3, "{given_back} bytes of {tables} went back");
}
