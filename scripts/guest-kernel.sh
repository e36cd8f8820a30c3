#!/bin/bash
# guest-kernel.sh DIRECTORY: gets Debian's newest 6.12 kernel and makes DIRECTORY/vmlinuz and DIRECTORY/initrd of it, for
# guests whose root is this machine's own, read-only. Nothing is installed. What is there already is left.
set -euo pipefail

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[ $# = 1 ] || { echo "usage: scripts/guest-kernel.sh DIRECTORY" >&2; exit 2; }
init=$(dirname "$(readlink -f "$0")")/guest-init.sh
mkdir -p "$1"
cd "$1"

# Two runs at once would disturb each other.
exec 9>lock
flock 9

# The whole kernel, because the one for clouds lacks most NICs' drivers.
newest_package() {
    apt-cache search --names-only '^linux-image-6\.12\.[0-9]+\+deb[0-9]+-amd64-unsigned$' | awk '{ print $1 }' | sort -V | tail -1
}

# What a guest needs besides what is built in: this machine's files, netdevs, what netdevsim uses (psample), and what
# passes packets from one netdev to another.
modules='9pnet_virtio 9p overlay virtio_net vmxnet3 e1000e veth tun bridge vxlan 8021q bonding ifb psample'
modules+=' sch_ingress cls_matchall act_mirred vhost_iotlb virtio_vdpa'

if [ ! -e vmlinuz ]; then
    package=$(newest_package)
    [ -n "$package" ] || { apt-get -q update && package=$(newest_package); } >&2
    [ -n "$package" ] || { echo "guest-kernel.sh: this machine's package sources have no Linux 6.12" >&2; exit 1; }
    rm -rf package root
    mkdir package
    # Not as root, apt warns of a directory that its own user cannot enter, and downloads all the same.
    (cd package && apt-get -q download "$package") >&2
    dpkg-deb -x package/*.deb root
    rm -r package
    depmod -b root "$(ls root/lib/modules)"
    mv root/boot/vmlinuz-* vmlinuz
fi

version=$(ls root/lib/modules)
rm -rf initrd.d
mkdir -p initrd.d/{bin,modules,proc,sys,dev,host,writable,root}
cp "$(command -v busybox)" initrd.d/bin/busybox
cp "$init" initrd.d/init
for module in $modules; do modprobe -d root -S "$version" --show-depends "$module"; done |
    awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
    while read -r file; do
        name=$(basename "$file" .xz)
        xz -dc "$file" >"initrd.d/modules/$name"
        echo "$name"
    done >initrd.d/modules.order
(cd initrd.d && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1 >../initrd.new)
mv initrd.new initrd
rm -r initrd.d
echo "$version"
