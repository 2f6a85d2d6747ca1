use super::NAMED;
use crate::{Content, FileSystem, Ino, New};
use std::ffi::OsStr;

/// Another thread finds a new name before the record of it is in the log. It changes the file after
/// that record, or the log would change a file that is not there yet (journal.J1).
#[test]
fn new_file_is_changed_after_it_is_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let open = || FileSystem::builder().keep(folder.path()).build();
    let files = open().unwrap();
    let other = files.main();
    let find_and_write = move || {
        let file = other.lookup(Ino::ROOT, OsStr::new("new")).unwrap().ino;
        let section = other.core.domain.enter();
        let is_locked = other.files(&section).get(file).unwrap().is_locked();
        drop(section);
        // It would wait for this lock.
        if !is_locked {
            other.write(file, 0, b"text").unwrap();
        }
    };
    let hook = || std::thread::spawn(find_and_write).join().unwrap();
    NAMED.set(Some(Box::new(hook)));
    let new = New { content: Content::File, mode: 0o600, uid: 0, gid: 0 };
    files.main().create(Ino::ROOT, OsStr::new("new"), &new).unwrap();
    assert!(NAMED.take().is_none(), "it ran");
    files.sync().unwrap();
    drop(files);
    let files = open().unwrap_or_else(|error| panic!("{error}"));
    assert!(files.main().resolve("/new").is_ok());
}
