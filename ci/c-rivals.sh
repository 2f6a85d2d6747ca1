#!/usr/bin/env bash
# The benchmarks' rivals behind features build and conform: those of metrics and of tracing, and those
# written in C where the system has their libraries. The features metrics-rivals, trace-rivals and
# c-rivals of crates/manycore-bench say which those are. The layer and the logger of manycore-trace,
# whose crates come with the first two, are tested along.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
features=manycore-bench/metrics-rivals,manycore-bench/trace-rivals,manycore-trace/log
tests=(scrapes_of_all_metrics_crates recorders_of_all_crates bridge::)
missing=
if command -v pkg-config >/dev/null 2>&1; then
    for library in liburcu-memb liburcu-mb liburcu-qsbr liburcu-bp ck; do
        pkg-config --exists "$library" || missing="no development files of $library"
    done
else
    missing="no pkg-config"
fi
if [ -z "$missing" ]; then
    features+=,manycore-bench/c-rivals
    tests+=(smr every_implementation) # the second has counter-c and hash-map-c
fi
# The whole workspace, because the dependencies are then those that other checks have built.
cargo test --workspace --lib --features "$features" --locked -- "${tests[@]}"
say "the crates for metrics and for tracing conform"
[ -z "$missing" ] || skip "the rivals written in C: $missing"
say "the rivals written in C conform"
