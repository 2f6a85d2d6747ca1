#!/usr/bin/env bash
# The threaded tests of the library, the cache and the server under ThreadSanitizer, which watches
# every memory access for races.
#   ci/tsan.sh           all of them
#   ci/tsan.sh --short   the soaks alone, not optimised: what .ci/run calls
#
# It needs a nightly compiler and the source of the standard library, because only what is compiled
# with the sanitizer is watched. Where one of them is missing this check is skipped, and says so.
#
# What it cannot see: a stand-alone fence. Order that rests on one (`fence` or `membarrier`) is
# invisible to it, so it may report a race there that is none. ci/tsan.supp lists such reports, each
# with the argument why the code is right; the models under loom check those places instead.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

need_sanitizer ThreadSanitizer
library=$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library
[ -f "$library/Cargo.toml" ] || rustup component add rust-src --toolchain nightly ||
    skip "no source of the standard library ('rustup component add rust-src --toolchain nightly')"

# The sanitizer itself first: it must catch a race that is there.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/race.rs" <<'RUST'
use std::cell::UnsafeCell;
struct Shared(UnsafeCell<u64>);
unsafe impl Sync for Shared {}
static SHARED: Shared = Shared(UnsafeCell::new(0));
fn main() {
    let add = || (0..1000).for_each(|_| unsafe { *SHARED.0.get() += 1 });
    let other = std::thread::spawn(add);
    add();
    other.join().unwrap();
}
RUST
rustc +nightly -Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer \
    -o "$work/race" "$work/race.rs"
! "$work/race" 2>"$work/report" || die "the sanitizer does not report a race that is there"
grep -q 'data race' "$work/report" || die "the sanitizer's own test failed: $(cat "$work/report")"

soak=5
optimised=1
library=(--test=stress --test=torture --test=linearizability --test=borrows --test=integration)
short=()
case "${1:-}" in
"") ;;
--short)
    soak=2
    optimised=0
    library=(--test=stress --test=torture)
    short=(threads::)
    ;;
*) die "unknown argument '$1'" ;;
esac
export MANYCORE_SOAK="${MANYCORE_SOAK:-$soak}" MANYCORE_TESTS="${MANYCORE_TESTS:-short}"
export RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR="$TARGET/tsan"
export CARGO_PROFILE_DEV_OPT_LEVEL=$optimised
options="suppressions=$ROOT/ci/tsan.supp halt_on_error=1 die_after_fork=0"
export TSAN_OPTIONS="$options ${TSAN_OPTIONS:-}"
run() { cargo +nightly test -Zbuild-std --target "$HOST" --locked "$@"; }
# What runs on one thread is left out.
run -p manycore "${library[@]}" -- --skip=liars:: --skip=properties::
run -p manycore-cache --test=integration -- --skip=sequential:: --skip=liars:: \
    ${short[@]+"${short[@]}"}
run -p manycore-vm --test=integration -- threads:: spaces:: gate:: pool:: files::
[ "${1:-}" = --short ] || run -p manycore-trace --test=integration -- policies:: recording::
# Half of the server's crates are compiled for it, which takes longer than all of the above: 2.5
# minutes of processor time. Its store, and whole servers: one that races ends, and its test fails.
# What measures memory is left out, as the sanitizer takes most of it.
[ "${1:-}" = --short ] || run -p manycored --lib --test=integration -- store:: threads:: \
    linearizability:: gathered:: many_clients descriptors:: udp:: warm:: --skip=memory_
say "no race found"
