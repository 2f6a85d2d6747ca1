//! libc's own locks, condition variables, semaphores, barriers and pipes, as C code uses them;
//! fails if one of them does not do what it does on real cores. With `pipe` it reads from a pipe
//! without a writer, and with `itself` a thread waits for a mutex that it holds. With `mutex`,
//! `std`, `rwlock`, `spin` or `semaphore` it measures that lock, round a short critical section on
//! each core.

use std::{
    cell::UnsafeCell,
    ffi::{c_int, c_void},
    io::{Read, Write, pipe},
    os::fd::FromRawFd,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

unsafe extern "C" {
    fn syscall(number: std::ffi::c_long, ...) -> std::ffi::c_long;
    fn get_nprocs() -> c_int;
    fn get_nprocs_conf() -> c_int;
    fn open(path: *const c_void, flags: c_int, ...) -> c_int;
    fn fopen(path: *const c_void, mode: *const c_void) -> *mut c_void;
    fn fread(to: *mut c_void, size: usize, count: usize, file: *mut c_void) -> usize;
    fn fclose(file: *mut c_void) -> c_int;
    fn pthread_mutex_lock(mutex: *mut c_void) -> c_int;
    fn pthread_mutex_unlock(mutex: *mut c_void) -> c_int;
    fn pthread_cond_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int;
    fn pthread_cond_timedwait(
        condition: *mut c_void,
        mutex: *mut c_void,
        time: *const [u64; 2],
    ) -> c_int;
    fn pthread_cond_broadcast(condition: *mut c_void) -> c_int;
    fn pthread_cond_destroy(condition: *mut c_void) -> c_int;
    fn pthread_mutex_trylock(mutex: *mut c_void) -> c_int;
    fn pthread_rwlock_rdlock(lock: *mut c_void) -> c_int;
    fn pthread_rwlock_wrlock(lock: *mut c_void) -> c_int;
    fn pthread_rwlock_unlock(lock: *mut c_void) -> c_int;
    fn sem_init(semaphore: *mut c_void, shared: c_int, value: u32) -> c_int;
    fn sem_wait(semaphore: *mut c_void) -> c_int;
    fn sem_post(semaphore: *mut c_void) -> c_int;
    fn pthread_barrier_init(barrier: *mut c_void, attributes: *mut c_void, count: u32) -> c_int;
    fn pthread_barrier_wait(barrier: *mut c_void) -> c_int;
    fn pthread_barrier_destroy(barrier: *mut c_void) -> c_int;
    fn pthread_mutex_timedlock(mutex: *mut c_void, time: *const [u64; 2]) -> c_int;
    fn pthread_mutex_init(mutex: *mut c_void, attributes: *const c_void) -> c_int;
    fn pthread_mutexattr_init(attributes: *mut c_void) -> c_int;
    fn pthread_mutexattr_settype(attributes: *mut c_void, kind: c_int) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut c_void, time: *const [u64; 2]) -> c_int;
    fn pthread_spin_init(lock: *mut c_void, shared: c_int) -> c_int;
    fn pthread_spin_lock(lock: *mut c_void) -> c_int;
    fn pthread_spin_unlock(lock: *mut c_void) -> c_int;
    fn pthread_once(control: *mut c_void, function: extern "C" fn()) -> c_int;
    fn sem_timedwait(semaphore: *mut c_void, time: *const [u64; 2]) -> c_int;
    fn mtx_init(mutex: *mut c_void, kind: c_int) -> c_int;
    fn mtx_lock(mutex: *mut c_void) -> c_int;
    fn mtx_trylock(mutex: *mut c_void) -> c_int;
    fn mtx_unlock(mutex: *mut c_void) -> c_int;
    fn cnd_wait(condition: *mut c_void, mutex: *mut c_void) -> c_int;
    fn cnd_signal(condition: *mut c_void) -> c_int;
    fn thrd_create(
        handle: *mut usize,
        start: extern "C" fn(*mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn thrd_join(handle: usize, result: *mut c_int) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut [u64; 2]) -> c_int;
    fn getrandom(buffer: *mut u8, bytes: usize, flags: u32) -> isize;
    fn sched_getaffinity(thread: c_int, bytes: usize, mask: *mut u8) -> c_int;
    fn sched_setaffinity(thread: c_int, bytes: usize, mask: *const u8) -> c_int;
}

const ROUNDS: u64 = 20;
const EBUSY: c_int = 16;
const EDEADLK: c_int = 35;
const ETIMEDOUT: c_int = 110;
/// The kinds of mutexes.
const RECURSIVE: c_int = 1;
const ERROR_CHECKING: c_int = 2;

/// Any of libc's objects: zeroed is how its macros initialize them; with what they guard.
#[repr(align(64))]
struct Shared {
    object: UnsafeCell<[u64; 8]>,
    condition: UnsafeCell<[u64; 8]>,
    value: UnsafeCell<u64>,
}

// SAFETY: the objects are libc's, made to be shared; the value is touched under them alone.
unsafe impl Sync for Shared {}

impl Shared {
    const fn new() -> Self {
        Self {
            object: UnsafeCell::new([0; 8]),
            condition: UnsafeCell::new([0; 8]),
            value: UnsafeCell::new(0),
        }
    }

    fn object(&self) -> *mut c_void {
        self.object.get().cast()
    }

    fn condition(&self) -> *mut c_void {
        self.condition.get().cast()
    }
}

fn main() {
    let cores = thread::available_parallelism().expect("a number of cores").get() as u64;
    match std::env::args().nth(1).as_deref() {
        Some("pipe") => waits_at_a_pipe(),
        Some("itself") => waits_for_itself(),
        Some(lock) => {
            let each = std::env::args().nth(2).map_or(1000, |each| each.parse().expect("a number"));
            measures(lock, cores, each);
        }
        None => {
            takes_turns(cores);
            times_out();
            destroys_after_the_last_wake_up();
            reads_and_writes(cores);
            posts();
            excludes_in_time(cores);
            knows_the_kinds_of_mutexes();
            stops_waiting();
            meets_at_a_barrier(cores);
            runs_once(cores);
            uses_the_names_of_c11();
            sends_through_a_pipe();
            takes_null_for_no_bytes();
            shows_the_virtual_machine(cores);
            println!("{cores} cores: all well");
        }
    }
}

/// The cores are counted in files, by libc, and by number; and a processor has the model's name.
fn shows_the_virtual_machine(cores: u64) {
    if !manycore_sim::is_simulated() {
        return;
    }
    let read = |path: &str| std::fs::read_to_string(path).expect(path);
    for list in ["online", "possible", "present"] {
        let expected = if cores == 1 { "0\n".to_owned() } else { format!("0-{}\n", cores - 1) };
        assert_eq!(read(&format!("/sys/devices/system/cpu/{list}")), expected, "{list}");
    }
    let folder = std::fs::read_dir("/sys/devices/system/cpu").expect("a folder");
    let names = folder.map(|entry| entry.expect("a file").file_name().into_string().expect("text"));
    let is_core = |name: &String| name[3..].bytes().all(|byte| byte.is_ascii_digit());
    assert_eq!(names.filter(is_core).count() as u64, cores);
    let info = read("/proc/cpuinfo");
    let lines = |name: &str| info.lines().filter(|line| line.starts_with(name)).count() as u64;
    assert_eq!([lines("processor"), lines("core id")], [cores; 2]);
    let name = info.lines().find_map(|line| line.strip_prefix("model name\t: ")).expect("a name");
    assert!(name.ends_with("(manycore sim)"), "{name}");
    let brand: Vec<u8> = (0x8000_0002..=0x8000_0004_u32)
        .flat_map(|leaf| {
            let part = std::arch::x86_64::__cpuid(leaf);
            [part.eax, part.ebx, part.ecx, part.edx].map(u32::to_le_bytes).concat()
        })
        .take_while(|byte| *byte != 0)
        .collect();
    assert_eq!(String::from_utf8_lossy(&brand), name);
    // SAFETY: the functions take no arguments.
    assert_eq!(unsafe { [get_nprocs(), get_nprocs_conf()] }, [cores as c_int; 2]);

    let busy = || -> (u64, Vec<u64>) {
        let text = read("/proc/stat");
        let times = |line: &str| line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let cores: Vec<Vec<u64>> =
            text.lines().filter(|line| line.starts_with("cpu")).map(times).collect();
        (cores.len() as u64 - 1, cores[0].clone())
    };
    let (count, before) = busy();
    assert_eq!(count, cores);
    thread::sleep(Duration::from_millis(100));
    let (_, after) = busy();
    let (computed, idle) = (after[0] - before[0], after[3] - before[3]);
    assert!((cores * 10 - 1..=cores * 10 + 1).contains(&(computed + idle)), "{before:?} {after:?}");
    assert!(computed <= 1, "{computed} hundredths of a second, in a sleep");

    // As C code reads files, and as crates without libc do.
    let mut first = [0; 16];
    // SAFETY: the texts end in zero bytes, the buffer has 16 bytes, and the files are closed once.
    unsafe {
        let file = fopen(c"/proc/cpuinfo".as_ptr().cast(), c"r".as_ptr().cast());
        assert_eq!(fread(first.as_mut_ptr().cast(), 1, 16, file), 16);
        fclose(file);
        assert_eq!(&first[..], &info.as_bytes()[..16]);
        const OPENAT: std::ffi::c_long = 257;
        const HERE: c_int = -100;
        let path = c"/sys/devices/system/cpu/online";
        let file = syscall(OPENAT, HERE, path.as_ptr(), 0, 0);
        let mut online = std::fs::File::from_raw_fd(file as c_int);
        let mut text = String::new();
        online.read_to_string(&mut text).expect("a file");
        assert_eq!(text, read("/sys/devices/system/cpu/online"));
        assert_eq!(open(c"/proc/self/cgroup".as_ptr().cast(), 0), -1);
    }
    assert_eq!(std::io::Error::last_os_error().kind(), std::io::ErrorKind::NotFound);
}

/// As the kernel does: crates ask so whether `getrandom` is there.
fn takes_null_for_no_bytes() {
    let (out, mask) = (std::ptr::null_mut(), std::ptr::null());
    // SAFETY: no byte is read or written.
    unsafe {
        assert_eq!(getrandom(out, 0, 0), 0);
        assert_eq!(sched_getaffinity(0, 0, out), -1, "EINVAL");
        assert_eq!(sched_setaffinity(0, 0, mask), -1, "EINVAL");
    }
}

/// Each thread waits until it is its turn, under one condition variable.
fn takes_turns(threads: u64) {
    let shared = Shared::new();
    thread::scope(|scope| {
        for mine in 0..threads {
            let shared = &shared;
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    // SAFETY: a zeroed mutex and condition variable; the value is under the mutex.
                    unsafe {
                        pthread_mutex_lock(shared.object());
                        while *shared.value.get() % threads != mine {
                            assert_eq!(pthread_cond_wait(shared.condition(), shared.object()), 0);
                        }
                        *shared.value.get() += 1;
                        pthread_cond_broadcast(shared.condition());
                        pthread_mutex_unlock(shared.object());
                    }
                }
            });
        }
    });
    assert_eq!(shared.value.into_inner(), threads * ROUNDS);
}

fn times_out() {
    let shared = Shared::new();
    let mut time = [0; 2];
    // SAFETY: a zeroed mutex and condition variable, and a timespec of our own.
    unsafe {
        clock_gettime(0, &raw mut time);
        time[0] += 1;
        pthread_mutex_lock(shared.object());
        let answer = pthread_cond_timedwait(shared.condition(), shared.object(), &raw const time);
        assert_eq!(answer, ETIMEDOUT);
        pthread_mutex_unlock(shared.object());
    }
}

/// The condition variable's memory is used again at once. Whether a waiter that was woken has not
/// yet looked at it depends on the machine's costs: this may pass where destroying does not wait.
fn destroys_after_the_last_wake_up() {
    let (shared, ready) = (&Shared::new(), &AtomicBool::new(false));
    // SAFETY: zeroed, and not shared yet. This makes the line this thread's.
    unsafe { (*shared.condition.get())[7] = 1 };
    thread::scope(|scope| {
        // SAFETY: a zeroed mutex and condition variable; a waiter may be woken once without reason.
        scope.spawn(move || unsafe {
            pthread_mutex_lock(shared.object());
            ready.store(true, Ordering::Release);
            assert_eq!(pthread_cond_wait(shared.condition(), shared.object()), 0);
            pthread_mutex_unlock(shared.object());
        });
        while !ready.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the same mutex and condition variable; the memory of one that is destroyed may be
        // written.
        unsafe {
            while pthread_mutex_trylock(shared.object()) != 0 {
                std::hint::spin_loop();
            }
            pthread_cond_broadcast(shared.condition());
            pthread_mutex_unlock(shared.object());
            assert_eq!(pthread_cond_destroy(shared.condition()), 0);
            shared.condition.get().write_volatile([0; 8]);
        }
    });
}

fn reads_and_writes(threads: u64) {
    let shared = Shared::new();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    // SAFETY: a zeroed lock; the value is read and written under it.
                    unsafe {
                        pthread_rwlock_rdlock(shared.object());
                        assert!(*shared.value.get() < threads * ROUNDS);
                        pthread_rwlock_unlock(shared.object());
                        pthread_rwlock_wrlock(shared.object());
                        *shared.value.get() += 1;
                        pthread_rwlock_unlock(shared.object());
                    }
                }
            });
        }
    });
    assert_eq!(shared.value.into_inner(), threads * ROUNDS);
}

fn posts() {
    let shared = Shared::new();
    // SAFETY: a semaphore fits, and is initialized before it is shared.
    unsafe { sem_init(shared.object(), 0, 0) };
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_micros(50));
            // SAFETY: the semaphore above.
            unsafe { sem_post(shared.object()) };
        });
        // SAFETY: the semaphore above.
        assert_eq!(unsafe { sem_wait(shared.object()) }, 0);
    });
}

/// More than a pipe holds.
fn sends_through_a_pipe() {
    let (mut reader, mut writer) = pipe().expect("a pipe");
    let sent = vec![7_u8; 200_000];
    let length = sent.len();
    let other = thread::spawn(move || writer.write_all(&sent).expect("a reader"));
    let mut received = Vec::new();
    reader.read_to_end(&mut received).expect("a pipe");
    other.join().expect("no panic");
    assert_eq!(received, vec![7; length]);
}

/// A lock that is held for a time keeps the others out for that time, in virtual time as well.
fn excludes_in_time(threads: u64) {
    /// How long each holder keeps the lock, in nanoseconds.
    const HELD: u128 = 2000;
    type Call = unsafe extern "C" fn(*mut c_void) -> c_int;
    let locks: [(Call, Call); 3] = [
        (pthread_mutex_lock, pthread_mutex_unlock),
        (pthread_rwlock_wrlock, pthread_rwlock_unlock),
        (pthread_spin_lock, pthread_spin_unlock),
    ];
    for (lock, unlock) in locks {
        let shared = Shared::new();
        if std::ptr::fn_addr_eq(lock, pthread_spin_lock as Call) {
            // SAFETY: it fits, and is not shared yet.
            unsafe { pthread_spin_init(shared.object(), 0) };
        }
        let began = Instant::now();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        // SAFETY: an initialized lock; the value is under it.
                        unsafe {
                            assert_eq!(lock(shared.object()), 0);
                            let held = Instant::now();
                            *shared.value.get() += 1;
                            while held.elapsed().as_nanos() < HELD {}
                            assert_eq!(unlock(shared.object()), 0);
                        }
                    }
                });
            }
        });
        assert_eq!(shared.value.into_inner(), threads * ROUNDS);
        assert!(began.elapsed().as_nanos() >= HELD * u128::from(threads * ROUNDS));
    }
}

fn knows_the_kinds_of_mutexes() {
    let mut attributes = [0_u64; 8];
    let attributes = (&raw mut attributes).cast::<c_void>();
    let mutex = |kind| {
        let shared = Shared::new();
        // SAFETY: attributes and mutex fit, and are not shared yet.
        unsafe {
            pthread_mutexattr_init(attributes);
            assert_eq!(pthread_mutexattr_settype(attributes, kind), 0);
            assert_eq!(pthread_mutex_init(shared.object(), attributes), 0);
        }
        shared
    };
    let (checking, recursive) = (&mutex(ERROR_CHECKING), &mutex(RECURSIVE));
    // SAFETY: the two mutexes above.
    unsafe {
        assert_eq!(pthread_mutex_lock(checking.object()), 0);
        assert_eq!(pthread_mutex_lock(checking.object()), EDEADLK);
        assert_eq!(pthread_mutex_lock(recursive.object()), 0);
        assert_eq!(pthread_mutex_lock(recursive.object()), 0);
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                assert_eq!(pthread_mutex_trylock(checking.object()), EBUSY);
                assert_eq!(pthread_mutex_lock(recursive.object()), 0);
                *recursive.value.get() += 1;
                assert_eq!(pthread_mutex_unlock(recursive.object()), 0);
            });
            assert_eq!(pthread_mutex_unlock(recursive.object()), 0);
            thread::sleep(Duration::from_micros(50));
            assert_eq!(*recursive.value.get(), 0, "it is held until the last release");
            assert_eq!(pthread_mutex_unlock(recursive.object()), 0);
            other.join().expect("no panic");
        });
        assert_eq!(pthread_mutex_unlock(checking.object()), 0);
    }
}

/// A wait with a time ends then, and the object works afterwards.
fn stops_waiting() {
    let (mutex, lock, semaphore) = (&Shared::new(), &Shared::new(), &Shared::new());
    let mut time = [0; 2];
    // SAFETY: zeroed, and the semaphore is initialized before it is shared.
    unsafe {
        sem_init(semaphore.object(), 0, 0);
        clock_gettime(0, &raw mut time);
        time[1] += 100_000;
        pthread_mutex_lock(mutex.object());
        pthread_rwlock_rdlock(lock.object());
    }
    let other = move || {
        // SAFETY: the objects above, and a timespec.
        unsafe {
            assert_eq!(pthread_mutex_timedlock(mutex.object(), &raw const time), ETIMEDOUT);
            assert_eq!(pthread_rwlock_timedwrlock(lock.object(), &raw const time), ETIMEDOUT);
            assert_eq!(sem_timedwait(semaphore.object(), &raw const time), -1);
        }
    };
    thread::scope(|scope| scope.spawn(other).join().expect("no panic"));
    // SAFETY: the objects above, which this thread holds.
    unsafe {
        pthread_mutex_unlock(mutex.object());
        pthread_rwlock_unlock(lock.object());
        sem_post(semaphore.object());
        assert_eq!(pthread_mutex_timedlock(mutex.object(), &raw const time), 0);
        assert_eq!(pthread_rwlock_timedwrlock(lock.object(), &raw const time), 0);
        assert_eq!(sem_timedwait(semaphore.object(), &raw const time), 0);
    }
}

/// Each round ends when all have come; one thread of each is told so.
fn meets_at_a_barrier(threads: u64) {
    let (shared, come) = (Shared::new(), AtomicU32::new(0));
    let told = AtomicU32::new(0);
    // SAFETY: a barrier fits, and is initialized before it is shared.
    unsafe { pthread_barrier_init(shared.object(), std::ptr::null_mut(), threads as u32) };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for round in 1..=ROUNDS as u32 {
                    come.fetch_add(1, Ordering::SeqCst);
                    // SAFETY: the barrier above.
                    let answer = unsafe { pthread_barrier_wait(shared.object()) };
                    assert!(come.load(Ordering::SeqCst) >= round * threads as u32);
                    told.fetch_add(u32::from(answer != 0), Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(told.into_inner(), ROUNDS as u32);
    // SAFETY: no thread is at the barrier.
    assert_eq!(unsafe { pthread_barrier_destroy(shared.object()) }, 0);
}

fn runs_once(threads: u64) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn run() {
        thread::sleep(Duration::from_micros(20));
        RUNS.fetch_add(1, Ordering::SeqCst);
    }
    let shared = Shared::new();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                // SAFETY: zeroed, as its macro initializes it.
                assert_eq!(unsafe { pthread_once(shared.object(), run) }, 0);
                assert_eq!(RUNS.load(Ordering::SeqCst), 1, "nobody goes on before it has run");
            });
        }
    });
}

fn uses_the_names_of_c11() {
    extern "C" fn other(shared: *mut c_void) -> c_int {
        // SAFETY: the creator waits for this thread.
        let shared = unsafe { &*shared.cast::<Shared>() };
        // SAFETY: the mutex is initialized, the condition variable zeroed; the value is under the
        // mutex.
        unsafe {
            assert_eq!(mtx_lock(shared.object()), 0);
            *shared.value.get() = 1;
            assert_eq!(cnd_signal(shared.condition()), 0);
            assert_eq!(mtx_unlock(shared.object()), 0);
        }
        -7
    }
    let shared = Shared::new();
    let (mut handle, mut result) = (0, 0);
    // SAFETY: as in `other`; the handle and the result are this thread's.
    unsafe {
        assert_eq!(mtx_init(shared.object(), 0), 0);
        assert_eq!(mtx_lock(shared.object()), 0);
        assert_eq!(mtx_trylock(shared.object()), 1, "busy");
        let argument = (&raw const shared).cast_mut().cast();
        assert_eq!(thrd_create(&raw mut handle, other, argument), 0);
        while *shared.value.get() == 0 {
            assert_eq!(cnd_wait(shared.condition(), shared.object()), 0);
        }
        assert_eq!(mtx_unlock(shared.object()), 0);
        assert_eq!(thrd_join(handle, &raw mut result), 0);
    }
    assert_eq!(result, -7);
}

/// Each core takes the lock again and again, for a short critical section.
fn measures(lock: &str, threads: u64, each: u64) {
    let (shared, own) = (&Shared::new(), &Mutex::new(0_u64));
    // SAFETY: each object fits and is initialized before it is shared; the value is under the lock.
    let round: &(dyn Fn() + Sync) = unsafe {
        match lock {
            "mutex" => &|| {
                pthread_mutex_lock(shared.object());
                *shared.value.get() += 1;
                pthread_mutex_unlock(shared.object());
            },
            "rwlock" => &|| {
                pthread_rwlock_wrlock(shared.object());
                *shared.value.get() += 1;
                pthread_rwlock_unlock(shared.object());
            },
            "spin" => {
                pthread_spin_init(shared.object(), 0);
                &|| {
                    pthread_spin_lock(shared.object());
                    *shared.value.get() += 1;
                    pthread_spin_unlock(shared.object());
                }
            }
            "semaphore" => {
                sem_init(shared.object(), 0, 1);
                &|| {
                    sem_wait(shared.object());
                    *shared.value.get() += 1;
                    sem_post(shared.object());
                }
            }
            "std" => &|| *own.lock().expect("no panic") += 1,
            _ => panic!("no lock '{lock}'"),
        }
    };
    manycore_sim::measured(|| {
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..each).for_each(|_| round()));
            }
        });
        manycore_sim::operations(threads * each);
    });
}

/// A deadlock of one thread: the run says so.
fn waits_for_itself() {
    let shared = Shared::new();
    // SAFETY: a zeroed mutex.
    unsafe {
        pthread_mutex_lock(shared.object());
        pthread_mutex_lock(shared.object());
    }
}

fn waits_at_a_pipe() {
    let (mut reader, _writer) = pipe().expect("a pipe");
    reader.read_exact(&mut [0]).expect("a byte");
}
