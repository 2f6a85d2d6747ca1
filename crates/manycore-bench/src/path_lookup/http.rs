//! A server of files over HTTP, whose file names are looked up in a tree of directory entries
//! (OpLog, section 7.1, figure 9: Apache).
//!
//! Owns: the tree, the server's answer to a request, the client that checks it, and the loop.
//!
//! As in the paper, each core has a server and a client of its own, and all clients ask for one
//! file. A request looks up the file's name twice: for its kind and length, and to open it. Each
//! thread is both server and client, at the two ends of a TCP connection that stays open, so
//! nothing waits for another core. Names are found in tables that do not change. Each entry on the
//! way is referenced and released; the implementations differ in that.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use super::Dentry;
use crate::runner::{Control, Subject, Tally};

/// The file that all ask for: below two directories.
const PATH: &str = "/srv/www/index.html";

/// Its length.
const BYTES: usize = 1024;

const REQUEST: &[u8] =
    b"GET /srv/www/index.html HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\n\r\n";

/// The most that a request or the head of an answer has.
const HEAD: usize = 512;

/// A directory entry, and what it names.
struct Node<D> {
    entry: D,
    is: Kind<D>,
}

enum Kind<D> {
    Directory(BTreeMap<&'static str, Node<D>>),
    File(Vec<u8>),
}

/// Directories and files.
pub(super) struct Tree<D> {
    root: Node<D>,
}

impl<D: Dentry> Tree<D> {
    pub(super) fn new() -> Self {
        let node = |is| Node { entry: D::new(1), is };
        let directory = |entries: [_; 2]| node(Kind::Directory(BTreeMap::from(entries)));
        let file = |fill| node(Kind::File(vec![fill; BYTES]));
        let www = directory([("index.html", file(b'a')), ("other.html", file(b'b'))]);
        let srv = directory([("www", www), ("ftp", file(b'c'))]);
        Self { root: directory([("srv", srv), ("etc", file(b'd'))]) }
    }

    /// The file of that name; each entry on the way is used, as [`Dentry::stat`] says.
    fn file(&self, path: &str) -> Option<&[u8]> {
        let mut at = &self.root;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let Kind::Directory(entries) = &at.is else { return None };
            at = entries.get(name)?;
            let [name, parent] = at.entry.stat();
            assert_eq!(name, parent, "half a renaming");
        }
        match &at.is {
            Kind::File(bytes) => Some(bytes),
            Kind::Directory(_) => None,
        }
    }

    /// What the server says to a request, at the end of `answer`.
    fn answer(&self, request: &[u8], answer: &mut Vec<u8>) -> io::Result<()> {
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut parsed = httparse::Request::new(&mut headers);
        let path = match parsed.parse(request) {
            Ok(httparse::Status::Complete(_)) if parsed.method == Some("GET") => parsed.path,
            _ => return answer.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        };
        let path = path.unwrap_or("/");
        // As `stat`, and as `open` after it.
        let length = self.file(path).map(<[u8]>::len);
        let file = self.file(path);
        match length.zip(file) {
            None => answer.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            Some((length, file)) => {
                write!(answer, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
                answer.write_all(file)
            }
        }
    }
}

/// Reads from a stream until `is_all` of what has come.
fn read_until(
    stream: &mut TcpStream,
    into: &mut Vec<u8>,
    is_all: impl Fn(&[u8]) -> bool,
) -> io::Result<()> {
    into.clear();
    while !is_all(into) {
        let mut part = [0; 2048];
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into.extend_from_slice(&part[..count]);
    }
    Ok(())
}

/// Length of an answer's body, if its head is there, and where it begins.
fn body(answer: &[u8]) -> Option<(usize, usize)> {
    let mut headers = [httparse::EMPTY_HEADER; 8];
    let mut parsed = httparse::Response::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = parsed.parse(answer) else { return None };
    let length = parsed.headers.iter().find(|header| header.name == "Content-Length")?;
    Some((std::str::from_utf8(length.value).ok()?.parse().ok()?, head))
}

/// A client and a server, at both ends of a connection.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let [request, received] = [(); 2].map(|()| Vec::with_capacity(BYTES + HEAD));
        let answer = Vec::with_capacity(BYTES + HEAD);
        Ok(Self { client, server, request, answer, received })
    }

    /// The client asks, the server answers; the file that the client got.
    fn ask<D: Dentry>(&mut self, tree: &Tree<D>, request: &[u8]) -> io::Result<&[u8]> {
        self.client.write_all(request)?;
        read_until(&mut self.server, &mut self.request, |so_far| so_far.ends_with(b"\r\n\r\n"))?;
        self.answer.clear();
        tree.answer(&self.request, &mut self.answer)?;
        self.server.write_all(&self.answer)?;
        let all = |so_far: &[u8]| body(so_far).is_some_and(|(len, at)| so_far.len() == at + len);
        read_until(&mut self.client, &mut self.received, all)?;
        let at = body(&self.received).map_or(0, |(_, at)| at);
        Ok(&self.received[at..])
    }
}

impl<D: Dentry> Subject for Tree<D> {
    fn work(&self, _: usize, control: &Control) -> Tally {
        let mut connection = Connection::new().expect("a connection of the machine with itself");
        control.drive(|| {
            let file = connection.ask(self, REQUEST).expect("a connection that stays open");
            assert!(file.len() == BYTES && file[0] == b'a', "another file than {PATH}");
            1
        })
    }
}

/// The file that is asked for comes; another's, or none, where there is none.
pub(super) fn conform<D: Dentry>() -> Result<(), String> {
    let answers = || -> io::Result<bool> {
        let (tree, mut connection) = (Tree::<D>::new(), Connection::new()?);
        let mut ask = |request: &[u8]| Ok(connection.ask(&tree, request)?.to_vec());
        let found: io::Result<_> = ask(REQUEST);
        let other: io::Result<_> = ask(b"GET /srv/www/other.html HTTP/1.1\r\nA: b\r\n\r\n");
        let (found, other) = (found?, other?);
        let none: [io::Result<Vec<u8>>; 3] = [
            ask(b"GET /srv/www/none HTTP/1.1\r\n\r\n"),
            ask(b"GET /srv/www HTTP/1.1\r\n\r\n"),
            ask(b"nonsense\r\n\r\n"),
        ];
        let none = none.into_iter().collect::<io::Result<Vec<_>>>()?;
        Ok(found == [b'a'; BYTES] && other == [b'b'; BYTES] && none.iter().all(Vec::is_empty))
    };
    match answers() {
        Ok(true) => Ok(()),
        Ok(false) => Err("another file came than was asked for".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
