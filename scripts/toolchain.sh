#!/bin/sh
# toolchain.sh [COMPONENT ...]: says which command mends a Rust toolchain that is missing, too old, or without a component.
set -eu
cd "$(dirname "$0")/.."

needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

die() { printf '%s\n' "$@" >&2; exit 1; }

rustup_line="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c clippy,rustfmt"

how_to_get() {
    if command -v rustup >/dev/null; then
        echo "  rustup update stable && rustup default stable"
    elif [ -n "${SUDO_USER:-}" ] && [ -x "$(eval echo "~$SUDO_USER")/.cargo/bin/cargo" ]; then
        echo "  sudo env \"PATH=\$PATH\" make ...     ($SUDO_USER has a toolchain that sudo hides)"
    else
        echo "  $rustup_line && . \"\$HOME/.cargo/env\""
    fi
}

command -v cargo >/dev/null && command -v rustc >/dev/null ||
    die "There is no Rust toolchain on the PATH; Forebay needs Rust $needed or later. Get it with:" "$(how_to_get)"

have=$(rustc --version | sed 's/^rustc \([0-9.]*\).*/\1/')
[ "$(printf '%s\n' "$needed" "$have" | sort -V | head -n 1)" = "$needed" ] ||
    die "Rust $have at $(command -v rustc) is too old; Forebay needs Rust $needed or later. Get it with:" "$(how_to_get)"

for component; do
    cargo "$component" --version >/dev/null 2>&1 ||
        die "cargo $component is missing. Get it with:" "  rustup component add $(echo "$component" | sed s/^fmt/rustfmt/)"
done
