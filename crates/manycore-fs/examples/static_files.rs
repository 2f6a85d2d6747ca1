//! The load of a web server with one file of 512 bytes on any directory. Clients in processes of
//! their own ask for it over connections that stay open. For each request the server opens, reads
//! and closes the file. (OpLog's Apache load: its file's name and attributes are looked up
//! for each request, from all processors.)
//!
//! ```text
//! cargo run --release -p manycore-fs --example static_files -- DIRECTORY [CLIENTS [REQUESTS]]
//! ```
//!
//! REQUESTS are those of each client. Without words it makes a small run in a temporary directory.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Instant;
use std::{env, thread};

const LENGTH: usize = 512;
/// The word that makes this program a client.
const CLIENT: &str = "--client";

fn other(words: impl ToString) -> io::Error {
    io::Error::other(words.to_string())
}

/// Answers the requests of a connection, each a line with a name. An answer is the length of the
/// file in a line, and its bytes.
fn serve(stream: TcpStream, directory: &Path) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut lines, mut stream) = (BufReader::new(stream.try_clone()?), stream);
    let (mut line, mut answer) = (String::new(), Vec::new());
    while lines.read_line(&mut line)? != 0 {
        let mut file = File::open(directory.join(line.trim_end()))?;
        let length = file.metadata()?.len();
        answer.clear();
        writeln!(answer, "{length}")?;
        file.read_to_end(&mut answer)?;
        stream.write_all(&answer)?;
        line.clear();
    }
    Ok(())
}

fn client(port: u16, requests: usize) -> io::Result<()> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    let (mut answers, mut stream) = (BufReader::new(stream.try_clone()?), stream);
    let mut bytes = [0; LENGTH];
    for _ in 0..requests {
        stream.write_all(b"page\n")?;
        let mut line = String::new();
        answers.read_line(&mut line)?;
        if line != format!("{LENGTH}\n") {
            return Err(other(format!("the answer begins with {line:?}")));
        }
        answers.read_exact(&mut bytes)?;
        if bytes != [b'.'; LENGTH] {
            return Err(other("the file has other bytes"));
        }
    }
    Ok(())
}

fn run(directory: &Path, clients: usize, requests: usize) -> io::Result<f64> {
    fs::write(directory.join("page"), [b'.'; LENGTH])?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (own, port) = (env::current_exe()?, listener.local_addr()?.port());
    let begin = Instant::now();
    let clients = (0..clients).map(|_| {
        Command::new(&own).args([CLIENT, &port.to_string(), &requests.to_string()]).spawn()
    });
    let clients = clients.collect::<io::Result<Vec<Child>>>()?;
    thread::scope(|scope| {
        for _ in &clients {
            let (stream, _) = listener.accept()?;
            scope.spawn(move || serve(stream, directory).expect("the file is there"));
        }
        io::Result::Ok(())
    })?;
    for mut client in clients {
        let status = client.wait()?;
        if !status.success() {
            return Err(other(format!("a client ended with {status}")));
        }
    }
    Ok(begin.elapsed().as_secs_f64())
}

fn main() -> io::Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let number = |at: usize, default: usize| match words.get(at) {
        None => Ok(default),
        Some(word) => word.parse().map_err(|_| other(format!("'{word}' is no number"))),
    };
    if words.first().is_some_and(|word| word == CLIENT) {
        let port = u16::try_from(number(1, 0)?).map_err(other)?;
        return client(port, number(2, 0)?);
    }
    let (clients, requests) = (number(1, 2)?, number(2, 100)?);
    let directory = words.first().map_or_else(env::temp_dir, PathBuf::from);
    let own = directory.join(format!("static-files-{}", std::process::id()));
    fs::create_dir(&own)?;
    let took = run(&own, clients, requests)?;
    fs::remove_dir_all(&own)?;
    let all = (clients * requests) as f64;
    println!("{all} requests in {took:.3} s, {:.0} a second", all / took);
    Ok(())
}
