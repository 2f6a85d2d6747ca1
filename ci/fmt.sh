#!/usr/bin/env bash
# Every Rust file is formatted as rustfmt.toml says. `cargo fmt --all` mends it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_component rustfmt
cargo fmt --all -- --check
# A workspace of its own, which needs the packages to be read by cargo.
rustfmt --edition 2024 --check adopters/src/lib.rs adopters/examples/*.rs
say "formatted"
