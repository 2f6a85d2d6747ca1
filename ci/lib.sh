# Sourced by the other scripts of this folder: where the project is, and what must be installed.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-never}"
# Cargo's own folder, unless the caller chose another. Builds with other flags get a folder below
# it, so that they do not throw each other's work away.
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
case $TARGET in
/*) ;;
*) TARGET=$ROOT/$TARGET ;;
esac

say() { printf '%s\n' "$*"; }

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# skip WHY: this check can't be made here.
skip() {
    say "SKIPPED: $*"
    exit 0
}

# The features with which the workspace is built and tested: with those of all checks, so that one build
# serves them. ci/features.sh and ci/packages.sh build with fewer.
FEATURES=manycore/derive,manycore/futures-core,manycore/lock_api,manycore/rayon,manycore/serde
FEATURES+=,manycore-bench/metrics-rivals,manycore-bench/trace-rivals,manycore-trace/log
FEATURES+=,manycore-metrics/opentelemetry,manycore-metrics/prometheus-client

# workspace COMMAND ARGUMENT...: cargo's command on the whole workspace.
workspace() { cargo "$1" --workspace --locked --features "$FEATURES" "${@:2}"; }

# The workspace is built afterwards as `ci/test.sh std` builds it, not optimised, and MANYCORE and BENCH
# are the commands `manycore` and `manycore-bench`. With the examples, because without them cargo gives
# the dependencies fewer features, and builds all of it twice.
built_workspace() {
    workspace build --bins --examples
    # shellcheck disable=SC2034
    MANYCORE=$TARGET/debug/manycore BENCH=$TARGET/debug/manycore-bench
}

# built PROGRAM...: these programs of the workspace are there afterwards, built as in built_workspace.
built() { workspace build "${@/#/--bin=}" --example counter_log; }

# What this script builds optimised is built sooner from here on, and in a folder of its own: without
# any optimisation across the parts of a crate.
quick_builds() {
    TARGET=$TARGET/quick
    export CARGO_TARGET_DIR=$TARGET
    export CARGO_PROFILE_RELEASE_LTO=off
}

# own_options WORKLOAD OPTION VALUE [OPTION VALUE]...: OWN are those that the workload takes. OPTIONS is
# what `manycore-bench workloads --options` says.
own_options() {
    local workload=$1
    shift
    OWN=()
    while [ $# -gt 0 ]; do
        ! grep -qx -- "$workload ${1#--}" <<<"$OPTIONS" || OWN+=("$1" "$2")
        shift 2
    done
}

# need_component NAME: the toolchain component NAME (clippy, rustfmt) is there afterwards.
need_component() {
    local name=$1 probe=$1
    [ "$name" = rustfmt ] && probe=fmt
    cargo "$probe" --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null 2>&1 ||
        die "cargo $probe is missing, and there is no rustup to install '$name' with"
    rustup component add "$name" || die "could not install the component '$name'"
}

# need_toolchain VERSION: `cargo +VERSION` works afterwards.
need_toolchain() {
    local version=$1
    command -v rustup >/dev/null 2>&1 ||
        die "this check needs Rust $version beside the current one, and there is no rustup"
    cargo "+$version" --version >/dev/null 2>&1 && return 0
    rustup toolchain install "$version" --profile minimal --no-self-update ||
        die "could not install the toolchain $version"
}

# need_sanitizer NAME: HOST is set and a nightly compiler can sanitize for it afterwards; or the
# script ends here, well, and says what is missing.
need_sanitizer() {
    command -v rustup >/dev/null 2>&1 || skip "no rustup, so no nightly compiler"
    cargo +nightly --version >/dev/null 2>&1 ||
        skip "no nightly compiler ('rustup toolchain install nightly --profile minimal')"
    HOST=$(rustc +nightly -vV | sed -n 's/^host: //p')
    case $HOST in
    x86_64-unknown-linux-gnu | aarch64-unknown-linux-gnu) ;;
    *) skip "$1 is not used on $HOST" ;;
    esac
    say "with $(rustc +nightly --version)"
}

# debian_source PACKAGE SUITE FOLDER: fetches the package's original source, as it is in that suite,
# into the folder. Not there afterwards if it can't be had; FOLDER/log says why. Only the sources: the
# description of a package may be gone from a mirror. The system's own lists stay as they are.
debian_source() {
    local package=$1 suite=$2 folder=$3 key=/usr/share/keyrings/debian-archive-keyring.gpg signed=
    [ ! -e "$key" ] || signed="[signed-by=$key] "
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    echo "deb-src ${signed}http://deb.debian.org/debian $suite main" >"$folder/sources"
    cat >"$folder/conf" <<CONF
Dir::Etc::sourcelist "$folder/sources";
Dir::Etc::sourceparts "-";
Dir::State::lists "$folder/lists";
Dir::Cache "$folder/cache";
APT::Sandbox::User "root";
CONF
    (cd "$folder" && export APT_CONFIG=$folder/conf && timeout 200 apt-get -qq update &&
        timeout 100 apt-get -qq source --tar-only --download-only "$package") >"$folder/log" 2>&1 || :
}

# has_debian PROGRAM PACKAGE [LIBRARIES]: the program of a Debian package is there; $found is its
# folder. LIBRARIES is a pattern of the packages that it needs. Unless it is installed, it is unpacked
# in the target folder; $work/log says why it can't be had.
has_debian() {
    local program=$1 package=$2 libraries=${3:-^$} own=$TARGET/clients/$2
    found=$(PATH=$PATH:/usr/sbin command -v "$program") && found=$(dirname "$found") && return 0
    if [ ! -d "$own/usr" ]; then
        : >"$work/log"
        mkdir -p "$work/$package" "$own"
        (cd "$work/$package" && {
            debian_packages "$package" "$libraries" || {
                timeout 60 apt-get -qq update && debian_packages "$package" "$libraries"
            }
        }) >"$work/log" 2>&1 || return 1
        for file in "$work/$package"/*.deb; do dpkg -x "$file" "$own"; done
    fi
    found=$(dirname "$(find "$own" -path "*bin/$program" -type f)")
    for folder in "$own"/usr/lib/*-linux-gnu*/; do
        [ ! -d "$folder" ] || export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    done
    "$found/$program" --version >"$work/log" 2>&1
}

debian_packages() {
    # shellcheck disable=SC2046
    timeout 60 apt-get download "$1" $(apt-cache depends --recurse --important "$1" |
        grep -E "$2" | sort -u)
}

# skip_if_not_simulable FILE: ends the script well if FILE, what `manycore sim` said, says that this
# machine or its compiler cannot; anything else that it said is a failure.
skip_if_not_simulable() {
    local cannot='this is .* on |does not take the flags|takes the flags that|does not build for|fsgsbase'
    grep -Eq "$cannot" "$1" || die "$(cat "$1")"
    skip "$(tail -n 1 "$1")"
}
