//! Prints a model of this machine, as a file that `Machine::from_toml` reads.
//!
//! `cargo run --release -p manycore-sim --example this_host`

use manycore_sim::Machine;

fn main() {
    print!("{}", Machine::this_host().to_toml());
}
