//! Limits of open files: what is served, and what the others are told.
#![cfg(target_os = "linux")]

use crate::common::running::{Running, ask, program, wait_for};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const TOO_MANY: &[u8] = b"ERROR Too many open connections\r\n";
/// Descriptors that are kept for files.
const RESERVE: usize = 8;

/// The program with so many open files and no right to more, and its messages in this file.
fn limited(files: u64, messages: &Path) -> Command {
    let mut command = program();
    command.stderr(fs::File::create(messages).unwrap());
    let limit = move || {
        let both = Rlimit { current: Some(files), maximum: Some(files) };
        setrlimit(Resource::Nofile, both)?;
        const SYS_RESOURCE: nix::libc::c_ulong = 24;
        // SAFETY: it takes numbers alone. It fails for a user that has no such right to give up.
        unsafe { nix::libc::prctl(nix::libc::PR_CAPBSET_DROP, SYS_RESOURCE, 0, 0, 0) };
        Ok(())
    };
    // SAFETY: between fork and exec it makes two system calls, and allocates nothing.
    unsafe { command.pre_exec(limit) };
    command
}

/// The numbers of the server's open files, in order.
fn open_files(server: &Running) -> Vec<u64> {
    let files = fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let number = |file: std::io::Result<fs::DirEntry>| file.unwrap().file_name().into_string();
    let mut numbers: Vec<u64> = files.map(|file| number(file).unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Sets the limit of a running server.
fn set_limit(server: &Running, files: u64, maximum: Option<u64>) {
    let pid = Pid::from_raw(server.child.id() as i32);
    prlimit(pid, Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap();
}

/// Values of `stats`, by a connection that there is already.
fn stats<const N: usize>(stream: &mut TcpStream, names: [&str; N]) -> [u64; N] {
    stream.write_all(b"stats\r\n").unwrap();
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.ends_with("END\r\n") {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{text}");
        text += std::str::from_utf8(&buffer[..read]).unwrap();
    }
    names.map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap().parse().unwrap()
    })
}

/// Connects so many clients, one after the other, in addition to the one that asks. Returns those
/// that are served; the others have been told why they are not.
fn connect(server: &Running, asking: &mut TcpStream, count: u64) -> Vec<TcpStream> {
    let names = ["curr_connections", "rejected_connections"];
    let (mut streams, [_, rejected_before]) = (Vec::new(), stats(asking, names));
    for number in 1..=count {
        let mut stream = server.connect();
        let [_, rejected] = wait_for("an answer", || {
            let counts = stats(asking, names);
            (counts.iter().sum::<u64>() == 1 + rejected_before + number).then_some(counts)
        });
        if rejected - rejected_before == number - streams.len() as u64 {
            let mut reply = Vec::new();
            stream.read_to_end(&mut reply).unwrap();
            assert_eq!(String::from_utf8_lossy(&reply), String::from_utf8_lossy(TOO_MANY));
        } else {
            streams.push(stream);
        }
    }
    for stream in &mut streams {
        ask(stream, b"mn\r\n", b"MN\r\n");
    }
    streams
}

/// Starts a server that wants more connections than fit into its limit of open files, and fills it;
/// then one with as many files as the first one has asked for.
fn what_fits_is_served(files: u64, options: &str) {
    let folder = tempfile::tempdir().unwrap();
    let messages = folder.path().join("messages");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = options.replace("FOLDER", folder.path().to_str().unwrap());
    let options = options.replace("METRICS", &port.to_string());
    let start = |files| Running::spawn(limited(files, &messages), &format!("-c 64 {options}"));
    let read = || {
        let messages = fs::read_to_string(&messages).unwrap();
        messages.lines().filter(|line| line.contains(" connections of -c")).collect::<String>()
    };
    let server = start(files);
    let mut asking = server.connect();
    let streams = connect(&server, &mut asking, 70);
    let names = ["max_connections", "curr_connections", "listen_disabled_num"];
    let most = 1 + streams.len() as u64;
    assert_eq!(stats(&mut asking, names), [most, most, 0]);
    // All but the reserve is in use, and no accept has failed.
    assert_eq!(open_files(&server).len(), files as usize - RESERVE, "{options}");
    drop((server, streams));
    let text = read();
    let (told, limit) = ("manycored: serves at most", "open files are allowed, and ");
    let told = format!("{told} {most} of the 64 connections of -c: {files} {limit}");
    let rest = text.strip_prefix(&told).unwrap_or_else(|| panic!("{told} in {text}"));
    assert_eq!(text.lines().count(), 1, "{text}");
    let needed: u64 = rest.split(' ').next().unwrap().parse().unwrap();
    let server = start(needed);
    let mut asking = server.connect();
    let streams = connect(&server, &mut asking, 66);
    assert_eq!(streams.len(), 63);
    assert_eq!((open_files(&server).len(), read()), (needed as usize - RESERVE, String::new()));
}

#[test]
fn connections_that_have_no_descriptors_are_told_so_and_counted() {
    what_fits_is_served(64, "-t 3");
}

#[test]
fn descriptors_of_all_sockets_and_files_are_reserved() {
    let others = "-U -1 --metrics METRICS -e FOLDER/items --trace FOLDER/trace";
    what_fits_is_served(64, &format!("-t 4 -l 127.0.0.1,127.0.0.2,127.0.0.3 {others}"));
}

#[test]
fn a_server_starts_if_one_connection_fits() {
    let folder = tempfile::tempdir().unwrap();
    let messages = folder.path().join("messages");
    let own = open_files(&Running::spawn(limited(100, &messages), "-t 2 -c 2")).len() as u64 - 1;
    let server = Running::spawn(limited(own + 1, &messages), "-t 2");
    let mut only = server.connect();
    ask(&mut only, b"mn\r\n", b"MN\r\n");
    assert_eq!(server.talk(b""), TOO_MANY);
    assert_eq!(stats(&mut only, ["max_connections", "listen_disabled_num"]), [1, 0]);
    // With none that fits the message has the numbers.
    let status = limited(own, &messages).args(["-p", "-1", "-t", "2"]).status();
    assert_eq!(status.unwrap().code(), Some(71));
    let (text, needed) = (fs::read_to_string(&messages).unwrap(), own + 1);
    let told = format!("2 workers and one connection need {needed} open files, and {own} are");
    assert!(text.contains(&told), "{told} in {text}");
}

#[test]
fn clients_are_refused_in_words_while_no_descriptor_is_left() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let server = Running::start("-t 1");
    let mut asking = server.connect();
    ask(&mut asking, b"mn\r\n", b"MN\r\n");
    for round in 1..4 {
        let files = open_files(&server);
        let free = (0..).zip(&files).find_map(|(at, used)| (at != *used).then_some(at));
        set_limit(&server, free.unwrap_or(files.len() as u64), maximum);
        assert!(connect(&server, &mut asking, 5).is_empty());
        let names = ["rejected_connections", "listen_disabled_num"];
        assert_eq!(stats(&mut asking, names), [5 * round, 0]);
        set_limit(&server, 1024, maximum);
        assert_eq!(connect(&server, &mut asking, 2).len(), 2);
        wait_for("their end", || (stats(&mut asking, ["curr_connections"]) == [1]).then_some(()));
    }
}

#[test]
fn clients_wait_while_they_cannot_even_be_refused() {
    let folder = tempfile::tempdir().unwrap();
    let own = getrlimit(Resource::Nofile).maximum;
    let messages = folder.path().join("messages");
    // Each worker's own sockets, and one that they share.
    for (server, files, maximum) in [
        (Running::start("-t 2"), 1024, own),
        (Running::spawn(limited(64, &messages), "-t 2"), 64, Some(64)),
    ] {
        let mut asking = server.connect();
        ask(&mut asking, b"mn\r\n", b"MN\r\n");
        let pauses = |stream: &mut TcpStream| stats(stream, ["listen_disabled_num"])[0];
        for _ in 0..3 {
            let before = pauses(&mut asking);
            set_limit(&server, 3, maximum);
            let mut waiting: Vec<TcpStream> = (0..4).map(|_| server.connect()).collect();
            wait_for("a pause", || (pauses(&mut asking) > before + 2).then_some(()));
            set_limit(&server, files, maximum);
            for stream in &mut waiting {
                ask(stream, b"mn\r\n", b"MN\r\n");
            }
        }
        let [rejected, us] =
            stats(&mut asking, ["rejected_connections", "time_in_listen_disabled_us"]);
        assert!(rejected == 0 && us >= 10_000, "{rejected} rejected, {us} us");
    }
}
