#!/usr/bin/env bash
# The library for C and C++: built, installed into a folder, and used from there. Each example and each
# test is compiled as the standards that its header promises, through pkg-config and through CMake,
# shared and static, with gcc and with clang, under AddressSanitizer and ThreadSanitizer, as far as these
# are here; warnings are errors. Then liburcu's own torture test, its test of forks and its programs for lock-free
# structures, from Debian's source package, with manycore/urcu.h in the place of its headers.
#   ci/c.sh            all of that
#   ci/c.sh --short    with gcc alone, without ThreadSanitizer and liburcu's: what .ci/run calls
#   ci/c.sh lookups    in place of all that, what look-ups in maps and caches cost from C and from Rust
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case "${1:-}" in
"" | lookups) short= ;;
--short) short=1 ;;
*) die "unknown argument '$1'" ;;
esac
command -v pkg-config >/dev/null 2>&1 || skip "no pkg-config"
command -v gcc >/dev/null 2>&1 || skip "no gcc"
capi=$ROOT/crates/manycore-capi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

warnings=(-Wall -Wextra -Werror -pedantic -O2 -pthread)

# Both loops with the library in the program, in turns; of each the least of five.
lookups() {
    local turn
    PROFILE=release "$capi/install.sh" "$work/prefix" --locked
    cargo build --release --locked -p manycore-capi --example lookups
    export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
    read -ra static <<<"$(pkg-config --cflags manycore) $work/prefix/lib/libmanycore.a \
        $(pkg-config --static --libs-only-l manycore | sed 's/-lmanycore//')"
    gcc -std=c11 "${warnings[@]}" -o "$work/lookups" "$capi/lookups/lookups.c" "${static[@]}"
    for turn in 1 2 3 4 5; do
        "$work/lookups" >>"$work/c"
        "$TARGET/release/examples/lookups" >>"$work/rust"
    done
    awk '{ cell = $1 " " $2; took = $3 }
        !(cell in sums) { cells[++count] = cell; sums[cell] = $4 }
        sums[cell] != $4 { print "other sums of " cell; failed = 1 }
        !((FILENAME, cell) in least) || took < least[FILENAME, cell] { least[FILENAME, cell] = took }
        END {
            for (i = 1; i <= count; i++) {
                c = least[ARGV[1], cells[i]]; rust = least[ARGV[2], cells[i]]
                printf "%-10s %5.2f ns from C, %5.2f ns from Rust, %4.2f of it\n", cells[i], c, rust, c / rust
            }
            exit failed
        }' "$work/c" "$work/rust"
}
if [ "${1:-}" = lookups ]; then
    lookups
    exit
fi

# As `cargo test` builds it, so it is mostly built.
PROFILE=${PROFILE:-dev} "$capi/install.sh" "$work/prefix" --locked
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
[ "$(objdump -p "$work/prefix/lib/libmanycore.so" | awk '/SONAME/ { print $2 }')" = libmanycore.so.0 ] ||
    die "the shared library has another soname"
! nm -D --defined-only "$work/prefix/lib/libmanycore.so" | grep -v ' mc_.*@@MANYCORE_0$\| MANYCORE_0$' ||
    die "the shared library has symbols without a version, or others than its own"

# A page for each function and each header; private names have none.
pages=$work/prefix/share/man/man3
for header in "$capi"/include/manycore/*.h; do
    case $header in */urcu.h) continue ;; */manycore.h) page=manycore ;; *) page=manycore_$(basename "$header" .h) ;; esac
    [ -s "$pages/$page.3" ] || die "no page of $(basename "$header")"
done
for function in $(sed -n 's/^\t\t\(mc_.*[^_]\);$/\1/p' "$capi/manycore.map") mc_enter mc_dereference mc_map_get; do
    grep -q "$function(" "$pages/$function.3" || die "no page of $function"
done
! ls "$pages" | grep '_\.3$' || die "a page of a private name"
if command -v mandoc >/dev/null 2>&1; then
    mandoc -Tlint -W warning "$pages"/*.3 || die "mandoc complains"
    say "$(ls "$pages" | wc -l) man pages"
else
    say "SKIPPED: mandoc, which would look at the man pages"
fi

read -ra shared <<<"$(pkg-config --cflags --libs manycore) -Wl,-rpath,$work/prefix/lib"
read -ra static <<<"$(pkg-config --cflags manycore) $work/prefix/lib/libmanycore.a \
    $(pkg-config --static --libs-only-l manycore | sed 's/-lmanycore//')"

# compile COMPILER STANDARD SOURCE OUT FLAG...
compile() {
    local language=c
    case $2 in *++*) language=c++ ;; esac
    "$1" "-std=$2" "${warnings[@]}" -o "$4" -x "$language" "$3" -x none "${@:5}" ||
        die "$1 does not compile $3 as $2"
}

# run PROGRAM ARGUMENT...: with a limit, and its output only if it fails.
run() {
    timeout 60 "$@" >"$work/said" 2>&1 || die "$(basename "$1") failed: $(cat "$work/said")"
}

compilers=(gcc)
if [ -n "$short" ]; then
    say "gcc alone"
elif command -v clang >/dev/null 2>&1; then
    compilers+=(clang)
else
    say "no clang: gcc alone"
fi
programs=()
for compiler in "${compilers[@]}"; do
    for source in "$capi"/examples/*.c*; do
        name=$compiler-$(basename "$source")
        standards=(c11 c17 c++17)
        [[ $source != *.cpp ]] || standards=(c++17 c++20)
        for standard in "${standards[@]}"; do
            flags=()
            [[ $standard != *++* ]] || flags+=(-lstdc++)
            compile "$compiler" "$standard" "$source" "$work/$name-$standard" "${shared[@]}" "${flags[@]}" &
        done
        for job in "${standards[@]}"; do wait -n || exit 1; done
        programs+=("$work/$name-${standards[-1]}")
    done
    for source in "$capi"/tests/c/*.c*; do
        name=$compiler-test-$(basename "$source")
        standard=c11 flags=("${shared[@]}")
        [[ $source != *.cpp ]] || { standard=c++17 flags+=(-lstdc++); }
        [ "$(basename "$source")" != plugin.c ] || continue
        compile "$compiler" $standard "$source" "$work/$name" "${flags[@]}"
        programs+=("$work/$name")
    done
    # The library comes and goes with the plug-in alone.
    compile "$compiler" c11 "$capi/tests/c/plugin.c" "$work/plugin.so" -DPLUGIN -fPIC -shared "${shared[@]}"
    compile "$compiler" c11 "$capi/tests/c/plugin.c" "$work/plugin" -ldl
    run "$work/plugin" "$work/plugin.so"
done
for program in "${programs[@]}"; do run "$program"; done
say "${#programs[@]} programs compiled with warnings as errors, and ran"

# Calls in place of inline functions, and the static library.
for source in bounded contracts; do
    compile gcc c11 "$capi/tests/c/$source.c" "$work/calls" -DMC_NO_INLINE "${shared[@]}"
    run "$work/calls"
done
for source in contracts threads; do
    compile gcc c11 "$capi/tests/c/$source.c" "$work/static" "${static[@]}"
    run "$work/static"
    ! ldd "$work/static" | grep -q libmanycore || die "the static program needs the shared library"
done
say "the static library, and calls in place of inline functions"

# As users get it: both libraries work, are as small as the guide says, and the lines are beside them.
dist() {
    local size PKG_CONFIG_PATH=$work/dist/lib/pkgconfig
    export PKG_CONFIG_PATH
    env -u PROFILE "$capi/install.sh" "$work/dist" --locked
    size=$(stat -Lc %s "$work/dist/lib/libmanycore.so")
    [ "$size" -lt 2000000 ] || die "the shared library has $size bytes"
    size=$(stat -Lc %s "$work/dist/lib/libmanycore.a")
    [ "$size" -lt 10000000 ] || die "the static library has $size bytes"
    objdump --dwarf=decodedline -WK "$work/dist/lib/libmanycore.so" | grep 'manycore-capi/src' >/dev/null ||
        die "no lines of the shared library beside it"
    compile gcc c11 "$capi/tests/c/threads.c" "$work/dist/shared" \
        $(pkg-config --cflags --libs manycore) "-Wl,-rpath,$work/dist/lib"
    run "$work/dist/shared"
    compile gcc c11 "$capi/tests/c/threads.c" "$work/dist/static" $(pkg-config --cflags manycore) \
        "$work/dist/lib/libmanycore.a" $(pkg-config --static --libs-only-l manycore | sed 's/-lmanycore//')
    run "$work/dist/static"
    say "the libraries as users get them"
}
[ -n "$short" ] || dist

# Memory of the C side: what its call-backs free is seen, because nodes are its own.
if gcc -fsanitize=address -x c - -o "$work/probe" <<<'int main(void) { return 0; }' 2>/dev/null &&
    "$work/probe"; then
    for source in "$capi"/examples/*.c* "$capi"/tests/c/{bounded,contracts,fork,objects,pages,signals,stalled,threads,torture,urcu}.c "$capi"/tests/c/{rcu,objects}.cpp; do
        standard=c11
        flags=("${shared[@]}" -fsanitize=address -g)
        [[ $source != *.cpp ]] || { standard=c++17 flags+=(-lstdc++); }
        compile gcc $standard "$source" "$work/asan" "${flags[@]}"
        ASAN_OPTIONS=detect_leaks=0 run "$work/asan"
    done
    say "no error of memory under AddressSanitizer"
else
    say "SKIPPED: AddressSanitizer, which gcc has not here"
fi

# Races of both sides: the library built with the sanitizer, as ci/tsan.sh builds it, and the C side
# compiled with it; the run-time is the compiler's of Rust. A reader that goes on after its section must
# be found.
tsan() {
    local host runtime library source standard flags out=$TARGET/tsan
    command -v rustup >/dev/null 2>&1 && cargo +nightly --version >/dev/null 2>&1 &&
        [ -f "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library/Cargo.toml" ] &&
        runtime=$(ls "$(rustc +nightly --print target-libdir)"/librustc*_rt.tsan.a 2>/dev/null) ||
        { say "SKIPPED: ThreadSanitizer, which needs a nightly compiler and the standard library's source"; return; }
    host=$(rustc +nightly -vV | sed -n 's/^host: //p')
    RUSTFLAGS="-Zsanitizer=thread" CARGO_TARGET_DIR=$out CARGO_PROFILE_DEV_OPT_LEVEL=1 \
        cargo +nightly build -Zbuild-std --target "$host" --locked -p manycore-capi --lib
    library=$out/$host/debug/libmanycore_capi.a
    for source in "$capi"/examples/*.c* "$capi"/tests/c/{[!p]*,pages}.c* "$work/race.c"; do
        standard=c11 flags=()
        [[ $source != *.cpp ]] || { standard=c++17 flags=(-lstdc++); }
        compile gcc $standard "$source" "$work/tsan.o" $(pkg-config --cflags manycore) -I"$capi/tests/c" -fsanitize=thread -g -c
        gcc -o "$work/tsan" "$work/tsan.o" "$library" -Wl,--whole-archive "$runtime" -Wl,--no-whole-archive \
            -rdynamic "${flags[@]}" -lgcc_s -lutil -lrt -lpthread -lm -ldl -lresolv || die "$source does not link"
        if [[ $source == */race.c ]]; then
            ! TSAN_OPTIONS=halt_on_error=1 timeout 60 "$work/tsan" >"$work/said" 2>&1 ||
                die "ThreadSanitizer does not see a reader that goes on after its section"
            grep -q 'WARNING: ThreadSanitizer' "$work/said" || die "ThreadSanitizer's own test failed: $(cat "$work/said")"
        else
            TSAN_OPTIONS="halt_on_error=1 die_after_fork=0 report_signal_unsafe=0" run "$work/tsan"
        fi
    done
    say "no race under ThreadSanitizer"
}
cat >"$work/race.c" <<'C'
#include "check.h"
#include <pthread.h>
static struct counted *shared;
static long count;
static void *update(void *argument)
{
	struct counted *old = mc_exchange_pointer(shared, NULL);

	(void)argument;
	mc_retire(mc_domain_default(), &old->head, sizeof(*old), counted_free);
	mc_barrier(mc_domain_default());
	return NULL;
}
int main(void)
{
	struct counted *seen;
	pthread_t thread;

	shared = (struct counted *)calloc(1, sizeof(*shared));
	shared->count = &count;
	mc_enter(mc_domain_default());
	seen = mc_dereference(shared);
	mc_leave(mc_domain_default());
	pthread_create(&thread, NULL, update, NULL);
	while (__atomic_load_n(&count, __ATOMIC_RELAXED) == 0)
		;
	printf("%p\n", (void *)seen->count);
	pthread_join(thread, NULL);
	return 0;
}
C
[ -n "$short" ] || tsan

# The source of liburcu, of unstable or else of stable; kept between runs in the target folder, and no
# part of the tree.
fetch_liburcu() {
    command -v apt-get >/dev/null 2>&1 || return 0
    local suite
    for suite in unstable stable bookworm; do
        debian_source liburcu "$suite" "$work/apt"
        if ls "$work"/apt/liburcu_*.orig.tar.bz2 >/dev/null 2>&1; then
            mkdir -p "$TARGET/liburcu"
            mv "$work"/apt/liburcu_*.orig.tar.bz2 "$TARGET/liburcu/"
            return
        fi
    done
}

liburcu() {
    ls "$TARGET"/liburcu/*.tar.bz2 >/dev/null 2>&1 || fetch_liburcu
    local source name
    source=$(ls "$TARGET"/liburcu/*.tar.bz2 2>/dev/null | tail -n 1)
    [ -n "$source" ] || { say "SKIPPED: liburcu's tests, whose source can't be had"; return; }
    mkdir -p "$work/liburcu" "$work/urcu/urcu"
    tar -xf "$source" -C "$work/liburcu" --strip-components=1
    # What its configure writes: nothing that these programs need.
    touch "$work/urcu/urcu/config.h" "$work/urcu/config.h"
    for name in urcu urcu-bp urcu-qsbr; do echo '#include <manycore/urcu.h>' >"$work/urcu/$name.h"; done
    cd "$work/liburcu/tests"
    for name in regression/{urcutorture,test_urcu_fork} benchmark/test_urcu{,_gc,_defer,_lfq,_lfs_rcu}; do
        gcc -O2 -w -pthread -D_GNU_SOURCE -D_LGPL_SOURCE -DRCU_BP -DHAVE_GETTID -DHAVE_RAND_R \
            -I"$work/urcu" -I../include -I../src -Icommon -Iutils "$name.c" utils/tap.c \
            -o "$work/${name#*/}" "${shared[@]}" || die "liburcu's $name does not compile"
    done
    run "$work/test_urcu_fork"
    local placement
    for placement in global percpu perthread; do
        run "$work/urcutorture" 2 stress 1 "callrcu_$placement"
        grep -q 'rcu_stress_count: [0-9]* [0-9]* 0 0 0 0 0 0 0 0 0$' "$work/said" ||
            die "liburcu's torture test saw an old object: $(cat "$work/said")"
    done
    for name in test_urcu{,_gc,_defer,_lfq,_lfs_rcu}; do run "$work/$name" 2 1 1; done
    # Its hash table, which is in a library of its own and calls a flavour by a table of functions, and
    # its queue.
    if pkg-config --exists liburcu-cds; then
        cd benchmark
        for name in test_urcu_hash test_urcu_wfcq; do
            gcc -O2 -w -pthread -D_GNU_SOURCE -D_LGPL_SOURCE -DRCU_BP -DHAVE_GETTID -DHAVE_RAND_R \
                -I"$work/urcu" -I../../include -I../../src -I../common $name*.c \
                -o "$work/$name" "${shared[@]}" -lurcu-cds -lurcu-common || die "liburcu's $name does not compile"
        done
        for name in -A -u "-s -i"; do
            # shellcheck disable=SC2086 # two flags
            run "$work/test_urcu_hash" 2 1 1 $name
            grep -q 'nr_leaked *0$' "$work/said" || die "liburcu's hash table lost nodes: $(cat "$work/said")"
        done
        run "$work/test_urcu_wfcq" 1 1 1
    else
        say "SKIPPED: liburcu's hash table, whose library is not here"
    fi
    cd "$ROOT"
    say "liburcu's tests: $(basename "$source" .orig.tar.bz2)"
}
[ -n "$short" ] || liburcu

if command -v cmake >/dev/null 2>&1; then
    cat >"$work/CMakeLists.txt" <<CMAKE
cmake_minimum_required(VERSION 3.13)
project(uses C CXX)
find_package(manycore 0.1 CONFIG REQUIRED)
add_executable(shared $capi/examples/sections.c)
target_link_libraries(shared manycore::manycore Threads::Threads)
add_executable(static $capi/examples/rcu.cpp)
target_compile_features(static PRIVATE cxx_std_17)
target_link_libraries(static manycore::manycore_static)
CMAKE
    { cmake -S "$work" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" &&
        cmake --build "$work/cmake"; } >"$work/said" 2>&1 || die "CMake: $(cat "$work/said")"
    run "$work/cmake/shared"
    run "$work/cmake/static"
    say "through CMake"
else
    say "SKIPPED: CMake, which is not here"
fi
