#!/bin/sh
# Builds libmanycore and installs it for C and C++: headers, libmanycore.so.0, libmanycore.a,
# manycore.pc, a package for CMake, and man pages.
#   ./install.sh PREFIX [CARGO ARGUMENT...]
#
# Needs cargo, a C compiler (CC) and objcopy (OBJCOPY). DESTDIR stands before PREFIX if it is set.
# PROFILE is Cargo's profile, dist by default: optimised across crates, and stripped. Symbols and lines
# of the shared library then go to PREFIX/lib/.debug, where gdb finds them. With another profile, both
# libraries keep theirs.
set -eu
[ $# -ge 1 ] || { echo "usage: install.sh PREFIX [CARGO ARGUMENT...]" >&2; exit 2; }
prefix=$1
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
shift
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
profile=${PROFILE:-dist}
objcopy=${OBJCOPY:-objcopy}
[ "$profile" != dist ] || command -v "$objcopy" >/dev/null ||
    { echo "install.sh: no $objcopy (binutils) to strip the libraries; or set PROFILE=release" >&2; exit 1; }
version=$(cargo pkgid --offline 2>/dev/null | sed 's/.*[#@]//')
[ -n "$version" ] || { echo "install.sh: cargo does not say the version" >&2; exit 1; }

# Cargo says where it has put the library. The package alone does not have the workspace's profile
# dist, so it is here again, but with lines.
library=$(cargo build -p manycore-capi --lib --profile "$profile" --message-format=json \
    --config 'profile.dist.inherits="release"' --config 'profile.dist.lto="thin"' \
    --config profile.dist.codegen-units=1 --config 'profile.dist.strip="none"' \
    --config 'profile.dist.debug="line-tables-only"' "$@" |
    sed -n 's/.*"\([^"]*libmanycore_capi\.a\)".*/\1/p' | tail -n 1)
[ -f "$library" ] || { echo "install.sh: cargo has built no static library" >&2; exit 1; }

to=${DESTDIR:-}$prefix
mkdir -p "$to/include/manycore" "$to/lib/pkgconfig" "$to/lib/cmake/manycore"
cp include/manycore/* "$to/include/manycore/"
./man.sh "$to/share/man/man3"
cp "$library" "$to/lib/libmanycore.a"
chmod u+w "$to/lib/libmanycore.a"

# The versions of symbols, and the thread-local variable of the header, which Cargo's own shared
# libraries cannot have.
${CC:-cc} ${LDFLAGS:-} -shared -o "$to/lib/libmanycore.so.$version" \
    -Wl,-soname,libmanycore.so.0 -Wl,--version-script="$here/manycore.map" \
    -Wl,--whole-archive "$library" -Wl,--no-whole-archive -Wl,--gc-sections \
    -Wl,-z,nodelete -Wl,-z,defs -Wl,-z,relro -Wl,-z,now \
    -lgcc_s -lutil -lrt -lpthread -lm -ldl
if [ "$profile" = dist ]; then
    mkdir -p "$to/lib/.debug"
    debug=$to/lib/.debug/libmanycore.so.$version.debug
    "$objcopy" --only-keep-debug "$to/lib/libmanycore.so.$version" "$debug"
    chmod a-x "$debug"
    "$objcopy" --strip-unneeded --add-gnu-debuglink="$debug" "$to/lib/libmanycore.so.$version"
    # Also the compiler's own form of each object, which no linker of C reads: most of the archive.
    "$objcopy" --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd \
        "$to/lib/libmanycore.a"
fi
ln -sf "libmanycore.so.$version" "$to/lib/libmanycore.so.0"
ln -sf libmanycore.so.0 "$to/lib/libmanycore.so"

fill() { sed -e "s|@PREFIX@|$prefix|g" -e "s|@VERSION@|$version|g" "$1" >"$2"; }
fill cmake/manycore.pc.in "$to/lib/pkgconfig/manycore.pc"
fill cmake/manycore-config-version.cmake.in "$to/lib/cmake/manycore/manycore-config-version.cmake"
cp cmake/manycore-config.cmake "$to/lib/cmake/manycore/manycore-config.cmake"
echo "installed manycore $version into $to"
