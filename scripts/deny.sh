#!/bin/sh
# deny.sh: holds the dependencies to deny.toml, where cargo-deny is installed: those of the product, and those of the
# fuzz targets, which have a lock file of their own. Advisories are looked up where their database can be reached.
set -eu
cd "$(dirname "$0")/.."

# A lock file that its manifest has outgrown would be rewritten by the next build, without anybody having looked at it.
for manifest in Cargo.toml fuzz/Cargo.toml; do
    said=$(cargo metadata --locked --format-version 1 --manifest-path "$manifest" 2>&1 >/dev/null) && continue
    case $said in
    *"--locked was passed"*)
        echo "$said" >&2
        echo "the lock file of $manifest is out of date; run: cargo metadata --manifest-path $manifest >/dev/null" >&2
        exit 1
        ;;
    *)
        echo "SKIP: crates.io (the lock file of $manifest is not checked: $(echo "$said" | tail -n 1))"
        ;;
    esac
done

if ! cargo deny --version >/dev/null 2>&1; then
    echo "SKIP: cargo-deny (advisories and sources are not checked; get it with: cargo install --locked cargo-deny)."
    echo "      The licences are held to deny.toml by tests/repository/dependencies.rs all the same."
    exit 0
fi

checks='bans licenses sources'
if cargo deny fetch db >/dev/null 2>&1; then
    checks="advisories $checks"
else
    echo "SKIP: advisory database (advisories are not checked: https://github.com/rustsec/advisory-db can't be reached)"
fi
for manifest in Cargo.toml fuzz/Cargo.toml; do
    # cargo-deny takes deny.toml of this folder for both.
    # shellcheck disable=SC2086 # a list of words
    cargo deny --manifest-path "$manifest" --workspace check $checks
done
