//! Domains of every kind.

use super::manycore::section::{Domain, Mode};

type Make = fn() -> Domain;

/// Returns a domain of each kind. Batches are small, so that nodes are freed early.
pub fn domains() -> [(&'static str, Make); 3] {
    [
        ("epoch", || small(Mode::Epoch, true)),
        ("bounded", || small(Mode::Bounded, true)),
        ("bounded, fenced", || small(Mode::Bounded, false)),
    ]
}

fn small(mode: Mode, asymmetric: bool) -> Domain {
    let builder = Domain::builder().mode(mode).asymmetric(asymmetric).batch_nodes(4);
    builder.build().expect("settings that can work")
}
