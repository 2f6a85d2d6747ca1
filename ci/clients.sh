#!/usr/bin/env bash
# The cache server under clients that others wrote: pymemcache, also over TLS, and
# python-binary-memcached for the binary protocol, from a folder of their own; and twemproxy
# (Debian's nutcracker), with three servers behind it of which one is killed and comes back.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v python3 >/dev/null 2>&1 || skip "no python3, so no clients"
cargo build -p manycored --locked
work=$(mktemp -d)
server=
sealed=
trap 'kill $server $sealed 2>/dev/null || :; rm -rf "$work"' EXIT

# Kept between runs, like the clients.
proxy=$(PATH=$PATH:/usr/sbin command -v nutcracker) || proxy=$TARGET/nutcracker/usr/sbin/nutcracker
if [ ! -x "$proxy" ]; then
    mkdir "$work/proxy"
    (cd "$work/proxy" && timeout 60 apt-get download nutcracker &&
        dpkg -x ./*.deb "$TARGET/nutcracker") >"$work/log" 2>&1 || :
fi
if "$proxy" --version >/dev/null 2>&1; then
    timeout 200 python3 ci/proxy.py "$TARGET/debug/manycored" "$proxy" || die "not right behind twemproxy"
    say "three servers behind twemproxy, one killed and back"
else
    say "SKIPPED: no nutcracker, so no twemproxy"
fi

# Kept between runs.
clients=$TARGET/clients
if ! "$clients/bin/python" -c 'import bmemcached, pymemcache' 2>/dev/null; then
    rm -rf "$clients"
    python3 -m venv "$clients" >"$work/log" 2>&1 || skip "no venv for the clients"
    timeout 120 "$clients/bin/pip" install --quiet 'pymemcache==4.0.0' \
        'python-binary-memcached==0.33.0' >"$work/log" 2>&1 ||
        skip "the clients cannot be installed"
fi
MEMCACHED_PORT_FILENAME=$work/port "$TARGET/debug/manycored" -u root -p -1 -t 2 2>"$work/err" &
server=$!
for _ in $(seq 200); do
    [ ! -e "$work/port" ] || break
    sleep 0.05
done
[ -e "$work/port" ] || die "the server does not start: $(cat "$work/err")"
port_of() { sed -n 's/^TCP INET: //p' "$1"; }
seal=()
if openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key" -out "$work/chain" -days 2 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 >"$work/log" 2>&1; then
    MEMCACHED_PORT_FILENAME=$work/sealed "$TARGET/debug/manycored" -u root -p -1 -t 1 -Z \
        -o "ssl_chain_cert=$work/chain,ssl_key=$work/key" 2>>"$work/err" &
    sealed=$!
    for _ in $(seq 200); do
        [ ! -e "$work/sealed" ] || break
        sleep 0.05
    done
    [ -e "$work/sealed" ] || die "the server with TLS does not start: $(cat "$work/err")"
    seal=("$(port_of "$work/sealed")" "$work/chain")
else
    say "SKIPPED: no openssl to make a certificate with, so no client over TLS"
fi
timeout 60 "$clients/bin/python" ci/clients.py "$(port_of "$work/port")" ${seal[@]+"${seal[@]}"} ||
    die "a client finds fault"
kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
[ "$status" = 0 ] || die "the server ended with $status"
say "pymemcache and python-binary-memcached are served"
