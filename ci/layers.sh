#!/usr/bin/env bash
# The rules about the tree itself: imports only downward, house rules, length of the examples.
# They are tests (crates/manycore/tests/tree) and so also part of ci/test.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
workspace test --test tree
