#!/usr/bin/env bash
# Programs on virtual cores: every way of std to start and stop threads, twice with the same result;
# a bad and a good curve; a read of many logs, collected one by one and in a tree; a deadlock; files,
# timers and child processes; servers; the tour; and the tests that need the simulator.
#   ci/sim.sh
#   ci/sim.sh long         also an axum server, whose crates take half a minute to build
# Skipped, loudly, where the compiler or the machine cannot: see `manycore sim --help`.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
built_workspace
quick_builds
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Runs that are compared must not lie on both sides of midnight.
today=$(date -u +%F)
# One run each, but where the interval and the band are looked at.
sim() { "$MANYCORE" sim --plain --date "$today" "$@" 2>"$work/said"; }

sim --cores 1 -- sim-threads >/dev/null || skip_if_not_simulable "$work/said"

# The runtime and the engine with their assertions, which the command's own build does not have:
# that one has just been run. What both depend on is built once.
asserting=()
for package in manycore-sim-rt manycore-sim; do
    asserting+=(--config "profile.release.package.$package.debug-assertions=true")
done
cargo build --release --locked --quiet --package manycore-sim-rt --target-dir "$TARGET/sim/runtime" \
    "${asserting[@]}" 2>"$work/said" || die "$(cat "$work/said")"
cp "$TARGET/sim/runtime/release/libmanycore_sim_rt.so" "$work/"
export MANYCORE_SIM_RUNTIME=$work/libmanycore_sim_rt.so

sim --cores 4,48 --json "$work/one.json" --timeline "$work/one.mctrace" -- sim-threads >"$work/one" ||
    die "$(cat "$work/said")"
grep -q '^48 cores: all well$' "$work/one" || die "sim-threads did not run on 48 cores"
# The second run has another home, environment, set of processors and setting of malloc.
elsewhere() (
    export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
    export HOME=$work/home FILLER MALLOC_ARENA_MAX=1 MALLOC_TOP_PAD_=777777
    FILLER=$(printf '%5003s' x)
    mkdir -p "$HOME"
    one=()
    if taskset -c 0 true 2>/dev/null; then one=(taskset -c 0); fi
    "${one[@]}" "$MANYCORE" sim --plain --date "$today" "$@" 2>"$work/said"
)
# What a run's JSON says but for the code that ran uninstrumented, which is seen on the host's clock.
seen() {
    local which
    for which in "$@"; do
        sed -e '/^  "blind": \(null\|\[\]\),*$/d' -e '/^  "blind": \[$/,/^  \]/d' \
            "$work/$which.json" >"$work/$which.seen"
    done
}
elsewhere --cores 4,48 --json "$work/two.json" --timeline "$work/two.mctrace" -- sim-threads >/dev/null ||
    die "$(cat "$work/said")"
# A sandbox may refuse to fix the addresses at which a program is loaded; then runs may differ.
if setarch "$(uname -m)" -R true 2>/dev/null; then
    seen one two
    cmp "$work/one.seen" "$work/two.seen" || die "two runs of the same program differ"
    cmp "$work/one.mctrace" "$work/two.mctrace" || die "two timelines of the same program differ"
else
    say "note: addresses cannot be fixed here, so two runs are not compared"
fi
say "threads, locks, channels and time-outs work on 48 cores"

for which in shared ours; do
    sim --cores 1,48 --json "$work/$which.json" -- sim-counters "$which" 10000 >"$work/$which" ||
        die "$(cat "$work/said")"
done
grep -q 'locks .*sim-counters.rs' "$work/shared" || die "the shared line has no place: $(cat "$work/shared")"
# The fourth column: cycles that all cores together spend on one operation.
cycles() { awk '$1 == 48 && NF == 8 { gsub(",", "", $4); print $4 }' "$work/$1"; }
say "48 cores, cycles an addition: shared word $(cycles shared), Counter $(cycles ours)"
awk -v shared="$(cycles shared)" -v ours="$(cycles ours)" 'BEGIN { exit !(shared > 20 * ours) }' ||
    die "a shared word should cost far more than a Counter"

# The last with as many reads as a trial of the tree takes, and more.
for how in flat tree auto; do
    reads=32
    [ $how != auto ] || reads=256
    sim --cores 48 --top 0 -- sim-merge $how combining $reads >"$work/$how" || die "$(cat "$work/said")"
done
takes() { awk '$1 == "a" && $2 == "read" { print $4 }' "$work/$1"; }
say "48 cores, ns for a read: flat $(takes flat), in a tree $(takes tree), by itself $(takes auto)"
awk -v flat="$(takes flat)" -v tree="$(takes tree)" 'BEGIN { exit !(flat > 1.2 * tree) }' ||
    die "a read whose logs are collected in a tree should take less time"
# 19,214 by itself where it was 39,311 flat and 18,108 in a tree. A build in which each trial failed would
# have nearly as much as flat, but only what choosing may cost is checked.
awk -v flat="$(takes flat)" -v auto="$(takes auto)" 'BEGIN { exit !(1.1 * flat > auto) }' ||
    die "a read that chooses by itself should not take more time than without a tree"
# 132 beside the flat reads; 20 where updaters sleep before such a read can be over.
updates() { awk '$1 == "a" && $2 == "read" { print $6 }' "$work/flat"; }
[ "$(updates)" -gt 60 ] || die "$(updates) updates a microsecond: those that wait for a read come back too late"

"$MANYCORE" sim --cores 2 -- sim-counters ours 1000 >"$work/interval" 2>"$work/said" ||
    die "$(cat "$work/said")"
grep -q 'over 5 runs with jitter' "$work/interval" || die "a short run has no interval"
grep -q 'linger=' "$work/interval" || die "a short run has no band"
say "a short run has an interval and a band"

# What a line is called, and what lies on it: each kind of memory.
shared() {
    local which=$1 why=$2 what=$3 place=$4
    sim --cores 3 --top 1 --json "$work/$which.json" -- sim-sharing "$which" >"$work/$which" || die "$(cat "$work/said")"
    grep -q "of waiting: $why, " "$work/$which" && grep -q "  bytes .*$what" "$work/$which" &&
        grep -q "$place.*sim-sharing.rs" "$work/$which" && grep -q '"sharing": "'"${why% (*}" "$work/$which.json" ||
        die "$which: not $why of $what: $(sed -n '/^The lines/,/^$/p' "$work/$which")"
}
shared statics 'false sharing' 'static sim_sharing::SLOTS (64 bytes)' 'locks .*bytes 0-15'
shared counter 'true sharing' 'static sim_sharing::COUNTER (8 bytes)' 'locks .*bytes'
shared boxed 'true sharing' '128 bytes allocated at .*sim-sharing.rs' 'reads .*bytes 0-7, core'
shared vector 'false sharing' '64 bytes allocated at .*sim-sharing.rs' 'locks'
shared neighbours 'false sharing' '8 bytes allocated at .*sim-sharing.rs' 'locks'
shared stack 'false sharing' 'the stack of the first thread' 'locks .*bytes 0-15'
shared locals 'true and false sharing ([0-9]* % is false)' 'thread-local sim_sharing::OWN (8 bytes) of thread 0' 'locks'
say "false and true sharing are told apart, and what lies on the line is named"

if sim --cores 2 -- sim-deadlock; then die "a deadlock was not noticed"; fi
grep -q 'came to a deadlock.*sim-deadlock.rs' "$work/said" || die "$(cat "$work/said")"
say "a deadlock ends the run, with the places"

"$BENCH" tour --budget 1s --html "$work/tour.html" >"$work/tour" || die "the tour failed"
grep -q 'on this machine and on 48 virtual cores' "$work/tour" || die "$(cat "$work/tour")"
"$MANYCORE" trace stat "$work/tour.mctrace" >"$work/waits" || die "the tour left no timeline"
grep -q 'lines Line' "$work/waits" || die "no thread of the tour waited for a line: $(cat "$work/waits")"
say "the tour goes to 48 virtual cores"

sim --cores 8 -- sim-libc >/dev/null || die "$(cat "$work/said")"
if sim --cores 2 -- sim-libc itself; then die "a thread got a mutex that it holds"; fi
grep -q 'came to a deadlock.*sim-libc.rs' "$work/said" || die "$(cat "$work/said")"
if sim --cores 2 -- sim-libc pipe; then die "bytes came through a pipe without a writer"; fi
grep -q 'read at .*sim-libc.rs' "$work/said" || die "$(cat "$work/said")"
say "libc's own locks and pipes cost and wait in virtual time, or the run says what does not"

sim --cores 8,48 --json "$work/one.json" --timeline "$work/files.mctrace" -- sim-files >/dev/null ||
    die "$(cat "$work/said")"
"$MANYCORE" trace stat "$work/files.mctrace" >"$work/waits"
grep -q 'files File' "$work/waits" || die "waits for files have no name: $(cat "$work/waits")"
elsewhere --cores 8,48 --json "$work/two.json" -- sim-files >/dev/null || die "$(cat "$work/said")"
if setarch "$(uname -m)" -R true 2>/dev/null; then
    seen one two
    cmp "$work/one.seen" "$work/two.seen" || die "two runs of sockets and timers differ"
fi
# And on cores that run out of order, whose branches and stack words are known by their addresses.
sim --machine epyc-9654 --cores 8 --json "$work/four.json" -- sim-files >/dev/null || die "$(cat "$work/said")"
elsewhere --machine epyc-9654 --cores 8 --json "$work/five.json" -- sim-files >/dev/null || die "$(cat "$work/said")"
if setarch "$(uname -m)" -R true 2>/dev/null; then
    seen four five
    cmp "$work/four.seen" "$work/five.seen" || die "two runs out of order differ"
fi
# The folder's name is a variable, and so lies above the stack, with the arguments.
(cd crates/manycore && elsewhere --cores 8,48 --json "$work/three.json" -- sim-files >/dev/null) ||
    die "$(cat "$work/said")"
if setarch "$(uname -m)" -R true 2>/dev/null; then
    seen three
    sed "s|\"$ROOT/|\"|; s|from $ROOT/|from |; s|at $ROOT/|at |" "$work/three.seen" | cmp - "$work/one.seen" ||
        die "figures depend on the folder"
fi
# It also checks the day, if the command line has none.
"$MANYCORE" sim --plain --cores 8 -- sim-files children >/dev/null 2>"$work/said" || die "$(cat "$work/said")"
"$MANYCORE" sim --plain --date 2031-05-06 --cores 1 -- sim-files day >"$work/day" 2>"$work/said" ||
    die "$(cat "$work/said")"
grep -q '^22405 days since 1970$' "$work/day" || die "the run is not on its day: $(head -1 "$work/day")"
if sim --cores 2 -- sim-files pause; then die "a thread paused, and went on"; fi
grep -q 'called pause .*sim-files.rs' "$work/said" || die "$(cat "$work/said")"
say "sockets, timers and child processes wait in virtual time; a call that blocks is named"

sim --cores 8,48 --json "$work/one.json" -- sim-timers >/dev/null || die "$(cat "$work/said")"
elsewhere --cores 8,48 --json "$work/two.json" -- sim-timers >/dev/null || die "$(cat "$work/said")"
if setarch "$(uname -m)" -R true 2>/dev/null; then
    seen one two
    cmp "$work/one.seen" "$work/two.seen" || die "two runs of timers that send signals differ"
fi
sim --machine epyc-9654 --cores 8 -- sim-timers >/dev/null || die "$(cat "$work/said")"
if sim --cores 2 -- sim-timers thread; then die "a timer started a thread"; fi
grep -q 'timer_create at .*sim-timers.rs' "$work/said" || die "$(cat "$work/said")"
say "timers send their signals in virtual time, or in the process's own"

servers=(--features servers --package manycore-sim-tests)
sim "${servers[@]}" --cores 48 -- sim-tokio children >/dev/null || die "$(cat "$work/said")"
sim "${servers[@]}" --cores 48 -- sim-server 10 >/dev/null || die "$(cat "$work/said")"
say "tokio, and the cache server with its load, run on 48 cores"
if [ "${1:-}" = long ]; then
    sim --features axum --package manycore-sim-tests --cores 1,48 -- sim-axum >/dev/null || die "$(cat "$work/said")"
    say "an axum server with its clients runs on 48 cores"
fi

# Optimised as the programs are, so that both have the same crates.
"$MANYCORE" sim test --quiet --release --locked --package manycore-sim-tests -- --include-ignored ||
    die "the tests on virtual cores failed"
