//! Many threads on one tree. Each test prints its seed when it begins, and ends after a number of
//! rounds, whatever the machine.

use crate::rounds;
use manycore_fs::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FILE: New<'_> = New { content: Content::File, mode: 0o644, uid: 0, gid: 0 };
const DIRECTORY: New<'_> = New { content: Content::Directory, mode: 0o755, uid: 0, gid: 0 };
const THREADS: u64 = 4;

fn s(name: &str) -> &OsStr {
    OsStr::new(name)
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

fn seed(test: &str) -> u64 {
    let given = std::env::var("MANYCORE_SEED").ok().and_then(|text| {
        let text = text.trim_start_matches("0x");
        u64::from_str_radix(text, 16).ok()
    });
    let seed = given.unwrap_or_else(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_nanos() as u64
    });
    println!("{test}: MANYCORE_SEED={seed:#x}");
    seed
}

fn entries(branch: &Branch, directory: Ino) -> BTreeMap<String, (Ino, Kind)> {
    let mut found = BTreeMap::new();
    let read = branch.read_directory(directory, 0, &mut |entry| {
        let name = entry.name.to_str().unwrap().to_owned();
        assert_eq!(found.insert(name, (entry.ino, entry.kind)), None, "seen twice");
        ControlFlow::Continue(())
    });
    read.unwrap();
    found
}

/// Checks a tree that nobody changes: link counts, parents, and that no inode is left over.
/// Returns how many files it has.
fn check(branch: &Branch) -> u64 {
    let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
    let (mut left, mut directories) = (vec![Ino::ROOT], BTreeSet::from([Ino::ROOT]));
    while let Some(directory) = left.pop() {
        let mut below = 0;
        for (name, (ino, kind)) in entries(branch, directory) {
            let found = branch.lookup(directory, s(&name)).unwrap();
            assert_eq!((found.ino, found.kind), (ino, kind));
            if kind == Kind::Directory {
                assert!(directories.insert(ino), "{ino:?} has two parents");
                assert_eq!(branch.parent(ino).unwrap(), directory);
                left.push(ino);
                below += 1;
            } else {
                *names.entry(ino).or_insert(0) += 1;
            }
        }
        assert_eq!(branch.attributes(directory).unwrap().links, 2 + below);
    }
    for (ino, links) in &names {
        assert_eq!(branch.attributes(*ino).unwrap().links, *links);
    }
    (names.len() + directories.len()) as u64
}

/// What may come of an operation beside others.
fn expect(result: Result<()>) {
    let expected = [
        Error::NotFound,
        Error::Exists,
        Error::NotEmpty,
        Error::IsDirectory,
        Error::NotDirectory,
        Error::Invalid,
    ];
    if let Err(error) = result {
        assert!(expected.contains(&error), "{error:?}");
    }
}

fn churn(branch: &Branch, random: &mut Random, rounds: u64) {
    let mut directories = vec![Ino::ROOT];
    let mut files = Vec::new();
    for _ in 0..rounds {
        let directory = directories[random.below(directories.len() as u64) as usize];
        let other = directories[random.below(directories.len() as u64) as usize];
        let (name, other_name) = (format!("n{}", random.below(8)), format!("n{}", random.below(8)));
        match random.below(12) {
            0..=2 => match branch.create(directory, s(&name), &FILE) {
                Ok(made) => files.push(made.ino),
                Err(error) => expect(Err(error)),
            },
            3..=4 => match branch.create(directory, s(&name), &DIRECTORY) {
                Ok(made) => directories.push(made.ino),
                Err(error) => expect(Err(error)),
            },
            5 => expect(branch.unlink(directory, s(&name))),
            6 => expect(branch.remove_directory(directory, s(&name))),
            7..=8 => {
                let (from, to) = ((directory, s(&name)), (other, s(&other_name)));
                expect(branch.rename(from, to, Rename::Replace));
            }
            9 => {
                let (from, to) = ((directory, s(&name)), (other, s(&other_name)));
                expect(branch.rename(from, to, Rename::Exchange));
            }
            10 if !files.is_empty() => {
                let file = files[random.below(files.len() as u64) as usize];
                expect(branch.link(file, other, s(&name)).map(|_| ()));
                expect(branch.write(file, random.below(9000), name.as_bytes()).map(|_| ()));
            }
            _ => match branch.lookup(directory, s(&name)) {
                Ok(found) if found.kind == Kind::Directory => directories.push(found.ino),
                Ok(found) => files.push(found.ino),
                Err(error) => expect(Err(error)),
            },
        }
        directories.truncate(40);
        if files.len() > 40 {
            files.swap_remove(0);
        }
    }
}

#[test]
fn names_and_links_agree_after_random_changes_of_many_threads() {
    let seed = seed("names_and_links");
    for round in 0..rounds(10) {
        let files = FileSystem::new();
        let main = files.main();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let main = &main;
                let mut random = Random(seed ^ round << 32 ^ thread << 48);
                scope.spawn(move || churn(main, &mut random, 3_000));
            }
        });
        let count = check(&main);
        assert_eq!(main.usage().files, count, "no inode is left over");
        main.remove_all("/n0").ok();
        for name in 1..8 {
            main.remove_all(format!("/n{name}")).ok();
        }
        assert_eq!((main.usage().files, main.usage().used), (1, 0));
    }
}

#[test]
fn forks_of_a_tree_that_many_threads_change_are_whole() {
    let seed = seed("forks_are_whole");
    let files = FileSystem::new();
    let main = files.main();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let main = &main;
            let mut random = Random(seed ^ thread << 48);
            scope.spawn(move || churn(main, &mut random, rounds(10_000)));
        }
        for number in 0..rounds(60) {
            let branch = main.fork(&format!("b{number}")).unwrap();
            check(&branch);
            let mut random = Random(seed ^ number << 32);
            churn(&branch, &mut random, 100);
            check(&branch);
            branch.diff().unwrap();
            if number % 2 == 0 {
                branch.abort().unwrap();
            } else if let Err(NotCommitted::Error(error)) = branch.commit() {
                panic!("{error:?}");
            }
        }
    });
    check(&main);
    for branch in files.branches().iter().skip(1) {
        files.branch_by_id(branch.id).unwrap().abort().unwrap();
    }
    assert_eq!(main.usage().files, check(&main));
}

#[test]
fn a_fork_shows_the_order_of_writes() {
    let files = FileSystem::new();
    let main = files.main();
    main.write_file("/first", &0_u64.to_le_bytes()).unwrap();
    main.write_file("/second", &0_u64.to_le_bytes()).unwrap();
    main.create_directories("/left").unwrap();
    main.create_directories("/right").unwrap();
    main.write_file("/left/ball", b"").unwrap();
    let number = |path: &str| main.resolve(path).unwrap().ino;
    let (first, second) = (number("/first"), number("/second"));
    let (left, right) = (number("/left"), number("/right"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 1_u64.. {
                main.write(first, 0, &count.to_le_bytes()).unwrap();
                main.write(second, 0, &count.to_le_bytes()).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        scope.spawn(|| {
            let ball = s("ball");
            while !stop.load(Ordering::Relaxed) {
                main.rename((left, ball), (right, ball), Rename::Replace).unwrap();
                main.rename((right, ball), (left, ball), Rename::Replace).unwrap();
            }
        });
        let mut branches = Vec::new();
        for number in 0..rounds(300) {
            let branch = main.fork(&format!("b{number}")).unwrap();
            let read = |file| {
                let mut bytes = [0; 8];
                assert_eq!(branch.read(file, 0, &mut bytes).unwrap(), 8);
                u64::from_le_bytes(bytes)
            };
            let (one, two) = (read(first), read(second));
            assert!(one == two || one == two + 1, "{one} and {two}");
            let balls = entries(&branch, left).len() + entries(&branch, right).len();
            assert_eq!(balls, 1);
            branches.push((branch, one, two));
        }
        stop.store(true, Ordering::Relaxed);
        for (branch, one, two) in branches {
            let read = |file| {
                let mut bytes = [0; 8];
                branch.read(file, 0, &mut bytes).unwrap();
                u64::from_le_bytes(bytes)
            };
            assert_eq!((read(first), read(second)), (one, two), "a snapshot does not change");
        }
    });
}

#[test]
fn attributes_are_of_one_moment() {
    let files = FileSystem::new();
    let main = files.main();
    main.write_file("/f", b"").unwrap();
    let file = main.resolve("/f").unwrap().ino;
    let set = |number: u32| {
        let value = Some(number);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(number.into());
        let time = Some(SetTime::At(time));
        let set = SetAttributes {
            mode: value,
            uid: value,
            gid: value,
            accessed: time,
            modified: time,
            size: None,
        };
        main.set_attributes(file, &set).unwrap();
    };
    set(0);
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Until each reader has seen many.
            let mut number = 0;
            while reads.load(Ordering::Relaxed) < 2 * rounds(50_000) {
                number = (number + 1) % 4096;
                set(number);
                if number == 0 {
                    main.fork("frozen").unwrap().abort().unwrap();
                }
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..rounds(50_000) {
                    let found = main.attributes(file).unwrap();
                    let seconds = found.modified.duration_since(std::time::UNIX_EPOCH).unwrap();
                    assert_eq!(found.accessed, found.modified);
                    assert_eq!(u64::from(found.mode), seconds.as_secs());
                    assert_eq!((found.mode, found.mode), (found.uid, found.gid));
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
}

#[test]
fn stable_entries_are_seen_exactly_once_while_others_come_and_go() {
    let seed = seed("stable_entries");
    let files = FileSystem::new();
    let main = files.main();
    let stable: BTreeSet<String> = (0..500).map(|number| format!("stable{number}")).collect();
    for name in &stable {
        main.create(Ino::ROOT, s(name), &FILE).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            let (main, stop) = (&main, &stop);
            scope.spawn(move || {
                let mut random = Random(seed ^ thread);
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("other{thread}-{}", random.below(2_000));
                    match main.create(Ino::ROOT, s(&name), &FILE) {
                        Ok(_) => {}
                        Err(_) => main.unlink(Ino::ROOT, s(&name)).unwrap(),
                    }
                    let over = format!("stable{}", random.below(500));
                    if random.below(8) == 0 && main.lookup(Ino::ROOT, s(&name)).is_ok() {
                        // Another file gets the name; the name stays.
                        let (from, to) = ((Ino::ROOT, s(&name)), (Ino::ROOT, s(&over)));
                        main.rename(from, to, Rename::Replace).unwrap();
                    }
                }
            });
        }
        for round in 0..rounds(200) {
            let mut seen = BTreeSet::new();
            let mut next = 0;
            loop {
                // A few at a time, as a mount does.
                let (mut count, before) = (0, next);
                let read = main.read_directory(Ino::ROOT, next, &mut |entry| {
                    next = entry.next;
                    let name = entry.name.to_str().unwrap();
                    if name.starts_with("stable") {
                        assert!(seen.insert(name.to_owned()), "{name} is seen twice");
                    }
                    count += 1;
                    if count == 37 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                });
                read.unwrap();
                if next == before {
                    break;
                }
            }
            assert_eq!(seen, stable);
            main.lookup(Ino::ROOT, s(&format!("stable{round}"))).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    check(&main);
}

#[test]
fn directories_that_move_everywhere_stay_a_tree() {
    let seed = seed("directories_move");
    let files = FileSystem::new();
    let main = files.main();
    let mut all = vec![Ino::ROOT];
    for number in 0..12 {
        let parent = all[number / 2];
        all.push(main.create(parent, s(&format!("d{number}")), &DIRECTORY).unwrap().ino);
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (main, all) = (&main, &all);
            let mut random = Random(seed ^ thread << 48);
            scope.spawn(move || {
                for _ in 0..rounds(5_000) {
                    let from = all[random.below(all.len() as u64) as usize];
                    let to = all[random.below(all.len() as u64) as usize];
                    let from_names: Vec<_> = entries(main, from).into_keys().collect();
                    let to_names: Vec<_> = entries(main, to).into_keys().collect();
                    if from_names.is_empty() {
                        continue;
                    }
                    let name = &from_names[random.below(from_names.len() as u64) as usize];
                    if !to_names.is_empty() && random.below(3) == 0 {
                        let other = &to_names[random.below(to_names.len() as u64) as usize];
                        let (from, to) = ((from, s(name)), (to, s(other)));
                        expect(main.rename(from, to, Rename::Exchange));
                    } else {
                        let (from, to) = ((from, s(name)), (to, s(name)));
                        expect(main.rename(from, to, Rename::NoReplace));
                    }
                }
            });
        }
    });
    assert_eq!(check(&main), 13);
    assert_eq!(main.usage().files, 13);
}

#[test]
fn a_kept_file_stays_until_it_is_forgotten() {
    let files = FileSystem::new();
    let main = files.main();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (main, stop) = (&main, &is_over);
        scope.spawn(move || {
            for number in 0..rounds(4_000) {
                main.write_file("/f", format!("{number}").as_bytes()).unwrap();
                main.unlink(Ino::ROOT, s("f")).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        for _ in 0..2 {
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let Ok(found) = main.lookup(Ino::ROOT, s("f")) else { continue };
                    if main.keep(found.ino).is_err() {
                        continue;
                    }
                    for _ in 0..3 {
                        main.attributes(found.ino).unwrap();
                        main.write(found.ino, 0, b"x").unwrap();
                    }
                    main.forget(found.ino, 1);
                }
            });
        }
    });
    assert_eq!((main.usage().files, main.usage().used), (1, 0));
}

#[test]
fn readers_see_all_of_a_commit_or_nothing() {
    let files = FileSystem::new();
    let main = files.main();
    main.write_file("/a", &0_u64.to_le_bytes()).unwrap();
    main.write_file("/b", &0_u64.to_le_bytes()).unwrap();
    let number = |path: &str| main.resolve(path).unwrap().ino;
    let (a, b) = (number("/a"), number("/b"));
    let read = |file| {
        let mut bytes = [0; 8];
        assert_eq!(main.read(file, 0, &mut bytes).unwrap(), 8);
        u64::from_le_bytes(bytes)
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (one, other) in [(a, b), (b, a)] {
            let (stop, read) = (&stop, &read);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let first = read(one);
                    assert!(read(other) >= first);
                }
            });
        }
        for count in 1..=rounds(1_000) {
            let branch = main.fork("b").unwrap();
            branch.write(a, 0, &count.to_le_bytes()).unwrap();
            branch.write(b, 0, &count.to_le_bytes()).unwrap();
            branch.commit().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((read(a), read(b)), (rounds(1_000), rounds(1_000)));
}

#[test]
fn appends_of_many_threads_lose_nothing() {
    let files = FileSystem::new();
    let main = files.main();
    main.write_file("/log", b"").unwrap();
    let log = main.resolve("/log").unwrap().ino;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let main = &main;
            scope.spawn(move || {
                for number in 0..500_u64 {
                    let line = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                    let place = main.append(log, &line).unwrap();
                    let mut bytes = [0; 16];
                    main.read(log, place, &mut bytes).unwrap();
                    assert_eq!(bytes[..], line);
                }
            });
        }
    });
    let all = main.read_file("/log").unwrap();
    let lines: BTreeSet<&[u8]> = all.chunks(16).collect();
    assert_eq!((all.len(), lines.len()), (16 * 2_000, 2_000));
}
