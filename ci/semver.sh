#!/usr/bin/env bash
# Whether the libraries' public interface still has all that the last released version had.
#   ci/semver.sh          against the newest tag vN
#   ci/semver.sh REV      against that commit
# It installs cargo-semver-checks, by far the largest tool of these scripts, in a folder of its own.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
base=${1:-$(git tag --list 'v[0-9]*' --sort=-version:refname | head -n 1)}
[ -n "$base" ] || skip "no version has been released yet, so there is nothing to compare with"
tools=$TARGET/tools
[ -x "$tools/bin/cargo-semver-checks" ] ||
    cargo install cargo-semver-checks --locked --root "$tools"
for package in manycore manycore-cache manycore-metrics manycore-trace manycore-vm manycore-sim; do
    "$tools/bin/cargo-semver-checks" semver-checks --package "$package" --baseline-rev "$base"
done
say "compatible with $base"
