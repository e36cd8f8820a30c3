#!/bin/sh
# instructions.sh: counts instructions with valgrind, and says whether a plan reads a hint in at most twice those of
# hand-written code. The count is the same on a busy machine.
set -eu

most=2.0
cd "$(dirname "$0")/.."
version=$(sed -n '/^name = "gungraun"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
tools=${CARGO_TARGET_DIR:-target}/tools
if [ ! -x "$tools/bin/gungraun-runner" ] || ! "$tools/bin/gungraun-runner" --version | grep -qF "$version"; then
    cargo install --locked --root "$tools" --version "$version" gungraun-runner
fi
GUNGRAUN_RUNNER=$(realpath "$tools/bin/gungraun-runner")
export GUNGRAUN_RUNNER

said=$(cargo bench -p forebay-hints --features fuzzing --bench reading)
printf '%s\n' "$said"
printf '%s\n' "$said" | awk -v most="$most" '
    /by_hand/ { who = "hand" }
    /through_a_plan/ { who = "plan" }
    /Instructions:/ { split($2, count, "|"); found[who] = count[1] }
    END {
        if (!found["hand"] || !found["plan"]) { print "instructions.sh: no counts in what was printed"; exit 2 }
        ratio = found["plan"] / found["hand"]
        printf "a plan takes %.2f times the instructions of hand-written code; at most %.1f are allowed\n", ratio, most
        exit ratio > most
    }'
