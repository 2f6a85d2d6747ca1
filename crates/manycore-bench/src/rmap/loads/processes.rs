//! Real processes, files and pipes of Linux, for the loads.
//!
//! Owns: [`Processes`], and the calls of the C library behind it.
//!
//! The measured data lies in memory that all processes share. The processes are made by `clone`
//! with `CLONE_VM`, so the reverse map, the library's own memory and the result are the parent's.
//! Such a process has its own number, its own descriptors and an end that is waited for. Page
//! tables are not copied, as with `vfork` and `posix_spawn`.
//!
//! Invariants:
//!
//! - processes.P1 A parent does not run until its child has ended or has become another program
//!   (`CLONE_VFORK`). The child may therefore use what belongs to its parent alone: thread-locals,
//!   and what the closure borrows.
//! - processes.P2 A child runs on a stack that no other process has, with a page below it that must
//!   not be touched. It does not unwind out of its function.

use std::{
    array,
    ffi::{CStr, c_int, c_void},
    fs::{self, File, OpenOptions},
    io::{self, Error, PipeReader, PipeWriter, Read, Seek, SeekFrom, Write},
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

use super::unix::{BLOCK, LETTER, NAMES, Name, Program, Unix};

/// Bytes of a process's stack, and of the page below it.
const STACK: usize = 256 * 1024;
const GUARD: usize = 4096;

/// The stack of a process.
struct Stack(NonNull<c_void>);

impl Stack {
    fn new() -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let kind = kind | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: new memory, at a place that the kernel chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), STACK + GUARD, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let stack = NonNull::new(start).map(Self).ok_or_else(Error::last_os_error)?;
        // SAFETY: the first page of what was mapped above; nothing refers to it.
        match unsafe { libc::mprotect(start, GUARD, libc::PROT_NONE) } {
            0 => Ok(stack),
            _ => Err(Error::last_os_error()),
        }
    }

    /// Its end, where a stack begins.
    fn top(&self) -> *mut c_void {
        self.0.as_ptr().wrapping_byte_add(STACK + GUARD)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; the process that ran there has been waited for (P1).
        unsafe { libc::munmap(self.0.as_ptr(), STACK + GUARD) };
    }
}

/// What a child begins with: it calls the closure, and ends with 1 if that panics.
extern "C" fn begin<F: FnOnce()>(run: *mut c_void) -> c_int {
    // SAFETY: `run` made it of an `Option<F>` that lives until the child is waited for, and uses
    // it no more until then (P1).
    let run = unsafe { &mut *run.cast::<Option<F>>() };
    let run = run.take().expect("a process begins once");
    c_int::from(panic::catch_unwind(AssertUnwindSafe(run)).is_err())
}

/// Runs `run` in a process on that stack, until the process ends; what it ended with.
fn run<F: FnOnce()>(stack: &Stack, run: F) -> io::Result<c_int> {
    let mut run = Some(run);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = (&raw mut run).cast::<c_void>();
    // SAFETY: the stack is the child's alone (P2): a process that it makes takes another one. It
    // shares this thread's memory and thread-locals while this thread waits (P1), and what it is
    // given lives until then.
    let child = unsafe { libc::clone(begin::<F>, stack.top(), flags, argument) };
    if child < 0 {
        return Err(Error::last_os_error());
    }
    let mut status = 0;
    loop {
        // SAFETY: the status is ours.
        match unsafe { libc::waitpid(child, &raw mut status, 0) } {
            -1 if Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(Error::last_os_error()),
            _ => return Ok(status),
        }
    }
}

/// Becomes another program; returns only if that fails, and then ends.
fn become_program(program: Program) -> ! {
    let arguments: &[&CStr] = match program {
        Program::Nothing => &[c"true"],
        Program::Shell => &[c"sh", c"-c", c"true"],
    };
    let mut pointers = [ptr::null(); 4];
    for (pointer, argument) in pointers.iter_mut().zip(arguments) {
        *pointer = argument.as_ptr();
    }
    // SAFETY: strings that end with 0, and a null pointer after the last.
    unsafe {
        libc::execvp(pointers[0], pointers.as_ptr());
        libc::_exit(127);
    }
}

/// A folder of a user's own, in memory where there is such a file system.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let within = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        // ORDER: Relaxed; numbers that differ are all that is asked.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = within.join(format!("manycore-bench-{}-{number}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left behind.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A user with real processes and files.
pub(crate) struct Processes {
    paths: [PathBuf; NAMES],
    _folder: Folder,
    pipe: (PipeReader, PipeWriter),
    /// Those that no process has.
    stacks: Vec<Stack>,
}

impl Processes {
    fn try_new() -> io::Result<Self> {
        let folder = Folder::new()?;
        let paths = ["spool", "mailbox", "scratch"].map(|name| folder.0.join(name));
        Ok(Self { paths, _folder: folder, pipe: io::pipe()?, stacks: Vec::new() })
    }

    /// Runs `first` in a process, which then becomes a program if one is named.
    fn child<T>(&mut self, program: Option<Program>, first: impl FnOnce(&mut Self) -> T) -> T {
        let unused = self.stacks.pop();
        let stack = unused.unwrap_or_else(|| Stack::new().expect("memory for a process's stack"));
        let mut result = None;
        let ended = run(&stack, || {
            result = Some(first(self));
            if let Some(program) = program {
                become_program(program);
            }
        });
        self.stacks.push(stack);
        let status = ended.expect("the system makes a process");
        assert!(status == 0, "a process ended with the status {status:#x}");
        result.expect("a process that ended well has a result")
    }
}

fn open(path: &Path, options: &mut OpenOptions) -> File {
    options.open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Unix for Processes {
    /// The kernel's work is done by the kernel.
    const MAPPING: u64 = 0;

    fn new(_: usize) -> Self {
        Self::try_new().expect("a folder for files, and a pipe")
    }

    fn process<T>(&mut self, run: impl FnOnce(&mut Self) -> T) -> T {
        self.child(None, run)
    }

    fn execute<T>(&mut self, program: Program, run: impl FnOnce(&mut Self) -> T) -> T {
        self.child(Some(program), run)
    }

    fn write(&mut self, name: Name, block: &[u8; BLOCK]) {
        let path = &self.paths[name as usize];
        let mut file = open(path, OpenOptions::new().create(true).truncate(true).write(true));
        file.write_all(block).expect("a file takes a block");
    }

    fn append(&mut self, name: Name, block: &[u8; BLOCK]) {
        let mut file = open(&self.paths[name as usize], OpenOptions::new().append(true));
        file.write_all(block).expect("a file takes a block");
    }

    fn read_last(&mut self, name: Name) -> [u8; BLOCK] {
        let mut file = open(&self.paths[name as usize], OpenOptions::new().read(true));
        file.seek(SeekFrom::End(-(BLOCK as i64))).expect("a file has a block at least");
        let mut block = [0; BLOCK];
        file.read_exact(&mut block).expect("a file has a block at least");
        block
    }

    fn remove(&mut self, name: Name) {
        let path = &self.paths[name as usize];
        fs::remove_file(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    fn through_pipe(&mut self, letter: &[u8; LETTER]) -> [u8; LETTER] {
        self.pipe.1.write_all(letter).expect("a pipe takes a letter");
        let mut there = array::from_fn(|_| 0);
        self.pipe.0.read_exact(&mut there).expect("a pipe gives it back");
        there
    }
}

#[cfg(test)]
mod tests {
    use std::{panic, process};

    use super::{
        super::unix::{BLOCK, LETTER, Name, Program, Unix},
        Processes,
    };

    #[test]
    fn child_is_a_process_of_its_own_that_shares_memory() {
        let mut user = Processes::new(0);
        let mut seen = Vec::new();
        let numbers = user.process(|user| {
            seen.push(process::id());
            let inner = user.process(|_| process::id());
            [process::id(), inner]
        });
        assert_eq!(seen, [numbers[0]]);
        assert!(numbers[0] != process::id() && numbers[1] != numbers[0], "{numbers:?}");
    }

    #[test]
    fn file_of_a_child_is_its_parents_too() {
        let mut user = Processes::new(0);
        user.process(|user| user.write(Name::Spool, &[7; BLOCK]));
        user.append(Name::Spool, &[8; BLOCK]);
        assert_eq!(user.process(|user| user.read_last(Name::Spool)), [8; BLOCK]);
        let there = user.process(|user| user.through_pipe(&[9; LETTER]));
        assert_eq!(there, [9; LETTER]);
        let folder = user.paths[0].parent().expect("files are in a folder").to_owned();
        user.remove(Name::Spool);
        assert!(folder.is_dir() && !user.paths[0].exists());
        drop(user);
        assert!(!folder.exists());
    }

    #[test]
    fn process_that_panics_or_becomes_nothing_is_told() {
        let mut user = Processes::new(0);
        let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            user.process(|user| user.process(|_| panic!("planted")));
        }));
        panicked.unwrap_err();
        assert_eq!(user.process(|_| 5), 5);
        assert_eq!(user.execute(Program::Nothing, |_| 6), 6);
        assert_eq!(user.execute(Program::Shell, |_| 7), 7);
    }
}
