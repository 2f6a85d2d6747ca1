//! Clients that demand every reply, in order, and of each value that it is right.

use super::oracle::{Read as KeyRead, SHORTEST, name, second, value};
use super::{KEYS, LARGE, SIZES, STRICT, Soak};
use crate::rng::Rng;
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;

/// What was asked, and so what must be answered.
enum Asked {
    Set(usize, u64),
    Delete(usize, u64),
    Get(Vec<KeyRead>),
    MetaGet(KeyRead),
    Noop,
}

/// A client that writes every [`STRICT`]th key, and reads all.
pub struct Strict<'a> {
    soak: &'a Soak,
    number: usize,
    stream: BufReader<TcpStream>,
    /// The last versions that were sent on this connection.
    sent: HashMap<usize, u64>,
}

impl<'a> Strict<'a> {
    /// A client that asks until the round is over.
    pub fn run(soak: &'a Soak, number: usize, rng: &mut Rng) {
        let size = *rng.pick(&SIZES);
        while let Some(stream) = soak.connect() {
            let stream = BufReader::new(stream);
            let mut client = Strict { soak, number, stream, sent: HashMap::new() };
            let talks = 1 + rng.below(80);
            let ended = (0..talks)
                .try_for_each(|_| if soak.goes_on() { client.talk(rng, size) } else { Ok(()) });
            if let Err(error) = ended {
                soak.was_disconnected(&error);
            }
        }
    }

    /// Reads all keys of a server that no client writes to; how many it has.
    pub fn read_all(soak: &'a Soak) -> usize {
        let stream = BufReader::new(soak.connect().expect("a server that was just started"));
        let mut client = Strict { soak, number: 0, stream, sent: HashMap::new() };
        let before = soak.values.load(Ordering::Relaxed);
        let keys: Vec<usize> = (0..KEYS).collect();
        for some in keys.chunks(100) {
            let names: Vec<_> = some.iter().map(|key| name(*key)).collect();
            let asked = Asked::Get(some.iter().map(|key| soak.oracle.read(*key)).collect());
            client.exchange(format!("get {}\r\n", names.join(" ")).into_bytes(), &[asked]).unwrap();
        }
        (soak.values.load(Ordering::Relaxed) - before) as usize
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.ends_with("\r\n") {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.len() - 2);
        Ok(line)
    }

    fn body(&mut self, read: &KeyRead, length: usize) -> io::Result<()> {
        let mut body = vec![0; length + 2];
        self.stream.read_exact(&mut body)?;
        assert_eq!(body.split_off(length), b"\r\n");
        if let Err(what) = self.soak.oracle.judge(read, &body) {
            panic!("{what}, seed {:#x}", self.soak.seed);
        }
        self.soak.values.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A word that there must be, or a refusal.
    fn word(&mut self, words: [&str; 2]) -> io::Result<()> {
        let line = self.line()?;
        if line == "SERVER_ERROR out of memory storing object" {
            self.soak.refused.fetch_add(1, Ordering::Relaxed);
        } else {
            assert!(words.contains(&&line[..]), "{line}, seed {:#x}", self.soak.seed);
        }
        Ok(())
    }

    fn demand(&mut self, asked: &Asked) -> io::Result<()> {
        let (soak, seed) = (self.soak, self.soak.seed);
        match asked {
            Asked::Set(key, version) => {
                self.word(["STORED"; 2])?;
                soak.oracle.end(*key, *version);
            }
            Asked::Delete(key, version) => {
                self.word(["DELETED", "NOT_FOUND"])?;
                soak.oracle.end(*key, *version);
            }
            Asked::Noop => assert_eq!(self.line()?, "MN", "seed {seed:#x}"),
            Asked::MetaGet(read) => {
                let line = self.line()?;
                if let Some(length) = line.strip_prefix("VA ") {
                    self.body(read, length.parse().unwrap())?;
                } else {
                    assert_eq!(line, "EN", "seed {seed:#x}");
                }
            }
            Asked::Get(reads) => {
                let mut left = reads.iter();
                loop {
                    let line = self.line()?;
                    if line == "END" {
                        // oracle.O4: whatever is still left.
                        break;
                    }
                    let words: Vec<&str> = line.split(' ').collect();
                    assert!(words.len() == 4 && words[0] == "VALUE", "{line}, seed {seed:#x}");
                    // In the order in which they were asked for.
                    let read = left.find(|read| name(read.key) == words[1]);
                    self.body(read.expect("a key that was asked for"), words[3].parse().unwrap())?;
                }
            }
        }
        soak.replies.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, rng: &mut Rng) -> KeyRead {
        let key = rng.below(KEYS);
        match self.sent.get(&key) {
            Some(last) => self.soak.oracle.own_read(key, *last),
            None => self.soak.oracle.read(key),
        }
    }

    /// A version of one of the client's own keys.
    fn begin(&mut self, rng: &mut Rng) -> (usize, u64) {
        let key = rng.below(KEYS / STRICT) * STRICT + self.number;
        let version = self.soak.oracle.begin(key);
        self.sent.insert(key, version);
        (key, version)
    }

    fn talk(&mut self, rng: &mut Rng, size: usize) -> io::Result<()> {
        let (mut sent, mut asked) = (Vec::new(), Vec::new());
        // Of the large sizes a few fill all memory.
        let most = if size > 10_000 { 8 } else { 60 };
        for _ in 0..1 + rng.below(most) {
            match rng.below(10) {
                0..3 => {
                    let length = match rng.below(150) {
                        0 => LARGE + rng.below(40_000),
                        1..20 => SHORTEST + rng.below(3_000),
                        _ => SHORTEST.max(size + rng.below(size / 4 + 1)),
                    };
                    let end = if rng.once_in(8) { second() + 1 + rng.next() % 4 } else { 0 };
                    let (key, version) = self.begin(rng);
                    let head = format!("set {} 0 {end} {length}\r\n", name(key));
                    sent.extend_from_slice(head.as_bytes());
                    sent.extend_from_slice(&value(key, version, length, end));
                    sent.extend_from_slice(b"\r\n");
                    asked.push(Asked::Set(key, version));
                }
                3..6 => {
                    let reads: Vec<_> = (0..1 + rng.below(20)).map(|_| self.read(rng)).collect();
                    let names: Vec<_> = reads.iter().map(|read| name(read.key)).collect();
                    sent.extend(format!("get {}\r\n", names.join(" ")).into_bytes());
                    asked.push(Asked::Get(reads));
                }
                6..9 => {
                    let read = self.read(rng);
                    sent.extend(format!("mg {} v\r\n", name(read.key)).into_bytes());
                    asked.push(Asked::MetaGet(read));
                }
                _ => {
                    let (key, version) = self.begin(rng);
                    sent.extend(format!("delete {}\r\n", name(key)).into_bytes());
                    asked.push(Asked::Delete(key, version));
                }
            }
        }
        sent.extend_from_slice(b"mn\r\n");
        asked.push(Asked::Noop);
        self.exchange(sent, &asked)
    }

    fn exchange(&mut self, sent: Vec<u8>, asked: &[Asked]) -> io::Result<()> {
        // A client that only writes would wait for a server that waits for it.
        let mut writer = self.stream.get_ref().try_clone().unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(move || writer.write_all(&sent));
            let demanded = asked.iter().try_for_each(|asked| self.demand(asked));
            // A panic in it is one here.
            let written = writer.join().expect("the writer does not panic");
            demanded.and(written)
        })
    }
}
