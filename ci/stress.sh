#!/usr/bin/env bash
# The tests that look for rare interleavings on the real machine, optimised, for long: litmus races,
# histories checked for linearizability, and the soak with its oracle.
#   ci/stress.sh [SECONDS]   each soak that long (default 60), each race ten million rounds
#   ci/stress.sh --short     a second each, and fewer tests: what .ci/run calls
#   ci/stress.sh long [SECONDS [FOLDER]]   torture and stress alone, each that long (default 3600),
#                            niced, from programs that are copied to FOLDER (default: a new one), so
#                            that the tree may be changed and built beside them. It prints a line a
#                            test that begins with SUMMARY: seconds, reads, updates, rounds, frees and
#                            the seed, keeps all that they print in FOLDER, and fails if one fails or
#                            torture made fewer than a thousand million reads in an hour's time.
#                            In the background:  nohup ci/stress.sh long >stress.out &
# MANYCORE_SEED=0x12ab repeats the operations of an earlier run.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# long SECONDS FOLDER: see above.
long() {
    local seconds=$1 folder=$2 name said program reads need status=0
    mkdir -p "$folder"
    for name in torture stress; do
        said=$(cargo test --release --locked -p manycore "--test=$name" --no-run 2>&1) ||
            die "the test '$name' does not build: $said"
        program=$(sed -n 's/.*Executable.* (\(.*\))$/\1/p' <<<"$said")
        cp "$program" "$folder/$name"
    done
    export MANYCORE_SOAK=$seconds
    say "torture and stress, $seconds s each, in $folder"
    for name in torture stress; do
        # In a folder of its own: nothing of the tree is looked at any more.
        (cd "$folder" && nice timeout $((seconds + 600)) "./$name" --nocapture --test-threads=1) \
            >"$folder/$name.out" 2>&1 || { status=1 && tail -n 20 "$folder/$name.out"; }
        grep '^SUMMARY' "$folder/$name.out" || { status=1 && say "$name: no summary"; }
    done
    reads=$(sed -n 's/^SUMMARY torture.*, \([0-9]*\) reads.*/\1/p' "$folder/torture.out")
    need=$((1000000000 / 3600 * seconds))
    [ "${reads:-0}" -ge "$need" ] || die "torture made ${reads:-no} reads, of $need at least"
    [ "$status" = 0 ] || die "a test failed; what it printed is in $folder"
}

options=()
tests=(litmus linearizability stress torture)
files=(ldu_stress swap locks slab namespace)
case "${1:-60}" in
--short)
    export MANYCORE_SOAK=1
    files=()
    # What the tests alone depend on may be slow.
    options=(--config 'profile.release.package."*".opt-level=0')
    ;;
long)
    [[ ${2:-3600} =~ ^[1-9][0-9]*$ ]] || die "'$2' is no number of seconds"
    quick_builds
    long "${2:-3600}" "${3:-$(mktemp -d)}"
    exit
    ;;
*[!0-9]* | 0) die "'$1' is no number of seconds, and not --short or long" ;;
*) export MANYCORE_SOAK="${1:-60}" MANYCORE_ROUNDS="${MANYCORE_ROUNDS:-10000000}" ;;
esac

say "each soak $MANYCORE_SOAK s${MANYCORE_ROUNDS:+, each race $MANYCORE_ROUNDS rounds}"
quick_builds
# Optimised, with the laws asserted. (Not in the long form, which counts reads, nor with planted bugs,
# which the torture test has to catch by itself.)
run() {
    cargo test --release --locked -p manycore --config profile.release.package.manycore.debug-assertions=true \
        ${options[@]+"${options[@]}"} "$@" --nocapture --test-threads=1
}
run "${tests[@]/#/--test=}" --
[ ${#files[@]} = 0 ] || run --test=integration -- "${files[@]/%/::}"

# The test of the torture test, in a build where bugs can be planted: the long form only.
[ -z "${MANYCORE_ROUNDS:-}" ] ||
    RUSTFLAGS="--cfg manycore_seeded_bugs" CARGO_TARGET_DIR="$TARGET/seeded" \
        cargo test --release --locked -p manycore --test=torture -- --nocapture --test-threads=1
