//! What small caches take, as the pages that the process holds. Alone in its process.

#![cfg(all(target_os = "linux", not(manycore_sanitized)))]

use manycore_cache::Cache;

const CACHES: usize = 1000;

/// Resident memory of this process, in bytes, but for pages of files.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Bytes of each of many caches for a hundred entries, with so many in it.
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

/// As the documentation says. A slab of its own would be 8 KiB or more of each, and tables with a
/// place for each of 32 threads 16.
#[test]
fn a_cache_of_a_hundred_entries_takes_four_kilobytes_and_its_entries() {
    // Huge pages would round what is resident up to megabytes, where the system gives them unasked.
    // SAFETY: changes nothing but which pages this process gets from now on.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) }, 0);
    let mut caches = Vec::with_capacity(2 * CACHES);
    let (one, all) = (each(1, &mut caches), each(100, &mut caches));
    println!("with an entry {one} bytes, with a hundred {all}");
    assert!((2048..=4300).contains(&one), "{one} bytes of a cache with an entry");
    assert!(all <= 10_600, "{all} bytes of a cache with a hundred entries");
    // They share memory, and so each has its own entries still.
    for cache in &caches {
        let expected = cache.len() as u64;
        assert!((0..expected).all(|key| cache.get(&key).is_some_and(|value| *value == key)));
    }
}
