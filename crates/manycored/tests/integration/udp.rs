//! Requests and replies in datagrams.
#![cfg(target_os = "linux")]

use crate::common::running::{LONG, Running, ask};
use std::net::{Ipv4Addr, UdpSocket};

const HEADER: usize = 8;

/// A client of datagrams.
struct Client {
    socket: UdpSocket,
    port: u16,
}

impl Client {
    fn new(server: &Running) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        Self { socket, port: server.udp_port }
    }

    fn send(&self, header: [u8; HEADER], text: &[u8]) {
        let datagram = [&header, text].concat();
        self.socket.send_to(&datagram, (Ipv4Addr::LOCALHOST, self.port)).unwrap();
    }

    /// The next reply, of all its datagrams, which have the client's number and are in order.
    fn reply(&self, id: [u8; 2]) -> Vec<u8> {
        let (mut reply, mut place) = (Vec::new(), 0_u16);
        loop {
            let mut room = [0; 1 << 16];
            let length = self.socket.recv(&mut room).expect("a datagram");
            let header: [u8; HEADER] = room[..HEADER].try_into().unwrap();
            let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
            assert_eq!((&header[..2], number(2), number(6)), (&id[..], place, 0));
            assert!(length <= 1400, "{length}");
            reply.extend_from_slice(&room[HEADER..length]);
            place += 1;
            if place == number(4) {
                return reply;
            }
        }
    }

    #[track_caller]
    fn ask(&self, id: [u8; 2], text: &[u8], expected: &[u8]) {
        self.send([id[0], id[1], 0, 0, 0, 1, 0, 0], text);
        let reply = self.reply(id);
        assert_eq!(String::from_utf8_lossy(&reply), String::from_utf8_lossy(expected));
    }
}

#[test]
fn requests_in_datagrams_are_answered_in_datagrams() {
    let server = Running::start("-U -1 -t 2");
    let client = Client::new(&server);
    client.ask([0, 1], b"set a 5 0 2\r\nhi\r\n", b"STORED\r\n");
    client.ask([255, 2], b"get a\r\nmn\r\n", b"VALUE a 5 2\r\nhi\r\nEND\r\nMN\r\n");
    client.ask([0, 3], b"mg a v f\r\n", b"VA 2 f5\r\nhi\r\n");
    client.ask([0, 4], b"nonsense\r\n", b"ERROR\r\n");
    // The same items as over TCP.
    ask(&mut server.connect(), b"get a\r\n", b"VALUE a 5 2\r\nhi\r\nEND\r\n");
    // The binary protocol: no operation.
    let noop = [[0x80, 10].as_slice(), &[0; 22]].concat();
    let done = [[0x81, 10].as_slice(), &[0; 22]].concat();
    client.ask([0, 5], &noop, &done);
    let settings = String::from_utf8(server.talk(b"stats settings\r\n")).unwrap();
    assert!(settings.contains(&format!("STAT udpport {}\r\n", server.udp_port)), "{settings}");
}

#[test]
fn large_reply_comes_in_many_datagrams() {
    let server = Running::start("-U -1 -t 1");
    let value: String = (0..9_000).map(|at| format!("{at:05}")).collect(); // 45 000 bytes
    let set = format!("set big 0 0 {}\r\n{value}\r\n", value.len());
    ask(&mut server.connect(), set.as_bytes(), b"STORED\r\n");
    let reply = format!("VALUE big 0 {}\r\n{value}\r\nEND\r\n", value.len());
    Client::new(&server).ask([9, 9], b"get big\r\n", reply.as_bytes());
}

#[test]
fn no_reply_has_more_than_a_hundred_times_the_bytes_of_its_request() {
    let server = Running::start("-U -1 -t 1 -o udp_reply_ratio=100");
    let client = Client::new(&server);
    let mut stream = server.connect();
    let mut set = |key: &str, length: usize| {
        let value = "v".repeat(length);
        let set = format!("set {key} 0 0 {length}\r\n{value}\r\n");
        ask(&mut stream, set.as_bytes(), b"STORED\r\n");
        format!("VALUE {key} 0 {length}\r\n{value}\r\n")
    };
    let refused = "SERVER_ERROR reply too long for a datagram of this length\r\n";
    // 15 bytes with the header: 1500, in two datagrams, of which 16 are headers.
    let least = "VALUE a 0 1000\r\n\r\nEND\r\n".len();
    let fits = set("a", 1_484 - least) + "END\r\n";
    client.ask([0, 1], b"get a\r\n", fits.as_bytes());
    assert_eq!(fits.len(), 1_484);
    set("a", 1_485 - least);
    client.ask([0, 2], b"get a\r\n", refused.as_bytes());
    // What comes before is answered, and what comes behind is not.
    set("big", 900_000);
    let small = set("s", 5) + "END\r\n";
    let sent = b"get s\r\nset new 0 0 1\r\nx\r\nget big\r\nset late 0 0 1\r\nx\r\n";
    client.ask([0, 3], sent, format!("{small}STORED\r\n{refused}").as_bytes());
    client.ask([0, 4], b"get new late\r\n", b"VALUE new 0 1\r\nx\r\nEND\r\n");
    client.ask([0, 5], b"get big big big\r\n", refused.as_bytes());
    // The binary protocol: a get, whose status is told.
    let get = [&[0x80, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3][..], b"abcd", &[0; 8], b"big"].concat();
    let too_large = [&[0x81, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0][..], b"abcd", &[0; 8]].concat();
    client.ask([0, 6], &get, &too_large);
}

#[test]
fn bad_datagrams_hold_up_nobody() {
    let server = Running::start("-U -1 -t 1 -o udp_reply_ratio=100");
    let client = Client::new(&server);
    let short = |bytes: &[u8]| {
        client.socket.send_to(bytes, (Ipv4Addr::LOCALHOST, server.udp_port)).unwrap();
    };
    short(b"");
    short(b"get a\r\n");
    short(&[0, 0, 0, 0, 0, 1, 0, 0]);
    // Not a whole request: no reply, and nothing left over for the next.
    client.send([0, 1, 0, 0, 0, 1, 0, 0], b"set a 0 0 100\r\nabc");
    client.send([0, 1, 0, 0, 0, 1, 0, 0], b"get a");
    client.send([0, 1, 0, 0, 0, 1, 0, 0], b"quit\r\n");
    // One of several datagrams.
    client.send([0, 7, 0, 1, 0, 2, 0, 0], b"get a\r\n");
    let refused = b"SERVER_ERROR multi-packet request not supported\r\n";
    assert_eq!(client.reply([0, 7]), refused);
    client.ask([0, 8], b"get a\r\n", b"END\r\n");
}

#[test]
fn a_server_of_datagrams_alone_ends_when_it_is_asked_to() {
    let mut server = Running::start("-p 0 -U -1 -A -t 1");
    let client = Client::new(&server);
    client.ask([0, 1], b"version\r\n", &{
        let version = format!("VERSION {}\r\n", manycored::server_state::VERSION);
        version.into_bytes()
    });
    client.send([0, 2, 0, 0, 0, 1, 0, 0], b"shutdown\r\n");
    assert_eq!(server.end(), Some(0));
}
