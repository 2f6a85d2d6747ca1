#!/usr/bin/env bash
# memcached 1.6.45's own tests, of Debian unstable's source package, with this server in the place of
# its binary. Nothing of the package is kept in the tree: the download stays in the target folder.
# Files that ci/memcached-suite.skip names are not run, for the reason given there; any other that
# fails is a failure.
#   ci/memcached-suite.sh [FILE.t ...]      all files, or these alone
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
version=1.6.45
at_once=4
command -v perl >/dev/null 2>&1 || skip "no perl, so no tests in it"
perl -MTest::More -MTAP::Harness -e 1 2>/dev/null || skip "this perl has no Test::More"
command -v cc >/dev/null 2>&1 || skip "no C compiler for the tests' timedrun"
command -v prove >/dev/null 2>&1 || skip "no prove, which runs perl's tests"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The package, kept between runs.
fetch() {
    command -v apt-get >/dev/null 2>&1 || skip "no apt-get, so no source package of memcached"
    debian_source memcached unstable "$work/apt"
    local found
    found=$(ls "$work"/apt/memcached_"$version".orig.tar.* 2>/dev/null | head -n 1)
    [ -n "$found" ] || skip "the source of memcached $version can't be had: $(tail -n 1 "$work/apt/log")"
    mkdir -p "$TARGET"
    mv "$found" "$package"
}

package=$TARGET/memcached-$version.orig.tar
[ -s "$package" ] || fetch
tar -xf "$package" -C "$work"
suite=$(ls -d "$work"/memcached-*/)
cd "$ROOT"
cargo build -p manycored --locked
cd "$suite"
cc -o timedrun timedrun.c 2>"$work/log" || die "timedrun is not built: $(tail -n 3 "$work/log")"
# Beside TLS the tests give a port for datagrams, too, which this server refuses: it goes.
cat >memcached-debug <<WRAPPER
#!/usr/bin/env bash
words=()
while [ \$# -gt 0 ]; do
    case \$1 in
    -U) case " \$ALL " in *" -Z "*) shift 2; continue ;; esac ;;
    esac
    words+=("\$1")
    shift
done
exec "$TARGET/debug/manycored" "\${words[@]}"
WRAPPER
sed -i '2i ALL="$*"' memcached-debug
chmod +x memcached-debug

reason() { sed -n "s/^$1  *//p" "$ROOT/ci/memcached-suite.skip"; }
files=("$@")
skipped=0
if [ ${#files[@]} = 0 ]; then
    for file in t/*.t; do
        name=${file#t/}
        if [ -n "$(reason "$name")" ]; then
            skipped=$((skipped + 1))
        else
            files+=("$name")
        fi
    done
fi

# Those of TLS want to be told so, and a module that is not part of perl.
has_tls=1
perl -MIO::Socket::SSL -e 1 2>/dev/null || has_tls=
run() {
    local name=$1 tls=
    case $name in
    ssl_*) tls=1 ;;
    esac
    if [ -n "$tls" ] && [ -z "$has_tls" ]; then
        echo "SKIPPED $name: no IO::Socket::SSL"
        return 0
    fi
    SSL_TEST=$tls timeout 150 prove "t/$name" >"log.$name" 2>&1 </dev/null && return 0
    echo "$name" >>failed
    return 1
}
export -f run
export has_tls
export LC_ALL=C
printf '%s\n' "${files[@]}" | xargs -P "$at_once" -I '{}' bash -c 'run "$1"' _ '{}' || :
if [ -s failed ]; then
    while read -r name; do
        say "FAILED $name"
        tail -n 25 "log.$name"
    done <failed
    die "$(wc -l <failed) of ${#files[@]} files of memcached's tests fail"
fi
say "${#files[@]} files of memcached $version's tests pass; $skipped are not run (ci/memcached-suite.skip)"
