#!/usr/bin/env bash
# The documentation builds without a warning: no dead link, no missing page.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
say "documented"
