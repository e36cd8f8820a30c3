#!/bin/bash
# planted.sh [PATCH ...]: plants one bug at a time into a copy of the sources; the simulation must find each of them.
#
# A simulation that finds nothing says something only if it would have found something. Each patch in tests/planted is a
# bug of one kind: a frame lost, a frame in two places, a packet that arrives where it must not, a change that is not
# obeyed.
set -euo pipefail
cd "$(dirname "$0")/.."

packets=${FOREBAY_SIMULATION_PACKETS:-1000000}
patches=("$@")
[ ${#patches[@]} -gt 0 ] || patches=(tests/planted/*.patch)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z | tar --null --files-from=- -cf - | tar -xf - -C "$copy"
export CARGO_TARGET_DIR=$PWD/target/planted

# Runs the simulation in the copy; its last lines are in $copy/log.
simulate() {
    (cd "$copy" && FOREBAY_SIMULATION_PACKETS=$packets cargo test --quiet -p forebay-switch --test simulation) >"$copy/log" 2>&1
}

(cd "$copy" && cargo test --quiet -p forebay-switch --test simulation --no-run)
simulate || { tail -30 "$copy/log"; echo "the simulation fails without any planted bug" >&2; exit 1; }
missed=0
for patch in "${patches[@]}"; do
    name=$(basename "$patch" .patch)
    patch --quiet -d "$copy" -p1 <"$patch" || { echo "$name does not apply any more: plant it anew" >&2; exit 1; }
    (cd "$copy" && cargo test --quiet -p forebay-switch --test simulation --no-run) >"$copy/log" 2>&1 ||
        { tail -30 "$copy/log"; echo "$name does not compile" >&2; exit 1; }
    if simulate; then
        echo "missed  $name"
        missed=$((missed + 1))
    else
        echo "found   $name: $(grep -m1 -A1 'panicked at' "$copy/log" | tail -1 | cut -c1-150)"
    fi
    patch --quiet -R -d "$copy" -p1 <"$patch"
done
[ "$missed" = 0 ] || { echo "$missed planted bugs were not found" >&2; exit 1; }
