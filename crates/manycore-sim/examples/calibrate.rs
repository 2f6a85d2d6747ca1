//! Measures this machine, and prints its model as a file that `Machine::from_toml` reads; the
//! command `manycore sim calibrate` does the same.
//!
//! `cargo run --release -p manycore-sim --example calibrate`

use manycore_sim::calibrate::Calibration;

fn main() {
    match Calibration::measure(|part| eprintln!("{part}")) {
        Ok(found) => print!("{}", found.to_toml()),
        Err(error) => eprintln!("{error}"),
    }
}
