//! Ordinary work with files.

use crate::harness::Mount;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::thread;

#[test]
fn files_and_directories_are_made_read_renamed_and_removed() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir_all(mount.path("a/b/c")).unwrap();
    fs::write(mount.path("a/b/c/file"), "text").unwrap();
    assert_eq!(fs::read_to_string(mount.path("a/b/c/file")).unwrap(), "text");
    fs::rename(mount.path("a/b"), mount.path("moved")).unwrap();
    assert_eq!(fs::read_to_string(mount.path("moved/c/file")).unwrap(), "text");
    assert_eq!(fs::metadata(mount.path("a/b")).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(fs::remove_dir(mount.path("moved")).is_err(), "it is not empty");
    fs::remove_dir_all(mount.path("moved")).unwrap();
    let names: Vec<_> =
        fs::read_dir(&mount.point).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn links_of_both_kinds_work() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("file"), "one").unwrap();
    fs::hard_link(mount.path("file"), mount.path("again")).unwrap();
    assert_eq!(fs::metadata(mount.path("file")).unwrap().nlink(), 2);
    fs::write(mount.path("again"), "two").unwrap();
    assert_eq!(fs::read_to_string(mount.path("file")).unwrap(), "two");
    fs::remove_file(mount.path("file")).unwrap();
    assert_eq!(fs::metadata(mount.path("again")).unwrap().nlink(), 1);
    symlink("again", mount.path("link")).unwrap();
    assert_eq!(fs::read_to_string(mount.path("link")).unwrap(), "two");
    assert_eq!(fs::read_link(mount.path("link")).unwrap().to_str(), Some("again"));
}

#[test]
fn large_file_is_written_cut_and_extended() {
    let Some(mount) = Mount::new() else { return };
    let bytes: Vec<u8> = (0..5_000_003_u32).map(|i| (i * 31 % 251) as u8).collect();
    fs::write(mount.path("large"), &bytes).unwrap();
    assert!(fs::read(mount.path("large")).unwrap() == bytes);
    let file = OpenOptions::new().read(true).write(true).open(mount.path("large")).unwrap();
    file.set_len(1_000_001).unwrap();
    file.set_len(2_000_000).unwrap();
    let mut expected = bytes[..1_000_001].to_vec();
    expected.resize(2_000_000, 0);
    file.write_at(b"patch", 999_999).unwrap();
    expected[999_999..1_000_004].copy_from_slice(b"patch");
    assert!(fs::read(mount.path("large")).unwrap() == expected);
    file.write_at(b"end", 10_000_000_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10_000_000_003);
    assert!(file.metadata().unwrap().blocks() < 10_000, "the hole takes no memory");
}

#[test]
fn file_is_usable_after_its_name_is_gone() {
    let Some(mount) = Mount::new() else { return };
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).open(mount.path("gone")).unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(mount.path("gone")).unwrap();
    file.write_all(b" after").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before after");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

#[test]
fn appends_of_several_threads_lose_nothing() {
    let Some(mount) = Mount::new() else { return };
    thread::scope(|scope| {
        for thread in 0..4 {
            let path = mount.path("log");
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for line in 0..200 {
                    file.write_all(format!("{thread} {line:05}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let text = fs::read_to_string(mount.path("log")).unwrap();
    for thread in 0..4 {
        let prefix = format!("{thread} ");
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with(&prefix)).collect();
        assert_eq!(lines.len(), 200);
        assert!(lines.is_sorted());
    }
}

#[test]
fn permissions_owners_and_times_are_kept() {
    let Some(mount) = Mount::new() else { return };
    let path = mount.path("file");
    OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640 & !umask());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4755);
    let then = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    let file = File::open(&path).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(then).set_accessed(then)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), then);
    assert_eq!(fs::metadata(&path).unwrap().accessed().unwrap(), then);
}

/// The mask of this process, which no call returns without changing it.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    u32::from_str_radix(line.trim(), 8).unwrap()
}

#[test]
fn directory_of_many_entries_is_listed_whole() {
    let Some(mount) = Mount::new() else { return };
    fs::create_dir(mount.path("many")).unwrap();
    for number in 0..3000 {
        File::create(mount.path(format!("many/a name of some length {number}"))).unwrap();
    }
    let list = || {
        let entries = fs::read_dir(mount.path("many")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.dedup();
        names.len()
    };
    assert_eq!(list(), 3000);
    // From the kernel's cache, and after changes.
    assert_eq!(list(), 3000);
    fs::remove_file(mount.path("many/a name of some length 7")).unwrap();
    assert_eq!(list(), 2999);
    File::create(mount.path("many/another")).unwrap();
    assert_eq!(list(), 3000);
    assert_eq!(fs::metadata(mount.path("many")).unwrap().nlink(), 2);
}

#[test]
fn program_in_the_mount_is_executed() {
    let Some(mount) = Mount::new() else { return };
    fs::write(mount.path("script"), "#!/bin/sh\necho it runs\n").unwrap();
    fs::set_permissions(mount.path("script"), fs::Permissions::from_mode(0o755)).unwrap();
    let output = std::process::Command::new(mount.path("script")).output().unwrap();
    assert_eq!(output.stdout, b"it runs\n");
    let copied = fs::copy("/bin/true", mount.path("program")).unwrap();
    assert_eq!(copied, fs::metadata("/bin/true").unwrap().len());
    assert!(std::process::Command::new(mount.path("program")).status().unwrap().success());
}

#[test]
fn memory_limit_is_an_error_and_not_the_end() {
    let Some(mount) = Mount::with(&["--memory", "4M"]) else { return };
    let error = fs::write(mount.path("much"), vec![1; 8 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    fs::remove_file(mount.path("much")).unwrap();
    fs::write(mount.path("less"), vec![1; 2 << 20]).unwrap();
}

#[test]
fn extended_attributes_are_kept_unless_they_are_refused() {
    let Some(mount) = Mount::new() else { return };
    let file = File::create(mount.path("file")).unwrap();
    fsetxattr(&file, "user.colour", b"green", XattrFlags::CREATE).unwrap();
    let mut value = [0; 16];
    let length = fgetxattr(&file, "user.colour", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"green");
    assert_eq!(fgetxattr(&file, "user.none", &mut value[..]), Err(Errno::NODATA));
    fremovexattr(&file, "user.colour").unwrap();
    assert_eq!(fgetxattr(&file, "user.colour", &mut value[..]), Err(Errno::NODATA));

    let Some(mount) = Mount::with(&["--no-xattrs"]) else { return };
    let file = File::create(mount.path("file")).unwrap();
    let set = fsetxattr(&file, "user.colour", b"green", XattrFlags::CREATE);
    assert_eq!(set, Err(Errno::OPNOTSUPP));
    fs::write(mount.path("file"), "text").unwrap();
}
