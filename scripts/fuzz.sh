#!/bin/sh
# fuzz.sh SECONDS: every fuzz target in turn, each for so long; goes on after a finding and says at the end which had one.
set -eu
cd "$(dirname "$0")/../fuzz"

seconds=$1
found=
for file in fuzz_targets/*.rs; do
    target=$(basename "$file" .rs)
    echo "== $target, $seconds s"
    ./run.sh "$target" "$seconds" || found="$found $target"
done
[ -z "$found" ] || { echo "failed:$found (inputs in fuzz/artifacts)" >&2; exit 1; }
echo "no finding"
