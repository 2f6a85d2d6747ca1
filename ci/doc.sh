#!/usr/bin/env bash
# The documentation builds without a warning: no dead link, no missing page. With the features that
# the pages on the documentation host are built with.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
features=manycore/derive,manycore/futures-core,manycore/lock_api,manycore/rayon,manycore/serde
features=$features,manycore-metrics/opentelemetry,manycore-metrics/prometheus-client
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --features "$features"
say "documented"
