//! The options of `manycore-bench bench server`.

use std::{
    net::{SocketAddr, ToSocketAddrs},
    str::FromStr,
};

use clap::Args;
use manycore_cli::number::positive;

use crate::server::{Protocol, ServerOptions, VALUE};

/// The most requests under way on a connection. Their bytes must fit in the sockets' buffers.
const PIPELINE_MAX: usize = 1024;
/// The largest value that all servers accept without an option.
const VALUE_MAX: usize = 1_000_000;

/// The options of the workload `server`.
#[derive(Args)]
pub struct ServerArgs {
    /// Use the server at this address instead of starting servers; its keys are set first
    #[arg(long, value_name = "ADDR", value_parser = address)]
    connect: Option<SocketAddr>,
    /// The protocol: 'text', 'meta', or 'resp' with --connect
    #[arg(long, value_name = "NAME", default_value_t, value_parser = Protocol::from_str)]
    protocol: Protocol,
    /// Requests of a connection under way at once
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = depth,
          default_value = "1,16,64")]
    pipeline: Vec<usize>,
    /// Connections
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = positive)]
    connections: usize,
    /// Keys of a get in the group of gets with many keys; 1 leaves it out
    #[arg(long, value_name = "COUNT", default_value_t = 64, value_parser = depth)]
    multiget: usize,
    /// Bytes of a value; -m grows with them, so take fewer --keys for large values
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',', value_parser = length,
          default_value = "32")]
    value: Vec<usize>,
    /// The servers' -R: requests of a connection before others have their turn; 'default', or a
    /// number, which has no effect on Redis and the floor
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', value_parser = slice,
          default_value = "default")]
    slice: Vec<Slice>,
    /// Keys a second, with a group for each rate: an open loop, timed from when a batch was due
    #[arg(long, value_name = "RATES", value_delimiter = ',', value_parser = rate)]
    rate: Vec<f64>,
}

impl ServerArgs {
    /// Returns the options in the form of the benchmark.
    pub fn options(&self) -> ServerOptions {
        ServerOptions {
            connect: self.connect,
            protocol: self.protocol,
            pipeline: self.pipeline.clone(),
            connections: self.connections,
            multiget: self.multiget,
            value: self.value.clone(),
            slice: self.slice.iter().map(|slice| slice.0).collect(),
            rate: self.rate.clone(),
        }
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().map_err(|error| error.to_string())?.next();
    found.ok_or_else(|| "no such address".to_owned())
}

fn depth(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=PIPELINE_MAX).contains(&count) => Ok(count),
        _ => Err(format!("a whole number from 1 to {PIPELINE_MAX} is needed")),
    }
}

fn length(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(length) if (VALUE..=VALUE_MAX).contains(&length) => Ok(length),
        _ => Err(format!("a whole number from {VALUE} to {VALUE_MAX} is needed")),
    }
}

/// A server's `-R`; `None` is the server's default.
#[derive(Clone, Copy)]
struct Slice(Option<usize>);

fn slice(text: &str) -> Result<Slice, &'static str> {
    match text.parse() {
        _ if text == "default" => Ok(Slice(None)),
        Ok(count) if count > 0 => Ok(Slice(Some(count))),
        _ => Err("'default' or a whole number from 1 is needed"),
    }
}

fn rate(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(rate) if (1.0..=1e9).contains(&rate) => Ok(rate),
        _ => Err("a number of keys a second from 1 is needed"),
    }
}
