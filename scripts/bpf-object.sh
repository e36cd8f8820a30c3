#!/bin/bash
# bpf-object.sh check|update: the BPF objects that are committed for machines without clang agree with their source.
#
# Compiled here as by the build scripts (crates/kernel/build.rs, crates/testbed/build.rs), but without debug information and
# without the folder's name, so that the bytes depend on source and compiler alone.
set -euo pipefail
cd "$(dirname "$0")/.."

# The compiler of the committed objects: Debian 12's. Another version's output differs without being wrong.
clang_major=14

verb=${1:-check}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first of these that has the version.
clang=
for candidate in clang "clang-$clang_major"; do
    major=$({ "$candidate" --version 2>/dev/null || true; } | sed -n 's/.*clang version \([0-9]*\)\..*/\1/p')
    [ "$major" != "$clang_major" ] || { clang=$candidate; break; }
done
if [ -z "$clang" ]; then
    missing="clang $clang_major (the BPF objects are not compared: another version compiles them differently)"
    # Nobody reads what was skipped there.
    [ "${CI:-}" != true ] || { echo "missing: $missing; install clang-$clang_major" >&2; exit 1; }
    echo "SKIP: $missing"
    exit 0
fi

# libbpf's headers, from the sources of the very version that is linked.
libbpf_sys=$(cargo metadata --format-version 1 --locked |
    sed -n 's|.*"manifest_path":"\([^"]*/libbpf-sys-[^"]*\)/Cargo.toml".*|\1|p')
[ -e "$libbpf_sys/libbpf/src/bpf_helpers.h" ] || { echo "no libbpf headers in '$libbpf_sys'" >&2; exit 1; }
mkdir "$work/include"
ln -s "$libbpf_sys/libbpf/src" "$work/include/bpf"

failed=
for object in bpf/forebay.bpf.o crates/testbed/bpf/traffic.bpf.o; do
    fresh=$work/$(basename "$object")
    (cd "$(dirname "$object")" &&
        "$clang" -O2 -g -Wall -Werror -target bpf -mcpu=v3 -fdebug-compilation-dir=. \
            -I"$work/include" -I"/usr/include/$(uname -m)-linux-gnu" -c "$(basename "$object" .o).c" -o "$fresh")
    llvm-strip -g "$fresh"
    if [ "$verb" = update ]; then
        cmp -s "$fresh" "$object" || { cp "$fresh" "$object"; echo "$object: updated"; }
    elif ! cmp -s "$fresh" "$object"; then
        echo "$object is not what its source compiles to; run: make bpf" >&2
        failed=1
    fi
done
[ -z "$failed" ]
