#!/bin/bash
# guests.sh: boots guests and runs all guest scenarios, and in further guests those system scenarios that fit there.
set -euo pipefail
cd "$(dirname "$0")/.."

# The program that cargo made of a test, from its messages.
program_of() {
    cargo test -p forebay-tests --test "$1" --no-run --message-format=json 2>/dev/null |
        sed -n 's|.*"executable":"\([^"]*/deps/'"$1"'-[^"]*\)".*|\1|p' | tail -1
}

cargo test -p forebay-tests --test system --no-run
FOREBAY_SYSTEM_TESTS=$(program_of system)
export FOREBAY_SYSTEM_TESTS
cargo test -p forebay-tests --test guests -- --include-ignored
