#!/usr/bin/env bash
# Whether the tests notice a fault: one operator, condition or result of a module at a time is replaced
# (cargo-mutants), and some test has to fail, or hang. A mutant that survives is a fault that no test
# would find: it needs a test, or an entry with its reason in ci/mutants.txt. This script fails if less
# than 95 % of the mutants that compile are caught or explained, or if an entry is out of date.
#   ci/mutants.sh MODULE [ARG]...
# MODULE is a row of the table below. An ARG goes to cargo-mutants: `--shard 0/8`, `--list`, or
# `--re PATTERN` for those with it in the name of their file, function or mutation. The mutants are
# made in a copy of the tree, in cargo's target folder, of which only the module's tests are compiled;
# it is kept, so that the next run begins warm.
# Not compiled: documentation tests and models. What only they catch survives here.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
VERSION=25.3.1
LEAST=95

# module PACKAGE FILES TESTS [CARGO ARGUMENT]...: where it is, and what tests it: of the package's program
# `integration` a FILE, or FILE::TEST of it; and unit tests by a part of their names that ends with `::`.
module() {
    package=$1 files=$2 tests=$3
    shift 3
    arguments=("$@")
}
in_library=crates/manycore/src
case ${1:-} in
section)
    module manycore "$in_library/section/**/*.rs" "allocations domains gates node_lock section
        section_inline section_list section_reuse textbook" --lib --test section_ends --test section_birth
    ;;
oplog)
    module manycore "$in_library/oplog/**/*.rs" "configurations deferred evictions log_panics
        oplog_inside oplog_own_end oplog_reentrancy oplog_faults oplog_tree order properties reserved
        oplog::" --lib
    ;;
ldu)
    module manycore "$in_library/ldu/**/*.rs" "allocations ldu ldu_faults ldu_reentry ldu_shared" --lib
    ;;
maps)
    module manycore "$in_library/collections/hash_map/**/*.rs $in_library/collections/hash_set.rs
        $in_library/collections/flat_hash_map/**/*.rs $in_library/collections/growth.rs
        $in_library/collections/ordered_map/**/*.rs" \
        "collection_faults flat_hash_map hash_map hash_map_direct liars map_faults ordered_map own_type
        ordered_map::order::" --lib
    ;;
cache)
    module manycore-cache 'crates/manycore-cache/src/**/*.rs' '' --lib --test byte_weight --test footprint \
        --test garbage --test small
    ;;
protocol)
    module manycored 'crates/manycored/src/protocol/**/*.rs' "arbitrary binary commands fragments fuzzed
        gathered logged meta_flags recorded refused protocol::" --lib
    ;;
trace)
    module manycore-trace "crates/manycore-trace/src/reader/**/*.rs crates/manycore-trace/src/pack.rs
        crates/manycore-trace/src/schema.rs" "bombs convert crafted damage::damaged damage::foreign
        fuzzed policies recording pack::" --lib --features lz4
    ;;
'') die "no module: ci/mutants.sh section|oplog|ldu|maps|cache|protocol|trace [ARG]..." ;;
*) die "no module '$1': it is section, oplog, ldu, maps, cache, protocol or trace" ;;
esac
name=$1
shift

tools=$TARGET/tools
[ "$("$tools/bin/cargo-mutants" mutants --version 2>/dev/null)" = "cargo-mutants $VERSION" ] ||
    cargo install cargo-mutants --version "$VERSION" --locked --root "$tools"

# The copy. A file that a mutant was in is newer than cargo's last build of it, also when it is as before.
work=$TARGET/mutants
copy=$work/tree
mkdir -p "$copy"
git ls-files -co --exclude-standard | sort >"$work/files"
while read -r file; do
    if [ -f "$file" ] && ! cmp -s "$file" "$copy/$file"; then
        mkdir -p "$copy/$(dirname "$file")"
        cp "$file" "$copy/$file"
    fi
done <"$work/files"
(cd "$copy" && find . -type f -not -path './.git/*' | cut -c 3- | sort | comm -23 - "$work/files" | xargs -r rm -f)

# Of the program of integration tests, only the files that test this module.
filters=() kept=
for test in $tests; do
    case $test in
    *::) filters+=("$test") ;;
    *::*) filters+=("$test") kept+=" ${test%%::*} " ;;
    *) filters+=("$test::") kept+=" $test " ;;
    esac
done
main=crates/${package#crates/}/tests/integration/main.rs
if [ -n "$kept" ]; then
    awk -v kept="$kept" '/^mod [a-z_]+;$/ && !path { if (!index(kept, " " substr($2, 1, length($2) - 1) " ")) next }
        { path = /^#\[(path|allow)/ } 1' "$main" | awk '/^#\[cfg/ { held = $0; next }
        held { if (/^mod/) print held; held = "" } 1' >"$work/main.rs"
    cmp -s "$work/main.rs" "$copy/$main" || cp "$work/main.rs" "$copy/$main"
fi

options=()
set -f
for file in $files; do options+=(--file "$file"); done
set +f
for argument in --test integration "${arguments[@]}"; do options+=("--cargo-arg=$argument"); done
# What no test should look at: the texts for debuggers; and tests, of which models are not even compiled.
options+=(--exclude-re 'impl (fmt::)?Debug for' --exclude-re 'tests::')
options+=(--exclude '**/*tests.rs' --exclude '**/*_tests/**' --exclude '**/tests/**')
# A mutant must not take the machine's memory with it.
ulimit -v 16000000
export CARGO_TARGET_DIR=$work/build CARGO_INCREMENTAL=1 CARGO_PROFILE_DEV_DEBUG=none
status=0
"$tools/bin/cargo-mutants" mutants --dir "$copy" --in-place --output "$work" --package "$package" \
    --minimum-test-timeout 30 --timeout-multiplier 4 --no-shuffle --colors never --caught --unviable \
    "${options[@]}" "$@" -- -- "${filters[@]}" || status=$?
# Some were missed, or hung: that is judged below.
case $status in 0 | 2 | 3) ;; *) exit "$status" ;; esac
[[ " $* " != *" --list"* ]] || exit 0

# Each survivor as the list has it: file, mutation, and the line's text, which outlives its number.
found=$work/mutants.out
while IFS=: read -r file line _ mutation; do
    printf '%s:%s: `%s`\n' "$file" "$mutation" "$(sed -n "${line}s/^ *//p" "$file")"
done <"$found/missed.txt" | sort >"$work/missed"
grep '^crates/' ci/mutants.txt | sort >"$work/explained"
# A planted bug that is always there is for the model that must find it.
grep -F 'seeded_bug!(' "$work/missed" >>"$work/explained" || :
sort -u -o "$work/explained" "$work/explained"
grep -vxFf "$work/explained" "$work/missed" >"$work/left" || :

count() { wc -l <"$1"; }
caught=$(count "$found/caught.txt") hung=$(count "$found/timeout.txt") left=$(count "$work/left")
missed=$(count "$work/missed")
all=$((caught + hung + missed))
say "$name: $all mutants compile ($(count "$found/unviable.txt") do not): $caught caught, $hung hung," \
    "$((missed - left)) explained, $left left"
[ "$left" = 0 ] || say "left:" "$(cat "$work/left")"
while read -r entry; do
    text=${entry#*: \`} file=${entry%%:*}
    grep -qF -- "${text%\`}" "$file" || die "ci/mutants.txt has a line that is not there: $entry"
done <"$work/explained"
[ "$all" != 0 ] || die "no mutant was tried"
[ $((100 * left)) -le $(((100 - LEAST) * all)) ] || die "more than $((100 - LEAST)) % are left"
