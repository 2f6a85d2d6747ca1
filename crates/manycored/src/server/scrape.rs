//! The socket that serves the metrics by HTTP.
//!
//! The housekeeping thread serves one client at a time. A page takes some microseconds, and a
//! client that does not accept it in time is dropped. So a stalled client delays the housekeeping
//! by at most [`PATIENCE`], and never delays a worker.

use super::{Failure, Shared};
use crate::metrics;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The longest that one client may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// The longest request. Only its first line is parsed.
const REQUEST_MAX: usize = 4096;

/// Listens on the address.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    let failed = || Failure::system(format!("cannot listen on {address} for metrics"));
    let listener = TcpListener::bind(address).map_err(failed())?;
    listener.set_nonblocking(true).map_err(failed())?;
    Ok(listener)
}

/// Serves one client, if a client is connected. Returns false if a client can't be accepted, for
/// lack of a descriptor or of memory. Then the listener stays readable.
pub(super) fn serve(listener: &TcpListener, shared: &Shared) -> bool {
    match listener.accept() {
        Ok((mut stream, _)) => {
            // After an error or a timeout the client gets nothing more.
            let _ = binary(&mut stream, shared);
            true
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn binary(stream: &mut TcpStream, shared: &Shared) -> std::io::Result<()> {
    let by = Instant::now() + PATIENCE;
    let left = || by.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_nonblocking(false)?;
    let (mut request, mut buffer) = (Vec::new(), [0; REQUEST_MAX]);
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        stream.set_read_timeout(Some(left()))?;
        let read = stream.read(&mut buffer)?;
        request.extend_from_slice(&buffer[..read]);
        if read == 0 || request.len() > REQUEST_MAX || Instant::now() >= by {
            return Err(ErrorKind::InvalidData.into());
        }
    }
    let text = String::from_utf8_lossy(&request);
    if let Some(reply) = metrics::answer(&text, &shared.store, &shared.server) {
        stream.set_write_timeout(Some(left()))?;
        stream.write_all(reply.as_bytes())?;
    }
    Ok(())
}
