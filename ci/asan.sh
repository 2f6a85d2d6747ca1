#!/usr/bin/env bash
# Memory under AddressSanitizer: a node used after it was freed, freed twice, or never.
#   ci/asan.sh            every test that is about memory
#   ci/asan.sh --short    without those that take long: what .ci/run calls
#
# It needs a nightly compiler; where there is none this check is skipped, and says so. The torture
# test is not among the tests: it keeps freed memory on purpose, to look at it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

long=
case "${1:-}" in
"") ;;
--short)
    long="collection_histories hash_map linearizability locks oplog_tree properties"
    long+=" reentrancy replicated_map section_list"
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
export RUSTFLAGS="-Zsanitizer=address" CARGO_TARGET_DIR="$TARGET/asan"

# run CRATE NAME...: these tests of the crate.
run() {
    local crate=$1
    shift
    cargo +nightly test --target "$HOST" --locked -p "$crate" "${@/#/--test=}"
}

shopt -s nullglob
# those CRATE LIST: the crate's tests that are not in the list.
those() {
    local name
    for name in "crates/$1"/tests/*.rs "crates/$1"/tests/*/main.rs; do
        name=${name%/main.rs}
        name=$(basename "$name" .rs)
        case " $2 " in *" $name "*) ;; *) printf '%s\n' "$name" ;; esac
    done
}

# What looks at no memory of the library's, or measures how much the process has.
no_matter="tree litmus figures footprint memory garbage torture"
# What forgets guards, members or nodes, or makes circles of reference counts, on purpose.
forgetful="adaptive barrier_denied callbacks circles fork ldu ldu_forest ldu_reentry page_cache"
forgetful+=" slab"
[ -n "$long" ] || forgetful+=" reentrancy"

mapfile -t library < <(those manycore "$no_matter $forgetful $long")
run manycore "${library[@]}"
mapfile -t cache < <(those manycore-cache "$no_matter reentrancy")
run manycore-cache "${cache[@]}"
cargo +nightly test --target "$HOST" --locked -p manycore-cache --lib
say "nothing used after it was freed, nothing leaked"

export ASAN_OPTIONS=detect_leaks=0
# shellcheck disable=SC2086
run manycore $forgetful
run manycore-cache reentrancy
say "nothing used after it was freed"
