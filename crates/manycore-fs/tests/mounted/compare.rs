//! The same random operations on the mount and on a file system of the host: each must have the
//! same result, and the trees must be equal afterwards. Branches are forked, changed, committed
//! and aborted meanwhile; the host's side copies its folder for a fork.
//!
//!     MANYCORE_SEED=1 MANYCORE_FS_OPERATIONS=99999 cargo test -p manycore-fs compare::

use crate::env;
use crate::harness::{Mount, printed};
use crate::rng::Rng;
use nix::fcntl::{AT_FDCWD, FallocateFlags, RenameFlags, fallocate, renameat2};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A branch on both sides.
struct Branch {
    name: String,
    parent: Option<usize>,
    /// How many branches have been forked from it.
    children: usize,
    host: PathBuf,
    mounted: PathBuf,
    /// How often it has been changed.
    version: u64,
    /// The version of its parent when it was forked.
    parent_version: u64,
    /// Files that are open on both sides.
    open: Vec<(File, File)>,
    ended: bool,
}

/// What an operation did, in a form that is equal on both sides.
type Outcome = Result<String, i32>;

fn outcome<T: ToString>(result: io::Result<T>) -> Outcome {
    result.map(|value| value.to_string()).map_err(|error| error.raw_os_error().unwrap_or(-1))
}

fn done(result: io::Result<()>) -> Outcome {
    outcome(result.map(|()| "done"))
}

/// A few names, so that they meet.
fn path(rng: &mut Rng) -> PathBuf {
    let depth = 1 + rng.below(3);
    (0..depth).map(|_| format!("n{}", rng.below(6))).collect()
}

fn data(rng: &mut Rng) -> Vec<u8> {
    let most = *rng.pick(&[10, 5_000, 70_000]);
    let length = rng.below(most);
    let first = rng.next() as u8;
    (0..length).map(|index| first.wrapping_add((index / 7) as u8)).collect()
}

/// Attributes that both sides must agree on.
fn shown(path: &Path) -> io::Result<String> {
    let found = fs::symlink_metadata(path)?;
    let kind = found.file_type();
    let size = if kind.is_dir() { 0 } else { found.len() };
    let links = if kind.is_dir() { 0 } else { found.nlink() };
    let target = if kind.is_symlink() { fs::read_link(path)? } else { PathBuf::new() };
    let fifo = kind.is_fifo();
    Ok(format!("{:o} {size} {links} {fifo} {}", found.mode(), target.display()))
}

/// All of a tree: names, attributes and a sum of the contents.
fn tree(top: &Path) -> io::Result<String> {
    let mut lines = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(top.join(&folder))? {
            let below = folder.join(entry?.file_name());
            let path = top.join(&below);
            let found = fs::symlink_metadata(&path)?;
            let mut line = format!("{} {}", below.display(), shown(&path)?);
            if found.is_dir() {
                folders.push(below);
            } else if found.is_file() {
                let bytes = fs::read(&path)?;
                let sum =
                    bytes.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
                line.push_str(&format!(" {sum:x}"));
            }
            lines.push(line);
        }
    }
    lines.sort();
    Ok(lines.join("\n"))
}

fn renamed(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    Ok(renameat2(AT_FDCWD, from, AT_FDCWD, to, flags)?)
}

/// One operation on one side, with the same numbers from `rng` on both.
fn operate(top: &Path, rng: &mut Rng) -> (String, Outcome) {
    let (from, to) = (path(rng), path(rng));
    let (a, b) = (top.join(&from), top.join(&to));
    let kind = rng.below(22);
    let bytes = data(rng);
    let offset = rng.below(60_000) as u64;
    let writing = || OpenOptions::new().write(true).open(&a);
    let result = match kind {
        0 => done(OpenOptions::new().write(true).create_new(true).open(&a).map(drop)),
        1 | 2 => done(fs::write(&a, &bytes)),
        3 => {
            let open = OpenOptions::new().append(true).create(true).open(&a);
            done(open.and_then(|mut file| file.write_all(&bytes)))
        }
        4 | 5 => done(writing().and_then(|file| file.write_all_at(&bytes, offset))),
        6 => done(writing().and_then(|file| file.set_len(offset))),
        7 => done(fs::rename(&a, &b)),
        8 => done(renamed(&a, &b, RenameFlags::RENAME_NOREPLACE)),
        9 => done(renamed(&a, &b, RenameFlags::RENAME_EXCHANGE)),
        10 => done(fs::hard_link(&a, &b)),
        11 => done(symlink(to.file_name().unwrap(), &a)),
        12 => done(fs::remove_file(&a)),
        13 | 14 => done(fs::create_dir(&a)),
        15 => done(fs::remove_dir(&a)),
        16 => {
            done(fs::set_permissions(&a, fs::Permissions::from_mode(0o700 | offset as u32 & 0o77)))
        }
        17 => outcome(fs::copy(&a, &b)),
        18 => {
            let how = *rng.pick(&[
                FallocateFlags::empty(),
                FallocateFlags::FALLOC_FL_KEEP_SIZE,
                FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE,
            ]);
            let allocated = writing()
                .and_then(|file| Ok(fallocate(&file, how, offset as i64, bytes.len() as i64 + 1)?));
            done(allocated)
        }
        19 => outcome(fs::read_dir(&a).map(|entries| {
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            format!("{names:?}")
        })),
        20 => outcome(fs::read(&a).map(|bytes| format!("{bytes:?}"))),
        _ => outcome(shown(&a)),
    };
    (format!("{kind}: {} {} at {offset}, {}", from.display(), to.display(), bytes.len()), result)
}

/// One operation on a file that is open, or is opened or closed.
fn operate_on_open(branch: &mut Branch, rng: &mut Rng) {
    if branch.open.len() < 4 || rng.once_in(4) {
        let name = path(rng);
        let open = |top: &Path| OpenOptions::new().read(true).write(true).open(top.join(&name));
        match (open(&branch.host), open(&branch.mounted)) {
            (Ok(host), Ok(mounted)) => branch.open.push((host, mounted)),
            (host, mounted) => {
                assert_eq!(done(host.map(drop)), done(mounted.map(drop)), "open {name:?}");
            }
        }
        if branch.open.len() > 8 {
            branch.open.swap_remove(rng.below(8));
        }
        return;
    }
    let at = rng.below(branch.open.len());
    let (host, mounted) = &branch.open[at];
    let (bytes, offset) = (data(rng), rng.below(60_000) as u64);
    if rng.once_in(2) {
        let written = |file: &File| done(file.write_all_at(&bytes, offset));
        assert_eq!(written(host), written(mounted));
    } else {
        let read = |file: &File| {
            let mut into = vec![0; bytes.len()];
            let count = file.read_at(&mut into, offset).unwrap_or(usize::MAX);
            (count, into, file.metadata().unwrap().len(), file.metadata().unwrap().nlink())
        };
        assert_eq!(read(host), read(mounted));
    }
}

/// The host's folder: in memory if there is one, as the mount is.
fn host_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

struct World {
    mount: Mount,
    host: tempfile::TempDir,
    branches: Vec<Branch>,
}

impl World {
    fn fork(&mut self, parent: usize) {
        let index = self.branches.len();
        let name = format!("b{index}");
        let from = &mut self.branches[parent];
        let host = self.host.path().join(&name);
        printed(Command::new("cp").arg("-a").arg(&from.host).arg(&host));
        self.mount.printed(&["fork", "--from", &from.name, &name]);
        from.children += 1;
        let parent_version = from.version;
        let mounted = self.mount.branch(&name, "");
        self.branches.push(Branch {
            name,
            parent: Some(parent),
            children: 0,
            host,
            mounted,
            version: 0,
            parent_version,
            open: Vec::new(),
            ended: false,
        });
        self.compare(index);
    }

    /// Commits a branch if its parent has rested, or else aborts it.
    fn end(&mut self, index: usize, rng: &mut Rng) {
        let (name, parent) = (self.branches[index].name.clone(), self.branches[index].parent);
        let parent = parent.expect("not the main branch");
        self.compare(index);
        self.branches[index].open.clear();
        let from = &self.branches[parent];
        if from.version != self.branches[index].parent_version || rng.once_in(3) {
            self.mount.printed(&["abort", &name]);
        } else {
            let to = self.branches[parent].host.clone();
            // Files that are open there would be others on the host's side.
            self.branches[parent].open.clear();
            self.mount.printed(&["commit", &name]);
            fs::remove_dir_all(&to).unwrap();
            fs::rename(&self.branches[index].host, &to).unwrap();
            self.branches[parent].version += 1;
            self.compare(parent);
        }
        self.branches[index].ended = true;
        self.branches[parent].children -= 1;
    }

    #[track_caller]
    fn compare(&self, index: usize) {
        let branch = &self.branches[index];
        let (host, mounted) = (tree(&branch.host).unwrap(), tree(&branch.mounted).unwrap());
        if host != mounted {
            let only = |of: &str, other: &str| {
                let lines = of.lines().filter(|line| !other.lines().any(|there| there == *line));
                lines.collect::<Vec<_>>().join("\n  ")
            };
            let (ours, theirs) = (only(&mounted, &host), only(&host, &mounted));
            panic!(
                "branch {}: only mounted:\n  {ours}\nonly on the host:\n  {theirs}",
                branch.name
            );
        }
    }
}

#[test]
fn random_operations_have_the_results_of_the_host() {
    let Some(mount) = Mount::new() else { return };
    let seed = env::seed();
    println!("MANYCORE_SEED={seed:#x}");
    let operations = env::number("MANYCORE_FS_OPERATIONS").unwrap_or(3_000) as usize;
    let mut rng = Rng::new(seed);
    let host = host_folder();
    let main = Branch {
        name: "main".into(),
        parent: None,
        children: 0,
        host: host.path().join("main"),
        mounted: mount.point.clone(),
        version: 0,
        parent_version: 0,
        open: Vec::new(),
        ended: false,
    };
    fs::create_dir(&main.host).unwrap();
    let mut world = World { mount, host, branches: vec![main] };
    for step in 0..env::rounds(operations) {
        let alive: Vec<usize> =
            (0..world.branches.len()).filter(|index| !world.branches[*index].ended).collect();
        let index = *rng.pick(&alive);
        if rng.once_in(200) && alive.len() < 6 {
            world.fork(index);
            continue;
        }
        if rng.once_in(200) && index != 0 && world.branches[index].children == 0 {
            world.end(index, &mut rng);
            continue;
        }
        if rng.once_in(500) {
            world.compare(index);
        }
        let branch = &mut world.branches[index];
        // While a child is there, the parent mostly rests, so that commits come about.
        if branch.children > 0 && !rng.once_in(20) {
            continue;
        }
        branch.version += 1;
        if rng.once_in(5) {
            operate_on_open(branch, &mut rng);
            continue;
        }
        let numbers = rng.next();
        let (what, on_host) = operate(&branch.host, &mut Rng::new(numbers));
        let (_, on_mount) = operate(&branch.mounted, &mut Rng::new(numbers));
        assert!(
            on_host == on_mount,
            "step {step}, branch {}, {what}: the host {on_host:?}, the mount {on_mount:?}",
            branch.name
        );
    }
    for index in 0..world.branches.len() {
        if !world.branches[index].ended {
            world.compare(index);
        }
    }
}
