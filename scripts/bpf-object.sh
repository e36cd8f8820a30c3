#!/bin/bash
# bpf-object.sh check|update: the BPF objects that are committed for machines without clang agree with their source.
#
# Compiled here as by the build scripts (crates/kernel/build.rs, crates/lab/build.rs), but without debug information and
# without the folder's name, so that the bytes depend on source and compiler alone.
set -euo pipefail
cd "$(dirname "$0")/.."

# The compiler of the committed objects: Debian 12's. Another version's output differs without being wrong.
clang_major=14

verb=${1:-check}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

major=$(clang --version | sed -n 's/.*clang version \([0-9]*\)\..*/\1/p')
if [ "$major" != "$clang_major" ]; then
    echo "SKIP: clang $clang_major (the BPF objects are not compared: clang $major compiles them differently)"
    exit 0
fi

# libbpf's headers, from the very version that is linked.
headers() {
    cargo check -q -p forebay-kernel --message-format=json |
        sed -n 's/.*"reason":"build-script-executed".*libbpf-sys.*"out_dir":"\([^"]*\)".*/\1\/include/p' | head -n 1
}
include=$(headers)
[ -d "$include/bpf" ] || { echo "libbpf's headers are not where its build puts them: '$include'" >&2; exit 1; }

failed=
for object in bpf/forebay.bpf.o crates/lab/bpf/traffic.bpf.o; do
    fresh=$work/$(basename "$object")
    (cd "$(dirname "$object")" &&
        clang -O2 -g -Wall -Werror -target bpf -mcpu=v3 -fdebug-compilation-dir=. \
            -I"$include" -I"/usr/include/$(uname -m)-linux-gnu" -c "$(basename "$object" .o).c" -o "$fresh")
    llvm-strip -g "$fresh"
    if [ "$verb" = update ]; then
        cmp -s "$fresh" "$object" || { cp "$fresh" "$object"; echo "$object: updated"; }
    elif ! cmp -s "$fresh" "$object"; then
        echo "$object is not what its source compiles to; run: make bpf" >&2
        failed=1
    fi
done
[ -z "$failed" ]
