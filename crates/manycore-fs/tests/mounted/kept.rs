//! Mounts with `--keep`: what is there after the end of the daemon, in whatever way it ends.
//!
//! `MANYCORE_FS_KILLS=1000` kills so many daemons instead of a few.

use crate::env;
use crate::harness::{
    Mount, command, is_alive, kill, output, printed, refusal, skipped, text, wait_until,
};
use crate::rng::Rng;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

struct Kept(TempDir);

impl Kept {
    fn new() -> Kept {
        Kept(tempfile::tempdir().expect("a folder"))
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("kept")
    }

    fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    #[track_caller]
    fn mount(&self) -> Option<Mount> {
        Mount::with(&["--keep", self.folder().to_str().unwrap()])
    }
}

#[track_caller]
fn end(mount: Mount, signal: &str) {
    kill(mount.daemon, signal);
    wait_until("the daemon ends", || !is_alive(mount.daemon));
}

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn all_branches_are_there_after_each_end() {
    let kept = Kept::new();
    let Some(mount) = kept.mount() else { return };
    fs::write(mount.path("file"), "main").unwrap();
    mount.printed(&["fork", "try"]);
    fs::write(mount.branch("try", "file"), "try").unwrap();
    fs::create_dir(mount.branch("try", "directory")).unwrap();
    printed(command(["unmount"]).arg(&mount.point));
    wait_until("the daemon ends", || !is_alive(mount.daemon));
    for signal in ["TERM", "KILL", "INT"] {
        let mount = kept.mount().unwrap();
        assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "main");
        assert_eq!(mount.printed(&["diff", "try"]), "A d directory\nM f file\n");
        fs::write(mount.path("last"), signal).unwrap();
        if signal == "KILL" {
            mount.printed(&["sync"]);
        }
        end(mount, signal);
    }
    let mount = kept.mount().unwrap();
    assert_eq!(fs::read_to_string(mount.path("last")).unwrap(), "INT");
    mount.printed(&["commit", "try"]);
    sync(&mount.point);
    end(mount, "KILL");
    let mount = kept.mount().unwrap();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "try");
    assert_eq!(mount.printed(&["list"]).lines().count(), 1);
}

#[test]
fn folder_serves_one_mount_at_a_time() {
    let kept = Kept::new();
    let Some(mount) = kept.mount() else { return };
    let other = mount.beside("other");
    fs::create_dir(&other).unwrap();
    let again = |point: &Path| {
        let mut again = command(["mount", "--keep"]);
        again.arg(kept.folder()).arg(point);
        again
    };
    let refused = refusal(&mut again(&other));
    assert!(refused.contains("another file system is kept here"), "{refused}");
    let within = refusal(command(["mount", "--keep"]).arg(other.join("kept")).arg(&other));
    assert!(within.contains("keep the branches elsewhere"), "{within}");
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0, "a refused command makes no folder");
}

#[test]
fn wrong_folder_is_named_and_stays_as_it_is() {
    let kept = Kept::new();
    let place = kept.0.path().join("point");
    fs::create_dir(&place).unwrap();
    let below = |path: &str| kept.0.path().join(path);
    fs::write(below("file"), "text").unwrap();
    fs::create_dir(below("other")).unwrap();
    fs::write(below("other/text"), "text").unwrap();
    for (folder, log) in [("junk", &b"junk"[..]), ("newer", b"mcfslog2"), ("empty", b"")] {
        fs::create_dir(below(folder)).unwrap();
        fs::write(below(folder).join("log"), log).unwrap();
    }
    for (path, words) in [
        ("file", "file: is not a directory"),
        ("file/below", "file/below: Not a directory"),
        ("other", "other: has other files: name a folder for this"),
        ("junk", "junk/log at offset 0: this is no log of manycore-fs; nothing was changed"),
        ("newer", "newer/log at offset 0: the log is of another version of manycore-fs"),
        ("empty", "empty/log at offset 0: this is no log of manycore-fs"),
        ("missing/../kept", "there is no such directory to go up from"),
    ] {
        let refused = refusal(command(["mount", "--keep"]).arg(below(path)).arg(&place));
        assert!(refused.contains(words), "{refused}");
        assert!(refused.contains(kept.0.path().to_str().unwrap()), "{refused}");
    }
    assert_eq!(fs::read_dir(below("other")).unwrap().count(), 1);
    assert_eq!(fs::read(below("junk/log")).unwrap(), b"junk");
    assert_eq!(fs::read_dir(kept.0.path()).unwrap().count(), 6);
}

#[test]
fn torn_tail_is_said_and_damage_is_refused() {
    let kept = Kept::new();
    let Some(mount) = kept.mount() else { return };
    fs::write(mount.path("file"), [1; 10_000]).unwrap();
    sync(&mount.path("file"));
    let middle = fs::metadata(kept.log()).unwrap().len() as usize - 5000;
    fs::write(mount.path("other"), [2; 10_000]).unwrap();
    sync(&mount.path("other"));
    end(mount, "TERM");
    let whole = fs::read(kept.log()).unwrap();
    fs::write(kept.log(), [&whole[..], &[7; 1000]].concat()).unwrap();
    let place = kept.0.path().join("point");
    fs::create_dir(&place).unwrap();
    let mut mount = command(["mount", "--keep"]);
    let done = output(mount.arg(kept.folder()).arg(&place));
    let said = text(&done.stderr);
    assert!(done.status.success() && said.lines().count() == 1, "{said}");
    assert!(said.contains(&format!("1000 bytes at offset {}", whole.len())), "{said}");
    printed(command(["unmount"]).arg(&place));
    let mut damaged = whole.clone();
    damaged[middle] ^= 1;
    wait_until("it can be written", || fs::write(kept.log(), &damaged).is_ok());
    let mut refused = String::new();
    wait_until("the last daemon has ended", || {
        refused = refusal(command(["mount", "--keep"]).arg(kept.folder()).arg(&place));
        !refused.contains("is kept here")
    });
    assert!(refused.contains("at offset") && refused.contains("nothing was changed"), "{refused}");
    assert!(fs::read(kept.log()).unwrap() == damaged);
}

/// Threads write, some with `fsync`; the daemon is killed at any moment; a new one has all that was
/// synchronized, and of what was not, what came before something that is there.
#[test]
fn killed_daemon_loses_nothing_that_was_synchronized() {
    let kept = Kept::new();
    let kills = env::number("MANYCORE_FS_KILLS").unwrap_or(4);
    let mut rng = Rng::new(env::seed());
    let mut synced = [0; 3];
    for round in 0.. {
        let Some(mount) = kept.mount() else { return };
        for (thread, synced) in synced.iter().enumerate() {
            check(&mount, thread, *synced);
        }
        // On a busy machine, some daemons do not live until the first file.
        if round >= kills && synced.iter().all(|count| *count > 0) {
            break;
        }
        assert!(round < kills + 100, "nothing was synchronized: {synced:?}");
        // Nothing synchronizes a fork: it is made again if the kill came before the first `fsync`.
        if !mount.branch("side", "").exists() {
            mount.printed(&["fork", "side"]);
        }
        let counts: [AtomicU64; 3] = std::array::from_fn(|at| AtomicU64::new(synced[at]));
        let moment = Duration::from_micros(rng.below(200_000) as u64);
        thread::scope(|scope| {
            for (thread, count) in counts.iter().enumerate() {
                let mount = &mount;
                scope.spawn(move || load(mount, thread, count));
            }
            thread::sleep(moment);
            kill(mount.daemon, "KILL");
        });
        wait_until("the daemon is gone", || !is_alive(mount.daemon));
        synced = counts.map(AtomicU64::into_inner);
        let _ = output(command(["unmount", "--lazy"]).arg(&mount.point));
    }
}

/// Where a thread writes: one of them in another branch, in turns with main.
fn place(mount: &Mount, thread: usize, number: u64, name: &str) -> PathBuf {
    let name = format!("{name}-{thread}-{number}");
    if thread == 2 && number % 2 == 1 { mount.branch("side", name) } else { mount.path(name) }
}

fn content(thread: usize, number: u64) -> Vec<u8> {
    let byte = (thread as u64 * 7 + number) as u8;
    vec![byte; 1 + (number * 977 % 9000) as usize]
}

/// Makes a file after the other, each in three steps, until the daemon is gone. Every fifth is
/// synchronized, and counted then.
fn load(mount: &Mount, thread: usize, synced: &AtomicU64) {
    let step = |number: u64| -> std::io::Result<()> {
        let (new, named) =
            (place(mount, thread, number, "new"), place(mount, thread, number, "file"));
        let mut file = File::create(&new)?;
        file.write_all(&content(thread, number))?;
        fs::rename(&new, &named)?;
        if number % 5 == 4 {
            file.sync_data()?;
            synced.store(number + 1, Ordering::Relaxed);
        }
        Ok(())
    };
    let first = synced.load(Ordering::Relaxed);
    // What the last daemon had beyond that is made again.
    (first..).take_while(|number| step(*number).is_ok()).for_each(drop);
}

#[track_caller]
fn check(mount: &Mount, thread: usize, synced: u64) {
    let mut number = 0;
    loop {
        match fs::read(place(mount, thread, number, "file")) {
            Ok(bytes) => assert!(bytes == content(thread, number), "{thread} {number}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                break;
            }
        }
        number += 1;
    }
    assert!(number >= synced, "thread {thread} has synchronized {synced}, and {number} are there");
    // No later change without this one.
    for later in number + 1..number + 20 {
        let path = place(mount, thread, later, "file");
        assert!(!path.exists(), "{thread}: {number} is not there, but {later} is");
    }
}

#[test]
fn full_disk_refuses_changes_and_loses_nothing() {
    let kept = Kept::new();
    let mut small = Command::new("mount");
    small.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(kept.0.path());
    if !small.output().is_ok_and(|done| done.status.success()) {
        return skipped("no small disk can be mounted");
    }
    full_disk(&kept);
    printed(Command::new("umount").arg("-l").arg(kept.0.path()));
}

fn full_disk(kept: &Kept) {
    let ballast = kept.0.path().join("ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let Some(mount) = kept.mount() else { return };
    let mut count = 0;
    let write = |count: u32| -> std::io::Result<()> {
        let mut file = File::create(mount.path(format!("file{count}")))?;
        file.write_all(&[count as u8; 50_000])?;
        file.sync_all()
    };
    let error = loop {
        match write(count) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!((10..60).contains(&count), "{count}");
    // Reading goes on, and changes are refused before they begin.
    assert_eq!(fs::read(mount.path("file0")).unwrap(), [0; 50_000]);
    assert_eq!(File::create(mount.path("more")).unwrap_err().kind(), ErrorKind::StorageFull);
    let refused = refusal(command(["unmount"]).arg(&mount.point));
    assert!(refused.contains("the log can't be written: No space left"), "{refused}");
    assert!(refused.contains("stays mounted"), "{refused}");
    fs::remove_file(&ballast).unwrap();
    write(count).unwrap();
    count += 1;
    end(mount, "KILL");
    let mount = kept.mount().unwrap();
    for at in 0..count {
        let bytes = fs::read(mount.path(format!("file{at}"))).unwrap();
        assert!(bytes == [at as u8; 50_000], "{at}");
    }
    assert!(!mount.path("more").exists());
}
