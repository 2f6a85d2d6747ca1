#!/usr/bin/env bash
# What the library's hot paths do to cache lines that others use, per operation, on 4 virtual cores,
# against ci/audit.golden.
#   ci/audit.sh            compare
#   ci/audit.sh --accept   write the golden file anew; a difference needs its reason in the commit
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
built_workspace
quick_builds
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

PATHS='shared-word
    add record append append-ordered ldu-change active-set timer-set-cancel registry queue-send
    enter-exit map-get flat-get flat-update cache-get id-lookup clone-drop slab
    clustered-call swappable-call dhash-get dhash-local replicated-get page-hit budget object-pool
    weak-upgrade lru-touch retire layer-read file-touch space-touch
    range-get range-update pool-page file-open resolve grant-unmap alias-revoke alias-unmap
    fs-lookup fs-attributes fs-read fs-list
    trace-event trace-span trace-off'
for path in $PATHS; do
    "$MANYCORE" sim --audit --cores 4 -- sim-audit "$path" \
        >>"$work/audit" 2>"$work/said" || skip_if_not_simulable "$work/said"
done

# same FILE FILE: the same paths; no number differs by more than SLACK, and what is none stays none.
# Remote reads alone may be SLACK for none: a line that each thread reads once, with the first operation
# that is measured, is 0.02, and whether there is one follows the addresses of the program and its memory.
SLACK=0.02
same() {
    paste -d ' ' "$1" "$2" | tr '=' ' ' | awk -v slack="$SLACK" '
        NF % 2 { exit 1 }
        {
            for (i = 1; i <= NF / 2; i++) {
                a = $i; b = $(i + NF / 2); apart = a - b
                appears = a * b == 0 && $(i - 1) != "remote-reads"
                if (a != b && (appears || apart > slack + 0.001 || -apart > slack + 0.001)) bad = 1
            }
        }
        END { exit bad }'
}

case "${1:-}" in
--accept) cp "$work/audit" ci/audit.golden ;;
"") same ci/audit.golden "$work/audit" || {
    diff -u ci/audit.golden "$work/audit" || true
    die "a hot path does other things than before"
} ;;
*) die "unknown argument '$1'" ;;
esac
cat "$work/audit"
