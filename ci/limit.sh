#!/usr/bin/env bash
# Runs a command that must end: after its time it says what hangs, kills it and fails.
#   ci/limit.sh SECONDS COMMAND [ARGUMENT...]
# Of each process below the command it prints the command line and, where gdb is there, what its
# threads are doing.
set -euo pipefail

seconds=$1
shift

# Everybody below the process $1, itself included.
tree() {
    local child
    echo "$1"
    for child in $(ps -o pid= --ppid "$1"); do tree "$child"; done
}

report() {
    local pid
    printf '%s: not finished after %d s: %s\n' "$(basename "$0")" "$seconds" "$*"
    for pid in $all; do
        printf '\n-- %d: %s\n' "$pid" "$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")"
        command -v gdb >/dev/null || continue
        case $(cat "/proc/$pid/comm" 2>/dev/null) in
        bash | cargo | rustc | timeout | tee | sleep) continue ;;
        esac
        timeout 60 gdb -p "$pid" -batch -ex 'thread apply all backtrace 20' 2>/dev/null |
            grep -E '^(Thread|#)' | cut -c1-160 || true
    done
}

"$@" &
command=$!
# Bash lets what runs behind it ignore an interrupt.
trap 'kill -KILL $(tree "$command") 2>/dev/null || true; exit 130' INT TERM
for ((waited = 0; waited < seconds; waited++)); do
    kill -0 "$command" 2>/dev/null || break
    sleep 1
done
if kill -0 "$command" 2>/dev/null; then
    all=$(tree "$command")
    report "$@" >&2
    # shellcheck disable=SC2086
    kill -KILL $all 2>/dev/null || true
    exit 124
fi
wait "$command"
