#!/bin/sh
# miri.sh: the ring tests over ordinary memory, under the interpreter that sees undefined behaviour and data races.
set -eu
cd "$(dirname "$0")/.."

missing() { printf 'miri: %s is missing. Get it with:\n  %s\n' "$1" "$2" >&2; exit 1; }

cargo +nightly --version >/dev/null 2>&1 ||
    missing "a nightly toolchain" "rustup toolchain install nightly --profile minimal -c miri,rust-src"
cargo +nightly miri --version >/dev/null 2>&1 ||
    missing "the nightly toolchain's miri component" "rustup component add --toolchain nightly miri rust-src"

# Isolation would forbid proptest the environment; many seeds try many interleavings of the two ends of a ring.
MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=0..8 ${MIRIFLAGS:-}" \
    cargo +nightly miri test -p forebay-xsk ring
# Virtqueues between a guest's driver and the device, in ordinary memory; one interleaving, which takes minutes.
MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" cargo +nightly miri test -p forebay-vhost --lib virtqueue
