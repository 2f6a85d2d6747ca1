#!/usr/bin/env bash
# Runs each benchmark and the tour for a moment, not optimised, and checks the form of what they
# write, so that none rots. The figures mean nothing and are not looked at.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
built_workspace
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

keys="bench impl ours threads params metric unit median min max repeats"

# check_rows BENCH FILE: the machine first, then rows of BENCH with every key, ours among them.
check_rows() {
    local bench=$1 file=$2 key
    head -n 1 "$file" | grep -q '^{"bench":"machine",.*}$' || die "$bench: no machine in line 1"
    tail -n +2 "$file" >"$file.rows"
    [ -s "$file.rows" ] || die "$bench: no rows"
    ! grep -v "^{\"bench\":\"$bench\",.*}\$" "$file.rows" || die "$bench: the lines above are no rows"
    for key in $keys; do
        ! grep -v "\"$key\":" "$file.rows" || die "$bench: the lines above lack '$key'"
    done
    ! grep -E '"(median|min|max)":(null|-)' "$file.rows" || die "$bench: the lines above lack figures"
    say "$bench: $(wc -l <"$file.rows") rows of $(sed 's/.*"impl":"\([^"]*\)".*/\1/' "$file.rows" |
        sort -u | wc -l) implementations"
}

# check_page FILE: a whole page with a plot, which needs no network.
check_page() {
    grep -qi '</html>' "$1" || die "the page is not whole"
    grep -qi '<svg' "$1" || die "the page has no plot"
    ! grep -qiE '(src=.?|<link[^>]*|url\(|@import .?)https?://' "$1" || die "the page needs the network"
}

OPTIONS=$("$BENCH" workloads --options)
for bench in $("$BENCH" workloads | cut -d' ' -f1 | uniq); do
    # Started below, with options of its own.
    [ "$bench" != server ] || continue
    own_options "$bench" --read-every never,10 --update 0,50 --share 0,50 --set 10 --keys 100000 \
        --ops 200000 --replays 1
    "$BENCH" bench "$bench" --duration 30ms --repeat 1 --threads 2 ${OWN[@]+"${OWN[@]}"} \
        --format json >"$work/$bench.json"
    check_rows "$bench" "$work/$bench.json"
    # (Two measure the machine, and some are for the simulator's score.)
    [[ "$bench" =~ ^(coherence|syscalls|everyday-.*)$ ]] || grep -q '"ours":true' "$work/$bench.json.rows" ||
        die "$bench: nothing of ours was measured"
done

"$BENCH" bench scorecard --quick --no-check --out "$work/scorecard.txt"
grep -q ' goals are reached$' "$work/scorecard.txt" || die "scorecard: not to the end"
say "scorecard: $(tail -n 1 "$work/scorecard.txt"), which means nothing in so short a time"

# Where rivals are installed they take part in tests, but not here.
"$BENCH" bench server --impl manycored,floor --duration 30ms --repeat 1 --threads 1 --set 10 \
    --keys 1000 --ops 20000 --pipeline 1,16 --format json >"$work/server.json"
check_rows server "$work/server.json"
grep -q '"ours":true' "$work/server.json.rows" || die "server: nothing of ours was measured"
"$BENCH" bench server --impl manycored --duration 30ms --repeat 1 --threads 1 --set 0 \
    --keys 1000 --ops 20000 --pipeline 4 --rate 20000 --protocol meta --value 1000 --slice default,9 \
    --format json \
    >"$work/open.json"
check_rows server "$work/open.json"

"$BENCH" bench smr --stall 0.05 --repeat 1 --threads 1 --read node --format json \
    >"$work/stall.json"
check_rows smr "$work/stall.json"

for format in table csv; do
    "$BENCH" bench counter --duration 10ms --repeat 1 --threads 1 --format "$format" \
        >"$work/counter.$format"
    [ "$(wc -l <"$work/counter.$format")" -gt 3 ] || die "the counter's $format is too short"
done
"$MANYCORE" doctor >"$work/doctor.txt"
grep -qi 'clock' "$work/doctor.txt" || die "the doctor says nothing about the clock"

"$BENCH" tour --no-virtual --budget 3s --html "$work/tour.html" >"$work/tour.txt" ||
    die "the tour failed: $(cat "$work/tour.txt")"
grep -q '[^[:space:]]' "$work/tour.txt" || die "the tour printed nothing"
check_page "$work/tour.html"
say "every benchmark runs and writes what it promises"
