#!/usr/bin/env bash
# The library compiles where it is not run. A platform whose standard library cannot be
# fetched is skipped, and named.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v rustup >/dev/null 2>&1 || { say "SKIPPED: no rustup to fetch other platforms with"; exit 0; }
for platform in aarch64-unknown-linux-gnu aarch64-apple-darwin x86_64-pc-windows-msvc; do
    if rustup target add "$platform" >/dev/null 2>&1; then
        cargo check -p manycore --lib --locked --target "$platform"
        say "the library compiles for $platform"
    else
        say "SKIPPED: no standard library for $platform"
    fi
done
