//! Replies through TLS: plain bytes become records, and records go to the socket.

use crate::tls::TlsSession;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::io::{self, IoSlice, Write};

/// Encrypts and sends the pieces from `from` on, as far as possible. Returns the position reached,
/// and true if everything was sent.
pub(super) fn write_encrypted(
    tls: &mut TlsSession,
    socket: &OwnedFd,
    bytes: &[u8],
    mut from: usize,
) -> Result<(usize, bool), Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::PROTO);
    loop {
        if !tls.send(&mut Outlet(socket)).map_err(errno)? {
            return Ok((from, false));
        }
        if from == bytes.len() {
            return Ok((from, true));
        }
        match tls.encrypt(&bytes[from..]).map_err(errno)? {
            0 => return Err(Errno::PROTO), // the handshake is not complete: no reply can be due yet
            encrypted => {
                debug_assert!(encrypted <= bytes.len() - from, "TLS takes more than it was given");
                from += encrypted;
            }
        }
    }
}

/// A socket as the destination of TLS records.
pub(super) struct Outlet<'a>(pub(super) &'a OwnedFd);

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let nothing = &mut SendAncillaryBuffer::default();
        Ok(sendmsg(self.0, parts, nothing, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
