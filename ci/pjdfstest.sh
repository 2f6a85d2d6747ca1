#!/usr/bin/env bash
# pjdfstest, the test suite of POSIX file systems, on a mount of manycore-fs. Needs root, prove, and the
# suite (https://github.com/pjd/pjdfstest), built by its own instructions. Not in .ci/run: the suite is
# not part of this project, and takes some minutes.
#   MANYCORE_PJDFSTEST=FOLDER ci/pjdfstest.sh [DIRECTORY ...]     all of its tests, or some folders
# Tests that ci/pjdfstest.skip names are not run, for the reason given there; any other that fails is a
# failure.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
suite=${MANYCORE_PJDFSTEST:-}
[ -n "$suite" ] || skip "MANYCORE_PJDFSTEST names no folder with a built pjdfstest"
[ -x "$suite/pjdfstest" ] || die "$suite has no program pjdfstest: build it there"
[ "$(id -u)" = 0 ] || skip "the suite changes users, and needs root for that"
[ -w /dev/fuse ] || skip "no /dev/fuse"
command -v prove >/dev/null 2>&1 || skip "no prove, which runs the tests"
cargo build --locked -p manycore-fs

work=$(mktemp -d)
# The suite's other users come in through it.
chmod 755 "$work"
mkdir "$work/point"
finish() {
    cd /
    umount -l "$work/point" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
"$TARGET/debug/manycore-fs" mount --allow-other "$work/point"
files=()
for folder in "${@:-.}"; do
    while read -r file; do
        name=${file#"$suite/tests/"}
        if ! grep -q "^$name " ci/pjdfstest.skip; then
            files+=("$file")
        fi
    done < <(find "$suite/tests/$folder" -name '*.t' | sed 's#/\./#/#' | sort)
done
[ ${#files[@]} -gt 0 ] || die "there are no such tests in $suite/tests"
mkdir "$work/point/test"
(cd "$work/point/test" && prove -Q "${files[@]}")
say "${#files[@]} files of pjdfstest pass; $(grep -vc '^#' ci/pjdfstest.skip || :) are not run"
