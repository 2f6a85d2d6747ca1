//! An axum server with its clients on one runtime. Fails if an answer is wrong.

use axum::{Router, extract::Path, routing::get};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

const CLIENTS: usize = 12;
const REQUESTS: usize = 10;

#[tokio::main]
async fn main() {
    let squares = |Path(number): Path<u64>| async move { (number * number).to_string() };
    let router = Router::new().route("/square/{number}", get(squares));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("an address");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(async move {
            let mut stream = TcpStream::connect(address).await.expect("a server");
            let request = format!("GET /square/{client} HTTP/1.1\r\nHost: a\r\n\r\n");
            let body = (client * client).to_string();
            let mut received = Vec::new();
            for _ in 0..REQUESTS {
                stream.write_all(request.as_bytes()).await.expect("a server");
                received.clear();
                while !received.ends_with(format!("\r\n\r\n{body}").as_bytes()) {
                    assert!(stream.read_buf(&mut received).await.expect("a server") > 0);
                }
                assert!(received.starts_with(b"HTTP/1.1 200 OK"));
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no panic");
    }
    server.abort();
    println!("axum: all well");
}
