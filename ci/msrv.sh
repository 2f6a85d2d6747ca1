#!/usr/bin/env bash
# The library builds with the oldest compiler it promises: `rust-version` in Cargo.toml.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
version=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' Cargo.toml | head -n 1)
[ -n "$version" ] || die "Cargo.toml states no rust-version"
need_toolchain "$version"
CARGO_TARGET_DIR="$TARGET/msrv" cargo "+$version" check -p manycore -p manycore-derive -p manycore-cache -p manycore-capi -p manycore-metrics -p manycore-trace -p manycore-vm -p manycore-fs --lib --locked
say "the library builds with Rust $version"
