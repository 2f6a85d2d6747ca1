#!/usr/bin/env bash
# The cache server's protocols, and all files that are read: of items (-e), of users (-Y, -S), logs
# of file systems (mount --keep), traces, machines and lists of CPUs, tables of benchmarks; under a
# fuzzer that follows the code which inputs reach (libFuzzer), with AddressSanitizer. What must hold
# is in fuzz/src, a file each; memory and steps are bounded by the bytes of an input (bounds.rs).
#   ci/fuzz.sh [SECONDS]        each of them that long (default 600)
#   ci/fuzz.sh --short          5 seconds each
#   ci/fuzz.sh --keep SECONDS   as the first, and what was found is kept in fuzz/corpus
# FUZZ_TARGETS="file text" runs only these.
# An input that fails is left in cargo's target folder, and the command that repeats it is printed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
keeps=
case "${1:-}" in
--short) seconds=5 ;;
--keep) keeps=1 seconds=${2:-600} ;;
*) seconds=${1:-600} ;;
esac
case $seconds in *[!0-9]* | 0) die "'$seconds' is no number of seconds" ;; esac
need_sanitizer libFuzzer
command -v c++ >/dev/null 2>&1 || skip "no C++ compiler"
said=$(cargo +nightly fetch -q --locked --manifest-path fuzz/Cargo.toml 2>&1) || case $said in
*--locked*) die "fuzz/Cargo.lock is not what the manifests say: $said" ;;
*) skip "libfuzzer-sys is not there: $said" ;;
esac

coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="$coverage --cfg fuzzing -Zsanitizer=address -Ccodegen-units=1" CARGO_TARGET_DIR="$TARGET/fuzz" \
    cargo +nightly build --release --locked --manifest-path fuzz/Cargo.toml --target "$HOST"
programs=$TARGET/fuzz/$HOST/release
found=$TARGET/fuzz/found
for name in ${FUZZ_TARGETS:-text meta binary file users kept trace machine table}; do
    folder=$found/$name
    mkdir -p "$folder"
    "$programs/corpus" unpack "fuzz/corpus/$name.txt" "$folder"
    longest=1024 kept=100 words=()
    [ ! -f "fuzz/dictionaries/$name.dict" ] || words=(-dict="fuzz/dictionaries/$name.dict")
    if [ "$name" = file ]; then
        # A header of 4 KB, and some items; files that were saved just now are inputs, too. No length
        # in a file makes the reader allocate more than it needs for its store.
        longest=8192 kept=300 words=(-malloc_limit_mb=16)
        "$programs/corpus" saved "$folder"
    fi
    if [ "$name" = users ]; then
        longest=8192 kept=4096 words=(-malloc_limit_mb=16)
        "$programs/corpus" users "$folder"
    fi
    if [ "$name" = kept ]; then
        # Short logs; what a file system has written just now is an input, too.
        longest=32768 kept=900 words=(-malloc_limit_mb=64)
        "$programs/corpus" kept "$folder"
    fi
    if [ "$name" = trace ]; then
        # Small recordings.
        longest=8192 kept=1024 words=(-malloc_limit_mb=64)
    fi
    input="$found/$name-"
    # An input that takes ten seconds is no longer linear: all take milliseconds.
    "$programs/$name" "${words[@]}" -max_len="$longest" -timeout=10 \
        -rss_limit_mb=4096 -max_total_time="$seconds" -artifact_prefix="$input" \
        -print_final_stats=1 "$folder" >"$found/$name.log" 2>&1 ||
        die "$(tail -n 30 "$found/$name.log")
again: $programs/$name $(echo "$input"*)"
    say "$name: $(grep -vc '^#' "fuzz/corpus/$name.txt") inputs, $(sed -n 's/^stat::number_of_executed_units: *//p' "$found/$name.log") runs, nothing found"
    [ -n "$keeps" ] || continue
    rm -rf "$folder.least"
    mkdir "$folder.least"
    "$programs/$name" -set_cover_merge=1 -max_len="$kept" "$folder.least" "$folder" >/dev/null 2>&1
    "$programs/corpus" pack "fuzz/corpus/$name.txt" "$folder.least"
done
