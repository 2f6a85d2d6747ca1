//! The cache server with its load in one process: half of the cores are workers, and the other half
//! clients, each with a connection. The first argument is the number of requests of a client.

use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::MetadataExt,
    sync::Barrier,
    thread,
    time::Duration,
};

use manycored::args::Args;

const PORT: u16 = 21_211;
const KEYS: u64 = 1000;

unsafe extern "C" {
    fn pthread_sigmask(how: i32, new: *const [u64; 16], old: *mut [u64; 16]) -> i32;
}

fn main() {
    let requests = std::env::args().nth(1).map_or(100, |text| text.parse().expect("a number"));
    let cores = thread::available_parallelism().expect("a number of cores").get();
    let (workers, clients) = (cores.div_ceil(2), (cores / 2).max(1));
    // The shutdown is a signal to the process, which the server reads from a file. No thread takes
    // it.
    let interrupt = [1 << 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: a set of signals of our own.
    unsafe { pthread_sigmask(0, &raw const interrupt, std::ptr::null_mut()) };
    let load = thread::spawn(move || drive(clients, requests));
    let (port, workers) = (PORT.to_string(), workers.to_string());
    let mut options =
        vec!["manycored", "-l", "127.0.0.1", "-p", &port, "-t", &workers, "-A", "-U", "0"];
    if std::fs::metadata("/proc/self").expect("a process").uid() == 0 {
        options.extend(["-u", "root"]);
    }
    let options = options.into_iter();
    let args = Args::from_command_line(options.map(Into::into)).expect("sound options");
    let plan = args.plan().expect("a sound plan");
    manycored::server::run(&args, plan).expect("a server");
    let hits = load.join().expect("no panic");
    println!("{clients} clients, {requests} requests each, {hits} hits: all well");
}

fn connect() -> TcpStream {
    loop {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", PORT)) {
            stream.set_nodelay(true).expect("an option");
            return stream;
        }
        thread::sleep(Duration::from_micros(100));
    }
}

/// Sends the requests, and ends the server; how many gets were hits.
fn drive(clients: usize, requests: u64) -> u64 {
    let ready = Barrier::new(clients + 1);
    let hits = thread::scope(|scope| {
        let client = |number: usize| {
            let (ready, mut stream) = (&ready, connect());
            move || {
                ready.wait();
                let hits = ask(&mut stream, number as u64, requests);
                ready.wait();
                hits
            }
        };
        let all: Vec<_> = (0..clients).map(|number| scope.spawn(client(number))).collect();
        manycore_sim::measured(|| {
            ready.wait();
            ready.wait();
            manycore_sim::operations(clients as u64 * requests);
        });
        all.into_iter().map(|client| client.join().expect("no panic")).sum()
    });
    connect().write_all(b"shutdown\r\n").expect("a server");
    hits
}

/// One set to nine gets.
fn ask(stream: &mut TcpStream, client: u64, requests: u64) -> u64 {
    let (mut random, mut hits) = (client + 1, 0);
    let mut reply = Vec::new();
    for request in 0..requests {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let key = (random >> 33) % KEYS;
        let (text, end): (String, &[u8]) = if request % 10 == 0 {
            (format!("set key{key} 0 0 5\r\nvalue\r\n"), b"STORED\r\n")
        } else {
            (format!("get key{key}\r\n"), b"END\r\n")
        };
        stream.write_all(text.as_bytes()).expect("a server");
        reply.clear();
        while !reply.ends_with(end) {
            let mut part = [0; 256];
            let bytes = stream.read(&mut part).expect("a server");
            assert!(bytes > 0, "the server hung up after {:?}", String::from_utf8_lossy(&reply));
            reply.extend_from_slice(&part[..bytes]);
        }
        hits += u64::from(reply.starts_with(b"VALUE"));
    }
    hits
}
