//! Memory of small caches, measured in pages that the process holds. This test has a process of its
//! own.

#![cfg(all(target_os = "linux", not(manycore_sanitized)))]

use manycore_cache::Cache;

const CACHES: usize = 1000;

/// Returns the resident memory of this process in bytes, without pages of files.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Returns the bytes of each of many caches for a hundred entries, with `entries` in it.
fn each(entries: u64, caches: &mut Vec<Cache<u64, u64>>) -> usize {
    let before = resident();
    for _ in 0..CACHES {
        let cache = Cache::new(100);
        (0..entries).for_each(|key| _ = cache.insert(key, key));
        assert_eq!(cache.len(), entries as usize);
        caches.push(cache);
    }
    (resident() - before) / CACHES
}

/// The bytes are those of the documentation. A slab of its own would take 8 KiB or more for each
/// cache, and a table with a place for each of 32 threads would take 16 KiB.
#[test]
fn a_cache_of_a_hundred_entries_takes_four_kilobytes_and_its_entries() {
    // Huge pages would round resident memory up to megabytes, on systems that give them unasked.
    // SAFETY: this changes only which pages this process gets from now on.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
    let mut caches = Vec::with_capacity(2 * CACHES);
    let (one, all) = (each(1, &mut caches), each(100, &mut caches));
    println!("with an entry {one} bytes, with a hundred {all}");
    assert!((2048..=4300).contains(&one), "{one} bytes of a cache with an entry");
    assert!(all <= 10_600, "{all} bytes of a cache with a hundred entries");
    // They share memory, and each still has its own entries.
    for cache in &caches {
        let expected = cache.len() as u64;
        assert!((0..expected).all(|key| cache.get(&key).is_some_and(|value| *value == key)));
    }
}
