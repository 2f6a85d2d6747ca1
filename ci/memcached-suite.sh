#!/usr/bin/env bash
# memcached 1.6.45's own tests, of Debian unstable's source package, with this server in the place of
# its binary. Nothing of the package is kept in the tree: the download stays in the target folder.
# Files that ci/memcached-suite.skip names are not run, for the reason given there; any other that
# fails is a failure, and so is one that skips itself, unless what it needs can't be had here.
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
built manycored
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

# The users of its test of SASL are in a folder of our own. What else is changed in it: it expects the
# list of mechanisms of its configuration, of which this server has PLAIN alone.
sed -i "s#/[a-z]*/test-memcached.sasldb#$work/sasldb#" t/sasl/memcached.conf t/binary-sasl.t
sed -i "s/'CRAM-MD5 PLAIN'/'PLAIN'/" t/binary-sasl.t

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

# Those of TLS and of SASL want to be told so, and need what is not part of perl.
has_tls=1
perl -MIO::Socket::SSL -e 1 2>/dev/null || has_tls=
has_sasl=1
if has_debian saslpasswd2 sasl2-bin '^lib(sasl2-2|sasl2-modules-db|db5.*)$'; then
    PATH=$PATH:$found
    for folder in "$TARGET"/clients/sasl2-bin/usr/lib/*/sasl2/; do
        [ ! -d "$folder" ] || export SASL_PATH=$folder
    done
else
    has_sasl=
fi
run() {
    local name=$1 tls= sasl= missing=
    case $name in
    ssl_*) tls=1 && [ -n "$has_tls" ] || missing="no IO::Socket::SSL" ;;
    binary-sasl.t) sasl=1 && [ -n "$has_sasl" ] || missing="no saslpasswd2 (Debian's sasl2-bin)" ;;
    esac
    if [ -n "$missing" ]; then
        echo "SKIPPED $name: $missing" | tee -a not_run
        return 0
    fi
    # On a busy machine watcher.t takes minutes: it asks for 80,000 keys, one after the other.
    SSL_TEST=$tls RUN_SASL_TESTS=$sasl timeout 600 prove -v "t/$name" >"log.$name" 2>&1 </dev/null &&
        ! grep -q '^Result: NOTESTS' "log.$name" && return 0
    grep -q '^Result:' "log.$name" || echo "$name did not end within 600 s" >>"log.$name"
    echo "$name" >>failed
    return 1
}
export -f run
export has_tls has_sasl
export LC_ALL=C
touch not_run
printf '%s\n' "${files[@]}" | xargs -P "$at_once" -I '{}' bash -c 'run "$1"' _ '{}' || :
if [ -s failed ]; then
    while read -r name; do
        say "FAILED $name"
        tail -n 25 "log.$name"
    done <failed
    say "one that is 'skipped' has skipped itself: ci/memcached-suite.skip has to name it, and say why"
    die "$(wc -l <failed) of ${#files[@]} files of memcached's tests fail"
fi
missing=$(wc -l <not_run)
parts=$(cat log.* | grep -c '^ok [0-9]* # skip' || :)
say "$((${#files[@]} - missing)) files of memcached $version's tests pass, but for $parts single tests that skip" \
    "themselves; $((skipped + missing)) are not run ($skipped of them by ci/memcached-suite.skip)"
