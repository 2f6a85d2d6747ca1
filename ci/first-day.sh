#!/usr/bin/env bash
# What a newcomer does first: clone the last commit, run the tour, look at the page. The clone has
# its own build folder: cargo would take its files for ours, which have the same names. Of what other
# checks have built, it gets the dependencies.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$(git status --porcelain)" ]; then
    say "note: what is not committed is not in this check"
fi
git clone --quiet "$ROOT" "$work/manycore"
cd "$work/manycore"

quick_builds
export CARGO_TARGET_DIR="$TARGET/first-day"
rm -rf "$CARGO_TARGET_DIR"
if [ -d "$TARGET/release" ]; then
    mkdir "$CARGO_TARGET_DIR"
    cp -a "$TARGET/release" "$CARGO_TARGET_DIR/"
    find "$CARGO_TARGET_DIR" -name '*manycore*' -prune -exec rm -rf {} +
fi
cargo run --release --locked -- tour --no-virtual --budget 3s --html "$work/tour.html" >"$work/tour.txt" ||
    { cat "$work/tour.txt"; die "the tour failed"; }
grep -q '[^[:space:]]' "$work/tour.txt" || die "the tour printed nothing"
grep -qi '</html>' "$work/tour.html" || die "the tour left no whole page"
grep -qi '<svg' "$work/tour.html" || die "the tour's page has no plot"
! grep -qiE '(src=.?|<link[^>]*|url\(|@import .?)https?://' "$work/tour.html" || die "the tour's page needs the network"
say "the tour runs from a fresh clone and writes its page"
