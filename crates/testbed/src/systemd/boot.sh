#!/bin/sh
# boot.sh SOURCE BINARY DIRECTORY CGROUP: becomes a service manager that sees itself as a machine's.
#
# Called once outside, to make its namespaces, and by itself as their first process. What it changes below / stays in
# memory. Nothing of the machine's own services is started: only fb.target is, and what is asked for later.
set -eu
source=$1 binary=$2 directory=$3 cgroup=$4

if [ $$ -ne 1 ]; then
    echo $$ >"$cgroup/cgroup.procs"
    exec unshare --mount --pid --ipc --uts --cgroup --fork --kill-child "$0" "$@"
fi

mount --make-rprivate /
memory=$directory/memory
mkdir "$memory"
mount -t tmpfs tmpfs "$memory"
root=$memory/root
mkdir "$memory/upper" "$memory/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$memory/upper,workdir=$memory/work" overlay "$root"

mount -t proc proc "$root/proc"
# The kernel's settings are everybody's.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t bpf -o mode=700 bpffs "$root/sys/fs/bpf"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done

# What a service with PrivateDevices= finds in its own /dev is taken from here.
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue" "$root/dev/hugepages"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t mqueue mqueue "$root/dev/mqueue"
ln -s pts/ptmx "$root/dev/ptmx"

rm -rf "$root"/etc/systemd/system/*.wants "$root"/usr/lib/systemd/system/*.wants
install -D -m 644 "$directory/forebay.toml" "$root/etc/forebay/forebay.toml"
"$source/scripts/install.sh" "$binary" "$root" /usr/local /etc
# There is no journal.
install -D -m 644 /dev/stdin "$root/etc/systemd/system/forebay.service.d/log.conf" <<'END'
[Service]
StandardError=append:/run/forebay.log
END
install -D -m 644 /dev/stdin "$root/etc/systemd/system/fb.target" <<'END'
[Unit]
Description=Nothing
DefaultDependencies=no
END
systemd-sysusers --root="$root"

cd "$root"
mkdir old
pivot_root . old
umount --lazy old
exec env -i container=forebay PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=fb.target --log-target=null --show-status=no
