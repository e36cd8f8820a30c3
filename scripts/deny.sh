#!/bin/sh
# deny.sh: holds the dependencies to deny.toml, where cargo-deny is installed.
set -eu
cd "$(dirname "$0")/.."

if cargo deny --version >/dev/null 2>&1; then
    cargo deny --workspace check bans licenses sources
else
    echo "SKIP: cargo-deny (advisories and sources are not checked; get it with: cargo install --locked cargo-deny)."
    echo "      The licences are held to deny.toml by tests/dependencies.rs all the same."
fi
