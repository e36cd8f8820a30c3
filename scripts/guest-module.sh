#!/bin/bash
# guest-module.sh DIRECTORY MODULE: makes DIRECTORY/MODULE.ko for the kernel that guest-kernel.sh has put there, from Debian's
# sources of that kernel. Nothing is installed. What is there already is left. Prints the module's path. The modules:
#   netdevsim  Debian's kernel has none.
#   vduse      Debian's refuses network devices with a control queue. Here that one check is left out.
set -euo pipefail

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[ $# = 2 ] || { echo "usage: scripts/guest-module.sh DIRECTORY MODULE" >&2; exit 2; }
cd "$1"
name=$2

fail() {
    echo "guest-module.sh: $*" >&2
    exit 1
}

case $name in
    netdevsim) folder=drivers/net/netdevsim options='CONFIG_NETDEVSIM=m CONFIG_BPF_SYSCALL=y' ;;
    vduse) folder=drivers/vdpa/vdpa_user options=CONFIG_VDPA_USER=m ;;
    *) fail "there is no recipe for $name" ;;
esac

# Two runs at once would disturb each other.
exec 9>lock
flock 9

[ -d root/lib/modules ] || fail "there is no kernel in $PWD; run guest-kernel.sh first"
kernel=$(ls root/lib/modules)
module=$PWD/$name.ko
if [ -e "$module" ] && [ "$(modinfo -F vermagic "$module" | cut -d' ' -f1)" = "$kernel" ]; then
    echo "$module"
    exit
fi

for tool in make xz strip; do
    [ -n "$(command -v $tool)" ] || fail "$tool is not installed"
done

# The sources, the headers and the kernel must be of one version.
flavour=${kernel##*-}
common=${kernel%-"$flavour"}
headers=linux-headers-$kernel
version_of() { { apt-cache show "$headers" 2>/dev/null || true; } | awk '$1 == "Version:" && !seen++ { print $2 }'; }
version=$(version_of)
[ -n "$version" ] || { apt-get -q update || true; version=$(version_of); } >&2
[ -n "$version" ] || fail "this machine's package sources have no $headers"
source=linux-source-$(cut -d. -f1,2 <<<"$kernel")

build=$PWD/$name-build
rm -rf "$build"
mkdir "$build"
cd "$build"
for package in "$headers" "linux-headers-$common-common" "linux-kbuild-$common" "$source"; do
    # Not as root, apt warns of a directory that its own user cannot enter, and downloads all the same.
    apt-get -q download "$package=$version" >&2 || fail "this machine's package sources have no $package $version"
done
for package in linux-headers-*.deb linux-kbuild-*.deb; do dpkg-deb -x "$package" .; done
# One folder of the kernel's sources; the rest would take more than a gigabyte.
mkdir "$name"
dpkg-deb --fsys-tarfile "$source"_*.deb | tar -xOf - "./usr/src/$source.tar.xz" | xz -dc |
    tar -xf - -C "$name" --strip-components=4 "$source/$folder" ||
    fail "$source $version has no $folder"
[ "$name" != vduse ] || sed -i 's/(config->features & BIT_ULL(VIRTIO_NET_F_CTRL_VQ))/false/' "$name/vduse_dev.c"
rm ./*.deb

headers=$build/usr/src/$headers
# The headers name each other by the paths that they have when they are installed.
sed -i "s|/usr/src/|$build/usr/src/|" "$headers/Makefile"
# With the kernel's types here, the build would want pahole, for types of the module that nobody asks for.
rm -f "$headers/vmlinux"
compiler=$(sed -n 's/^CC = .*)\(gcc[-0-9]*\)$/\1/p' "$headers/.kernelvariables")
[ -z "$compiler" ] || [ -n "$(command -v "$compiler")" ] ||
    fail "the kernel was built with $compiler, which is not installed"
# What was said to a make around this one is not for the kernel's.
unset MAKEFLAGS MAKELEVEL
# shellcheck disable=SC2086 # options are words
if ! make -C "$headers" M="$build/$name" $options modules >build.log 2>&1; then
    fail "$name does not compile: $(grep -m1 -i error build.log || tail -n1 build.log)"
fi
strip --strip-debug "$name/$name.ko"
mv "$name/$name.ko" "$module"
cd ..
rm -r "$build"
echo "$module"
