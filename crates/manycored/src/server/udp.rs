//! Requests and replies in datagrams (`-U`).
//!
//! Each datagram begins with a header of eight bytes, in network order:
//!
//! ```text
//! bytes 0-1   the client's number of the request
//! bytes 2-3   the datagram's sequence number within its message
//! bytes 4-5   the number of datagrams of the message
//! bytes 6-7   reserved
//! ```
//!
//! A request is one datagram. A reply has as many datagrams as it needs, in order, with the
//! client's number. Each request datagram is a session of its own. Source: memcached's
//! protocol.txt, "UDP protocol". (memcached 1.6.18 sends each line of a reply to several keys as a
//! message of its own; that text, and this server, have one message.)
//!
//! Laws:
//! - udp.U1 The worker answers a datagram at once and keeps nothing of it, so no client holds
//!   memory.
//! - udp.U2 The sender's address is not authenticated. It may be forged, so that the reply
//!   goes to another host (amplification). So a reply's datagrams have at most [`UDP_RATIO`] times
//!   the bytes of the request's datagram. There is no such bound if the sender is this machine,
//!   because no host on a network can forge that address. The option `-o udp_reply_ratio` sets
//!   another ratio for all senders. If a reply would exceed the bound, its request is refused in a
//!   line, and the requests behind it get no reply.
//! - udp.U3 The replies to a datagram end with the reply that reaches `session`'s bound; later
//!   requests in the datagram get no reply. If the system does not accept a datagram at once, the
//!   datagram is lost.

use super::Failure;
use super::connection::WorkerBuffers;
use crate::args::Plan;
use crate::clients::Clients;
use crate::protocol::binary;
use crate::server_state::UDP_RATIO;
use crate::session::{OUT_MAX, Session, SessionAction};
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_recv_buffer_size, set_socket_reuseport, set_socket_send_buffer_size,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, bind, getsockname,
    recvfrom, sendto, socket_with,
};
use std::net::SocketAddr;

/// Bytes of a header.
const HEADER: usize = 8;
/// Bytes of one datagram of a reply, its header included, as in memcached. It fits into an Ethernet
/// frame.
const DATAGRAM: usize = 1400;
/// The length of the longest UDP datagram.
pub(super) const LONGEST: usize = 1 << 16;
/// Datagrams that are answered before other sockets have their turn.
const TURN: usize = 64;
/// Bytes requested for the system's socket buffers.
const BUFFER: usize = 4 << 20;

const IN_PARTS: &[u8] = b"SERVER_ERROR multi-packet request not supported\r\n";
/// The reply that replaces a reply which would be too long (udp.U2).
const TOO_LONG: &[u8] = b"SERVER_ERROR reply too long for a datagram of this length\r\n";

/// Opens each worker's sockets. Also returns the port of the first socket.
pub(super) fn sockets(plan: &Plan) -> Result<(Vec<Vec<OwnedFd>>, u16), Failure> {
    let mut workers: Vec<Vec<OwnedFd>> = (0..plan.settings.threads).map(|_| Vec::new()).collect();
    let mut port = 0;
    for address in &plan.datagrams {
        let failed = || Failure::system(format!("cannot have {address} for datagrams"));
        // Fails if another process has bound it: only this server's workers share the port.
        let alone = socket(*address, false).map_err(failed())?;
        let own = getsockname(&alone).and_then(SocketAddr::try_from).map_err(failed())?;
        drop(alone);
        port = if port == 0 { own.port() } else { port };
        for worker in &mut workers {
            worker.push(socket(own, true).map_err(failed())?);
        }
    }
    Ok((workers, port))
}

fn socket(address: SocketAddr, is_shared: bool) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::DGRAM, flags, None)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    set_socket_reuseport(&socket, is_shared)?;
    // The system may allow less; then more datagrams are lost.
    let _ = set_socket_send_buffer_size(&socket, BUFFER);
    let _ = set_socket_recv_buffer_size(&socket, BUFFER);
    bind(&socket, &address)?;
    Ok(socket)
}

/// Lists a socket for `stats conns`.
pub(super) fn list(socket: &OwnedFd, clients: &Clients) {
    let address = getsockname(socket).and_then(SocketAddr::try_from);
    let address = address.map_or("unknown".into(), |address| address.to_string());
    clients.add_listener(socket.as_raw_fd(), format!("udp:{address}"), "conn_read");
}

/// The header of a datagram.
struct Header {
    /// The client's request number.
    id: [u8; 2],
    /// Whether the datagram is a whole message.
    is_whole: bool,
}

/// Splits a datagram into its header and the rest. `None` if the datagram is too short.
fn split(datagram: &[u8]) -> Option<(Header, &[u8])> {
    let (header, rest) = datagram.split_first_chunk::<HEADER>()?;
    let [a, b, _, _, total @ .., _, _] = *header;
    Some((Header { id: [a, b], is_whole: total == [0, 1] }, rest))
}

/// Returns the datagrams of a reply. There are none if the reply is empty, or longer than the
/// header can number.
fn datagrams(id: [u8; 2], reply: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let parts = reply.chunks(DATAGRAM - HEADER);
    let total = u16::try_from(parts.len()).ok();
    parts.enumerate().map_while(move |(at, part)| {
        let (at, total) = (u16::try_from(at).ok()?, total?);
        let header = [id, at.to_be_bytes(), total.to_be_bytes(), [0; 2]];
        let datagram = [header.as_flattened(), part].concat();
        debug_assert!(
            datagram.len() <= DATAGRAM && at < total,
            "udp.U3: a datagram of {} bytes, number {at} of {total}",
            datagram.len()
        );
        Some(datagram)
    })
}

/// Answers the received datagrams. Returns true if a client asked for a shutdown.
pub(super) fn serve(
    socket: impl AsFd,
    buffers: &mut WorkerBuffers<'_>,
    room: &mut Vec<u8>,
    ratio: Option<usize>,
) -> bool {
    // udp.U1: read, answered and dropped, one datagram after the other.
    let mut action = SessionAction::Continue;
    for _ in 0..TURN {
        room.clear();
        match recvfrom(&socket, spare_capacity(room), RecvFlags::empty()) {
            Ok((_, _, Some(from))) => {
                let is_near = SocketAddr::try_from(from.clone())
                    .is_ok_and(|from| from.ip().to_canonical().is_loopback());
                let usual = if is_near { 0 } else { UDP_RATIO };
                let (id, reply, wanted) = answer(room, buffers, ratio.unwrap_or(usual));
                if wanted == SessionAction::Shutdown {
                    action = wanted;
                }
                send(&socket, &from, id, &reply, buffers);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            // An error of an earlier reply, unrelated to the next request.
            Err(_) => {}
        }
    }
    action == SessionAction::Shutdown
}

/// Returns the bytes of all datagrams of a reply.
fn sent_for(reply: usize) -> usize {
    reply + reply.div_ceil(DATAGRAM - HEADER) * HEADER
}

/// Returns the error that replaces a too long reply, in the protocol of its request.
fn too_long(request: &[u8]) -> Vec<u8> {
    match request.first_chunk::<16>() {
        Some([binary::MAGIC, opcode, _, _, _, _, _, _, _, _, _, _, opaque @ ..]) => {
            let opaque: &[u8; 4] = opaque;
            let status = [0, binary::Status::TooLarge as u8];
            let start = [binary::REPLY_MAGIC, *opcode, 0, 0, 0, 0];
            [&start, &status[..], &[0; 4], opaque, &[0; 8]].concat()
        }
        _ => TOO_LONG.to_vec(),
    }
}

fn answer(
    datagram: &[u8],
    buffers: &mut WorkerBuffers<'_>,
    ratio: usize,
) -> ([u8; 2], Vec<u8>, SessionAction) {
    buffers.context.handle.counters.bytes_read.add(datagram.len() as u64);
    let Some((Header { id, is_whole }, input)) = split(datagram) else {
        return ([0; 2], Vec::new(), SessionAction::Continue);
    };
    if !is_whole {
        return (id, IN_PARTS.to_vec(), SessionAction::Continue);
    }
    let mut session = Session::new(buffers.context.handle.store().limits().item);
    debug_assert!(datagram.len() <= LONGEST, "udp.U1: a datagram has {} bytes", datagram.len());
    let (mut reply, mut used) = (Vec::new(), 0);
    let most = if ratio == 0 { usize::MAX } else { datagram.len().saturating_mul(ratio) };
    // One key at a time, to find the first reply that exceeds the bound.
    let budget = if ratio == 0 { usize::MAX } else { 1 };
    // The ends of the replies and of the requests that are whole.
    let (mut answered, mut asked) = (0, 0);
    loop {
        let progress = session.feed(&mut buffers.context, &input[used..], &mut reply, budget);
        if sent_for(reply.len()) > most {
            reply.truncate(answered);
            let refusal = too_long(&input[asked..]);
            if sent_for(answered + refusal.len()) <= most {
                reply.extend(refusal);
            }
            break;
        }
        used += progress.used;
        debug_assert!(
            used <= input.len() && answered <= reply.len() && asked <= used,
            "udp.U2: positions {used}, {answered}, {asked} are outside of request or reply"
        );
        if session.is_between() {
            (answered, asked) = (reply.len(), used);
        }
        let goes_on = progress.is_paused && budget == 1 && reply.len() < OUT_MAX;
        if !goes_on || session.action() != SessionAction::Continue || used == input.len() {
            break;
        }
    }
    (id, reply, session.action())
}

fn send(
    socket: impl AsFd,
    to: &SocketAddrAny,
    id: [u8; 2],
    reply: &[u8],
    buffers: &WorkerBuffers<'_>,
) {
    for datagram in datagrams(id, reply) {
        match sendto(&socket, &datagram, SendFlags::NOSIGNAL, to) {
            Ok(sent) => buffers.context.handle.counters.bytes_written.add(sent as u64),
            Err(Errno::INTR) => {}
            Err(_) => return, // udp.U3
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_and_short_ones_are_nobodys() {
        let (header, rest) = split(b"\x12\x34\0\0\0\x01\0\0get a\r\n").unwrap();
        assert_eq!((header.id, header.is_whole, rest), ([0x12, 0x34], true, &b"get a\r\n"[..]));
        for part in [b"\0\0\0\0\0\x02\0\0", b"\0\0\0\0\0\0\0\0", b"\0\0\0\0\x01\x01\0\0"] {
            assert!(!split(part).unwrap().0.is_whole);
        }
        assert!(split(b"get a\r\n").is_none());
    }

    #[test]
    fn replies_come_in_counted_parts() {
        let reply: Vec<u8> = (0..3 * (DATAGRAM - HEADER) + 5).map(|at| at as u8).collect();
        let all: Vec<_> = datagrams([7, 8], &reply).collect();
        assert_eq!(all.len(), 4);
        let mut joined = Vec::new();
        for (at, datagram) in all.iter().enumerate() {
            assert!(datagram.len() <= DATAGRAM);
            assert_eq!(datagram[..HEADER], [7, 8, 0, at as u8, 0, 4, 0, 0]);
            joined.extend_from_slice(&datagram[HEADER..]);
        }
        assert_eq!(joined, reply);
        assert_eq!(datagrams([0, 0], b"").count(), 0);
        let too_much = vec![0; (DATAGRAM - HEADER) * (1 << 16)];
        assert_eq!(datagrams([0, 0], &too_much).count(), 0);
    }
}
