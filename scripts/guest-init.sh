#!/bin/busybox sh
# The first process of a guest. The root is the machine's own files, which stay as they are: what the guest writes is kept
# in its memory. Runs the program that FOREBAY_RUN names; says on the second serial line how it ended.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for module in $($b cat /modules.order); do $b insmod "/modules/$module"; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 machine /host
# Modules that are not of the kernel's package lie among the machine's files.
for module in $(echo "$FOREBAY_MODULES" | $b tr , ' '); do $b insmod "/host$module"; done
$b mount -t tmpfs tmpfs /writable
$b mkdir /writable/upper /writable/work
$b mount -t overlay -o lowerdir=/host,upperdir=/writable/upper,workdir=/writable/work overlay /root
for part in proc sys dev; do $b mount --move /$part /root/$part; done
$b mkdir -p /root/dev/shm /root/dev/pts
$b mount -t tmpfs tmpfs /root/dev/shm
$b mount -t devpts devpts /root/dev/pts
$b mount -t bpf bpf /root/sys/fs/bpf
$b mount -t debugfs debugfs /root/sys/kernel/debug
$b mount -t tmpfs tmpfs /root/run
# The program lies in a directory for temporary files, which the guest has its own of.
$b cp "/host$FOREBAY_RUN" /root/run/forebay-guest
$b mount -t tmpfs tmpfs /root/tmp
$b ip link set lo up
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
ulimit -n 65536 2>/dev/null
$b chroot /root /bin/bash /run/forebay-guest >/root/dev/ttyS1 2>&1 </dev/null
echo "guest: ended with $?" >/root/dev/ttyS1
$b poweroff -f
