#!/usr/bin/env bash
# What a newcomer does first: clone the last commit, run the README's first command, look at the
# page. The clone has its own build folder, and everything is built as for measuring, which takes
# minutes.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -n "$(git status --porcelain)" ]; then
    say "note: what is not committed is not in this check"
fi
git clone --quiet "$ROOT" "$work/manycore"
cd "$work/manycore"
CARGO_TARGET_DIR=$work/target cargo run --release --locked >"$work/tour.txt" ||
    die "the tour failed: $(cat "$work/tour.txt")"
cat "$work/tour.txt"
say "the tour runs from a fresh clone"
