#!/usr/bin/env bash
# Times of everyday work on a tree of this project's files, mounted: manycore-fs beside tmpfs, overlayfs,
# fuse-overlayfs and BranchFS, in turns, in one run. Needs root. Not in .ci/run: it measures.
#   ci/fs-rivals.sh [ROUNDS]                5 rounds, unless another number is given
#   ci/fs-rivals.sh applications [ROUNDS]   whole applications instead: some ten minutes a round
# It prints two tables of milliseconds, or one: the least of the rounds and, in brackets, the median. A
# mount's times depend much on what else runs, and the least depends on that least.
# The first table is of a tree that was unpacked in the mount. The second is of a tree that the mount
# reads through: a base directory, a lower layer. There, "first" is right after mounting, and "again"
# is with what is cached then. "no-xattrs" is manycore-fs with that option.
# fuse-overlayfs is measured if it is installed, and BranchFS if MANYCORE_BRANCHFS names its program.
# The applications are PostMark with the parameters of K42's paper, an instance for each processor, and
# the loads of a mail and a web server: the examples of manycore-fs, from the host. Then scripts of SDET's
# kind and a parallel make (crates/manycore-fs/tests/programs), git, and cargo with a part of this project.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
what=everyday
[ "${1:-}" != applications ] || { what=applications && shift; }
rounds=${1:-5}
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "'$rounds' is no number of rounds"
[ "$(id -u)" = 0 ] || skip "overlayfs and tmpfs are mounted by root"
[ -w /dev/fuse ] || skip "no /dev/fuse"
command -v git >/dev/null 2>&1 || skip "no git"
cargo build --release --locked -p manycore-fs
ours=$TARGET/release/manycore-fs
branchfs=${MANYCORE_BRANCHFS:-}
kinds=(tmpfs overlayfs)
! command -v fuse-overlayfs >/dev/null 2>&1 || kinds+=(fuse-overlayfs)
# BranchFS makes no symbolic links, which SDET's script does.
[ -z "$branchfs" ] || [ "$what" = applications ] || kinds+=(branchfs)
# The last is what the others are compared with.
kinds+=(no-xattrs manycore-fs)

# All of it in memory, so that no disk is measured.
work=$(mktemp -d)
mount -t tmpfs none "$work"
point=$work/point
finish() {
    cd /
    umount -l "$point" 2>/dev/null || true
    umount -l "$work" 2>/dev/null || true
    rmdir "$work"
}
trap finish EXIT
# No settings but the tree's own.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_OPTIONAL_LOCKS=1
# BranchFS makes no symbolic links.
git clone --quiet --depth 1 -c core.symlinks=false "file://$ROOT" "$work/tree"
tar -C "$work" -cf "$work/tree.tar" tree
say "$(find "$work/tree" -type f | wc -l) files, $(du -sm "$work/tree" | cut -f 1) MB, $rounds rounds"
results=$work/results
: >"$results"

# up KIND BASE: mounts it at $point, on top of what BASE has, if it is named.
up() {
    local kind=$1 base=${2:-}
    rm -rf "$work/upper" "$work/inner" "$work/storage"
    mkdir -p "$point" "$work/empty" "$work/upper" "$work/inner" "$work/storage"
    local layers="lowerdir=${base:-$work/empty},upperdir=$work/upper,workdir=$work/inner"
    case $kind in
    tmpfs)
        mount -t tmpfs none "$point"
        [ -z "$base" ] || cp -a "$base/." "$point"
        ;;
    overlayfs) mount -t overlay none "$point" -o "$layers" ;;
    fuse-overlayfs) fuse-overlayfs -o "$layers" "$point" >"$work/said" 2>&1 ;;
    branchfs)
        "$branchfs" mount --base "${base:-$work/empty}" --storage "$work/storage" "$point" \
            >"$work/said" 2>&1 </dev/null
        for _ in {1..100}; do
            ! mountpoint -q "$point" || break
            sleep 0.02
        done
        ;;
    no-xattrs) "$ours" mount --no-xattrs ${base:+--base "$base"} "$point" ;;
    manycore-fs) "$ours" mount ${base:+--base "$base"} "$point" ;;
    esac
    mountpoint -q "$point" || die "$kind is not mounted"
}

down() {
    cd /
    case $1 in
    branchfs) "$branchfs" unmount --storage "$work/storage" "$point" >/dev/null 2>&1 || umount -l "$point" ;;
    *) umount "$point" ;;
    esac
    for _ in {1..200}; do
        mountpoint -q "$point" || break
        sleep 0.02
    done
}

# timed TABLE KIND WHAT COMMAND...: its time goes into the results.
timed() {
    local table=$1 kind=$2 what=$3 begin end
    shift 3
    begin=${EPOCHREALTIME/./}
    "$@" >/dev/null
    end=${EPOCHREALTIME/./}
    echo "$table;$what;$kind;$((end - begin))" >>"$results"
}

branch() {
    case $1 in
    branchfs) "$branchfs" create "new$RANDOM" "$point" --storage "$work/storage" ;;
    manycore-fs) "$ours" fork --mount "$point" "new$RANDOM" ;;
    esac
}

sizes() { find . -type f -printf '%s %p\n'; }
search() { grep -r 'no such word in it' . || [ $? = 1 ]; }
copy() { cp -a tree copy; }

# everyday KIND: the first two tables.
everyday() {
    local kind=$1 time
    up "$kind"
    cd "$point"
    timed unpacked "$kind" "untar" tar -xf "$work/tree.tar"
    cd tree
    timed unpacked "$kind" "find with sizes" sizes
    timed unpacked "$kind" "grep -r" search
    timed unpacked "$kind" "git status" git status
    cd ..
    timed unpacked "$kind" "cp -a" copy
    case $kind in
    branchfs | manycore-fs)
        cd /
        timed unpacked "$kind" "a branch, by command" branch "$kind"
        cd "$point"
        ;;
    esac
    timed unpacked "$kind" "rm -r" rm -rf tree
    down "$kind"

    up "$kind" "$work/tree"
    cd "$point"
    for time in first again; do
        timed base "$kind" "find with sizes, $time" sizes
        timed base "$kind" "grep -r, $time" search
        timed base "$kind" "git status, $time" git status
    done
    down "$kind"
}

# each COMMAND...: runs it once for each processor, with that processor's number as its last word.
each() {
    local number running=()
    for ((number = 1; number <= $(nproc); number++)); do
        "$@" "$number" &
        running+=($!)
    done
    for number in "${running[@]}"; do wait "$number"; done
}

programs=$ROOT/crates/manycore-fs/tests/programs examples=$TARGET/release/examples
postmark() { "$examples/postmark" . 20000 100000 "$1"; }
sdet() { "$programs/sdet.sh" "sdet$1" 5; }
build() {
    CARGO_TARGET_DIR=$PWD/target CARGO_INCREMENTAL=0 \
        cargo build --quiet --locked --offline --manifest-path tree/Cargo.toml -p manycore-cache
}

# applications KIND: the third.
applications() {
    local kind=$1
    up "$kind"
    cd "$point"
    timed applications "$kind" "PostMark" each postmark
    timed applications "$kind" "SDET" each sdet
    timed applications "$kind" "make" "$programs/make.sh" make 100 "$(nproc)"
    timed applications "$kind" "mail" "$examples/mail" . "$(nproc)" 200 50
    timed applications "$kind" "static files" "$examples/static_files" . "$(nproc)" 20000
    timed applications "$kind" "git clone" git clone --quiet -c core.symlinks=false "file://$work/tree" tree
    timed applications "$kind" "cargo build" build
    cd /
    down "$kind"
}

[ "$what" = everyday ] || cargo build --release --locked -p manycore-fs --examples
for ((round = 0; round < rounds; round++)); do
    for kind in "${kinds[@]}"; do "$what" "$kind"; done
done

python3 - "$results" "${kinds[@]}" <<'PYTHON'
import statistics, sys
kinds = sys.argv[2:]
times, order = {}, []
for line in open(sys.argv[1]):
    table, what, kind, micros = line.strip().split(";")
    if (table, what) not in order:
        order.append((table, what))
    times.setdefault((table, what, kind), []).append(int(micros) / 1000)
titles = {"unpacked": "unpacked in the mount", "base": "read through", "applications": "applications"}
for table, title in titles.items():
    if table not in {t for t, w in order}:
        continue
    print(f"\n| {title}, ms: least (median) | " + " | ".join(kinds) + " |")
    print("|---|" + "---:|" * len(kinds))
    for what in [w for t, w in order if t == table]:
        cells = []
        for kind in kinds:
            found = times.get((table, what, kind))
            if not found:
                cells.append("")
                continue
            cells.append(f"{min(found):.1f} ({statistics.median(found):.1f})")
        print(f"| {what} | " + " | ".join(cells) + " |")
print("\nratios of the least, manycore-fs to:")
for table, what in order:
    own = times.get((table, what, "manycore-fs"))
    if own:
        ratio = lambda kind: min(own) / min(times[table, what, kind])
        others = [k for k in kinds[:-1] if (table, what, k) in times]
        print(f"  {table}, {what}: " + ", ".join(f"{k} {ratio(k):.2f}" for k in others))
PYTHON
