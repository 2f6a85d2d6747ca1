#!/usr/bin/env bash
# The one test command: the library under two model checkers, then examples, and unit, integration,
# property and documentation tests on the real machine.
#   ci/test.sh            everything, the large models in their short form
#   ci/test.sh models     of that, the models
#   ci/test.sh std        the real machine only
#   ci/test.sh loom [F]   loom's models in full, or only those whose name contains F
#   ci/test.sh shuttle [F]  the same for shuttle's
# docs/testing.md says how to look at a failure of a model.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

std() {
    local source example
    say "--- examples"
    workspace build --examples
    for source in crates/*/examples/*.rs; do
        example=$(basename "$source" .rs)
        say "example $example"
        "$TARGET/debug/examples/$example" >"$log" || { cat "$log"; die "the example $example failed"; }
    done
    say "--- unit, integration, property and documentation tests"
    workspace test
}

# A model checker replaces atomics, cells and threads of the whole library; so it has its own
# build, in a profile of its own.
model() {
    local checker=$1 filter=${2:-$1} features=() packages=(-p manycore)
    if [ "$checker" = loom ]; then
        packages+=(-p manycore-cache -p manycore-capi -p manycore-trace -p manycore-vm)
        [ -z "${LOOM_CHECKPOINT_FILE:-}" ] || features=(--features loom/checkpoint)
    fi
    say "--- models under $checker"
    (
        export RUSTFLAGS="--cfg manycore_$checker" CARGO_TARGET_DIR="$TARGET/$checker"
        cargo test --profile model "${packages[@]}" --lib --locked \
            ${features[@]+"${features[@]}"} "$filter"
    ) 2>&1 | tee "$log"
    grep -q '^test result: ok\. [1-9]' "$log" ||
        die "no model ran under $checker with the name '$filter'"
}

models() {
    export MANYCORE_MODELS=short
    model loom
    model shuttle
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
case "${1:-all}" in
all)
    models
    std
    ;;
models) models ;;
std) std ;;
loom | shuttle) model "$1" "${2:-}" ;;
*) die "unknown part '$1': all, models, std, loom or shuttle" ;;
esac
