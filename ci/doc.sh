#!/usr/bin/env bash
# The documentation builds without a warning: no dead link, no missing page. With the features of all
# checks (ci/lib.sh), and then as the documentation host builds it.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
RUSTDOCFLAGS="-D warnings" workspace doc --no-deps
# The documentation host builds with the nightly compiler, and sets `docsrs`.
if cargo +nightly --version >/dev/null 2>&1; then
    RUSTDOCFLAGS="-D warnings --cfg docsrs" CARGO_TARGET_DIR="$TARGET/docsrs" \
        cargo +nightly doc -p manycore-metrics --all-features --no-deps --locked
else
    say "SKIPPED: the pages as the documentation host builds them, for which there is no nightly compiler"
fi
say "documented"
