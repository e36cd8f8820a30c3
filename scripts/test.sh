#!/bin/bash
# test.sh: runs the tests of all crates and the system scenarios; the last lines say passed, failed and skipped.
set -uo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# What tests that pass have printed is kept in the log alone, where it is searched for skips.
without_successes() {
    awk '/^successes:/ { quiet = 1 } /^(failures:|test result:)/ { quiet = 0 } !quiet { print; fflush() }'
}

cargo test --workspace --no-run 2>&1 | grep --line-buffered -v '^  Executable' || exit 1
started=$(date +%s)
cargo test --workspace --no-fail-fast -- --show-output 2>&1 | tee "$log" | without_successes
status=$?

# What failed tests said, without backtraces: of each the first and the last lines. Of a long run's output the end is read first.
failures() {
    awk -v first=10 -v last=20 '
        function end(   line) {
            if (lines > first + last) print "[" lines - first - last " lines]"
            for (line = lines - last + 1; line <= lines; line++) if (line > first) print said[line % last]
            lines = 0
        }
        /^(test result:|successes:|failures:|---- )/ { end() }
        /^(test result:|successes:)/ { is_wanted = 0 }
        /^failures:/ { is_wanted = 1 }
        is_wanted && !/^ +([0-9]+:|at) / {
            if (++lines <= first) print
            said[lines % last] = $0
        }' "$log"
}

total() { sed -n "s/^test result: .* \([0-9]*\) $1;.*/\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'; }
skipped=$(grep -c 'SKIP: ' "$log")

echo
failures
grep '^test .* FAILED$' "$log"
echo "passed:  $(($(total passed) - skipped))"
echo "failed:  $(total failed)"
echo "skipped: $skipped"
grep -o 'SKIP: .*' "$log" | sort | uniq -c
echo "took:    $(($(date +%s) - started)) s"
exit "$status"
