//! Options that change what clients see.
#![cfg(target_os = "linux")]

use crate::common::running::{LONG, Running, program, wait_for};
use std::io::Read;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};

#[test]
fn without_versions_all_of_them_are_zero() {
    let server = Running::start("-C -t 1");
    let sent = b"set a 0 0 1\r\nx\r\ngets a\r\nmg a c\r\nstats settings\r\n";
    let reply = String::from_utf8(server.talk(sent)).unwrap();
    let start = "STORED\r\nVALUE a 0 1 0\r\nx\r\nEND\r\nHD c0\r\n";
    assert!(reply.starts_with(start), "{reply}");
    assert!(reply.contains("STAT cas_enabled no\r\n"), "{reply}");
}

#[test]
fn listeners_speak_what_they_were_told_to() {
    let server = Running::start("-l proto[ascii]:tag[a]:127.0.0.1,proto[binary]:127.0.0.2 -t 1");
    assert_eq!(server.talk(b"mn\r\n"), b"MN\r\n");
    // A binary packet is no command there.
    let packet = [[0x80, 0x0a].as_slice(), &[0; 22]].concat();
    assert!(!server.talk(&packet).starts_with(&[0x81]));
}

/// Ends a server, and returns what it has said on its error stream.
fn said(mut child: Child) -> String {
    child.kill().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    said
}

#[test]
fn server_without_an_address_says_that_it_is_on_loopback_only() {
    let words = |options: &str| {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("port");
        let mut command = program();
        command.stderr(Stdio::piped()).args(["-p", "-1", "-t", "1"]).args(options.split(' '));
        let child = command.env("MEMCACHED_PORT_FILENAME", &told).spawn().unwrap();
        wait_for("the port", || told.exists().then_some(()));
        said(child)
    };
    let line = words("-m 64");
    assert!(line.contains("on 127.0.0.1 only") && line.contains("-l 0.0.0.0"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(words("-l 127.0.0.1"), "");
}

/// As systemd's `Type=notify` wants it.
#[test]
fn service_manager_hears_when_the_server_is_ready_and_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LONG)).unwrap();
    let hear = || {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let mut command = program();
    command.env("NOTIFY_SOCKET", &path);
    let mut server = Running::spawn(command, "-t 1");
    assert_eq!(hear(), format!("READY=1\nMAINPID={}\n", server.child.id()));
    server.signal("-TERM");
    assert_eq!(hear(), "STOPPING=1\n");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn line_of_keys_above_the_limit_is_told_and_counted() {
    let server = Running::start("-t 1");
    let line = [&b"get"[..], &b" key".repeat(300_000), b"\r\n"].concat();
    let reply = String::from_utf8(server.talk(&line)).unwrap();
    assert_eq!(reply, format!("{}\r\n", manycored::protocol::GET_LINE_TOO_LONG));
    assert_eq!(server.stat("long_lines"), 1);
    let line = [&b"get"[..], &b" key".repeat(1_300), b"\r\n"].concat();
    assert_eq!(server.talk(&line), b"END\r\n");
    let server = Running::start("-t 1 -o get_line_max=5000");
    assert_eq!(String::from_utf8(server.talk(&line)).unwrap(), reply);
    assert_eq!(server.stat("long_lines"), 1);
}
