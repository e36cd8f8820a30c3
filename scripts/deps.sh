#!/bin/bash
# deps.sh SET ...: installs the Debian packages that these sets need and that are missing, and says which and why.
#
# A need is judged by the command or file it is about, so what came from elsewhere than Debian counts too. Nothing
# that gets installed is started, now or at the next boot.
set -euo pipefail

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# set      command or file                  package                   what for
needs='
build      clang                            clang                     compiles the BPF programs
build      gcc                              gcc                       compiles libbpf
build      make                             make                      builds libbpf
build      pkg-config                       pkg-config                finds libelf and zlib
build      /usr/include/stdio.h             libc6-dev                 headers for libbpf
build      /usr/include/linux/if_xdp.h      linux-libc-dev            kernel headers for the BPF programs
build      /usr/include/libelf.h            libelf-dev                libbpf reads ELF files with it
build      /usr/include/zlib.h              zlib1g-dev                libelf needs it
demo       ip                               iproute2                  makes hosts in network namespaces
demo       ping                             iputils-ping              traffic: ICMP
demo       iperf3                           iperf3                    traffic: TCP and UDP streams
demo       nginx                            nginx                     traffic: a web server
demo       ab                               apache2-utils             traffic: a web client
demo       tcpdump                          tcpdump                   captures what arrives
demo       linux.uml                        user-mode-linux           a virtual machine: Linux with virtio-net
demo       ethtool                          ethtool                   reads and sets offloads
test       bpftool                          bpftool                   checks that nothing is left attached
test       dnsmasq                          dnsmasq-base              traffic: a DHCP server
test       udhcpc                           udhcpc                    traffic: a DHCP client
test       radvd                            radvd                     traffic: IPv6 router advertisements
test       /lib/systemd/systemd             systemd                   a service manager for the unit
test       qemu-system-x86_64               qemu-system-x86           other kernels and NICs, in emulated machines
test       busybox                          busybox-static            the first program of such a machine
test       modprobe                         kmod                      finds the drivers for its NICs
test       xz                               xz-utils                  unpacks them
test       kill                             procps                    sends signals
test       dpdk-testpmd                     dpdk-dev                  guests: a front end of vhost-user
bench      /usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk openvswitch-switch-dpdk the peer to compare with: OVS with AF_XDP
bench      dpdk-testpmd                     dpdk-dev                  traffic: guests of a DPDK program
bench      wrk                              wrk                       traffic: a web client that keeps its connections
lint       llvm-strip                       llvm                      compares BPF objects without debug information
instructions valgrind                        valgrind                  counts instructions
fuzz       g++                              g++                       compiles libFuzzer
'

is_there() { if [[ $1 = /* ]]; then [ -e "$1" ]; else type -P "$1" >/dev/null; fi; }

# Sets `missing` to the packages and `reasons` to a line for each.
find_missing() {
    missing=() reasons=()
    local set thing package why
    while read -r set thing package why; do
        [[ -n $set && " $* " = *" $set "* ]] || continue
        is_there "$thing" && continue
        missing+=("$package")
        reasons+=("$(printf '  %-24s %s (%s)' "$package" "$why" "${thing##*/}")")
    done <<<"$needs"
}

# Debian asks this program before it starts a service; 101 forbids it. Somebody else's is left as it is.
forbid_starting() {
    [ ! -e /usr/sbin/policy-rc.d ] || return 0
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
    printf '#!/bin/sh\n# Here while Forebay installs packages.\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
}

# The services of packages that were not there before: installed, but not to be started at boot either.
disable_services_of() {
    local package unit
    for package; do
        for unit in $(dpkg -L "$package" 2>/dev/null | sed -nE 's,.*/lib/systemd/system/([^/@]*\.(service|socket|timer))$,\1,p'); do
            systemctl is-enabled --quiet "$unit" 2>/dev/null || continue
            systemctl --quiet disable "$unit" 2>/dev/null || continue
            echo "  $unit came with $package and is disabled; systemctl enable --now $unit would start it"
        done
    done
}

install_missing() {
    export DEBIAN_FRONTEND=noninteractive
    local options=(-y -q --no-install-recommends)
    apt-get -s "${options[@]}" install "${missing[@]}" >/dev/null 2>&1 || apt-get -q update
    local new
    new=$(apt-get -s "${options[@]}" install "${missing[@]}" | sed -n 's/^Inst \([^ ]*\) (.*/\1/p')
    forbid_starting
    apt-get "${options[@]}" install "${missing[@]}" </dev/null ||
        { apt-get -q update && apt-get "${options[@]}" install "${missing[@]}" </dev/null; }
    # shellcheck disable=SC2086 # a list of words
    disable_services_of $new
}

[ $# -gt 0 ] || { echo "usage: scripts/deps.sh build|demo|test|bench|lint|fuzz ..." >&2; exit 2; }
find_missing "$@"
[ ${#missing[@]} -gt 0 ] || exit 0
echo "Missing packages:"
printf '%s\n' "${reasons[@]}"
command -v apt-get >/dev/null ||
    { echo "This is not Debian: install what provides them, then try again." >&2; exit 1; }
[ "$(id -u)" = 0 ] ||
    { echo "Install them as root: apt-get install --no-install-recommends ${missing[*]}" >&2; exit 1; }
install_missing
find_missing "$@"
[ ${#missing[@]} -eq 0 ] || { printf 'Still missing:\n%s\n' "$(printf '%s\n' "${reasons[@]}")" >&2; exit 1; }
