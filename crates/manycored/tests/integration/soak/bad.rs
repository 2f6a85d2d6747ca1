//! Clients that leave in the middle, do not read, or send nonsense.

use super::oracle::name;
use super::{KEYS, LARGE, Soak};
use crate::rng::Rng;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

/// Moments of a client that does nothing.
fn wait(soak: &Soak, moments: usize) {
    for _ in 0..moments {
        if !soak.goes_on() {
            return;
        }
        thread::sleep(Duration::from_millis(3));
    }
}

/// A `set` that nothing may ever read: it is sent but for its last bytes.
fn poison(key: &str, length: usize) -> Vec<u8> {
    let mut set = format!("set {key} 0 0 {length}\r\n").into_bytes();
    set.resize(set.len() + length, b'p');
    set
}

/// Leaves in the middle of a command, or of a reply.
pub fn dropper(soak: &Soak, rng: &mut Rng) {
    while let Some(mut stream) = soak.connect() {
        let key = name(rng.below(KEYS));
        let whole = match rng.below(5) {
            0 => poison(&key, LARGE),
            1 => [format!("ms {key} 500\r\n").into_bytes(), vec![b'x'; 500]].concat(),
            2 => format!("get {key} {key} {key}\r\n").repeat(50).into_bytes(),
            3 => format!("mg {key} v t s k\r\n").into_bytes(),
            _ => [&b"\x80\x01\0\x04\x08\0\0\0\0\0\x01\0"[..], &[0; 20]].concat(),
        };
        let part = rng.below(whole.len() + 1);
        let _ = stream.write_all(&whole[..part]);
        if rng.once_in(2) {
            stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
            let _ = stream.read(&mut [0; 10]);
        }
    }
}

/// Keeps many sets open of which the last bytes never come.
pub fn halves(soak: &Soak, rng: &mut Rng) {
    while soak.goes_on() {
        let mut open: Vec<TcpStream> = Vec::new();
        for _ in 0..1 + rng.below(25) {
            let Some(mut stream) = soak.connect() else { return };
            // In several writes, as they come on a network.
            let set = poison(&name(rng.below(KEYS)), *rng.pick(&[300, 20_000, LARGE]));
            let is_taken = |part: &[u8]| stream.write_all(part).is_ok();
            if set.chunks(60_000).all(is_taken) {
                open.push(stream);
            }
        }
        wait(soak, rng.below(150));
    }
}

/// Asks for much and takes it in small pieces.
pub fn slow(soak: &Soak, rng: &mut Rng) {
    while let Some(mut stream) = soak.connect() {
        let keys: Vec<String> = (0..30).map(|_| name(rng.below(KEYS))).collect();
        let _ = stream.write_all(format!("get {}\r\n", keys.join(" ")).repeat(4).as_bytes());
        let mut buffer = vec![0; 1 + rng.below(8_000)];
        // Everything may be evicted, and there is no more to read.
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        for _ in 0..rng.below(60) {
            wait(soak, 1);
            if !soak.goes_on() || stream.read(&mut buffer).is_err() {
                break;
            }
        }
    }
}

/// Asks for much on several connections, and never reads.
pub fn hog(soak: &Soak, rng: &mut Rng) {
    while soak.goes_on() {
        let mut open = Vec::new();
        for _ in 0..1 + rng.below(12) {
            let Some(mut stream) = soak.connect() else { return };
            stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
            let keys: Vec<String> = (0..60).map(|_| name(rng.below(KEYS))).collect();
            let _ = stream.write_all(format!("get {}\r\n", keys.join(" ")).repeat(200).as_bytes());
            open.push(stream);
        }
        wait(soak, rng.below(150));
    }
}

/// New keys, one after the other, without waiting for replies.
pub fn flooder(soak: &Soak, rng: &mut Rng) {
    let values = [b'v'; 4000];
    while let Some(mut stream) = soak.connect() {
        let size = *rng.pick(&[100, 1000, 4000]);
        let mut talk = || {
            let (first, mut sent) = (rng.next(), Vec::new());
            for number in 0..500 {
                let (key, length) =
                    (format!("flood{}", first.wrapping_add(number)), rng.below(size));
                write!(sent, "set {key} 0 {} {length} noreply\r\n", rng.below(3))?;
                sent.extend_from_slice(&values[..length]);
                sent.extend_from_slice(b"\r\n");
            }
            sent.extend_from_slice(b"mn\r\n");
            stream.write_all(&sent)?;
            let mut reply = [0; 4];
            stream.read_exact(&mut reply)?;
            assert_eq!(&reply, b"MN\r\n");
            Ok(())
        };
        while soak.goes_on() {
            if let Err(error) = talk() {
                soak.was_disconnected(&error);
                break;
            }
        }
    }
}

/// Sends what no client should.
pub fn babbler(soak: &Soak, rng: &mut Rng) {
    while let Some(mut stream) = soak.connect() {
        let noise: Vec<u8> = (0..rng.below(3_000)).map(|_| rng.next() as u8).collect();
        let sent = match rng.below(9) {
            0 => b"set k 0 0 99999999999\r\nabc\r\n".to_vec(),
            1 => b"set k 0 0 4294967295 noreply\r\nabc\r\n".to_vec(),
            2 => b"set k 0 0 -1\r\nset k 0 0 3\r\nabcdefghijk\r\n".to_vec(),
            3 => format!("get {}\r\n", "k".repeat(300)).into_bytes(),
            4 => vec![b'x'; 70_000],
            5 => [&b"\x80"[..], &noise].concat(),
            6 => b"\x80\x01\xff\xff\xff\0\0\0\xff\xff\xff\xff".repeat(3),
            7 => b"ms k 5000000000 T1\r\nmg\r\nmg \x01 v\r\nincr k x\r\n".to_vec(),
            _ => noise,
        };
        let _ = stream.write_all(&sent);
        let _ = stream.shutdown(Shutdown::Write);
        // It answers what it will, and closes.
        let mut reply = Vec::new();
        if let Err(error) = stream.read_to_end(&mut reply) {
            let is_reset = error.kind() == ErrorKind::ConnectionReset;
            assert!(is_reset || !soak.goes_on(), "{error} after {sent:?}, seed {:#x}", soak.seed);
        }
    }
}
