#!/usr/bin/env bash
# The benchmarks' rivals that are written in C build and conform, where the system has their libraries. The
# feature c-rivals of crates/manycore-bench says which those are.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v pkg-config >/dev/null 2>&1 || skip "no pkg-config"
for library in liburcu-memb liburcu-mb liburcu-qsbr liburcu-bp ck; do
    pkg-config --exists "$library" || skip "no development files of $library"
done
FEATURES+=,manycore-bench/c-rivals
# The second has counter-c and hash-map-c.
workspace test --lib -- smr every_implementation
say "the rivals written in C conform"
