#!/usr/bin/env bash
# The cache server under clients that others wrote, each where it can be installed: pymemcache, also
# over TLS, python-binary-memcached, libmemcached's tools, gomemcache and spymemcached. And three
# servers behind twemproxy (Debian's nutcracker) and behind the ketama of libmemcached and of
# spymemcached, which fail, return, join and leave (docs/cluster.md). Downloads stay in the target
# folder.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v python3 >/dev/null 2>&1 || skip "no python3, so no clients"
built manycored
server=$TARGET/debug/manycored
clients=$TARGET/clients
mkdir -p "$clients"
work=$(mktemp -d)
running=()
trap 'kill ${running[@]+"${running[@]}"} 2>/dev/null || :; rm -rf "$work"' EXIT

# without WHAT WHY: a part that can't be made here, and the last line of what was tried.
without() { say "SKIPPED: no $1: $(tail -n 1 "$work/log")"; }

needs() { command -v "$1" >/dev/null 2>&1 || { echo "there is no $1" >"$work/log" && return 1; }; }

# serve NAME OPTION...: a server; $port is its port.
serve() {
    local name=$1
    shift
    MEMCACHED_PORT_FILENAME=$work/$name "$server" -u root -p -1 "$@" 2>"$work/$name.err" &
    running+=($!)
    for _ in $(seq 400); do
        [ ! -e "$work/$name" ] || break
        sleep 0.05
    done
    [ -e "$work/$name" ] || die "a server does not start: $(cat "$work/$name.err")"
    port=$(sed -n 's/^TCP INET: //p' "$work/$name")
}

# has_python MODULE REQUIREMENT...: the module is in the clients' own environment.
has_python() {
    local module=$1
    shift
    [ -x "$clients/python/bin/pip" ] ||
        python3 -m venv "$clients/python" >"$work/log" 2>&1 || return 1
    "$clients/python/bin/python" -c "import $module" 2>/dev/null ||
        timeout 120 "$clients/python/bin/pip" install --quiet --only-binary :all: "$@" \
            >"$work/log" 2>&1
}

# has_go: gomemcache is there, at the version and with the sums of ci/clients/go.
has_go() {
    needs go || return 1
    export GOTOOLCHAIN=local GOFLAGS='-mod=readonly -modcacherw -buildvcs=false'
    export GOMODCACHE=$clients/go CGO_ENABLED=0
    (cd ci/clients/go && timeout 60 go mod download) >"$work/log" 2>&1
}

# has_java: spymemcached is there. It needs no other library.
has_java() {
    local version=2.12.3 into=$clients/java
    local sum=133092565f8308b9bcbfce83909d11f505d4094b856ead24e299ac93679bb4e2
    local plugin=org.apache.maven.plugins:maven-dependency-plugin:3.6.1
    jar=$into/spymemcached-$version.jar
    needs javac || return 1
    if [ ! -s "$jar" ]; then
        needs mvn || return 1
        timeout 120 mvn -B -C "-Dmaven.repo.local=$into/repository" "$plugin:copy" \
            "-Dartifact=net.spy:spymemcached:$version" "-DoutputDirectory=$into" \
            >"$work/log" 2>&1 || return 1
    fi
    echo "$sum  $jar" | sha256sum --check --quiet || die "spymemcached is not what it was"
}

serve plain -t 2
if has_python bmemcached,pymemcache pymemcache==4.0.0 python-binary-memcached==0.33.0; then
    seal=()
    if openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key" -out "$work/chain" -days 2 \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 >"$work/log" 2>&1; then
        plain=$port
        serve sealed -t 1 -Z -o "ssl_chain_cert=$work/chain,ssl_key=$work/key"
        seal=("$port" "$work/chain")
        port=$plain
    else
        without "client over TLS, as there is no certificate"
    fi
    timeout 60 "$clients/python/bin/python" ci/clients/python.py "$port" \
        ${seal[@]+"${seal[@]}"} || die "a client in Python finds fault"
    say "pymemcache and python-binary-memcached are served"
else
    without "clients in Python"
fi

if has_debian memcping libmemcached-tools '^lib(memcached|hashkit|event)'; then
    timeout 120 python3 ci/clients/tools.py "$found" "$port" ||
        die "libmemcached's tools find fault"
    say "libmemcached's tools are served"
else
    without "tools of libmemcached"
fi

if has_go; then
    (cd ci/clients/go && timeout 300 go build -o "$work/go" .) ||
        die "the client in Go is not built"
    timeout 60 "$work/go" "127.0.0.1:$port" || die "gomemcache finds fault"
    say "gomemcache is served"
else
    without "client in Go"
fi

classes=-
if has_java; then
    javac -Xlint:all -Werror -cp "$jar" -d "$work/classes" ci/clients/java/*.java ||
        die "the clients in Java are not built"
    classes=$jar:$work/classes
    timeout 120 java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$classes" Client "$port" \
        >"$work/log" 2>&1 || die "spymemcached finds fault: $(cat "$work/log")"
    say "spymemcached is served"
else
    without "client in Java"
fi
kill -TERM "${running[0]}"
status=0
wait "${running[0]}" || status=$?
[ "$status" = 0 ] || die "the server ended with $status"

proxy=-
if has_debian nutcracker nutcracker; then
    proxy=$found/nutcracker
else
    without twemproxy
fi
python=$clients/python/bin/python
has_python pylibmc pylibmc==1.6.3 || without "libmemcached in Python"
[ -x "$python" ] || python=python3
timeout 200 "$python" ci/clients/cluster.py "$server" "$proxy" "$classes" ||
    die "three servers are not what docs/cluster.md says"
