//! File systems that are kept: what is read back from the log is what was there.

use crate::model::{Op, State, World, ops, read};
use manycore_fs::*;
use proptest::prelude::*;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A folder in memory, where there is one: for tests that open many logs.
fn quick_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| folder())
}

fn builder(folder: &Path) -> Builder {
    FileSystem::builder().root(0, 0, 0o755).keep(folder)
}

#[track_caller]
fn open(folder: &Path) -> FileSystem {
    builder(folder).build().unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn refusal(builder: Builder) -> String {
    builder.build().expect_err("it is refused").to_string()
}

fn state(files: &FileSystem) -> State {
    let branches = files.branches().into_iter();
    let mut state: State = branches
        .map(|row| (row.name.clone(), read(&files.branch_by_id(row.id).unwrap())))
        .collect();
    state.sort_by(|a, b| a.0.cmp(&b.0));
    state
}

/// Opens a folder that has nothing but this log.
fn open_log(bytes: &[u8]) -> (TempDir, std::io::Result<FileSystem>) {
    let folder = quick_folder();
    fs::write(folder.path().join("log"), bytes).unwrap();
    let files = builder(folder.path()).build();
    (folder, files)
}

/// Runs operations. Returns the log, and after each operation its length and the state.
fn logged(ops: &[(usize, Op)]) -> (Vec<u8>, Vec<(usize, State)>) {
    let folder = quick_folder();
    let files = open(folder.path());
    let mut world = World::new(&files);
    let length = || fs::metadata(folder.path().join("log")).unwrap().len() as usize;
    let mut states = vec![(length(), world.state())];
    for (which, op) in ops {
        world.run(*which, op);
        files.sync().unwrap();
        states.push((length(), world.state()));
    }
    (fs::read(folder.path().join("log")).unwrap(), states)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: crate::rounds(100) as u32,
        failure_persistence: None,
        ..Default::default()
    })]

    /// Some operations, the log read back, some more on what was read, and so on; with the log
    /// written anew in between, or not.
    #[test]
    fn what_is_read_back_is_what_was_there(
        parts in proptest::collection::vec((ops(), any::<[bool; 2]>()), 1..4),
    ) {
        let folder = quick_folder();
        let files = open(folder.path());
        let mut world = World::new(&files);
        drop(files);
        for (ops, [compacts, again]) in &parts {
            for (which, op) in ops {
                world.run(*which, op);
            }
            if *compacts {
                world.files().compact().unwrap();
                if *again {
                    for (which, op) in ops.iter().take(10) {
                        world.run(*which, op);
                    }
                }
            }
            world.reopen(|| open(folder.path()));
            assert!(world.files().recovered().is_none());
        }
    }

    /// Damage is cut off or refused, and never believed: what is opened is a state that was.
    #[test]
    fn damaged_log_is_a_prefix_or_refused(
        ops in ops(),
        places in proptest::collection::vec((any::<u64>(), 1..=255_u8), 30),
    ) {
        let (log, states) = logged(&ops);
        for (place, flip) in places {
            let mut damaged = log.clone();
            let at = (place % log.len() as u64) as usize;
            damaged[at] ^= flip;
            let (folder, files) = open_log(&damaged);
            match files {
                Ok(files) => {
                    // Only behind what was on disk when a later record was made.
                    let offset = files.recovered().expect("it says so").offset as usize;
                    let last = states.iter().rposition(|(length, _)| *length <= offset).unwrap();
                    prop_assert!(at >= offset && states[last + 1..].iter().all(|s| s.0 > at));
                    prop_assert_eq!(&state(&files), &states[last].1);
                }
                Err(error) => {
                    prop_assert!(error.to_string().contains("nothing was changed"), "{}", error);
                    prop_assert_eq!(fs::read(folder.path().join("log")).unwrap(), damaged);
                }
            }
        }
    }
}

#[track_caller]
fn check_cut(log: &[u8], states: &[(usize, State)]) {
    let (_folder, files) = open_log(log);
    let files = files.unwrap_or_else(|error| panic!("{error}"));
    let (whole, expected) = states.iter().rfind(|(length, _)| *length <= log.len()).unwrap();
    assert_eq!(&state(&files), expected);
    assert_eq!(
        files.recovered().map(|cut| cut.offset),
        (*whole < log.len()).then_some(*whole as u64)
    );
}

#[test]
fn log_cut_at_each_byte_is_a_prefix_or_refused() {
    let create = |name, is_directory| Op::Create { directory: 0, name, is_directory };
    let ops = [
        create(0, false),
        Op::Write { file: 0, offset: 4090, length: 10, byte: 1 },
        create(1, true),
        Op::Fork,
        Op::Rename { from: (0, 0), to: (1, 2), how: 0 },
        Op::Xattr { file: 0, value: Some(2) },
        Op::Resize { file: 0, size: 7 },
        Op::Link { file: 0, directory: 0, name: 3 },
    ];
    let mut ops: Vec<_> = ops.into_iter().map(|op| (0, op)).collect();
    ops.push((1, Op::Mode { file: 1, mode: 0o600 }));
    ops.push((1, Op::Commit));
    ops.push((0, Op::Remove { directory: 0, name: 3, is_directory: false }));
    let (log, states) = logged(&ops);
    for length in 0..=log.len() {
        if length >= states[0].0 {
            check_cut(&log[..length], &states);
        } else {
            // Such a log is never put in its place.
            let words = open_log(&log[..length]).1.expect_err("refused").to_string();
            assert!(words.contains("log at offset"), "{words}");
        }
    }
}

#[test]
fn damage_before_what_was_synced_is_named() {
    let kept = folder();
    let files = open(kept.path());
    let log = kept.path().join("log");
    files.main().write_file("/a", &[1; 5000]).unwrap();
    files.sync().unwrap();
    let middle = fs::metadata(&log).unwrap().len() as usize - 100;
    files.main().write_file("/b", &[2; 5000]).unwrap();
    files.sync().unwrap();
    drop(files);
    let mut bytes = fs::read(&log).unwrap();
    bytes[middle] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let words = refusal(builder(kept.path()));
    assert!(words.contains("at offset") && words.contains("whole records follow"), "{words}");
    assert_eq!(fs::read(&log).unwrap(), bytes);
    bytes[middle] ^= 1;
    fs::write(&log, &bytes).unwrap();
    assert_eq!(open(kept.path()).main().read_file("/b").unwrap(), [2; 5000]);
}

/// A record that is as long as one that was cut off takes its place, and what followed that one
/// does not come back behind it.
#[test]
fn what_was_cut_off_does_not_follow_what_is_written_then() {
    let kept = folder();
    let files = open(kept.path());
    let log = kept.path().join("log");
    files.main().write_file("/a", b"").unwrap();
    files.sync().unwrap();
    let file = files.main().resolve("/a").unwrap().ino;
    let at = fs::metadata(&log).unwrap().len() as usize;
    files.main().write(file, 0, &[1; 700]).unwrap();
    files.main().write(file, 1000, &[2; 700]).unwrap();
    files.sync().unwrap();
    drop(files);
    let mut bytes = fs::read(&log).unwrap();
    bytes[at + 500] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let files = open(kept.path());
    let cut = files.recovered().unwrap();
    assert_eq!(cut.offset, at as u64);
    assert_eq!(fs::read(cut.aside.as_ref().unwrap()).unwrap(), bytes[at..]);
    files.main().write(file, 0, &[3; 700]).unwrap();
    files.sync().unwrap();
    drop(files);
    assert_eq!(open(kept.path()).main().read_file("/a").unwrap(), [3; 700]);
}

#[test]
fn folder_is_kept_once_at_a_time() {
    let kept = folder();
    let files = open(kept.path());
    let words = refusal(builder(kept.path()));
    assert!(words.contains("another file system is kept here"), "{words}");
    drop(files);
    open(kept.path());
}

#[test]
fn log_of_another_base_or_of_too_much_memory_is_refused() {
    let (kept, base, other) = (folder(), folder(), folder());
    let of_base = |base: &TempDir| FileSystem::builder().base(base.path()).keep(kept.path());
    fs::create_dir(base.path().join("d")).unwrap();
    fs::write(base.path().join("d/f"), "text").unwrap();
    let files = of_base(&base).build().unwrap();
    files.main().write_file("/d/f", &[7; 100_000]).unwrap();
    drop(files);
    assert!(refusal(of_base(&other)).contains("it is of the base"));
    assert!(refusal(builder(kept.path())).contains("not of none"));
    assert!(refusal(of_base(&base).memory_limit(50_000)).contains("memory limit"));
    assert_eq!(of_base(&base).build().unwrap().main().read_file("/d/f").unwrap(), [7; 100_000]);
    fs::remove_dir_all(base.path().join("d")).unwrap();
    assert!(refusal(of_base(&base)).contains("of the base has changed"));
}

/// Files of a base have the same numbers again, whatever is looked at first.
#[test]
fn base_is_read_back_with_its_numbers() {
    let (kept, base) = (folder(), folder());
    let below = |path: &str| base.path().join(path);
    fs::create_dir_all(below("a/b")).unwrap();
    fs::create_dir_all(below("c")).unwrap();
    for path in ["a/b/one", "a/two", "c/three", "c/four"] {
        fs::write(below(path), path.repeat(2000)).unwrap();
    }
    fs::hard_link(below("a/two"), below("c/linked")).unwrap();
    let open = || FileSystem::builder().base(base.path()).keep(kept.path()).build().unwrap();
    let mut files = open();
    let fork = files.main().fork("try").unwrap();
    fork.write(fork.resolve("/c/three").unwrap().ino, 5000, b"changed").unwrap();
    fork.remove_all("/a/b").unwrap();
    fork.rename(
        (fork.resolve("/c").unwrap().ino, OsStr::new("four")),
        (Ino::ROOT, OsStr::new("x")),
        Rename::Replace,
    )
    .unwrap();
    let set = SetAttributes { size: Some(10), ..Default::default() };
    fork.set_attributes(fork.resolve("/a/two").unwrap().ino, &set).unwrap();
    // A file of several names goes by one of them, whichever was read first.
    let diff = |fork: &Branch| {
        let mut changes = fork.diff().unwrap();
        let before = changes.len();
        changes
            .retain(|change| !change.path().ends_with("two") && !change.path().ends_with("linked"));
        assert_eq!(changes.len() + 1, before);
        changes
    };
    let (expected, changes) = (state(&files), diff(&fork));
    drop(fork);
    for compacts in [false, true, false] {
        if compacts {
            files.compact().unwrap();
        }
        drop(files);
        files = open();
        let fork = files.branch("try").unwrap();
        assert_eq!(fork.resolve("/c/linked").unwrap().size, 10);
        assert_eq!(diff(&fork), changes);
        assert_eq!(state(&files), expected);
    }
    files.branch("try").unwrap().commit().unwrap();
    let expected = state(&files);
    drop(files);
    assert_eq!(state(&open()), expected);
}

#[test]
fn all_kinds_and_attributes_are_read_back() {
    let kept = folder();
    let mut files = open(kept.path());
    let main = files.main();
    let contents = [
        Content::File,
        Content::Directory,
        Content::Symlink(OsStr::new("some/where")),
        Content::CharDevice(0x501),
        Content::BlockDevice(0x802),
        Content::Fifo,
        Content::Socket,
    ];
    for (at, content) in contents.into_iter().enumerate() {
        let new = New { content, mode: 0o4711, uid: 7, gid: 8 };
        main.create(Ino::ROOT, OsStr::new(&format!("{at}")), &new).unwrap();
    }
    // Larger than a record of the log that is written anew.
    main.write_file("/0", &vec![3; 3 << 20]).unwrap();
    main.allocate(main.resolve("/0").unwrap().ino, Fallocate::PunchHole, 4096, 1 << 20).unwrap();
    let attributes = |files: &FileSystem| -> Vec<Attributes> {
        let of = |at| files.main().lookup(Ino::ROOT, OsStr::new(&format!("{at}"))).unwrap();
        (0..7).map(of).collect()
    };
    let (expected, bytes) = (attributes(&files), main.read_file("/0").unwrap());
    drop(main);
    for compacts in [false, true, false] {
        if compacts {
            files.compact().unwrap();
        }
        drop(files);
        files = open(kept.path());
        assert_eq!(attributes(&files), expected);
        assert_eq!(files.main().read_link(expected[2].ino).unwrap(), "some/where");
        assert!(files.main().read_file("/0").unwrap() == bytes);
    }
    // Numbers are not used again.
    let new = New { content: Content::File, mode: 0, uid: 0, gid: 0 };
    let made = files.main().create(Ino::ROOT, OsStr::new("new"), &new).unwrap().ino;
    assert!(expected.iter().all(|old| old.ino < made));
}

/// A file without a name, which somebody has open, is gone when the log is read.
#[test]
fn open_files_without_names_are_gone() {
    let kept = folder();
    let files = open(kept.path());
    let main = files.main();
    main.write_file("/open", b"text").unwrap();
    let file = main.resolve("/open").unwrap().ino;
    main.keep(file).unwrap();
    main.unlink(Ino::ROOT, OsStr::new("open")).unwrap();
    main.write(file, 0, b"more").unwrap();
    main.set_xattr(file, OsStr::new("user.x"), b"1", SetXattr::Either).unwrap();
    drop((main, files));
    let files = open(kept.path());
    assert_eq!(files.main().attributes(file), Err(Error::NotFound));
    assert_eq!(files.main().usage().files, 1);
}

/// Threads that change the same few files and names, while the log is written anew: the order of
/// the log is that of the changes.
#[test]
fn log_has_the_order_of_threads() {
    let kept = folder();
    let files = open(kept.path());
    files.main().create_directories("/d").unwrap();
    let rounds = crate::rounds(4000);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u8)
            .map(|thread| {
                let files = &files;
                scope.spawn(move || {
                    let main = files.main();
                    for round in 0..rounds {
                        let name = format!("/d/{}", round % 3);
                        let other = format!("{}", (round + 1) % 3);
                        let directory = main.resolve("/d").unwrap().ino;
                        // Any of these may find that another thread was faster.
                        let _ = main.write_file(&name, &[thread; 100]);
                        let from = (directory, OsStr::new(&name[3..]));
                        match (round + u64::from(thread)) % 5 {
                            0 => drop(main.unlink(from.0, from.1)),
                            1 => drop(main.rename(
                                from,
                                (Ino::ROOT, OsStr::new(&other)),
                                Rename::Replace,
                            )),
                            2 => drop(main.rename(
                                (Ino::ROOT, OsStr::new(&other)),
                                from,
                                Rename::Exchange,
                            )),
                            3 if round % 50 == 0 => {
                                let fork = main.fork(&format!("t{thread}-{round}")).unwrap();
                                let _ = fork.write_file(&name, &[thread; 50]);
                                let _ = fork.commit();
                            }
                            _ => drop(
                                main.append(main.resolve(&name).map_or(Ino(0), |f| f.ino), b"x"),
                            ),
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                files.compact().unwrap();
            }
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        ends.store(true, Ordering::Relaxed);
    });
    let times = |files: &FileSystem| {
        let branch = files.main();
        let all = read(&branch);
        all.keys().map(|ino| branch.attributes(Ino(*ino)).unwrap()).collect::<Vec<_>>()
    };
    let expected = (state(&files), times(&files));
    files.sync().unwrap();
    drop(files);
    let files = open(kept.path());
    assert_eq!((state(&files), times(&files)), expected);
}
