#!/usr/bin/env bash
# What safe code must not be able to do to the library, tried from outside: use freed memory, hang,
# lose an update, or keep memory without bound. Each test is a small program with only the public
# interface and a watchdog; ci/test.sh runs all of them among the others, this names them.
#   ci/repro.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# attack WHAT PACKAGE TEST [NAME...]: runs the tests of a file whose names contain one of these, or
# all of them, and demands that some ran.
attack() {
    local what=$1 package=$2 test=$3 passed
    shift 3
    cargo test --locked -q -p "$package" --test "$test" -- "$@" >"$log" 2>&1 ||
        { cat "$log"; die "$what: $test failed"; }
    passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log")
    [ "${passed:-0}" -ge "$(($# > 0 ? $# : 1))" ] || die "$what: $test has no such tests: $*"
    say "$what: $passed passed"
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Memory that is used after it was freed.
attack "keys that lie" manycore liars
attack "untagged links of retired nodes" manycore garbage untagged_link

# Threads that wait for themselves, or for each other in a circle.
attack "calls from within callbacks" manycore reentrancy
attack "circles of threads" manycore circles
attack "updates that append updates" manycore oplog_reentrancy
attack "objects that own themselves" manycore oplog_own_end
attack "walkers that change what they walk over" manycore ldu_reentry
attack "calls from constructors and destructors" manycore callbacks
attack "wakers" manycore event_queue_tasks
attack "loads that wait for each other" manycore-cache circles
attack "calls from within a cache's callbacks" manycore-cache reentrancy

# Updates that are lost.
attack "logs that panic, and poison" manycore oplog_faults
attack "structures that panic" manycore ldu_faults
attack "loads beside newer values" manycore-cache newer
attack "panics at every call of a cache" manycore-cache faults
attack "keys that lie to a cache" manycore-cache liars

# Memory without bound.
attack "garbage" manycore garbage
attack "garbage of a cache" manycore-cache garbage
attack "configurations" manycore configurations
attack "objects that were evicted" manycore memory many_objects_share
attack "namespaces" manycore memory space_of_two_ids

# Corners.
attack "empty types, expired entries" manycore-cache corners
say "nothing broke"
