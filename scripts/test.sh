#!/bin/bash
# test.sh: runs the tests of all crates and the system scenarios; the last lines say passed, failed and skipped.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Output of tests that pass goes to the log alone, where it is searched for skips.
only_results() { grep -E --line-buffered '^(test |test result:|error|warning: unused|failures:|     Running|   Doc-tests|thread |  left:| right:|    )|panicked|FAILED' ; }

echo "Building the tests ..."
cargo test --workspace --no-run || exit
started=$(date +%s)
cargo test --workspace --no-fail-fast -- --show-output 2>&1 | tee "$log" | only_results
status=${PIPESTATUS[0]}

total() { sed -n "s/^test result: .* \([0-9]*\) $1.*/\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'; }
skips=$(grep -o 'SKIP: .*' "$log" | sort | uniq -c)
skipped=$(grep -c 'SKIP: ' "$log")

echo
echo "passed:  $(($(total passed) - skipped))"
echo "failed:  $(total failed)"
echo "skipped: $skipped"
[ -z "$skips" ] || echo "$skips"
echo "took:    $(($(date +%s) - started)) s"
exit "$status"
