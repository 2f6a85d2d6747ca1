#!/usr/bin/env bash
# The cache server under clients that others wrote: pymemcache, and python-binary-memcached for the
# binary protocol, from a folder of their own.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
command -v python3 >/dev/null 2>&1 || skip "no python3, so no clients"
cargo build -p manycored --locked
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || :; rm -rf "$work"' EXIT
# Kept between runs.
clients=$TARGET/clients
if ! "$clients/bin/python" -c 'import bmemcached, pymemcache' 2>/dev/null; then
    rm -rf "$clients"
    python3 -m venv "$clients" >"$work/log" 2>&1 || skip "no venv for the clients"
    timeout 120 "$clients/bin/pip" install --quiet 'pymemcache==4.0.0' \
        'python-binary-memcached==0.33.0' >"$work/log" 2>&1 ||
        skip "the clients cannot be installed"
fi
MEMCACHED_PORT_FILENAME=$work/port "$TARGET/debug/manycored" -p -1 -t 2 2>"$work/err" &
server=$!
for _ in $(seq 200); do
    [ ! -e "$work/port" ] || break
    sleep 0.05
done
[ -e "$work/port" ] || die "the server does not start: $(cat "$work/err")"
timeout 60 "$clients/bin/python" ci/clients.py "$(sed 's/.*: //' "$work/port")" || die "a client finds fault"
kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
[ "$status" = 0 ] || die "the server ended with $status"
say "pymemcache and python-binary-memcached are served"
