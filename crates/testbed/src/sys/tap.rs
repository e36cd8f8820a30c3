//! Opening a tap device with a virtio-net header, as a virtual machine monitor does.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Offloads a guest's driver takes: checksum, TSO for both families and UDP segmentation (linux/if_tun.h).
const OFFLOADS: libc::c_uint =
    libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN | TUN_F_USO4 | TUN_F_USO6;
/// UDP segmentation offload for IPv4, since Linux 6.2 (linux/if_tun.h).
const TUN_F_USO4: libc::c_uint = 0x20;
/// UDP segmentation offload for IPv6, since Linux 6.2 (linux/if_tun.h).
const TUN_F_USO6: libc::c_uint = 0x40;

/// The virtio-net header's length with `num_buffers`, as modern guests use it.
pub(crate) const VNET_HEADER_BYTES: usize = 12;

/// Makes a tap of this name in the calling thread's network namespace; it lives as long as the file.
pub(crate) fn open(name: &str) -> io::Result<File> {
    let file = File::options().read(true).write(true).open("/dev/net/tun")?;
    set_interface(&file, name)?;
    set_header_length(&file)?;
    set_offloads(&file)?;
    Ok(file)
}

fn set_interface(file: &File, name: &str) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid ifreq, which holds integers only.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: longer than 15 bytes")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one ifreq, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) })
}

fn set_header_length(file: &File) -> io::Result<()> {
    let length = VNET_HEADER_BYTES as libc::c_int;
    // SAFETY: the descriptor is open, and TUNSETVNETHDRSZ reads one int, which outlives the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &length) })
}

fn set_offloads(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open, and TUNSETOFFLOAD takes its argument by value.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(OFFLOADS)) })
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
