#!/usr/bin/env bash
# The cache server's protocols under a fuzzer that follows the code which inputs reach (libFuzzer),
# with AddressSanitizer. What must hold is in fuzz/src/lib.rs.
#   ci/fuzz.sh [SECONDS]        each protocol that long (default 600)
#   ci/fuzz.sh --short          8 seconds each
#   ci/fuzz.sh --keep SECONDS   as the first, and what was found is kept in fuzz/corpus
# An input that fails is left in cargo's target folder, and the command that repeats it is printed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
keeps=
case "${1:-}" in
--short) seconds=8 ;;
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
for name in text meta binary; do
    folder=$found/$name
    mkdir -p "$folder"
    "$programs/corpus" unpack "fuzz/corpus/$name.txt" "$folder"
    input="$found/$name-"
    "$programs/$name" -dict="fuzz/dictionaries/$name.dict" -max_len=1024 -timeout=60 \
        -rss_limit_mb=4096 -max_total_time="$seconds" -artifact_prefix="$input" \
        -print_final_stats=1 "$folder" >"$found/$name.log" 2>&1 ||
        die "$(tail -n 30 "$found/$name.log")
again: $programs/$name $(echo "$input"*)"
    say "$name: $(grep -vc '^#' "fuzz/corpus/$name.txt") inputs, $(sed -n 's/^stat::number_of_executed_units: *//p' "$found/$name.log") runs, nothing found"
    [ -n "$keeps" ] || continue
    rm -rf "$folder.least"
    mkdir "$folder.least"
    "$programs/$name" -set_cover_merge=1 -max_len=100 "$folder.least" "$folder" >/dev/null 2>&1
    "$programs/corpus" pack "fuzz/corpus/$name.txt" "$folder.least"
done
