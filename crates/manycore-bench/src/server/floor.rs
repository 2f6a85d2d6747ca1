//! The floor: a server that looks nothing up.
//!
//! It reads only the length of requests, and answers with canned replies of the right length. What
//! is left is the price of the sockets. No server of this kind on one thread can cost less.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use manycore::percpu::pin;
use rustix::event::{Timespec, epoll};

use super::wire::{Protocol, Wire};

/// Bytes that are read at once.
const READ: usize = 64 << 10;
/// The number of the socket on which connections come.
const LISTENER: u64 = u64::MAX;

/// A floor that runs; it ends when this is dropped.
pub(super) struct Floor {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// The system's number of its thread.
    pub(super) thread: u32,
    ends: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Floor {
    /// Starts one, on this core if one is named.
    pub(super) fn start(keys: usize, value: usize, core: Option<usize>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let (told, started) = mpsc::channel();
        let ended = ends.clone();
        let serve = move || {
            if let Some(core) = core {
                // It measures less steadily elsewhere, and as much.
                let _ = pin::pin_to(core);
            }
            let _ = told.send(rustix::thread::gettid().as_raw_nonzero().get() as u32);
            serve(&listener, Canned::new(keys, value), &ended).expect("the floor's sockets work");
        };
        let handle = thread::Builder::new().name("floor".into()).spawn(serve)?;
        let thread = started.recv().map_err(io::Error::other)?;
        Ok(Self { address, thread, ends, handle: Some(handle) })
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        // ORDER: Relaxed; a flag that is looked at again and again.
        self.ends.store(true, Ordering::Relaxed);
        // If it panicked, it has said so.
        let _ = self.handle.take().map(JoinHandle::join);
    }
}

struct Canned {
    wire: Wire,
    get: Vec<u8>,
    set: Vec<u8>,
}

impl Canned {
    fn new(keys: usize, value: usize) -> Self {
        let mut wire = Wire::new(Protocol::Text, keys, value, false);
        let (mut get, mut set) = (Vec::new(), Vec::new());
        wire.push_reply(&vec![0; keys], false, &mut get);
        wire.push_reply(&[0], true, &mut set);
        Self { wire, get, set }
    }

    /// Answers whole requests; says how many bytes they had.
    fn answer(&self, input: &[u8], out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while let Some(first) = input.get(used) {
            let is_set = *first == b's';
            let length = self.wire.request_len(is_set);
            if used + length > input.len() {
                break;
            }
            used += length;
            out.extend_from_slice(if is_set { &self.set } else { &self.get });
        }
        used
    }
}

fn serve(listener: &TcpListener, canned: Canned, ends: &AtomicBool) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64;
    epoll::add(&epoll, listener, data(LISTENER), epoll::EventFlags::IN)?;
    let mut connections: Vec<Option<(TcpStream, Vec<u8>)>> = Vec::new();
    let (mut input, mut out) = (vec![0; READ], Vec::new());
    let mut events = Vec::with_capacity(256);
    // ORDER: Relaxed; a flag that is looked at again and again.
    while !ends.load(Ordering::Relaxed) {
        events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let spare = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&epoll, spare, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let number = event.data.u64();
            if number == LISTENER {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let number = connections.len() as u64;
                epoll::add(&epoll, &stream, data(number), epoll::EventFlags::IN)?;
                connections.push(Some((stream, Vec::new())));
                continue;
            }
            let place = &mut connections[number as usize];
            let Some((stream, rest)) = place else { continue };
            out.clear();
            if !step(stream, rest, &mut input, |bytes| canned.answer(bytes, &mut out)) {
                *place = None;
                continue;
            }
            write_all(stream, &out);
        }
    }
    Ok(())
}

/// Reads once, and keeps what was not used. False if the client has gone.
fn step(
    stream: &mut TcpStream,
    rest: &mut Vec<u8>,
    input: &mut [u8],
    mut answer: impl FnMut(&[u8]) -> usize,
) -> bool {
    let read = match stream.read(input) {
        Ok(0) => return false,
        Ok(read) => read,
        Err(error) => return error.kind() == ErrorKind::WouldBlock,
    };
    if rest.is_empty() {
        let used = answer(&input[..read]);
        rest.extend_from_slice(&input[used..read]);
    } else {
        rest.extend_from_slice(&input[..read]);
        let used = answer(rest);
        rest.drain(..used);
    }
    true
}

/// Writes all. A client that does not read is not one of ours.
fn write_all(stream: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
            Err(_) => return,
        }
    }
}
