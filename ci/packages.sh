#!/usr/bin/env bash
# What is published, from outside: the packages are made, a new project in an empty folder depends on
# them, the programs of adopters/ are built and run with them, and the commands are installed from
# them and used.
#   ci/packages.sh           that
#   ci/packages.sh verify    each package is also built alone, as `cargo publish` does: some minutes
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

unpublished=(manycore-sim-tests manycore-instructions)
excluded=("${unpublished[@]/#/--exclude=}")
packages=()
for manifest in crates/*/Cargo.toml; do
    package=$(basename "$(dirname "$manifest")")
    [[ " ${unpublished[*]} " == *" $package "* ]] || packages+=("$package")
done

case "${1:-}" in
"") ;;
verify)
    cargo publish --workspace "${excluded[@]}" --dry-run --locked
    say "each package builds alone"
    exit 0
    ;;
*) die "unknown argument '$1'" ;;
esac

# The outside: a folder without a workspace above it, with a cache of its own for the commands.
outside=$(mktemp -d)
trap 'rm -rf "$outside"' EXIT
unset CARGO_TARGET_DIR
export XDG_CACHE_HOME="$outside/cache"

say "--- the packages"
cargo package --workspace "${excluded[@]}" --no-verify --locked --allow-dirty \
    --target-dir "$TARGET" 2>&1 | tee "$outside/said"
# Tests and benchmarks are left out on purpose; whatever else a package lacks is a mistake.
! grep 'warning' "$outside/said" | grep -vE 'ignoring (test|benchmark)' || die "a package lacks something"
mkdir -p "$outside/.cargo" "$outside/packages"
# The packages stand in for those of the registry, which has none of them yet.
echo '[patch.crates-io]' >"$outside/.cargo/config.toml"
for package in "${packages[@]}"; do
    crate=$(ls "$TARGET/package/$package"-[0-9]*.crate)
    tar -xzf "$crate" -C "$outside/packages"
    folder=$outside/packages/$(basename "$crate" .crate)
    for file in README.md LICENSE-MIT LICENSE-APACHE; do
        [ -s "$folder/$file" ] || die "$package has no $file"
    done
    echo "$package = { path = \"$folder\" }" >>"$outside/.cargo/config.toml"
done

say "--- a new project"
cd "$outside"
cargo new --quiet --vcs none app
cd app
# As `cargo add` would, which asks the registry.
printf '%s = "*"\n' manycore manycore-cache manycore-vm >>Cargo.toml
cat >src/main.rs <<'RUST'
use manycore::collections::Counter;
use manycore_cache::Cache;
use manycore_vm::PagePool;

fn main() {
    let hits = Counter::new(0);
    let cache: Cache<u64, String> = Cache::new(1000);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (hits, cache) = (&hits, &cache);
            scope.spawn(move || {
                for key in 0..1000 {
                    let value = cache.get_or_insert_with(key, || format!("{key} by {thread}"));
                    assert!(value.starts_with(&key.to_string()));
                    hits.add(1);
                }
            });
        }
    });
    assert_eq!(hits.sum(), 2000);
    let pool = PagePool::new(16).expect("sixteen pages");
    assert_eq!(pool.alloc(2).expect("two of them").len(), 2 << 12);
    println!("{} hits, {} entries", hits.sum(), cache.len());
}
RUST
# The folder of the workspace's own builds: what both depend on is there.
export CARGO_TARGET_DIR="$TARGET"
cargo run --quiet

say "--- the programs of adopters/"
# With the versions of other crates that its Cargo.lock names; ours are not in a registry yet.
cp -R "$ROOT/adopters" "$outside/adopters"
cd "$outside/adopters"
cargo build --quiet --examples
for source in examples/*.rs; do
    program=$(basename "$source" .rs)
    "$TARGET/debug/examples/$program" >"$outside/said" ||
        die "adopters/$source failed: $(cat "$outside/said")"
    say "$program: $(tail -n 1 "$outside/said")"
done
# The simulator's run below is of the new project.
cd "$outside/app"

say "--- the library for C"
if command -v gcc >/dev/null 2>&1 && command -v pkg-config >/dev/null 2>&1; then
    PROFILE=dev "$outside"/packages/manycore-capi-*/install.sh "$outside/c" >"$outside/said" 2>&1 ||
        die "the package of the library for C does not install: $(cat "$outside/said")"
    read -ra flags <<<"$(PKG_CONFIG_PATH=$outside/c/lib/pkgconfig pkg-config --cflags --libs manycore)"
    for source in "$outside"/packages/manycore-capi-*/examples/{sections,map,cache}.c; do
        gcc -std=c11 -Wall -Werror -pthread "$source" -o "$outside/example" "${flags[@]}" \
            -Wl,-rpath,"$outside/c/lib" && "$outside/example" >"$outside/said" ||
            die "$(basename "$source") failed with the package's library"
    done
    [ -s "$outside/c/share/man/man3/manycore.3" ] || die "the package lacks the man pages"
else
    say "SKIPPED: the library for C, for which gcc or pkg-config is missing"
fi

say "--- the commands"
for package in manycored manycore-cli manycore-fs; do
    cargo install --debug --locked --path "$outside/packages/$package"-[0-9]* --root "$outside/installed"
done
"$outside/installed/bin/manycored" --version
"$outside/installed/bin/manycore-fs" --version
"$outside/installed/bin/manycore" doctor
if ! "$outside/installed/bin/manycore" sim --plain --cores 1,2 -- app 2>"$outside/said"; then
    skip_if_not_simulable "$outside/said"
fi
say "the packages can be used from outside"
