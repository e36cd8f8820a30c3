#!/bin/sh
# root.sh TARGET: says that `make TARGET` needs root, and why, unless it has it.
set -eu

[ "$(id -u)" != 0 ] || exit 0
cat >&2 <<MESSAGE
make $1 needs root: it makes network namespaces and loads BPF programs into the kernel.
Run: sudo env "PATH=\$PATH" make $1
MESSAGE
exit 1
