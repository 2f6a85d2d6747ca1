#!/usr/bin/env bash
# Generated conversations in all protocols, byte-compared between memcached 1.6.45 and manycored. Not
# called by .ci/run, which compares recorded conversations.
#   [MEMCACHED=PROGRAM] ci/converse.sh [SEED [COUNT]]
# The program is `memcached` on the path unless MEMCACHED names another.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
memcached=${MEMCACHED:-memcached}
command -v "$memcached" >/dev/null 2>&1 || skip "no $memcached"
version=$("$memcached" -V | sed 's/^memcached //')
[ "$version" = 1.6.45 ] || skip "$memcached is $version; the replies are those of 1.6.45"
command -v python3 >/dev/null 2>&1 || skip "no python3"
seed=${1:-$(date +%s)}
count=${2:-5000}
built manycored
work=$(mktemp -d)
servers=()
trap 'for server in "${servers[@]}"; do kill "$server" 2>/dev/null || :; done; rm -rf "$work"' EXIT
user=()
[ "$(id -u)" != 0 ] || user=(-u nobody)
chmod 777 "$work"

# start NAME COMMAND...: a server on a port of the system's choice, which is then in $port.
start() {
    local name=$1
    shift
    MEMCACHED_PORT_FILENAME=$work/$name "$@" -p -1 -l 127.0.0.1 "${user[@]}" 2>"$work/$name.err" &
    servers+=($!)
    for _ in $(seq 200); do
        [ ! -e "$work/$name" ] || break
        sleep 0.05
    done
    [ -e "$work/$name" ] || die "$name does not start: $(cat "$work/$name.err")"
    port=$(sed -n 's/^TCP INET: //p' "$work/$name")
}

start memcached "$memcached" -t 1
theirs=$port
start manycored "$TARGET/debug/manycored" -t 2
for protocol in binary text; do
    say "$protocol, from seed $seed on"
    python3 ci/converse.py "$protocol" "$theirs" "$port" "$seed" "$count" || die "the servers differ"
done
