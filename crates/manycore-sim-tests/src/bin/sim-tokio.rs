//! Programs on tokio, as people write them: a runtime with everything enabled, timers, TCP, and
//! with `children` a child process. Fails if one of them does not do what it does on real cores.

use std::{process::Stdio, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, interval, sleep, timeout},
};

const CLIENTS: usize = 12;
const REQUESTS: usize = 10;

#[tokio::main]
async fn main() {
    sleeps().await;
    echoes().await;
    if std::env::args().nth(1).as_deref() == Some("children") {
        reads_the_output_of_a_child().await;
    }
    println!("tokio: all well");
}

async fn sleeps() {
    let began = Instant::now();
    let mut ticks = interval(Duration::from_millis(10));
    for _ in 0..4 {
        ticks.tick().await;
    }
    assert!(began.elapsed() >= Duration::from_millis(30), "the first tick comes at once");
    let (_sender, mut receiver) = mpsc::channel::<()>(1);
    let waited = timeout(Duration::from_secs(60), receiver.recv()).await;
    assert!(waited.is_err() && began.elapsed() >= Duration::from_secs(60));
}

async fn echoes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a client");
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await.expect("a client");
            });
        }
    });
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(async move {
            let mut stream = TcpStream::connect(address).await.expect("a server");
            for request in 0..REQUESTS {
                let sent = [client as u8, request as u8];
                stream.write_all(&sent).await.expect("a server");
                let mut received = [0; 2];
                stream.read_exact(&mut received).await.expect("a server");
                assert_eq!(received, sent);
                sleep(Duration::from_micros(100)).await;
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no panic");
    }
    server.abort();
}

async fn reads_the_output_of_a_child() {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 0.02; echo well"]).stdin(Stdio::null());
    let output = command.output().await.expect("a child");
    assert_eq!(output.stdout, b"well\n");
}
