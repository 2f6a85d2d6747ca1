#!/usr/bin/env bash
# Every Rust file is formatted as rustfmt.toml says. `cargo fmt --all` mends it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_component rustfmt
cargo fmt --all -- --check
say "formatted"
