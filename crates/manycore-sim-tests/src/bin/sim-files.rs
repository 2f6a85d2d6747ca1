//! What waits for files and processes, as std's programs do it: sockets, pipes, time-outs,
//! children. Fails if one of them does not do what it does on real cores, or in another virtual
//! time than it should. With an argument it waits for what never comes: `pipe`, `pause`. With `day`
//! it prints the date.

use std::{
    io::{ErrorKind, Read, Write, pipe},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

const CLIENTS: usize = 6;
const ROUNDS: usize = 20;
/// The seconds of a day.
const DAY: u64 = 86_400;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("pipe") => waits_at_a_pipe(),
        Some("pause") => pauses(),
        Some("day") => println!("{} days since 1970", seconds() / DAY),
        Some("children") => {
            reads_the_output_of_children();
            times_out_while_a_child_runs();
            handles_signals_of_a_child();
            begins_today();
            println!("children: all well");
        }
        _ => {
            echoes_over_tcp();
            reads_exactly_from_a_local_stream();
            connects_to_a_local_listener();
            sends_more_than_a_socket_holds();
            receives_datagrams();
            times_out_in_virtual_time();
            polls_and_selects();
            expires_timers();
            rings_alarms();
            println!("files: all well");
        }
    }
}

/// Each client sends and receives in turn; the server has a thread for each.
fn echoes_over_tcp() {
    let listener = TcpListener::bind("localhost:0").expect("an address");
    let address = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CLIENTS {
                let (mut stream, _) = listener.accept().expect("a client");
                scope.spawn(move || {
                    let mut buffer = [0; 64];
                    loop {
                        let bytes = stream.read(&mut buffer).expect("a stream");
                        if bytes == 0 {
                            break;
                        }
                        stream.write_all(&buffer[..bytes]).expect("a reader");
                    }
                });
            }
        });
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(address).expect("a server");
                stream.set_nodelay(true).expect("an option");
                for round in 0..ROUNDS {
                    let sent = [client as u8, round as u8, 3, 4];
                    stream.write_all(&sent).expect("a server");
                    let mut received = [0; 4];
                    stream.read_exact(&mut received).expect("a server");
                    assert_eq!(received, sent);
                }
            });
        }
    });
}

fn reads_exactly_from_a_local_stream() {
    let (mut one, mut other) = UnixStream::pair().expect("two streams");
    thread::scope(|scope| {
        scope.spawn(move || {
            for part in 0..8_u8 {
                thread::sleep(Duration::from_micros(20));
                one.write_all(&[part; 100]).expect("a reader");
            }
        });
        let mut whole = [0; 800];
        other.read_exact(&mut whole).expect("a writer");
        assert_eq!(whole[799], 7);
        assert_eq!(other.read(&mut whole).expect("an end"), 0);
    });
}

/// More at a time than the listener lets wait.
fn connects_to_a_local_listener() {
    let folder = std::env::temp_dir().join("sim-files-000");
    let listener = UnixListener::bind(&folder).expect("a path");
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut stream = UnixStream::connect(&folder).expect("a server");
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a server");
            });
        }
        for _ in 0..CLIENTS {
            thread::sleep(Duration::from_micros(100));
            listener.accept().expect("a client").0.write_all(&[1]).expect("a client");
        }
    });
    std::fs::remove_file(folder).expect("the path");
}

fn sends_more_than_a_socket_holds() {
    let (mut one, mut other) = UnixStream::pair().expect("two streams");
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| number as u8).collect();
    let expected = sent.clone();
    thread::scope(|scope| {
        scope.spawn(move || one.write_all(&sent).expect("a reader"));
        let mut received = Vec::new();
        other.read_to_end(&mut received).expect("a writer");
        assert!(received == expected, "bytes are lost, or in another order");
    });
}

fn receives_datagrams() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("an address");
    let address = socket.local_addr().expect("an address");
    thread::scope(|scope| {
        scope.spawn(move || {
            let other = UdpSocket::bind("127.0.0.1:0").expect("an address");
            thread::sleep(Duration::from_millis(1));
            other.send_to(b"datagram", address).expect("a reader");
        });
        let mut buffer = [0; 100];
        assert_eq!(socket.recv_from(&mut buffer).expect("a datagram").0, 8);
    });
}

/// An hour passes at once, for nothing outside can end the wait.
fn times_out_in_virtual_time() {
    let (mut one, _other) = UnixStream::pair().expect("two streams");
    let hour = Duration::from_secs(3600);
    one.set_read_timeout(Some(hour)).expect("a time-out");
    let began = Instant::now();
    let error = one.read(&mut [0]).expect_err("no bytes come");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    // SAFETY: takes a number.
    assert_eq!(unsafe { sleep(60) }, 0);
    let took = began.elapsed() - Duration::from_secs(60);
    assert!(took >= hour && took < hour + Duration::from_millis(1), "took {took:?}");
}

unsafe extern "C" {
    fn poll(polls: *mut [i32; 2], count: u64, time: i32) -> i32;
    fn select(count: i32, read: *mut u64, write: *mut u64, other: *mut u64, time: *mut u64) -> i32;
    fn timerfd_create(clock: i32, flags: i32) -> i32;
    fn timerfd_settime(file: i32, flags: i32, new: *const [i64; 4], old: *mut [i64; 4]) -> i32;
    fn read(file: i32, to: *mut u64, bytes: usize) -> isize;
    fn close(file: i32) -> i32;
    fn pause() -> i32;
    fn sleep(seconds: u32) -> u32;
    fn signal(signal: i32, handler: extern "C" fn(i32)) -> usize;
    fn setitimer(which: i32, new: *const [i64; 4], old: *mut [i64; 4]) -> i32;
    fn alarm(seconds: u32) -> u32;
}

const POLLIN: i32 = 1;

fn polls_and_selects() {
    let (one, mut other) = UnixStream::pair().expect("two streams");
    let (file, delay) = (one.as_raw_fd(), Duration::from_micros(300));
    let mut entry = [file, POLLIN];
    // SAFETY: one entry.
    assert_eq!(unsafe { poll(&raw mut entry, 1, 5) }, 0, "the time is over");
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(delay);
            other.write_all(&[1]).expect("a reader");
            other
        });
        // SAFETY: one entry; a set large enough for the file.
        unsafe {
            assert_eq!(poll(&raw mut entry, 1, -1), 1);
            let mut set = [0_u64; 16];
            set[file as usize / 64] |= 1 << (file % 64);
            let null = std::ptr::null_mut();
            assert_eq!(select(file + 1, set.as_mut_ptr(), null, null, null), 1);
        }
    });
    assert!(began.elapsed() >= delay && began.elapsed() < 2 * delay, "{:?}", began.elapsed());
}

/// Three times a millisecond, by a timer that is a file.
fn expires_timers() {
    let began = Instant::now();
    // SAFETY: timers of our own, a setting, and room for eight bytes.
    unsafe {
        let file = timerfd_create(1, 0);
        let millisecond = [0, 1_000_000, 0, 1_000_000];
        assert_eq!(timerfd_settime(file, 0, &raw const millisecond, std::ptr::null_mut()), 0);
        for _ in 0..3 {
            let mut times = 0;
            assert_eq!(read(file, &raw mut times, 8), 8);
            assert_eq!(times, 1);
        }
        assert_eq!(close(file), 0);
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(3) && took < Duration::from_millis(4), "{took:?}");
}

/// The host's date, which a child process reads, unless midnight has just passed.
fn begins_today() {
    if !manycore_sim::is_simulated() {
        return;
    }
    let output = Command::new("date").args(["-u", "+%s"]).output().expect("a child");
    let host: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    let today = host / DAY;
    assert!((today - 1..=today).contains(&(seconds() / DAY)), "{} on {today}", seconds() / DAY);
}

/// The seconds since 1970.
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn reads_the_output_of_children() {
    thread::scope(|scope| {
        for child in 0..3 {
            scope.spawn(move || {
                let script =
                    format!("sleep 0.0{child}; echo {child}; echo error >&2; exit {child}");
                let output = Command::new("sh").args(["-c", &script]).output().expect("a child");
                assert_eq!(output.stdout, format!("{child}\n").as_bytes());
                assert_eq!(output.stderr, b"error\n");
                assert_eq!(output.status.code(), Some(child));
            });
        }
    });
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
    let (mut to, mut from) =
        (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
    let mut received = String::new();
    thread::scope(|scope| {
        scope.spawn(move || to.write_all(&[b'x'; 300_000]).expect("a reader"));
        from.read_to_string(&mut received).expect("text");
    });
    assert_eq!(received.len(), 300_000);
    assert!(child.wait().expect("a child").success());
}

/// While a child runs, virtual time passes no sooner than real time.
fn times_out_while_a_child_runs() {
    let mut child = Command::new("sleep").arg("0.2").spawn().expect("a child");
    let (mut one, _other) = UnixStream::pair().expect("two streams");
    one.set_read_timeout(Some(Duration::from_millis(20))).expect("a time-out");
    let mut looks = 0;
    while child.try_wait().expect("a child").is_none() {
        one.read(&mut [0]).expect_err("no bytes come");
        looks += 1;
    }
    assert!((5..=11).contains(&looks), "{looks} times 20 ms in 200 ms");
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

static ALARMS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_alarm(_: i32) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// An alarm each 10 ms of virtual time, while a thread computes, sleeps and waits for a pipe.
fn rings_alarms() {
    const SIGALRM: i32 = 14;
    let (set, off) = ([0, 10_000, 0, 10_000], [0_i64; 4]);
    // SAFETY: a handler that touches an atomic alone, and settings.
    unsafe {
        signal(SIGALRM, count_alarm);
        assert_eq!(setitimer(0, &raw const set, std::ptr::null_mut()), 0);
    }
    let start = Instant::now();
    while ALARMS.load(Ordering::Relaxed) < 2 {}
    let took = start.elapsed();
    assert!((took.as_micros().abs_diff(20_000)) < 100, "two alarms take {took:?}");
    thread::sleep(Duration::from_millis(25));
    assert_eq!(ALARMS.load(Ordering::Relaxed), 4, "a sleep hears them");
    let (mut reader, mut writer) = pipe().expect("a pipe");
    thread::scope(|scope| {
        scope.spawn(move || {
            thread::sleep(Duration::from_millis(30));
            writer.write_all(&[1]).expect("a reader");
        });
        reader.read_exact(&mut [0]).expect("a byte");
    });
    assert_eq!(ALARMS.load(Ordering::Relaxed), 7, "a wait and a sleep hear each once");
    let mut before = [0; 4];
    // SAFETY: settings.
    let seconds = unsafe {
        assert_eq!(setitimer(0, &raw const off, &raw mut before), 0);
        (alarm(3), alarm(0))
    };
    assert_eq!(seconds, (0, 3));
    assert!(before[1] == 10_000 && (1..=10_000).contains(&before[3]), "{before:?}");
    thread::sleep(Duration::from_secs(4));
    assert_eq!(ALARMS.load(Ordering::Relaxed), 7, "it was taken back");
}

extern "C" fn count_signal(_: i32) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Signals come at any moment, and their handler's accesses are charged as others are.
fn handles_signals_of_a_child() {
    const SIGUSR1: i32 = 10;
    // SAFETY: a handler that adds to a word.
    unsafe { signal(SIGUSR1, count_signal) };
    let script =
        format!("for i in 1 2 3 4 5 6; do kill -USR1 {}; sleep 0.01; done", std::process::id());
    let mut child = Command::new("sh").args(["-c", &script]).spawn().expect("a child");
    let busy = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while SIGNALS.load(Ordering::Relaxed) < 3 {
                    busy.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    // All threads wait when the rest comes.
    assert!(child.wait().expect("a child").success());
    let signals = SIGNALS.load(Ordering::Relaxed);
    assert!((3..=6).contains(&signals), "{signals} of 6 signals");
}

fn waits_at_a_pipe() {
    let (mut reader, _writer) = pipe().expect("a pipe");
    reader.read_exact(&mut [0]).expect("a byte");
}

fn pauses() {
    // SAFETY: takes nothing.
    unsafe { pause() };
}
