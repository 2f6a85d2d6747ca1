#!/usr/bin/env bash
# Clippy over everything, and over the library once more as the model checkers see it.
#   ci/clippy.sh           everything as it is used: what .ci/run calls
#   ci/clippy.sh models    the library under the model checkers
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_component clippy
case "${1:-}" in
"")
    workspace clippy --all-targets -- -D warnings
    say "no warnings"
    exit 0
    ;;
models) ;;
*) die "unknown argument '$1'" ;;
esac
# A model's cells are not `Sync` by themselves: whether they are shared rightly is what it finds out.
# Bounds are as small there as they get, so some comparisons with them are decided. Its atomics are
# large, and with them each object.
for checker in loom shuttle; do
    say "clippy of the library under $checker"
    RUSTFLAGS="--cfg manycore_$checker" CARGO_TARGET_DIR="$TARGET/$checker" \
        cargo clippy -p manycore --lib --profile test --locked -- \
        -D warnings -A clippy::arc_with_non_send_sync -A clippy::absurd_extreme_comparisons \
        -A clippy::result_large_err -A clippy::large_enum_variant
done
say "no warnings"
