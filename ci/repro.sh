#!/usr/bin/env bash
# What safe code must not be able to do to the library, tried from outside: use freed memory, hang,
# lose an update, or keep memory without bound. Each test is a small program with only the public
# interface and a watchdog; ci/test.sh runs all of them among the others, this names them.
#   ci/repro.sh           runs them
#   ci/repro.sh --list    demands that they are there: what .ci/run calls, beside ci/test.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

list=()
case "${1:-}" in
"") ;;
--list) list=(--list) ;;
*) die "unknown argument '$1'" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# As `ci/test.sh std` builds them: cargo's line of a program names its package, and then its path.
workspace test -q --no-run --test integration --test garbage --test memory --test reentrancy \
    --message-format json >"$work/built"

# attack WHAT PACKAGE FILE [NAME]: runs the tests of a file whose names contain NAME, or all of
# them, and demands that there are some.
attack() {
    local what=$1 package=$2 file=$3 name=${4:-} program=$3 path tests
    if [ -f "crates/$package/tests/integration/$file.rs" ] ||
        [ -d "crates/$package/tests/integration/$file" ]; then
        program=integration
        name=$file::$name
    fi
    path=$(sed -n "s|.*/crates/$package/Cargo.toml\".*\"executable\":\"\([^\"]*/$program-[^\"/]*\)\".*|\1|p" \
        "$work/built")
    [ -x "$path" ] || die "$what: $package has no program of tests $program"
    (cd "crates/$package" && "$path" ${list[@]+"${list[@]}"} "$name") >"$work/said" 2>&1 ||
        die "$what: $file failed: $(cat "$work/said")"
    if [ ${#list[@]} = 0 ]; then
        tests=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$work/said")
    else
        tests=$(grep -c ': test$' "$work/said" || true)
    fi
    [ "${tests:-0}" -ge 1 ] || die "$what: $file has no such tests: $name"
    say "$what: $tests tests"
}

# Memory that is used after it was freed.
attack "keys that lie" manycore liars
attack "untagged links of retired nodes" manycore garbage untagged_link

# Threads that wait for themselves, or for each other in a cycle.
attack "calls from within callbacks" manycore reentrancy
attack "deadlocks" manycore deadlocks
attack "updates that append updates" manycore oplog_reentrancy
attack "objects that own themselves" manycore oplog_own_end
attack "walkers that change what they walk over" manycore ldu_reentry
attack "calls from constructors and destructors" manycore callbacks
attack "wakers" manycore event_queue_tasks
attack "loads that wait for each other" manycore-cache deadlocks
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
[ ${#list[@]} -gt 0 ] || say "nothing broke"
