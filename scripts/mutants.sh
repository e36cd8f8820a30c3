#!/bin/sh
# mutants.sh [CRATE ...]: changes one function or operator at a time in a copy of the crates; a unit test of the crate
# must fail each time. .cargo/mutants.toml names what is left out, and why.
set -eu
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- policy flow hints pool wire
cargo mutants --version >/dev/null 2>&1 || {
    printf 'cargo-mutants is missing. Get it with:\n  cargo install --locked cargo-mutants\n' >&2
    exit 1
}

packages=
for crate; do packages="$packages --package forebay-$crate"; done

# A failed test is the answer: its case need not be made small, nor be kept for the next mutant. A quarter of the usual
# random cases keeps a mutant below three seconds of work.
export CARGO_TARGET_DIR="$PWD/target/mutants"
export PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_DISABLE_FAILURE_PERSISTENCE=true PROPTEST_CASES="${PROPTEST_CASES:-64}"

# 3: no mutant was missed, but a test of one did not end, which is an answer too.
# shellcheck disable=SC2086 # a list of words
cargo mutants --jobs 1 --output target $packages || [ $? = 3 ]
