#!/usr/bin/env bash
# The benchmarks, ours and every rival's, unmodified, on virtual cores. Not called by .ci/run:
# building every rival for virtual cores takes minutes, and the runs take minutes more.
#   ci/rivals.sh            runs each implementation of each workload for a moment on 48 cores
#   ci/rivals.sh factors    how many times each rival ours is: list, counter, notify, smr, arc
#   ci/rivals.sh curves     ours on 1 to 240 cores
#   ci/rivals.sh audit      what empty sections do to shared cache lines, ours and those that write none
#                           or few (no locks), against ci/rivals.golden; --accept writes it anew
#   ci/rivals.sh record     the curve of the tour's page and the README's picture, anew
# CORES (48), TIME (2ms; 100us for the first) and MACHINE (opteron-8x6) change what is run.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
quick_builds
what=${1:-each}
cores=${CORES:-48}
machine=${MACHINE:-opteron-8x6}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --release --locked -p manycore-cli -p manycore-bench
manycore=$TARGET/release/manycore bench=$TARGET/release/manycore-bench

# bench CORES FILE WORKLOAD ARGUMENTS: one benchmark with a thread on each virtual core, its rows
# into FILE. Slices of 10 us, because the thread that ends the run is one more than there are cores.
bench() {
    local cores=$1 file=$2 workload=$3 threads=$1
    shift 3
    # The drainer is one thread more.
    [ "$workload" != notify ] || [ "$cores" = 1 ] || threads=$((cores - 1))
    "$manycore" sim --plain --machine "$machine" --grow --cores "$cores" --set slice=24000 --top 0 -- \
        manycore-bench bench "$workload" --threads "$threads" --repeat 1 --format csv --out "$file" "$@" \
        >"$work/report" 2>"$work/said"
}

each() {
    local workload impl well=0 failed=0
    "$bench" workloads >"$work/each"
    OPTIONS=$("$bench" workloads --options)
    while read -r workload impl _; do
        # What shares nothing, and what is a process of its own.
        [ "$impl" != unshared ] && [ "$workload" != server ] || continue
        own_options "$workload" --warm-up 100us --read-every never,100 --update 0,50 --share 0,50 \
            --set 10 --keys 10000 --ops 48000
        if bench "$cores" "$work/out" "$workload" --impl "$impl" --duration "${TIME:-100us}" \
            ${OWN[@]+"${OWN[@]}"} </dev/null; then
            say "ok      $workload $impl"
            well=$((well + 1))
        else
            say "FAILED  $workload $impl: $(tail -n 1 "$work/said")"
            failed=$((failed + 1))
        fi
    done <"$work/each"
    say "$well ran on $cores virtual cores, $failed did not"
    [ "$failed" -eq 0 ] || die "not all benchmarks run on virtual cores"
}

# factors WORKLOAD METRIC BETTER ARGUMENTS: BETTER is more or less.
factors() {
    local workload=$1 metric=$2 better=()
    [ "$3" = more ] || better=(--less)
    shift 3
    bench "$cores" "$work/out" "$workload" --duration "${TIME:-2ms}" "$@" ||
        die "$workload: $(tail -n 1 "$work/said")"
    "$bench" compare "$workload" "$work/out" --metric "$metric" ${better[@]+"${better[@]}"}
}

# curve WORKLOAD IMPLEMENTATION METRIC ARGUMENTS: of the rows that have the word $only, if there are
# several.
curve() {
    local workload=$1 impl=$2 metric=$3 count figure
    shift 3
    printf '%-9s %-16s %-26s' "$workload" "$impl" "$*"
    for count in 1 24 48 120 240; do
        bench "$count" "$work/out" "$workload" --impl "$impl" --duration "${TIME:-1ms}" "$@" ||
            die "$workload: $(tail -n 1 "$work/said")"
        grep -e '^workload,' -e "${only:-.}" "$work/out" >"$work/rows"
        figure=$("$bench" compare "$workload" "$work/rows" --metric "$metric" --impl "$impl")
        printf ' %10.4g' "$figure"
    done
    printf '\n'
}

case $what in
each) each ;;
factors)
    say "workload  setting            ours               figure  other              kind         figure  ours is times"
    factors list throughput more --read-every never,1000,100,10
    factors counter throughput more --read-every never,1000
    factors notify delivered more
    factors smr section less --update 0 --ops 4800000
    factors smr throughput more --update 0,10,50,90 --ops 4800000
    factors arc throughput more
    ;;
curves)
    say "workload  ours             settings                            1         24         48        120        240"
    curve counter counter throughput --read-every never
    curve list oplog-auto throughput --read-every never
    curve list oplog-auto throughput --read-every 1000
    curve notify event-queue delivered
    curve smr section throughput --update 0 --ops 24000000
    curve smr section throughput --update 10 --ops 24000000
    curve arc scalable-arc throughput
    curve map hash-map throughput --update 0 --keys 65536
    only="pattern=get " curve ids id-space throughput
    only=capacity=sufficient curve kv cache throughput --set 0 --keys 10000 --ops 240000
    ;;
audit)
    for impl in section section-epoch crossbeam-epoch urcu brlock; do
        "$manycore" sim --plain --audit --cores 4 --set slice=24000 -- manycore-bench bench smr \
            --impl "$impl" --threads 4 --update 0 --ops 400000 --duration 100us --repeat 1 \
            >"$work/one" 2>"$work/said" || die "$impl: $(tail -n 1 "$work/said")"
        sed "s/^.*: cores=/$impl: cores=/" "$work/one" >>"$work/audit"
    done
    case "${2:-}" in
    --accept) cp "$work/audit" ci/rivals.golden ;;
    "") diff -u ci/rivals.golden "$work/audit" || die "a section does other things than before" ;;
    *) die "unknown argument '$2'" ;;
    esac
    cat "$work/audit"
    ;;
record)
    # For the tour's page and the README's picture, which must be recorded with the same version.
    recorded=crates/manycore-bench/src/page/recorded.csv
    for count in 1 6 12 24 48 96 144 192 240; do
        bench "$count" "$work/out" counter --impl counter,atomic,mutex --read-every never \
            --duration "${TIME:-300us}" || die "$(tail -n 1 "$work/said")"
        grep '^counter,.*,throughput,' "$work/out" | sed -E 's/(\.[0-9]{3})[0-9]+/\1/g' >>"$work/recorded"
    done
    mv "$work/recorded" "$recorded"
    "$bench" plot "$recorded" --out docs/img/scaling.svg --x "virtual cores" \
        --heading "One counter, 1 to 240 cores (simulated)" --y "million additions a second" \
        counter="Counter, of this library" atomic="one atomic word" mutex="a word behind a Mutex"
    say "recorded in $recorded and drawn in docs/img/scaling.svg"
    ;;
*) die "unknown: $what; each, factors, curves, audit or record" ;;
esac
