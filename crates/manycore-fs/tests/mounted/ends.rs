//! Ends of a mount: by command, by signal, by force, and by death of the daemon.

use crate::harness::{Mount, command, is_alive, is_mounted, kill, printed, refusal, wait_until};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::process::Command;

#[test]
fn unmount_ends_the_daemon() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "text").unwrap();
    assert!(is_mounted(&mount.point) && is_alive(mount.daemon));
    printed(command(["unmount"]).arg(&mount.point));
    assert!(!is_mounted(&mount.point));
    wait_until("the daemon ends", || !is_alive(mount.daemon));
    assert_eq!(fs::read_dir(&mount.point).unwrap().count(), 0);
    let refused = refusal(command(["unmount"]).arg(&mount.point));
    assert!(refused.contains("is not in a mount of manycore-fs"), "{refused}");
}

#[test]
fn busy_mount_is_unmounted_only_lazily() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "text").unwrap();
    let file = File::open(mount.path("file")).unwrap();
    let refused = refusal(command(["unmount"]).arg(&mount.point));
    assert!(refused.contains("is busy") && refused.contains("--lazy"), "{refused}");
    printed(command(["unmount", "--lazy"]).arg(&mount.point));
    assert!(!is_mounted(&mount.point) && is_alive(mount.daemon));
    // The open file goes on.
    assert_eq!(std::io::read_to_string(&file).unwrap(), "text");
    drop(file);
    wait_until("the daemon ends", || !is_alive(mount.daemon));
}

#[test]
fn others_may_unmount() {
    for words in [&["umount"][..], &["umount", "-l"]] {
        let Some(mount) = Mount::new() else { return };
        printed(Command::new(words[0]).args(&words[1..]).arg(&mount.point));
        wait_until("the daemon ends", || !is_alive(mount.daemon));
    }
}

#[test]
fn signal_unmounts() {
    for signal in ["TERM", "INT"] {
        let Some(mount) = Mount::new() else { return };
        kill(mount.daemon, signal);
        wait_until("the daemon ends", || !is_alive(mount.daemon));
        assert!(!is_mounted(&mount.point));
    }
}

#[test]
fn signal_detaches_a_busy_mount_and_a_second_one_ends_it() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), vec![1; 100_000]).unwrap();
    let file = File::open(mount.path("file")).unwrap();
    kill(mount.daemon, "TERM");
    wait_until("it is detached", || !is_mounted(&mount.point));
    assert!(is_alive(mount.daemon));
    kill(mount.daemon, "TERM");
    wait_until("the daemon ends", || !is_alive(mount.daemon));
    let error = file.set_len(7).unwrap_err();
    assert!(!error.to_string().is_empty(), "and nobody hangs");
}

#[test]
fn killed_daemon_hangs_nobody_and_its_mount_is_cleared_away() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), vec![1; 100_000]).unwrap();
    let reader = std::thread::spawn({
        let path = mount.path("file");
        move || {
            // Until the end of the daemon, at the latest.
            while fs::write(&path, vec![1; 100_000]).is_ok() {}
        }
    });
    kill(mount.daemon, "KILL");
    wait_until("the daemon is gone", || !is_alive(mount.daemon));
    reader.join().unwrap();
    // What the kernel knows it may still say; this it has to ask.
    let error = File::create(mount.path("another")).unwrap_err();
    // The other if the request was queued before the kernel ended the last of the daemon.
    let ended = [ErrorKind::NotConnected, ErrorKind::ConnectionAborted];
    assert!(ended.contains(&error.kind()), "{error:?}");
    let refused = refusal(command(["list", "--mount"]).arg(&mount.point));
    assert!(refused.contains("has ended") && refused.contains("manycore-fs unmount"), "{refused}");
    let refused = refusal(command(["mount"]).arg(&mount.point));
    assert!(refused.contains("has ended"), "{refused}");
    printed(command(["unmount"]).arg(&mount.point));
    assert!(!is_mounted(&mount.point));
    printed(command(["mount"]).arg(&mount.point));
    printed(command(["unmount"]).arg(&mount.point));
}

#[test]
fn foreground_lasts_as_long_as_the_mount() {
    // To see whether it is possible at all.
    let Some(other) = Mount::new() else { return };
    let point = other.beside("second");
    fs::create_dir(&point).unwrap();
    let mut child =
        command(["mount", "--foreground", "--threads", "1"]).arg(&point).spawn().unwrap();
    wait_until("it is mounted", || is_mounted(&point));
    fs::write(point.join("file"), "text").unwrap();
    assert!(child.try_wait().unwrap().is_none());
    printed(command(["unmount"]).arg(&point));
    assert!(child.wait().unwrap().success());
}
