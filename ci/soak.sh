#!/usr/bin/env bash
# The cache and the cache server for long, optimised: servers under good and bad clients at once that
# end, are killed and start again with their items, whose memory, replies and values are checked (the
# line SUMMARY has the seed); kills at any moment; and histories of commands, checked for
# linearizability.
#   ci/soak.sh [SECONDS]   each test that long (default 600)
# MANYCORE_SEED=0x12ab repeats the commands of an earlier run. `cargo test` has the short form.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
case "${1:-600}" in
*[!0-9]* | 0) die "'$1' is no number of seconds" ;;
*) export MANYCORE_SOAK="${1:-600}" ;;
esac
quick_builds
cargo test --release --locked -p manycored -p manycore-cache --test integration -- \
    soak:: warm:: linearizability:: threads:: --nocapture --test-threads=1
