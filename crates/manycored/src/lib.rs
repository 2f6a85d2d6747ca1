//! A memcached-compatible cache server, on [`manycore_cache`].
//!
//! Other programs may use its parts. A request passes through them like this:
//!
//! ```text
//! socket --bytes--> server --bytes--> session --requests--> store
//!                                        |
//!                                     protocol (parses)
//! ```
//!
//! [`server`] has the sockets and the workers. [`session`] answers one client without a socket.
//! [`protocol`] parses bytes into requests. [`store`] keeps items as memcached does. The command
//! `manycored` is [`args`] and these parts. The server speaks the text, meta and binary protocols;
//! a client's first byte tells which.
//!
//! ```
//! use manycored::server_state::ServerState;
//! use manycored::session::{Context, Session};
//! use manycored::store::{Limits, Store};
//!
//! let store = Store::new(Limits::default(), 1); // for one worker
//! let server = ServerState::default();
//! let mut context = Context::new(store.handle(0), &server);
//! let mut session = Session::new(store.limits().item);
//! let mut out = Vec::new();
//! session.feed(&mut context, b"set a 0 0 2\r\nhi\r\nget a\r\n", &mut out, usize::MAX);
//! assert_eq!(out, b"STORED\r\nVALUE a 0 2\r\nhi\r\nEND\r\n");
//! ```

pub mod args;
pub mod auth;
mod binary;
pub mod buffers;
pub mod clients;
mod config;
mod context;
pub mod latency;
pub mod log;
mod meta;
pub mod metrics;
mod operator;
mod prefetch;
pub mod protocol;
mod reply;
mod request_log;
pub mod restart;
#[cfg(target_os = "linux")]
pub mod server;
pub mod server_state;
pub mod session;
mod stats_command;
pub mod store;
pub mod system;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
pub mod tls;
mod tls_files;
pub mod trace;
