#!/usr/bin/env bash
# Instructions of a call, and locked ones among them, of the library's short paths and of what they
# are compared with, against ci/instructions.golden. They are exact: no path gets longer unseen.
#   ci/instructions.sh            compare
#   ci/instructions.sh --accept   write the golden file anew; what rises needs its reason in the commit
#   ci/instructions.sh CASE...    count these; `manycore-instructions --list` has the names
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
golden=ci/instructions.golden
command -v valgrind >/dev/null || skip "no valgrind"
command -v objdump >/dev/null || skip "no objdump"
[ "$(uname -m)" = x86_64 ] || skip "the golden file was counted on x86_64"
# As users build, whatever the caller has set.
export CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_DEBUG=none
cargo build --release -p manycore-instructions --locked
program=$TARGET/release/manycore-instructions
case ${1:-} in
'' | --accept) ;;
*)
    ci/instructions.py "$program" "$@"
    exit
    ;;
esac
counted=$(mktemp)
trap 'rm -f "$counted" "$counted".*' EXIT
{
    echo "# instructions, locked ones among them, case; $(rustc --version | cut -d ' ' -f 1,2)"
    ci/instructions.py "$program"
} >"$counted"
if [ "${1:-}" = --accept ]; then
    cp "$counted" "$golden"
    exit
fi
if [ "$(head -n 1 "$golden")" != "$(head -n 1 "$counted")" ]; then
    cat "$counted"
    skip "another compiler than that of $golden: what was counted is above"
fi
# compare: says what differs; the names of the cases with more than their golden line go to $more.
# A call of malloc or free may be shorter or longer with the C library's state. The rivals' figures are
# there to be compared with; a newer version of theirs, or a lucky address, is no fault of ours.
compare() {
    awk -v more="$more" 'FNR == 1 { next }
        { every = $1; locked = $2; sub(/^ *[0-9]+ +[0-9.]+ +/, "") }
        NR == FNR { was_every[$0] = every; was_locked[$0] = locked; next }
        !($0 in was_every) { print "no golden line: " $0; wrong = 1; next }
        {
            counted++
            room = 1 + was_every[$0] / 50
            now = every " / " locked ", was " was_every[$0] " / " was_locked[$0] ": " $0
        }
        /^rival: / { next }
        every > was_every[$0] + room || locked > was_locked[$0] + 0.1 {
            print "more: " now
            print >more
            wrong = 1
        }
        every < was_every[$0] - room || locked < was_locked[$0] - 0.1 { print "fewer: " now }
        END {
            if (counted < length(was_every)) { print "a golden line is of no case"; wrong = 1 }
            if (!wrong) print counted " cases, none with more than its golden line"
            exit wrong
        }' "$golden" "$counted"
}

# A table whose hash function has an unlucky seed takes more steps: the least of three runs counts.
more=$counted.more
for try in 1 2 3; do
    : >"$more"
    if compare; then
        exit
    elif [ ! -s "$more" ] || [ "$try" = 3 ]; then
        die "see above; 'ci/instructions.sh --accept' writes $golden anew"
    fi
    mapfile -t again <"$more"
    ci/instructions.py "$program" "${again[@]}" | while read -r every locked name; do
        awk -v every="$every" -v locked="$locked" -v name="$name" '
            FNR > 1 { line = $0; sub(/^ *[0-9]+ +[0-9.]+ +/, "", line) }
            FNR > 1 && line == name && every < $1 { printf "%6d %5.1f  %s\n", every, locked, name; next }
            1' "$counted" >"$counted.new"
        mv "$counted.new" "$counted"
    done
done
