//! Timers that send signals, in virtual time and in the process's own: `timer_create` and its
//! relatives, and `setitimer` for the time that the process computes. Fails if one does not do what
//! it does on real cores, or in another virtual time than it should. With the argument `thread` it
//! asks for a timer that starts a thread, which ends a simulation.

use std::{
    io::{Read, Write, pipe},
    ptr::null_mut,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;
const SIGVTALRM: i32 = 26;
const SIGPROF: i32 = 27;
const SA_SIGINFO: i32 = 4;
const REALTIME: i32 = 0;
const MONOTONIC: i32 = 1;
const SIGEV_SIGNAL: i32 = 0;
const SIGEV_NONE: i32 = 1;
const SIGEV_THREAD: i32 = 2;
const SIGEV_THREAD_ID: i32 = 4;
const TIMER_ABSTIME: i32 = 1;
const SIG_BLOCK: i32 = 0;
const SIG_UNBLOCK: i32 = 1;
const MILLISECOND: i64 = 1_000_000;

/// The kernel's `struct sigevent`.
#[repr(C)]
#[derive(Default)]
struct Event {
    value: usize,
    signal: i32,
    how: i32,
    thread: i32,
    rest: [i32; 11],
}

/// libc's `struct sigaction`.
#[repr(C)]
struct Action {
    handler: usize,
    mask: [u64; 16],
    flags: i32,
    restorer: usize,
}

/// An `itimerspec` or `itimerval`: the interval and the time to the first signal.
type Setting = [i64; 4];

unsafe extern "C" {
    fn timer_create(clock: i32, event: *const Event, timer: *mut usize) -> i32;
    fn timer_settime(timer: usize, flags: i32, new: *const Setting, old: *mut Setting) -> i32;
    fn timer_gettime(timer: usize, setting: *mut Setting) -> i32;
    fn timer_getoverrun(timer: usize) -> i32;
    fn timer_delete(timer: usize) -> i32;
    fn setitimer(which: i32, new: *const Setting, old: *mut Setting) -> i32;
    fn getitimer(which: i32, setting: *mut Setting) -> i32;
    fn sigaction(signal: i32, new: *const Action, old: *mut Action) -> i32;
    fn pthread_sigmask(how: i32, set: *const [u64; 16], old: *mut [u64; 16]) -> i32;
    fn clock_gettime(clock: i32, time: *mut [i64; 2]) -> i32;
    fn gettid() -> i32;
}

/// How many signals have come.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
/// What the last one brought.
static VALUE: AtomicUsize = AtomicUsize::new(0);
/// What all stood for beside themselves.
static OVERRUN: AtomicU64 = AtomicU64::new(0);
/// How long the next handler computes, in microseconds.
static LENGTH: AtomicU64 = AtomicU64::new(0);
/// Signals by the thread that took them.
static TAKEN: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

thread_local! {
    static PLACE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// `told` is a `siginfo_t`, in words: a timer's overrun is the sixth, its value the seventh and
/// eighth.
extern "C" fn take(_: i32, told: *const [u32; 32], _: usize) {
    // SAFETY: what the kernel gives a handler.
    let told = unsafe { &*told };
    SIGNALS.fetch_add(1, Relaxed);
    OVERRUN.fetch_add(u64::from(told[5]), Relaxed);
    VALUE.store(told[6] as usize | (told[7] as usize) << 32, Relaxed);
    TAKEN[PLACE.get()].fetch_add(1, Relaxed);
    compute(Duration::from_micros(LENGTH.swap(0, Relaxed)));
}

fn compute(length: Duration) {
    let began = Instant::now();
    while began.elapsed() < length {}
}

fn handle(signal: i32) {
    let handler = take as *const () as usize;
    let action = Action { handler, mask: [0; 16], flags: SA_SIGINFO, restorer: 0 };
    // SAFETY: a handler that touches atomics and the clock.
    assert_eq!(unsafe { sigaction(signal, &raw const action, null_mut()) }, 0);
    SIGNALS.store(0, Relaxed);
    OVERRUN.store(0, Relaxed);
}

fn timer(clock: i32, event: &Event) -> usize {
    let mut timer = 0;
    // SAFETY: an event, and room for a number.
    assert_eq!(unsafe { timer_create(clock, event, &raw mut timer) }, 0);
    timer
}

fn set(timer: usize, flags: i32, setting: Setting) {
    // SAFETY: a timer and a setting.
    assert_eq!(unsafe { timer_settime(timer, flags, &raw const setting, null_mut()) }, 0);
}

fn signals() -> u64 {
    SIGNALS.load(Relaxed)
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("thread") => {
            timer(MONOTONIC, &Event { how: SIGEV_THREAD, ..Event::default() });
        }
        _ => {
            sends_signals();
            counts_what_it_missed();
            shows_the_time_of_day();
            finds_its_thread();
            counts_what_the_process_computes();
            println!("timers: all well");
        }
    }
}

/// Every 10 ms, while a thread computes, sleeps and waits for a pipe.
fn sends_signals() {
    handle(SIGUSR1);
    let event = Event { value: 77 << 40, signal: SIGUSR1, how: SIGEV_SIGNAL, ..Event::default() };
    let timer = timer(MONOTONIC, &event);
    set(timer, 0, [0, 10 * MILLISECOND, 0, 10 * MILLISECOND]);
    let began = Instant::now();
    while signals() < 2 {}
    assert!(began.elapsed().as_micros().abs_diff(20_000) < 100, "two take {:?}", began.elapsed());
    assert_eq!(VALUE.load(Relaxed), 77 << 40);
    thread::sleep(Duration::from_millis(25));
    assert_eq!(signals(), 4, "a sleep hears them");
    let (mut reader, mut writer) = pipe().expect("a pipe");
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(30));
            writer.write_all(&[1]).expect("a reader");
        });
        reader.read_exact(&mut [0]).expect("a byte");
    });
    assert_eq!((signals(), OVERRUN.load(Relaxed)), (7, 0), "a wait and a sleep hear each once");
    let mut left = [0; 4];
    // SAFETY: a timer, and room for a setting.
    unsafe {
        assert_eq!(timer_gettime(timer, &raw mut left), 0);
        assert!(left[1] == 10 * MILLISECOND && (1..=10 * MILLISECOND).contains(&left[3]));
        assert_eq!(timer_delete(timer), 0);
        assert_eq!(timer_delete(timer), -1, "there is none");
    }
    thread::sleep(Duration::from_secs(4));
    assert_eq!(signals(), 7, "it was deleted");
}

/// A signal that is blocked, or whose handler runs, stands for all that expire until it is taken.
fn counts_what_it_missed() {
    handle(SIGUSR2);
    let mut set_of_one = [0; 16];
    set_of_one[0] = 1 << (SIGUSR2 - 1);
    let timer = timer(MONOTONIC, &Event { signal: SIGUSR2, ..Event::default() });
    LENGTH.store(3500, Relaxed);
    set(timer, 0, [0, MILLISECOND, 0, MILLISECOND]);
    while signals() < 2 {}
    set(timer, 0, [0; 4]);
    // The first handler takes 3.5 ms, in which three or four expire.
    assert!((2..=3).contains(&OVERRUN.load(Relaxed)), "{OVERRUN:?}");
    let before = signals();
    // SAFETY: sets of 128 bytes, and a timer.
    unsafe {
        assert_eq!(pthread_sigmask(SIG_BLOCK, &raw const set_of_one, null_mut()), 0);
        set(timer, 0, [0, 0, 0, MILLISECOND]);
        compute(Duration::from_millis(3));
        assert_eq!(signals(), before, "it is blocked");
        assert_eq!(pthread_sigmask(SIG_UNBLOCK, &raw const set_of_one, null_mut()), 0);
        compute(Duration::from_millis(1));
        assert_eq!(signals(), before + 1, "it has waited");
        assert_eq!(timer_getoverrun(timer), 0);
        assert_eq!(timer_delete(timer), 0);
    }
}

/// At a moment of the day; and one that sends nothing.
fn shows_the_time_of_day() {
    handle(SIGUSR1);
    let at = timer(REALTIME, &Event { signal: SIGUSR1, ..Event::default() });
    let silent = timer(MONOTONIC, &Event { how: SIGEV_NONE, ..Event::default() });
    let mut now = [0; 2];
    // SAFETY: room for a time.
    assert_eq!(unsafe { clock_gettime(REALTIME, &raw mut now) }, 0);
    set(at, TIMER_ABSTIME, [0, 0, now[0] + 2, now[1]]);
    set(silent, 0, [0, 0, 3, 0]);
    let began = Instant::now();
    thread::sleep(Duration::from_millis(1999));
    assert_eq!(signals(), 0);
    thread::sleep(Duration::from_millis(2));
    assert_eq!(signals(), 1);
    let mut left = [0; 4];
    // SAFETY: a timer, and room for a setting.
    assert_eq!(unsafe { timer_gettime(silent, &raw mut left) }, 0);
    let left = Duration::new(left[2] as u64, left[3] as u32);
    assert!((began.elapsed() + left).abs_diff(Duration::from_secs(3)) < Duration::from_micros(50));
    thread::sleep(Duration::from_secs(1));
    // SAFETY: timers.
    assert_eq!(unsafe { (timer_delete(at), timer_delete(silent)) }, (0, 0));
    assert_eq!(signals(), 1);
}

/// A signal for one thread, which computes, sleeps and waits, beside another that computes.
fn finds_its_thread() {
    handle(SIGUSR2);
    TAKEN.iter().for_each(|taken| taken.store(0, Relaxed));
    thread::scope(|scope| {
        scope.spawn(|| {
            PLACE.set(1);
            // SAFETY: asks for a number.
            let thread = unsafe { gettid() };
            let event = Event { signal: SIGUSR2, how: SIGEV_THREAD_ID, thread, ..Event::default() };
            let timer = timer(MONOTONIC, &event);
            set(timer, 0, [0, MILLISECOND, 0, MILLISECOND]);
            compute(Duration::from_millis(5));
            thread::sleep(Duration::from_millis(5));
            // SAFETY: a timer.
            assert_eq!(unsafe { timer_delete(timer) }, 0);
        });
        compute(Duration::from_millis(12));
    });
    let taken = TAKEN.each_ref().map(|taken| taken.load(Relaxed));
    assert_eq!(taken[0], 0, "for another thread");
    assert!((9..=10).contains(&taken[1]), "{taken:?}");
}

/// Two threads compute for 20 ms, a third sleeps: they have computed 40 ms.
fn counts_what_the_process_computes() {
    for (which, signal) in [(1, SIGVTALRM), (2, SIGPROF)] {
        handle(signal);
        let (every, off) = ([0, 5000, 0, 5000], [0; 4]);
        // SAFETY: a setting.
        assert_eq!(unsafe { setitimer(which, &raw const every, null_mut()) }, 0);
        thread::scope(|scope| {
            scope.spawn(|| thread::sleep(Duration::from_millis(20)));
            scope.spawn(|| compute(Duration::from_millis(20)));
            compute(Duration::from_millis(20));
        });
        let mut left = [0; 4];
        // SAFETY: settings.
        unsafe {
            assert_eq!(getitimer(which, &raw mut left), 0);
            assert_eq!(setitimer(which, &raw const off, null_mut()), 0);
        }
        assert!((7..=9).contains(&signals()), "{} in 40 ms", signals());
        assert!(left[1] == 5000 && (1..=5000).contains(&left[3]), "{left:?}");
        let before = signals();
        compute(Duration::from_millis(20));
        assert_eq!(signals(), before, "it was taken back");
    }
}
