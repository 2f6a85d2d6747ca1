//! The load of a mail server such as Exim on any directory. Clients send short messages. For each,
//! one process receives it into the spool, a second delivers it, and a third appends it to the
//! mailbox under a lock file. At the end each message has to be in one mailbox, once, and nothing
//! in the spool. (MOSBENCH's Exim load, which OpLog and LDU measure, forks three times a message.)
//!
//! ```text
//! cargo run --release -p manycore-fs --example mail -- DIRECTORY [CLIENTS [MESSAGES [USERS]]]
//! ```
//!
//! MESSAGES are those of each client. Without words it makes a small run in a temporary directory.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

/// The words that make this program one of the three processes.
const RECEIVE: &str = "--receive";
const DELIVER: &str = "--deliver";
const APPEND: &str = "--append";

fn other(words: impl ToString) -> io::Error {
    io::Error::other(words.to_string())
}

/// Runs this program again as another process.
fn process(step: &str, directory: &Path, id: &str, user: &str, message: &str) -> io::Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(step).arg(directory).args([id, user]).stdin(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().expect("it is piped").write_all(message.as_bytes())?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(other(format!("{step} {id}: {status}"))) }
}

/// The header and the data of a message in the spool.
fn spooled(directory: &Path, id: &str) -> [PathBuf; 2] {
    ["H", "D"].map(|part| directory.join("input").join(format!("{id}-{part}")))
}

fn receive(directory: &Path, id: &str, user: &str) -> io::Result<()> {
    let message = io::read_to_string(io::stdin())?;
    let [header, data] = spooled(directory, id);
    fs::write(&data, &message)?;
    // The header is there when the message is whole.
    let new = header.with_extension("new");
    fs::write(&new, format!("to {user}\n"))?;
    fs::rename(new, header)?;
    process(DELIVER, directory, id, user, "")
}

fn deliver(directory: &Path, id: &str, user: &str) -> io::Result<()> {
    let [header, data] = spooled(directory, id);
    let to = fs::read_to_string(&header)?;
    if to != format!("to {user}\n") {
        return Err(other(format!("the header of {id} is {to:?}")));
    }
    process(APPEND, directory, id, user, &fs::read_to_string(&data)?)?;
    let mut log = OpenOptions::new().append(true).create(true).open(directory.join("log"))?;
    log.write_all(format!("{id} => {user}\n").as_bytes())?;
    fs::remove_file(data)?;
    fs::remove_file(header)
}

fn append(directory: &Path, user: &str) -> io::Result<()> {
    let message = io::read_to_string(io::stdin())?;
    let mailbox = directory.join("mail").join(user);
    let lock = mailbox.with_extension("lock");
    loop {
        match File::create_new(&lock) {
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                thread::sleep(Duration::from_micros(100));
            }
            Err(error) => return Err(error),
        }
    }
    let mut file = OpenOptions::new().append(true).create(true).open(&mailbox)?;
    file.write_all(message.as_bytes())?;
    fs::remove_file(lock)
}

fn text(client: usize, message: usize) -> String {
    format!("message {client}.{message}\n")
}

/// All clients send their messages; returns how long that took.
fn send(directory: &Path, clients: usize, messages: usize, users: usize) -> io::Result<Duration> {
    for name in ["input", "mail"] {
        fs::create_dir(directory.join(name))?;
    }
    let begin = Instant::now();
    thread::scope(|scope| {
        let client = |client: usize| {
            move || {
                (0..messages).try_for_each(|message| {
                    let user = format!("user{}", (client + message * 7) % users);
                    let id = format!("{client}-{message}");
                    process(RECEIVE, directory, &id, &user, &text(client, message))
                })
            }
        };
        let running: Vec<_> = (0..clients).map(|number| scope.spawn(client(number))).collect();
        running.into_iter().try_for_each(|client| client.join().expect("it does not panic"))
    })?;
    Ok(begin.elapsed())
}

/// Whether each message was delivered once.
fn check(directory: &Path, clients: usize, messages: usize) -> io::Result<()> {
    if let Some(left) = fs::read_dir(directory.join("input"))?.next() {
        return Err(other(format!("{} is left in the spool", left?.path().display())));
    }
    let mut missing: HashSet<String> = (0..clients)
        .flat_map(|client| (0..messages).map(move |message| text(client, message)))
        .collect();
    for mailbox in fs::read_dir(directory.join("mail"))? {
        for line in fs::read_to_string(mailbox?.path())?.split_inclusive('\n') {
            if !missing.remove(line) {
                return Err(other(format!("{line:?} came twice, or from nobody")));
            }
        }
    }
    match missing.iter().next() {
        Some(line) => Err(other(format!("{line:?} was lost"))),
        None => Ok(()),
    }
}

fn main() -> io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    if let [step, directory, id, user] = &words[..] {
        match step.as_str() {
            RECEIVE => return receive(Path::new(directory), id, user),
            DELIVER => return deliver(Path::new(directory), id, user),
            APPEND => return append(Path::new(directory), user),
            _ => {}
        }
    }
    let number = |at: usize, default: usize| match words.get(at) {
        None => Ok(default),
        Some(word) => word.parse().map_err(|_| other(format!("'{word}' is no number"))),
    };
    let (clients, messages, users) = (number(1, 2)?, number(2, 5)?, number(3, 10)?.max(1));
    let directory = words.first().map_or_else(env::temp_dir, PathBuf::from);
    let own = directory.canonicalize()?.join(format!("mail-{}", std::process::id()));
    fs::create_dir(&own)?;
    let took = send(&own, clients, messages, users)?;
    check(&own, clients, messages)?;
    fs::remove_dir_all(&own)?;
    let all = (clients * messages) as f64;
    println!(
        "{all} messages in {:.3} s, {:.0} a second",
        took.as_secs_f64(),
        all / took.as_secs_f64()
    );
    Ok(())
}
