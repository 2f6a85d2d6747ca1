#!/usr/bin/env bash
# The library's pointers, and those of the recorder of traces, under Miri: each access against the borrow models, Stacked Borrows and Tree
# Borrows, and data races, in small runs of every collection.
#   ci/miri.sh [NAME]    only the tests whose names contain NAME
#
# It needs a nightly compiler with the component miri; where there is none this check is skipped, and
# says so. Constants are small then, as for the model checkers (config.rs), and there is no TSC, no
# membarrier, no rseq and no futex: what is checked is the portable form of everything below locks.
# (Objects' words hold addresses beside flags, so pointers made of exposed addresses are let pass.)
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command -v rustup >/dev/null 2>&1 || skip "no rustup, so no nightly compiler"
cargo +nightly --version >/dev/null 2>&1 ||
    skip "no nightly compiler ('rustup toolchain install nightly --profile minimal')"
cargo +nightly miri --version >/dev/null 2>&1 ||
    rustup component add miri rust-src --toolchain nightly >/dev/null 2>&1 ||
    skip "the nightly compiler has no component miri"
cargo +nightly miri setup >/dev/null 2>&1 || skip "Miri can't build its standard library"
say "with $(cargo +nightly miri --version)"

# The interpreter first: it must catch memory that is freed through a shared reference.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
printf '[package]\nname = "freed"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' \
    >"$work/Cargo.toml"
cat >"$work/src/main.rs" <<'RUST'
fn main() {
    let value = Box::leak(Box::new(7_u64));
    let shared: *const u64 = &*value;
    drop(unsafe { Box::from_raw(shared.cast_mut()) });
}
RUST

# Unit tests that go through raw pointers, and a test file that goes through each collection.
units=(collections::registry section::pointer slab::tests::last_freed
    collections::event_queue::merge::tests::merge_moves)
[ $# = 0 ] || units=("$@")
for model in "" -Zmiri-tree-borrows; do
    export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance $model"
    ! CARGO_TARGET_DIR="$work/target" cargo +nightly miri run -q --manifest-path "$work/Cargo.toml" \
        >"$work/report" 2>&1 || die "Miri does not report what is freed through a shared reference"
    grep -q 'Undefined Behavior' "$work/report" || die "Miri's own test failed: $(cat "$work/report")"
    CARGO_TARGET_DIR="$TARGET/miri" cargo +nightly miri test --locked -p manycore --test=borrows \
        -- "$@"
    CARGO_TARGET_DIR="$TARGET/miri" cargo +nightly miri test --locked -p manycore --lib \
        -- "${units[@]}"
    # What a thread records, and what becomes of its ring when it ends.
    CARGO_TARGET_DIR="$TARGET/miri" cargo +nightly miri test --locked -p manycore-trace \
        --test=integration -- "${@:-recording::slots}"
done
say "no pointer outlives what it points to, in both models"
