#!/usr/bin/env bash
# The tests that look for rare interleavings on the real machine, optimised, for long: litmus races,
# histories checked for linearizability, and the soak with its oracle.
#   ci/stress.sh [SECONDS]   each soak that long (default 60), each race ten million rounds
#   ci/stress.sh --short     a second each, and fewer tests: what .ci/run calls
# MANYCORE_SEED=0x12ab repeats the operations of an earlier run.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tests=(litmus linearizability stress torture ldu_stress swap locks slab namespace)
case "${1:-60}" in
--short)
    export MANYCORE_SOAK=1
    tests=(litmus linearizability stress torture)
    ;;
*[!0-9]* | 0) die "'$1' is no number of seconds, and not --short" ;;
*) export MANYCORE_SOAK="${1:-60}" MANYCORE_ROUNDS="${MANYCORE_ROUNDS:-10000000}" ;;
esac

say "each soak $MANYCORE_SOAK s${MANYCORE_ROUNDS:+, each race $MANYCORE_ROUNDS rounds}"
quick_builds
cargo test --release --locked -p manycore "${tests[@]/#/--test=}" -- --nocapture --test-threads=1

# The test of the torture test, in a build where bugs can be planted: the long form only.
[ -z "${MANYCORE_ROUNDS:-}" ] ||
    RUSTFLAGS="--cfg manycore_seeded_bugs" CARGO_TARGET_DIR="$TARGET/seeded" \
        cargo test --release --locked -p manycore --test=torture -- --nocapture --test-threads=1
