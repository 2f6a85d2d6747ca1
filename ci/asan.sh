#!/usr/bin/env bash
# Memory under AddressSanitizer: a node used after it was freed, freed twice, or never.
#   ci/asan.sh            every test that is about memory
#   ci/asan.sh --short    without those that take long: what .ci/run calls
#
# It needs a nightly compiler; where there is none this check is skipped, and says so. The torture
# test is not among the tests: it keeps freed memory on purpose, to look at it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

long=() slow=() forks=() shares=()
case "${1:-}" in
"") ;;
--short)
    long=(collection_histories hash_map locks oplog_tree properties replicated_map section_list)
    slow=(chain_of_living_views_stays_short walk_is_one_moment stalled_reader_holds_little_back)
    # Which entries a cache keeps, counted on one thread.
    shares=(hit_ratio weights)
    # A fork copies the tables of the sanitizer's own memory.
    forks=(--skip=in_the_child_of_a_fork)
    ;;
*) die "unknown argument '$1'" ;;
esac
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
# Nodes from the global allocator, whose blocks the sanitizer sees.
export RUSTFLAGS="-Zsanitizer=address --cfg manycore_sanitized" CARGO_TARGET_DIR="$TARGET/asan"

# run CRATE PROGRAM... [OPTION...] [-- ARGUMENT...]: these test programs of the crate.
run() {
    local crate=$1 programs=()
    shift
    while [ $# -gt 0 ] && [[ $1 != --* ]]; do
        programs+=("--test=$1")
        shift
    done
    cargo +nightly test --target "$HOST" --locked -p "$crate" "${programs[@]}" "$@"
}

# skips FILE...: the arguments that leave these files of a program out.
skips() { printf -- '--skip=%s::\n' "$@"; }

# Left out are the programs that look at no memory of the library's or measure how much the process
# has: tree litmus figures footprint memory garbage torture.
programs=(borrows section_birth section_ends stress)
[ ${#long[@]} -gt 0 ] || programs+=(linearizability)
# What forgets guards, members or nodes, or makes cycles of reference counts, on purpose.
forgetful=(adaptive callbacks deadlocks ldu ldu_reentry page_cache slab)

mapfile -t skipped < <(skips "${forgetful[@]}" ${long[@]+"${long[@]}"})
run manycore integration -- "${skipped[@]}" ${slow[@]+"${slow[@]/#/--skip=}"}
run manycore "${programs[@]}"
mapfile -t skipped < <(skips reentrancy ${shares[@]+"${shares[@]}"})
run manycore-cache integration -- "${skipped[@]}"
# The others end children by a fault on purpose.
run manycore-vm integration -- --skip=memory::
# Without the command, which depends on eighty crates more.
run manycore-fs integration --no-default-features -- --skip=many::
# The others kill or fork children, or read many files.
run manycore-trace integration -- policies:: recording:: signals::
cargo +nightly test --target "$HOST" --locked -p manycore-cache --lib
say "nothing used after it was freed, nothing leaked"

export ASAN_OPTIONS=detect_leaks=0
run manycore integration -- "${forgetful[@]/%/::}"
programs=(barrier_denied fork)
[ ${#long[@]} -gt 0 ] || programs+=(reentrancy)
run manycore "${programs[@]}"
run manycore-cache integration -- reentrancy:: ${forks[@]+"${forks[@]}"}
say "nothing used after it was freed"
