#!/usr/bin/env bash
# pjdfstest, the test suite of POSIX file systems, on a mount of manycore-fs. Needs root, prove, and the
# suite (https://github.com/pjd/pjdfstest), built by its own instructions. Not in .ci/run: the suite is
# not part of this project, and takes some minutes.
#   MANYCORE_PJDFSTEST=FOLDER ci/pjdfstest.sh [--keep] [DIRECTORY ...]     all of its tests, or some folders
# With --keep, the mount is kept in a folder; afterwards its log is read once more.
# Tests that ci/pjdfstest.skip names are not run, for the reason given there; any other that fails is a
# failure.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
keep=()
if [ "${1:-}" = --keep ]; then
    keep=(--keep)
    shift
fi
suite=${MANYCORE_PJDFSTEST:-}
[ -n "$suite" ] || skip "MANYCORE_PJDFSTEST names no folder with a built pjdfstest"
[ -x "$suite/pjdfstest" ] || die "$suite has no program pjdfstest: build it there"
[ "$(id -u)" = 0 ] || skip "the suite changes users, and needs root for that"
[ -w /dev/fuse ] || skip "no /dev/fuse"
command -v prove >/dev/null 2>&1 || skip "no prove, which runs the tests"
built manycore-fs

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
mount() {
    "$TARGET/debug/manycore-fs" mount --allow-other ${keep:+--keep "$work/kept"} "$work/point"
}
mount
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
if [ -n "${keep:-}" ]; then
    listed() { find "$work/point" -printf '%p %y %m %n %U %G %s %l\n' | sort; }
    listed >"$work/before"
    "$TARGET/debug/manycore-fs" unmount "$work/point"
    mount
    listed | cmp - "$work/before" || die "the log does not say what was there"
fi
say "${#files[@]} files of pjdfstest pass; $(grep -vc '^#' ci/pjdfstest.skip || :) are not run"
