#!/usr/bin/env bash
# Each feature of the library alone, and none: it builds without a warning, and its tests pass. Those
# of manycore-metrics and manycore-trace build without a warning.
#   ci/features.sh [NAME]    only the feature NAME
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

manifest=crates/manycore/Cargo.toml
features=("$@")
if [ $# = 0 ]; then
    # All but those that the default brings, whose tests are ci/test.sh's.
    mapfile -t features < <(sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z_-]*\) = .*/\1/p' "$manifest" |
        grep -vxE 'default|collections')
    [ ${#features[@]} -gt 4 ] || die "$manifest has only ${#features[@]} features"
    features+=("")
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export RUSTFLAGS="-D warnings" CARGO_TARGET_DIR="$TARGET/features"
for feature in "${features[@]}"; do
    say "--- ${feature:-no feature}"
    # All is built; of the tests run those of the feature's own.
    cargo test -q -p manycore --lib --test integration --examples --locked --no-default-features \
        --features "$feature" "${feature//-/_}" | tee "$log"
    # The library's unit tests and the program of integration tests each had some; another crate's
    # traits are tested from outside only.
    programs=2
    [[ $feature != *[-_]* ]] || programs=1
    [ "$(grep -c '^test result: ok\. [1-9]' "$log")" = $programs ] ||
        die "no test is named after '$feature'"
done
if [ $# = 0 ]; then
    say "--- manycore-metrics"
    # Its tests need all of them, and are ci/test.sh's.
    for feature in "" metrics opentelemetry prometheus-client; do
        cargo check -q -p manycore-metrics --lib --locked --no-default-features --features "$feature"
    done
    say "--- manycore-trace"
    for feature in log lz4 tracing; do
        cargo check -q -p manycore-trace --lib --locked --features "$feature"
    done
fi
say "each feature builds and passes its tests alone: ${features[*]}"
