//! Paths of `manycore-fs`: what all threads do to one directory and one file of a branch.

use std::{ffi::OsStr, hint::black_box, ops::ControlFlow};

use manycore_fs::{Branch, FileSystem, Ino};

use super::on_all_cores;

/// Runs the path of this name; returns false if there is none.
pub(super) fn run(path: &str) -> bool {
    let act: fn(&Branch, Ino) = match path {
        "fs-lookup" => |branch, _| _ = black_box(branch.lookup(Ino::ROOT, OsStr::new("file"))),
        "fs-attributes" => |branch, file| _ = black_box(branch.attributes(file)),
        "fs-read" => |branch, file| {
            let mut bytes = [0; 64];
            black_box(branch.read(file, 4096, &mut bytes).expect("it has bytes there"));
        },
        "fs-list" => |branch, _| {
            let mut count = 0;
            let each = &mut |_: manycore_fs::Entry<'_>| {
                count += 1;
                ControlFlow::Continue(())
            };
            branch.read_directory(Ino::ROOT, 0, each).expect("a directory");
            black_box(count);
        },
        _ => return false,
    };
    // A branch, so that some of what is read is shared with its parent.
    let main = FileSystem::new().main();
    main.write_file("/other", b"of the parent").expect("there is memory");
    let branch = main.fork("branch").expect("the name is free");
    branch.write_file("/file", &[7; 8192]).expect("there is memory");
    let file = branch.resolve("/file").expect("it was made").ino;
    on_all_cores(|| act(&branch, file));
    true
}
