#!/usr/bin/env bash
# The papers' figures in their quick form: that each runs on virtual cores and here, that a second
# call takes all runs from the first, and what the page must hold. Not called by .ci/run: building
# every rival for virtual cores takes minutes.
#   ci/report.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
quick_builds
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cargo build --release --locked
report() {
    "$TARGET/release/manycore-bench" report --quick --runs "$work/runs" --html "$work/page.html" \
        --markdown "$work/page.md" >"$work/said" 2>"$work/progress" || die "$(tail -n 5 "$work/progress")"
}
report
if grep -q 'only this machine is measured' "$work/progress"; then
    skip "$(grep 'only this machine' "$work/progress")"
fi
cat "$work/said"
for part in 'Calibration' 'Validation' '<svg' '</html>'; do
    grep -q "$part" "$work/page.html" || die "the page lacks '$part'"
done
grep -q '^## OpLog, Figure 12' "$work/page.md" || die "the list lacks a figure's claims"
! grep -q 'not run' "$work/said" || say "note: what needs more points than the quick form has is not compared"
cp "$work/said" "$work/first"
before=$(find "$work/runs" -type f | wc -l)
report
[ "$(find "$work/runs" -type f | wc -l)" -eq "$before" ] || die "a second call ran something again"
cmp "$work/first" "$work/said" || die "a second call says something else"
