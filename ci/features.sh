#!/usr/bin/env bash
# Each feature of the library alone, and none: it builds without a warning, with its examples. The tests
# pass without any feature; ci/test.sh runs those of all features together, and has to have all of them.
# The features of manycore-metrics and manycore-trace build without a warning.
#   ci/features.sh         as above: what .ci/run calls
#   ci/features.sh NAME    the tests of the feature NAME, which is the only one
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

manifest=crates/manycore/Cargo.toml
# All but those that the default brings, whose tests are ci/test.sh's.
mapfile -t features < <(sed -n '/^\[features\]/,/^\[[^f]/s/^\([a-z_-]*\) = .*/\1/p' "$manifest" |
    grep -vxE 'default|collections')
[ ${#features[@]} -gt 4 ] || die "$manifest has only ${#features[@]} features"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export RUSTFLAGS="-D warnings" CARGO_TARGET_DIR="$TARGET/features"

# tests FEATURE FEATURES: the tests that are named after a feature, with these features.
tests() {
    say "--- tests of ${1:-no feature}"
    cargo test -q -p manycore --lib --test integration --locked --no-default-features \
        --features "$2" "${1//-/_}" | tee "$log"
    # The library's unit tests and the program of integration tests each had some; another crate's
    # traits, and the derive macro, are tested from outside only.
    local programs=2
    [[ $1 != *[-_]* && $1 != derive ]] || programs=1
    [ "$(grep -c '^test result: ok\. [1-9]' "$log")" -ge $programs ] || die "no test is named after '$1'"
}

if [ $# -gt 0 ]; then
    for feature in "$@"; do tests "$feature" "$feature"; done
    exit
fi
for feature in collections "${features[@]}" ""; do
    say "--- ${feature:-no feature}"
    cargo check -q -p manycore --lib --examples --locked --no-default-features --features "$feature"
done
for feature in "${features[@]}"; do
    [ ! -d "crates/manycore/src/$feature" ] || continue
    [[ ,$FEATURES, == *",manycore/$feature,"* ]] || die "ci/lib.sh: FEATURES lacks '$feature'"
    grep -qrE "^mod ${feature//-/_}(_.*)?( \{|;)$" crates/manycore/tests/integration ||
        die "no test is named after '$feature'"
done
tests "" ""
say "--- manycore-metrics"
# Its tests need all of them, and are ci/test.sh's.
for feature in "" metrics opentelemetry prometheus-client; do
    cargo check -q -p manycore-metrics --lib --locked --no-default-features --features "$feature"
done
say "--- manycore-trace"
for feature in log lz4 tracing; do
    cargo check -q -p manycore-trace --lib --locked --features "$feature"
done
say "each feature builds alone: ${features[*]}"
