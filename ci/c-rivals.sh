#!/usr/bin/env bash
# The benchmarks' rivals written in C build and conform, where the system has
# their libraries. The feature c-rivals of crates/manycore-bench says which those are.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v pkg-config >/dev/null 2>&1 || skip "no pkg-config"
for library in liburcu-memb liburcu-mb liburcu-qsbr liburcu-bp ck; do
    pkg-config --exists "$library" || skip "no development files of $library"
done
# The whole workspace, because the dependencies are then those that other checks have built.
cargo test --workspace --lib --features manycore-bench/c-rivals --locked smr
say "the rivals written in C conform"
