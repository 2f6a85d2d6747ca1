#!/usr/bin/env bash
# Memory under AddressSanitizer: a node used after it was freed, freed twice, or never.
#   ci/asan.sh
#
# It needs a nightly compiler; where there is none this check is skipped, and says so. The torture
# test is not among the tests: it keeps freed memory on purpose, to look at it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_sanitizer AddressSanitizer

# The sanitizer itself first: it must catch a use after free that is there.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/after.rs" <<'RUST'
fn main() {
    let freed = Box::into_raw(Box::new(7_u64));
    drop(unsafe { Box::from_raw(freed) });
    println!("{}", unsafe { freed.read_volatile() });
}
RUST
rustc +nightly -Zsanitizer=address -o "$work/after" "$work/after.rs"
! "$work/after" >"$work/report" 2>&1 || die "the sanitizer does not report a use after free"
grep -q 'heap-use-after-free' "$work/report" ||
    die "the sanitizer's own test failed: $(cat "$work/report")"

# Tests that make many rounds make a tenth of them here.
export MANYCORE_TESTS="${MANYCORE_TESTS:-short}"
tests=(section gates node_lock ldu_stress ldu_forest_random intervals swap timer_queue)
tests+=(private_pages private_pages_shared)
tests+=(stress deferred registry event_queue lru counter)
RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="$TARGET/asan" \
    cargo +nightly test --target "$HOST" --locked -p manycore "${tests[@]/#/--test=}"
RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="$TARGET/asan" \
    cargo +nightly test --target "$HOST" --locked -p manycore-cache --lib --test=threads --test=loads
say "nothing used after it was freed, nothing leaked"
