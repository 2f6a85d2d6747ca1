//! What a process leaves that is killed between any two instructions.
//!
//! The child records on three threads, and says after each event in memory that the parent sees
//! which events are done. Each must be in the file, unless it was overwritten, and none be wrong.

use crate::{TEST, Temporary};
use manycore_trace::{Recorder, Trace, Value, event};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const THREADS: usize = 3;
/// Where the child's files are.
const FOLDER: &str = "MANYCORE_TRACE_CRASH";

/// Words in a file that both processes map.
fn shared(path: &Path) -> &'static [AtomicU64] {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.expect("a file");
    file.set_len(4096).expect("a page");
    // SAFETY: a new mapping of a file that has a page and keeps it; it is never unmapped.
    unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let start =
            libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert!(start != libc::MAP_FAILED, "no memory");
        std::slice::from_raw_parts(start.cast(), 512)
    }
}

fn mix(n: u64, thread: u8) -> u64 {
    (n ^ u64::from(thread) << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Records until it is killed.
fn child(folder: &Path) -> ! {
    let done = shared(&folder.join("done"));
    let recorder = Recorder::new().ring_bytes(1 << 15).block_bytes(1 << 12);
    let recording = recorder.file(folder.join("trace")).start().expect("a recording");
    std::mem::forget(recording);
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u8 {
            scope.spawn(move || {
                for n in 0.. {
                    let text = &"abcdefghijklmnopqrstuvwxyz"[..(n % 27) as usize];
                    event!(
                        TEST,
                        Step { thread: u8, n: u64, text: &str, mix: u64 = mix(n, thread) }
                    );
                    // After the event, also for the compiler.
                    done[64 * usize::from(thread)].store(n + 1, Ordering::Release);
                }
            });
        }
    });
    unreachable!("the threads go on for ever")
}

fn spawn(folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "crash::events_of_a_killed_process_are_read", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child")
}

/// What the file holds, against what the child said was done.
fn check(folder: &Path, done: &[AtomicU64]) -> u64 {
    let mut trace = Trace::open(folder.join("trace")).expect("a recording");
    let mut merge = trace.merge();
    let mut next: [Option<u64>; THREADS] = [None; THREADS];
    let mut last = (0, 0, 0);
    while let Some(record) = merge.next() {
        let key = (record.time, record.slot, record.sequence);
        assert!(last < key, "{last:?} before {key:?}");
        last = key;
        let values: Vec<Value> = record.fields().map(|(_, value)| value).collect();
        let [
            Value::Unsigned(thread),
            Value::Unsigned(n),
            Value::Text(text),
            Value::Unsigned(mixed),
        ] = &values[..]
        else {
            panic!("{record}")
        };
        assert_eq!(*mixed, mix(*n, *thread as u8), "{record} is wrong");
        assert_eq!(text.as_str(), &"abcdefghijklmnopqrstuvwxyz"[..(n % 27) as usize]);
        assert_eq!(record.sequence, *n, "{record} is not at its place");
        let next = &mut next[*thread as usize];
        assert_eq!(next.unwrap_or(*n), *n, "{record}: one is missing before it");
        *next = Some(n + 1);
    }
    let account = merge.into_account();
    assert!(account.is_closed(), "{account}");
    for (thread, next) in next.iter().enumerate() {
        let done = done[64 * thread].load(Ordering::Acquire);
        assert!(next.unwrap_or(0) >= done, "thread {thread}: {done} were done, {next:?} are there");
    }
    account.merged
}

/// `MANYCORE_KILLS=10000` kills as often.
#[test]
fn events_of_a_killed_process_are_read() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        child(Path::new(&folder));
    }
    let kills = std::env::var("MANYCORE_KILLS").map_or(60, |text| text.parse().expect("a number"));
    let folder = Temporary::new("crash");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut random = Instant::now().elapsed().as_nanos() as u64 | u64::from(std::process::id());
    println!("seed {random:#x}");
    let mut events = 0;
    for _ in 0..kills {
        let done = shared(&folder.as_ref().join("done"));
        (0..THREADS).for_each(|thread| done[64 * thread].store(0, Ordering::Relaxed));
        let mut child = spawn(folder.as_ref());
        let begin = Instant::now();
        while (0..THREADS).all(|thread| done[64 * thread].load(Ordering::Relaxed) == 0) {
            assert!(begin.elapsed() < Duration::from_secs(60), "the child records nothing");
            std::thread::sleep(Duration::from_micros(50));
        }
        random = mix(random, 1) ^ random >> 29;
        std::thread::sleep(Duration::from_micros(random % 4000));
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        events += check(folder.as_ref(), done);
        // SAFETY: the mapping of this round, which is not used any more.
        unsafe { libc::munmap(done.as_ptr().cast_mut().cast(), 4096) };
    }
    println!("{kills} kills, {events} events read");
    let _ = std::fs::remove_dir_all(&folder);
}
