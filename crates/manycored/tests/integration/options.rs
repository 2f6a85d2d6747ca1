//! Options that change what clients see.
#![cfg(target_os = "linux")]

use crate::common::running::Running;

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
